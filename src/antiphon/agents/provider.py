"""Models behind a provider's HTTP API: OpenAI, Anthropic, Ollama and all others with OpenAI's protocol."""

import base64
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict, assert_never, cast
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from antiphon.agents.model import (
    Completion,
    ModelError,
    ModelErrorKind,
    Prompt,
    PromptText,
    ProviderSettings,
    TextDelta,
)
from antiphon.agents.text import whole_text
from antiphon.domain.errors import Invalid
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    Usage,
    UserMessage,
)

# An idle gateway must stay small: these take seconds and 75 MB, so the first request imports them.
if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI
    from pydantic_ai import messages as wire
    from pydantic_ai.models import Model as WireModel
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings, ThinkingLevel

UNKNOWN_CONTEXT_TOKENS: Final = 32_000
CONNECT_SECONDS: Final = 10.0
QUOTED_CHARACTERS: Final = 300
"""How many characters of a provider's own words an error repeats."""

DEFAULT_BASE_URLS: Final = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://127.0.0.1:11434/v1",
}
THINKING_LEVELS: Final[Mapping[str, "ThinkingLevel"]] = {
    "off": False,
    "low": "low",
    "medium": "medium",
    "high": "high",
}
RETRYABLE: Final = frozenset(
    {ModelErrorKind.RATE_LIMITED, ModelErrorKind.UNREACHABLE, ModelErrorKind.STALLED, ModelErrorKind.SERVER}
)
SAFE_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Call ids that every provider accepts back."""


def open_provider_model(
    name: str,
    settings: Mapping[str, ProviderSettings],
    *,
    context_tokens: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> "ProviderModel":
    """The model called `provider:model`; does not import, connect or check a key yet.

    Raises `Invalid` with code `unknown_model`, `invalid_provider` (its `base_url` is not an address) or
    `package_missing` (the provider needs an extra).
    """
    provider, _, model = name.partition(":")
    configured = settings.get(provider, ProviderSettings())
    base_url = configured.base_url or DEFAULT_BASE_URLS.get(provider)
    if not model or base_url is None:
        known = ", ".join(sorted({*DEFAULT_BASE_URLS, *(key for key, value in settings.items() if value.base_url)}))
        raise Invalid(
            f"Model unknown: {name!r}; write 'provider:model' with one of the providers {known}, or set "
            "'providers.<name>.base_url' to use another that speaks OpenAI's protocol",
            code="unknown_model",
        )
    place = _place_from_url(base_url)
    if place is None:
        raise Invalid(f"Provider address is not an http URL: 'providers.{provider}.base_url'", code="invalid_provider")
    if provider == "anthropic" and find_spec("anthropic") is None:
        raise Invalid(
            f"Package not installed for model {name!r}: install 'antiphon[anthropic]'", code="package_missing"
        )
    return ProviderModel(
        address=_ModelAddress(provider, model, base_url),
        place=place,
        settings=configured,
        context_tokens=context_tokens,
        environ=environ,
    )


def import_provider(name: str) -> None:
    """Loads the code that the model `provider:model` needs. This takes seconds: call it in a thread, before use."""
    provider = name.partition(":")[0]
    import_module("pydantic_ai.direct")
    import_module("pydantic_ai.models." + (provider if provider in ("anthropic", "ollama") else "openai"))
    import_module("genai_prices.data")


@dataclass(frozen=True, slots=True)
class _ModelAddress:
    """A model at its provider's address."""

    provider: str
    model: str
    base_url: str


