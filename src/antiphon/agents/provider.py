"""Models behind a provider's HTTP API: OpenAI, Anthropic, Ollama and all others with OpenAI's protocol."""

import os
import re
from asyncio import TimerHandle, get_running_loop
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from importlib import import_module
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio import to_thread

from antiphon.agents.model import (
    Completion,
    ModelError,
    ModelErrorKind,
    Prompt,
    ProviderSettings,
    TextDelta,
)
from antiphon.agents.providers.anthropic_dialect import AnthropicDialect
from antiphon.agents.providers.chat_dialect import ChatDialect
from antiphon.agents.providers.conversation import Conversation
from antiphon.agents.providers.dialect import AnswerUsage, Dialect, ErrorEvent, GrowingAnswer
from antiphon.agents.providers.event_lines import EventLines
from antiphon.agents.providers.library_model import ModelAddress, open_library_model
from antiphon.agents.providers.request_head import OpenLibraryModel, RequestHead, build_head, classify
from antiphon.agents.text import whole_text
from antiphon.certificates import known_certificates
from antiphon.domain.errors import Invalid
from antiphon.domain.message import Usage

# An idle gateway must stay small: these take seconds and 75 MB, so the first request imports them.
if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.settings import ModelSettings, ThinkingLevel

UNKNOWN_CONTEXT_TOKENS: Final = 32_000
CONNECT_SECONDS: Final = 10.0
PAUSED_SECONDS: Final = 0.05
"""For reading what came while the process stood still, before a provider is called silent."""
LOOK_SECONDS: Final = 5.0
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
MAX_RETRY_AFTER_SECONDS: Final = 365 * 24 * 3600.0
"""A provider that asks for more time gets this; calendars end."""
KEPT_HEADS: Final = 32
"""Requests without their messages: one for each set of tools, limits and thinking in use."""
MAX_ERROR_BYTES: Final = 64 * 1024
DRAIN_SECONDS: Final = 0.1
MAX_CONNECTIONS: Final = 1_000
IDLE_CONNECTIONS: Final = 100


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
        raise Invalid(
            f"Provider address is not an http URL: {configured.place(provider, 'base_url')!r}", code="invalid_provider"
        )
    if provider == "anthropic" and find_spec("anthropic") is None:
        raise Invalid(
            f"Package not installed for model {name!r}: install 'antiphon[anthropic]'", code="package_missing"
        )
    return ProviderModel(
        address=ModelAddress(provider, model, base_url),
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


class ProviderModel:
    """A model behind a provider's API; the first request opens the connection, which is then kept."""

    is_counted = True

    def __init__(
        self,
        *,
        address: ModelAddress,
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
        self._connection: _Connection | None = None
        self._connecting = anyio.Lock()
        self._dialect: Dialect = (AnthropicDialect if address.provider == "anthropic" else ChatDialect)(
            address.provider
        )

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}"

    @property
    def context_tokens(self) -> int:
        """The size of the context window; the first read loads the table of models (`import_provider`)."""
        if self._context_tokens is None:
            self._context_tokens = _find_context_tokens(self._address)
        return self._context_tokens

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        connection = await self._connect()
        head = await self._head(connection, prompt)
        body = head.body(prompt.instructions, self._messages(prompt))
        answer, lines = self._dialect.answer(), EventLines()
        import httpx2

        request = connection.http.build_request("POST", head.url, headers=head.headers, content=body)
        arrival = _ByteWait(self._settings)
        try:
            with arrival:
                async with aclosing(await arrival.begin(connection.http, request)) as response:
                    if response.status_code >= 400:
                        raise await self._refused(connection, response)
                    if response.headers.get("content-type", "").startswith("text/html"):
                        raise self._not_an_api()
                    pieces = response.aiter_bytes()
                    while (piece := await arrival.next(pieces)) is not None:
                        for data in lines.feed(piece):
                            text, unseen = answer.add(data), answer.take_unseen()
                            yield TextDelta(whole_text(text), unseen)
                        if answer.is_ended:
                            await _drain(pieces)
                            break
                    for data in lines.end():
                        if text := answer.add(data):
                            yield TextDelta(whole_text(text))
        except TimeoutError:
            raise self._stalled(arrival) from None
        except httpx2.HTTPError as error:
            raise self._unreached(error) from None
        except ErrorEvent as error:
            raise await self._broken_off(connection, error.event) from None
        except (ValueError, RecursionError):
            # An event that is too large, nested too deeply, or not JSON; or too many of them.
            raise self._cut() from None
        if not answer.is_whole:
            raise self._cut()
        yield Completion(
            content=tuple(answer.content()),
            usage=self._usage(answer),
            model=whole_text(answer.model or self._model),
        )

    def check_key(self) -> None:
        """Raises `ModelError` with the remedy if the key is missing or malformed; sends no request."""
        self._key()

    @property
    def has_key(self) -> bool:
        """Whether a key is set; servers of one's own often need none."""
        return self._key() is not None

    async def look(self) -> None:
        """Asks the provider for the list of its models: whether it answers at its address, and takes the key.

        That costs nothing. Raises `ModelError`. A server without such a list has answered, which is enough.
        """
        import httpx2

        is_anthropic = self._provider == "anthropic"
        url = self._address.base_url.rstrip("/") + ("/v1/models" if is_anthropic else "/models")
        headers = dict(self._settings.headers)
        if (key := self._key()) is not None and is_anthropic:
            headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
        elif key is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            with anyio.fail_after(LOOK_SECONDS):
                async with (
                    httpx2.AsyncClient(timeout=None, verify=known_certificates()) as http,
                    http.stream("GET", url, headers=headers) as response,
                ):
                    status, kind = response.status_code, response.headers.get("content-type", "")
        except TimeoutError:
            message = f"No answer of provider {self._provider!r} at {self._place} within {LOOK_SECONDS:g} seconds"
            raise ModelError(ModelErrorKind.STALLED, message) from None
        except httpx2.HTTPError:
            message = f"Connection to provider {self._provider!r} failed: {self._place}"
            raise ModelError(ModelErrorKind.UNREACHABLE, message) from None
        if status in (401, 403):
            message = f"Key refused by provider {self._provider!r}: {self._key_remedy}"
            raise ModelError(ModelErrorKind.AUTHENTICATION, message)
        if status >= 500:
            raise ModelError(ModelErrorKind.SERVER, f"Error inside provider {self._provider!r} (HTTP {status})")
        if status == 200 and kind.startswith("text/html"):
            raise self._not_an_api()

    async def aclose(self) -> None:
        """Closes idle connections; the next request opens them again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.http.aclose()

    async def _connect(self) -> "_Connection":
        if self._connection is not None:
            return self._connection
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

    def _open(self, key: str | None) -> "_Connection":
        import_provider(self.name)
        import httpx2

        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=IDLE_CONNECTIONS)
        return _Connection(
            http=httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=True, verify=known_certificates()),
            open_model=lambda http: open_library_model(self._address, key, self._settings, http),
            secrets=tuple(secret for secret in (key, *self._settings.headers.values()) if secret),
        )

    def _messages(self, prompt: Prompt) -> bytes:
        name = f"messages for {self._provider}"
        conversation = prompt.derived.get(name)
        if not isinstance(conversation, Conversation):
            conversation = prompt.derived[name] = Conversation(self._dialect)
        return conversation.messages(prompt.entries, prompt.memory)

    async def _head(self, connection: "_Connection", prompt: Prompt) -> RequestHead:
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            return await connection.head(prompt, self._model_settings(prompt))
        except (AgentRunError, UserError) as error:
            raise self._failure(error, connection.secrets) from None

    def _usage(self, answer: GrowingAnswer) -> Usage:
        counted = answer.usage or AnswerUsage()
        return Usage(
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            cached_tokens=counted.cache_read_tokens,
            cost_microusd=self._cost(answer) if answer.usage is not None else None,
            steps=1,
        )

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

    def _setting(self, name: str) -> str:
        return repr(self._settings.place(self._provider, name))

    @property
    def _key_variable(self) -> str:
        return re.sub(r"\W", "_", self._provider).upper() + "_API_KEY"

    @property
    def _key_remedy(self) -> str:
        return f"set {self._setting('api_key')} or the environment variable {self._key_variable}"

    def _cost(self, answer: GrowingAnswer) -> int | None:
        """Millionths of a dollar; None if the price of the model is unknown."""
        from pydantic_ai.messages import ModelResponse
        from pydantic_ai.usage import RequestUsage

        counted = answer.usage or AnswerUsage()
        usage = RequestUsage(
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            cache_read_tokens=counted.cache_read_tokens,
            cache_write_tokens=counted.cache_write_tokens,
        )
        priced = ModelResponse(
            parts=(),
            usage=usage,
            model_name=answer.model or self._model,
            provider_name=self._provider,
            provider_url=self._address.base_url,
        )
        try:
            return round(priced.cost().total_price * 1_000_000)
        except (LookupError, ValueError):
            return None

    def _cut(self) -> ModelError:
        return ModelError(
            ModelErrorKind.CUT,
            f"Answer cut short by provider {self._provider!r} at {self._place}: it ended before it was whole",
            is_retryable=True,
        )

    def _not_an_api(self) -> ModelError:
        return ModelError(
            ModelErrorKind.REFUSED,
            f"Address of provider {self._provider!r} answers with a web page, not as an API: {self._place}; check "
            f"{self._setting('base_url')}",
        )

    def _unreached(self, error: "httpx2.HTTPError") -> ModelError:
        import httpx2

        who = f"provider {self._provider!r}"
        match error:
            case httpx2.ReadError() | httpx2.RemoteProtocolError() | httpx2.DecodingError():
                return self._cut()
            case _:
                kind, message = ModelErrorKind.UNREACHABLE, f"Connection to {who} failed: {self._place}"
        return ModelError(kind, message, is_retryable=True)

    def _stalled(self, arrival: "_ByteWait") -> ModelError:
        """A hanging provider is not asked again: it would hang as long."""
        who = f"provider {self._provider!r}"
        if arrival.has_begun:
            seconds, setting = self._settings.stall_seconds, self._setting("stall_seconds")
            message = (
                f"Answer of {who} stalled: nothing came for {seconds:g} seconds; {setting} sets how long it may take"
            )
        else:
            seconds, setting = self._settings.first_byte_seconds, self._setting("first_byte_seconds")
            message = (
                f"No answer of {who} at {self._place} within {seconds:g} seconds; {setting} sets how long it may take"
            )
        return ModelError(ModelErrorKind.STALLED, message, is_retryable=arrival.has_begun)

    async def _refused(self, connection: "_Connection", response: "httpx2.Response") -> ModelError:
        body = bytearray()
        with anyio.fail_after(self._settings.stall_seconds):
            async for piece in response.aiter_bytes():
                body += piece[: MAX_ERROR_BYTES - len(body)]
                if len(body) >= MAX_ERROR_BYTES:
                    break
        status, headers = response.status_code, response.headers.multi_items()
        error = await classify(connection.open_model, status, headers, bytes(body))
        return self._failure(error, connection.secrets)

    async def _broken_off(self, connection: "_Connection", event: bytes) -> ModelError:
        """An error that the provider reports inside a stream."""
        if len(event) > MAX_ERROR_BYTES:
            return self._cut()
        stream = b"event: error\ndata: %s\n\n" % event
        headers = [("content-type", "text/event-stream")]
        return self._failure(await classify(connection.open_model, 200, headers, stream), connection.secrets)

    def _failure(self, error: Exception | None, secrets: Iterable[str]) -> ModelError:
        from pydantic_ai import exceptions as failures

        if error is None:
            return self._cut()
        who = f"provider {self._provider!r}"
        said = _quote(error, secrets)
        status = error.status_code if isinstance(error, failures.ModelHTTPError) else 0
        retry_after = error.retry_after if isinstance(error, failures.ModelAPIError) else None
        if retry_after is not None:
            retry_after = min(retry_after, MAX_RETRY_AFTER_SECONDS)
        match error:
            case failures.ModelAuthenticationError():
                # Providers repeat parts of the key here, so their words are left out.
                kind, message = ModelErrorKind.AUTHENTICATION, f"Key refused by {who}: {self._key_remedy}"
            case failures.ModelNotFoundError():
                kind = ModelErrorKind.NOT_FOUND
                message = f"Model {self._model!r} not found at {who} ({self._place}): {said}"
            case failures.ModelContextWindowExceededError():
                kind, message = ModelErrorKind.CONTEXT_TOO_LONG, f"Prompt too long for model {self.name!r}: {said}"
            case failures.ModelQuotaExceededError():
                kind, message = ModelErrorKind.RATE_LIMITED, f"Quota used up at {who}: {said}"
                return ModelError(kind, message, retry_after_seconds=retry_after)
            case failures.ModelRateLimitError():
                kind, message = ModelErrorKind.RATE_LIMITED, f"Rate limit of {who} reached: {said}"
            case failures.ModelUnavailableError() | failures.ModelServerError():
                kind, message = ModelErrorKind.SERVER, f"Error inside {who} (HTTP {status or 500}): {said}"
            case failures.ModelHTTPError() if status >= 500 or status == 408:
                kind, message = ModelErrorKind.SERVER, f"Error inside {who} (HTTP {status}): {said}"
            case failures.ModelAPIError(in_stream=True):
                kind, message = ModelErrorKind.SERVER, f"Error inside {who}: {said}"
            case failures.ModelRequestRejectedError() | failures.ModelHTTPError() | failures.UserError():
                kind, message = ModelErrorKind.REFUSED, f"Request refused by {who}: {said}"
            case _:
                return self._cut()
        longest = self._settings.longest_retry_after_seconds
        is_retryable = kind in RETRYABLE and (retry_after is None or retry_after <= longest)
        return ModelError(kind, message, retry_after_seconds=retry_after, is_retryable=is_retryable)


class _ByteWait:
    """Waits for the bytes of one answer. Raises `TimeoutError` if nothing comes for too long.

    It holds one scope and one timer for all of them, because a scope or a timer of its own for each piece costs more
    than the piece. Nobody is cancelled while the answer's reader works on a piece. After a pause of the process, the
    bytes that have come meanwhile are read first.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        self.has_begun = False
        """Whether the first byte has come."""
        self._stall_seconds = settings.stall_seconds
        self._loop = get_running_loop()
        self._begins_before = self._loop.time() + settings.first_byte_seconds
        self._ends_at = inf
        """When the present wait has lasted too long; never while nobody waits."""
        self._scope = anyio.CancelScope()
        self._timer: TimerHandle | None = None

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *raised: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._scope.__exit__(*raised)
        if self._scope.cancelled_caught:
            raise TimeoutError

    async def begin(self, http: "httpx2.AsyncClient", request: "httpx2.Request") -> "httpx2.Response":
        self._arm(self._begins_before)
        response = await http.send(request, stream=True)
        try:
            self._disarm()
        except TimeoutError:
            with anyio.CancelScope(shield=True):
                await response.aclose()
            raise
        return response

    async def next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes; None after the last ones."""
        self._arm(self._loop.time() + self._stall_seconds if self.has_begun else self._begins_before)
        piece = await anext(pieces, None)
        self._disarm()
        self.has_begun = True
        return piece

    def _arm(self, ends_at: float) -> None:
        self._ends_at = ends_at
        if self._timer is not None and ends_at < self._timer.when():
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(ends_at, self._look, None)

    def _look(self, ended_at: float | None) -> None:
        """Ends a wait that has lasted too long; looks again when the present one will have.

        `ended_at` is the end of the wait that was too long already when it looked before.
        """
        self._timer = None
        if self._ends_at == inf:
            return
        if self._loop.time() < self._ends_at:
            self._arm(self._ends_at)
        elif ended_at == self._ends_at:
            self._scope.cancel()
        else:
            self._timer = self._loop.call_later(PAUSED_SECONDS, self._look, self._ends_at)

    def _disarm(self) -> None:
        """Raises `TimeoutError` if the wait was ended in the moment in which the bytes came.

        The cancellation is on its way then, and would meet the answer's reader.
        """
        self._ends_at = inf
        if self._scope.cancel_called:
            raise TimeoutError


class _Connection:
    """The pooled HTTP client of one provider, and requests without their messages."""

    def __init__(self, *, http: "httpx2.AsyncClient", open_model: OpenLibraryModel, secrets: tuple[str, ...]) -> None:
        self.http = http
        self.open_model = open_model
        self.secrets = secrets
        self._heads: OrderedDict[bytes, RequestHead] = OrderedDict()

    async def head(self, prompt: Prompt, settings: "ModelSettings") -> RequestHead:
        """The request for everything but the messages, built once for each set of tools and settings."""
        name = msgspec.json.encode([bool(prompt.instructions), settings, prompt.tools])
        head = self._heads.get(name)
        if head is None:
            head = await build_head(self.open_model, prompt, settings)
        self._heads[name] = head
        self._heads.move_to_end(name)
        if len(self._heads) > KEPT_HEADS:
            self._heads.popitem(last=False)
        return head


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Reads the end of a stream that says nothing more, so that its connection can be used again."""
    import httpx2

    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx2.HTTPError):
        async for _ in pieces:
            pass


def _find_context_tokens(address: ModelAddress) -> int:
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