class ProviderModel:
    """A model behind a provider's API; the first request opens the connection, which is then kept."""

    is_counted = True

    def __init__(
        self,
        *,
        address: _ModelAddress,
        place: str,
        settings: ProviderSettings,
        context_tokens: int | None,
        environ: Mapping[str, str],
    ) -> None:
        self._address = address
        self._provider = address.provider
        self._model = address.model
        self._place = place
        self._settings = settings
        self._context_tokens = context_tokens
        self._environ = environ
        self._connection: _ProviderClient | None = None
        self._connecting = anyio.Lock()

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}"

    @property
    def context_tokens(self) -> int:
        """The size of the context window; the first read loads the table of models (`import_provider`)."""
        if self._context_tokens is None:
            self._context_tokens = _find_context_tokens(self._address)
        return self._context_tokens

    async def stream(self, prompt: Prompt) -> AsyncIterator[TextDelta | Completion]:
        connection = await self._connect()
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            async with model_request_stream(
                connection.model,
                _ProviderMessages(self._provider, connection.model.system).messages(prompt),
                model_settings=self._model_settings(prompt),
                model_request_parameters=_request_parameters(prompt),
            ) as response:
                async for event in response:
                    if text := _streamed_text(event):
                        yield TextDelta(whole_text(text))
                answer = response.get()
        except (AgentRunError, UserError) as error:
            # Without the cause, which quotes the provider's answer and may contain the key.
            raise self._failure(error, connection.secrets) from None
        if not _is_whole(answer):
            raise self._cut()
        yield Completion(
            content=tuple(_content(answer.parts, self._provider)),
            usage=_usage(answer),
            model=answer.model_name or self._model,
        )

    def check_key(self) -> None:
        """Raises `ModelError` with the remedy if the key is missing or malformed; sends no request."""
        self._key()

    async def aclose(self) -> None:
        """Closes idle connections; the next request opens them again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.client.close()

    async def _connect(self) -> "_ProviderClient":
        async with self._connecting:
            if self._connection is None:
                self._connection = await to_thread.run_sync(self._open, self._key())
            return self._connection

    def _key(self) -> str | None:
        key = (self._settings.api_key or self._environ.get(self._key_variable) or "").strip()
        is_keyless = self._provider == "ollama" or self._settings.base_url is not None
        who = f"provider {self._provider!r}: {self._key_remedy}"
        if not key and not is_keyless:
            raise ModelError(ModelErrorKind.KEY_MISSING, f"Key missing for {who}")
        if not (key.isascii() and key.isprintable()):
            raise ModelError(ModelErrorKind.AUTHENTICATION, f"Key malformed (not plain ASCII) for {who}")
        return key or None

    def _open(self, key: str | None) -> "_ProviderClient":
        import_provider(self.name)
        opened = _open_anthropic if self._provider == "anthropic" else _open_openai
        return opened(self._address, key, self._settings)

    def _model_settings(self, prompt: Prompt) -> "ModelSettings":
        settings: ModelSettings = {}
        if prompt.max_output_tokens is not None:
            settings["max_tokens"] = prompt.max_output_tokens
        if prompt.thinking is not None:
            settings["thinking"] = THINKING_LEVELS[prompt.thinking]
        if self._provider == "anthropic" and prompt.purpose == "turn":
            # Unlike the others it caches only on request, and a run sends its prompt again at each step.
            settings["cache"] = True
        return settings

    @property
    def _key_variable(self) -> str:
        return re.sub(r"\W", "_", self._provider).upper() + "_API_KEY"

    @property
    def _key_remedy(self) -> str:
        return f"set 'providers.{self._provider}.api_key' or the environment variable {self._key_variable}"

    def _cut(self) -> ModelError:
        return ModelError(
            ModelErrorKind.CUT,
            f"Answer cut short by provider {self._provider!r} at {self._place}: it ended before it was whole",
            is_retryable=True,
        )

    def _failure(self, error: Exception, secrets: Iterable[str]) -> ModelError:
        from pydantic_ai import exceptions as failures

        who = f"provider {self._provider!r}"
        said = _quote(error, secrets)
        status = error.status_code if isinstance(error, failures.ModelHTTPError) else 0
        retry_after = error.retry_after if isinstance(error, failures.ModelAPIError) else None
        match error:
            case failures.ModelAuthenticationError():
                # Providers repeat parts of the key here, so their words are left out.
                kind, message = ModelErrorKind.AUTHENTICATION, f"Key refused by {who}: {self._key_remedy}"
            case failures.ModelNotFoundError():
                kind = ModelErrorKind.NOT_FOUND
                message = f"Model {self._model!r} not found at {who} ({self._place}): {said}"
            case failures.ModelContextWindowExceededError():
                kind, message = (
                    ModelErrorKind.CONTEXT_TOO_LONG,
                    f"Prompt too long for model {self.name!r}: {said}",
                )
            case failures.ModelQuotaExceededError():
                kind, message = ModelErrorKind.RATE_LIMITED, f"Quota used up at {who}: {said}"
                return ModelError(kind, message, retry_after_seconds=retry_after)
            case failures.ModelRateLimitError():
                kind, message = ModelErrorKind.RATE_LIMITED, f"Rate limit of {who} reached: {said}"
            case failures.ModelTimeoutError(phase="read"):
                kind = ModelErrorKind.STALLED
                message = f"Answer of {who} stalled: nothing came for {self._settings.stall_seconds:g} seconds"
            case failures.ModelConnectionError(phase="read"):
                return self._cut()
            case failures.ModelConnectionError():
                kind, message = ModelErrorKind.UNREACHABLE, f"Connection to {who} failed: {self._place}"
            case failures.ModelUnavailableError() | failures.ModelServerError():
                kind, message = ModelErrorKind.SERVER, f"Error inside {who} (HTTP {status or 500}): {said}"
            case failures.ModelHTTPError() if status >= 500 or status == 408:
                kind, message = ModelErrorKind.SERVER, f"Error inside {who} (HTTP {status}): {said}"
            case failures.ModelAPIError(in_stream=True):
                kind, message = ModelErrorKind.SERVER, f"Error inside {who}: {said}"
            case failures.ModelRequestRejectedError() | failures.ModelHTTPError() | failures.UserError():
                kind, message = ModelErrorKind.REFUSED, f"Request refused by {who}: {said}"
            case _:
                # An event that is not JSON, or not an event at all.
                return self._cut()
        return ModelError(kind, message, retry_after_seconds=retry_after, is_retryable=kind in RETRYABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProviderClient:
    client: "AsyncOpenAI | AsyncAnthropic"
    model: "WireModel"
    secrets: tuple[str, ...]


def _open_openai(address: _ModelAddress, key: str | None, settings: ProviderSettings) -> _ProviderClient:
    from openai import AsyncOpenAI, Omit, Timeout
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = address.provider
    headers: dict[str, str | Omit] = {}
    if provider != "openai":
        # The client takes these from OPENAI_… variables, which other providers must not see.
        headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    client = AsyncOpenAI(
        api_key=key or "none",
        base_url=address.base_url,
        default_headers=cast("Mapping[str, str]", headers | dict(settings.headers)),
        timeout=Timeout(settings.stall_seconds, connect=CONNECT_SECONDS),
        max_retries=0,
    )
    wire_provider: OpenAIProvider | OllamaProvider | OpenAICompatibleProvider
    match provider:
        case "openai":
            wire_provider = OpenAIProvider(openai_client=client)
        case "ollama":
            wire_provider = OllamaProvider(openai_client=client)
        case _:
            wire_provider = OpenAICompatibleProvider(provider, openai_client=client)
    is_open = not key and "authorization" not in {name.lower() for name in settings.headers}
    opened = (OllamaModel if provider == "ollama" else OpenAIChatModel)(
        address.model,
        provider=wire_provider,
        # The client requires a key and allows its removal only per request.
        settings={"extra_headers": cast("dict[str, str]", {"Authorization": Omit()})} if is_open else None,
    )
    return _ProviderClient(client=client, model=opened, secrets=_secrets(key, settings))


def _open_anthropic(address: _ModelAddress, key: str | None, settings: ProviderSettings) -> _ProviderClient:
    from anthropic import AsyncAnthropic, Timeout
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    assert address.provider == "anthropic"
    client = AsyncAnthropic(
        api_key=key or "none",
        base_url=address.base_url,
        default_headers=dict(settings.headers),
        timeout=Timeout(settings.stall_seconds, connect=CONNECT_SECONDS),
        max_retries=0,
    )
    opened = AnthropicModel(address.model, provider=AnthropicProvider(anthropic_client=client))
    return _ProviderClient(client=client, model=opened, secrets=_secrets(key, settings))


def _secrets(key: str | None, settings: ProviderSettings) -> tuple[str, ...]:
    return tuple(secret for secret in (key, *settings.headers.values()) if secret)


class _Opaque(TypedDict):
    """The `provider` field of a part."""

    provider: str
    id: NotRequired[str]
    signature: NotRequired[str]
    details: NotRequired[JsonObject]


class _PartFields(TypedDict):
    id: str | None
    provider_name: str | None
    provider_details: dict[str, object] | None


class _ProviderMessages:
    """Converts a prompt to messages, with ids of calls that are unique in it and stable as it grows."""

    def __init__(self, provider: str, system: str) -> None:
        self._provider = provider
        self._system = system
        self._used_ids: set[str] = set()
        self._call_ids: list[str] = []
        self._turns = 0

    def messages(self, prompt: Prompt) -> "list[wire.ModelMessage]":
        from pydantic_ai import messages as wire

        messages: list[wire.ModelMessage] = []
        said: list[wire.ModelRequestPart] = []
        for entry in prompt.entries:
            match entry:
                case AssistantMessage():
                    if parts := list(self._assistant_parts(entry)):
                        if said:
                            messages.append(wire.ModelRequest(parts=said))
                        said = []
                        messages.append(wire.ModelResponse(parts=parts, provider_name=self._system))
                case ToolResult():
                    said.append(self._tool_return(entry))
                case UserMessage():
                    said.append(wire.UserPromptPart(_user_content(entry.content)))
                case PromptText():
                    said.append(wire.UserPromptPart(entry.text))
                case _:
                    assert_never(entry)
        if said:
            messages.append(wire.ModelRequest(parts=said))
        return messages

    def _assistant_parts(self, message: AssistantMessage) -> "Iterator[wire.ModelResponsePart]":
        from pydantic_ai import messages as wire

        self._turns += 1
        self._call_ids = []
        for part in message.content:
            kept = self._kept(part)
            fields: _PartFields = {
                "id": kept.get("id") if kept else None,
                "provider_name": self._system if kept else None,
                "provider_details": cast("dict[str, object] | None", kept.get("details")) if kept else None,
            }
            match part:
                case TextPart(text=text) if text:
                    yield wire.TextPart(text, **fields)
                case ThinkingPart(text=text) if kept:
                    yield wire.ThinkingPart(text, signature=kept.get("signature"), **fields)
                case ToolCallPart(name=name, arguments=arguments):
                    yield wire.ToolCallPart(name, arguments, self._name_call(part), **fields)
                case TextPart() | ThinkingPart() | ImagePart():
                    pass
                case _:
                    assert_never(part)

    def _name_call(self, call: ToolCallPart) -> str:
        call_id = call.call_id
        if call_id in self._used_ids or not SAFE_CALL_ID.fullmatch(call_id):
            call_id = f"c{self._turns}_{len(self._call_ids)}"
        self._used_ids.add(call_id)
        self._call_ids.append(call_id)
        return call_id

    def _tool_return(self, result: ToolResult) -> "wire.ToolReturnPart":
        from pydantic_ai import messages as wire

        content = _user_content(result.content)
        return wire.ToolReturnPart(
            result.tool,
            content if isinstance(content, str) else list(content),
            self._call_ids[result.call_index],
            # Only Anthropic has a field for it; others would get the text wrapped once more.
            outcome="failed" if result.is_error and self._provider == "anthropic" else "success",
        )

    def _kept(self, part: Part) -> _Opaque | None:
        if isinstance(part, ImagePart) or not part.provider or part.provider.get("provider") != self._provider:
            return None
        return cast("_Opaque", part.provider)


def _user_content(content: tuple[Part, ...]) -> "str | list[str | wire.BinaryContent]":
    from pydantic_ai import messages as wire

    if not any(isinstance(part, ImagePart) for part in content):
        return "".join(part.text for part in content if isinstance(part, TextPart))
    found: list[str | wire.BinaryContent] = []
    for part in content:
        if isinstance(part, TextPart):
            found.append(part.text)
        elif isinstance(part, ImagePart):
            found.append(wire.BinaryContent(base64.b64decode(part.data), media_type=part.mime_type))
    return found


def _request_parameters(prompt: Prompt) -> "ModelRequestParameters":
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=cast("dict[str, object]", tool.parameters),
                strict=False,
            )
            for tool in prompt.tools
        ],
        instruction_parts=[InstructionPart(content=prompt.instructions)] if prompt.instructions else [],
    )


def _streamed_text(event: "wire.ModelResponseStreamEvent") -> str:
    from pydantic_ai import messages as wire

    match event:
        case wire.PartStartEvent(part=wire.TextPart(content=text)):
            return text
        case wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _content(parts: "Iterable[wire.ModelResponsePart]", provider: str) -> Iterator[Part]:
    from pydantic_ai import messages as wire

    for part in parts:
        match part:
            case wire.TextPart():
                if part.content:
                    yield TextPart(text=whole_text(part.content), provider=_opaque(part, provider))
            case wire.ThinkingPart():
                yield ThinkingPart(text=whole_text(part.content), provider=_opaque(part, provider))
            case wire.ToolCallPart():
                arguments = part.args if isinstance(part.args, str) and part.args else part.args_as_json_str()
                yield ToolCallPart(
                    call_id=part.tool_call_id,
                    name=part.tool_name,
                    arguments=whole_text(arguments),
                    provider=_opaque(part, provider),
                )
            case _:
                pass


def _opaque(part: "wire.TextPart | wire.ThinkingPart | wire.ToolCallPart", provider: str) -> JsonObject | None:
    from pydantic_ai import messages as wire
    from pydantic_core import to_jsonable_python

    fields = {
        "id": part.id,
        "signature": part.signature if isinstance(part, wire.ThinkingPart) else None,
        "details": cast("JsonObject | None", to_jsonable_python(part.provider_details)),
    }
    kept: JsonObject = {key: value for key, value in fields.items() if value}
    return {"provider": provider, **kept} if kept else None


def _usage(answer: "wire.ModelResponse") -> Usage:
    try:
        cost_microusd = round(answer.cost().total_price * 1_000_000)
    except (LookupError, ValueError):
        cost_microusd = None
    return Usage(
        input_tokens=answer.usage.input_tokens,
        output_tokens=answer.usage.output_tokens,
        cached_tokens=answer.usage.cache_read_tokens,
        cost_microusd=cost_microusd,
        steps=1,
    )


def _is_whole(answer: "wire.ModelResponse") -> bool:
    # If a stream ends without a reason, the library invents "stop"; the details hold the original.
    return "finish_reason" in (answer.provider_details or {}) or answer.finish_reason == "content_filter"


def _find_context_tokens(address: _ModelAddress) -> int:
    if address.provider == "ollama":
        return UNKNOWN_CONTEXT_TOKENS
    from genai_prices.data_snapshot import get_snapshot

    for provider_id, url in ((None, address.base_url), (address.provider, None)):
        try:
            _, found = get_snapshot().find_provider_model(address.model, None, provider_id, url)
        except LookupError:
            continue
        return found.context_window or UNKNOWN_CONTEXT_TOKENS
    return UNKNOWN_CONTEXT_TOKENS


def _place_from_url(base_url: str) -> str | None:
    """`host:port` of an http address, without its user and password; None for anything else."""
    try:
        address = urlsplit(base_url)
        port = address.port or {"http": 80, "https": 443}[address.scheme]
    except (ValueError, KeyError):
        return None
    host = address.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else None


def _quote(error: Exception, secrets: Iterable[str]) -> str:
    said: object = getattr(error, "body", None)
    while isinstance(said, dict):
        fields = cast("dict[str, object]", said)
        said = fields.get("message") or fields.get("error")
    text = " ".join((said if isinstance(said, str) else str(error)).split())
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text[:QUOTED_CHARACTERS]
