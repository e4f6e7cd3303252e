"""Models behind a provider's HTTP API: OpenAI, Anthropic, Ollama and all others with OpenAI's protocol."""

import os
import re
from asyncio import TimerHandle, get_running_loop
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.model import (
    Completion,
    ModelError,
    ModelErrorKind,
    Prompt,
    ProviderSettings,
    TextDelta,
)
from antiphon.agents.providers.conversation import Conversation
from antiphon.agents.providers.dialect import AnswerTooLarge, AnswerUsage, ErrorEvent, GrowingAnswer
from antiphon.agents.providers.dialects import DIALECTS, ModelAddress, dialect_of
from antiphon.agents.providers.estimates import estimated_input, estimated_output
from antiphon.agents.providers.event_lines import BodyKind, EventLines
from antiphon.agents.providers.failures import ErrorAnswerOfModel, ModelFailure, classify
from antiphon.agents.providers.prices import find_cost, load_prices
from antiphon.agents.providers.request_head import OpenLibraryModel, RequestHead, build_head
from antiphon.agents.text import whole_text
from antiphon.certificates import known_certificates
from antiphon.domain.errors import Invalid
from antiphon.domain.message import AssistantMessage, Part, Usage
from antiphon.proxies import proxy_for, uses_environment

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

THINKING_LEVELS: Final[Mapping[str, "ThinkingLevel"]] = {
    "off": False,
    "low": "low",
    "medium": "medium",
    "high": "high",
}
KEPT_HEADS: Final = 32
"""Requests without their messages: one for each set of tools, limits and thinking in use."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_REDIRECTS: Final = 3
SAME_REQUEST: Final = (307, 308)
"""The redirects after which a request is sent again as it was; others would become a `GET`."""
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
    row = dialect_of(provider)
    base_url = configured.base_url or row.base_url
    if not model or base_url is None:
        known = ", ".join(sorted({*DIALECTS, *(key for key, value in settings.items() if value.base_url)}))
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
    if row.package is not None and find_spec(row.package) is None:
        raise Invalid(
            f"Package not installed for model {name!r}: install 'antiphon[{row.package}]'", code="package_missing"
        )
    plain, query = _without_query(base_url)
    return ProviderModel(
        address=ModelAddress(provider, model, plain),
        query=query,
        place=place,
        settings=configured,
        context_tokens=context_tokens,
        environ=environ,
    )


def key_variable(provider: str) -> str:
    """The environment variable that usually holds the provider's key."""
    return re.sub(r"\W", "_", provider).upper() + "_API_KEY"


def import_provider(name: str) -> None:
    """Loads the code that the model `provider:model` needs. This takes seconds: call it in a thread, before use."""
    import_module("pydantic_ai.direct")
    import_module(f"pydantic_ai.models.{dialect_of(name.partition(':')[0]).library}")
    load_prices()


class ProviderModel:
    """A model behind a provider's API; the first request opens the connection, which is then kept."""

    is_counted = True

    def __init__(
        self,
        *,
        address: ModelAddress,
        query: str,
        place: str,
        settings: ProviderSettings,
        context_tokens: int | None,
        environ: Mapping[str, str],
    ) -> None:
        self._address = address
        self._query = query
        """What stands after the `?` of the configured address, and goes along with every request."""
        self._provider = address.provider
        self._model = address.model
        proxy = proxy_for(address.base_url)
        self._via = "" if proxy is None else f" through the proxy {proxy}"
        self._place = f"{place}{self._via}"
        self._settings = settings
        self._context_tokens = context_tokens
        self._environ = environ
        self._connection: _Connection | None = None
        self._connecting = anyio.Lock()
        self._row = dialect_of(address.provider)
        self._dialect = self._row.speaks(address.provider)

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
        conversation = self._conversation(prompt)
        messages = conversation.messages(prompt.entries, prompt.passing, reads_images=prompt.reads_images)
        sent = _SentRequest(prompt=prompt, conversation=conversation, head=head, size=len(messages))
        answer, lines = self._dialect.answer(), EventLines()
        import httpx2

        url = _with_query(head.url, self._query)
        body = head.body(prompt.instructions, messages)
        request = connection.http.build_request("POST", url, headers=head.headers, content=body)
        arrival = _ByteWait(self._settings)
        try:
            with arrival:
                async with aclosing(await self._begin(connection, request, arrival)) as response:
                    if response.status_code >= 300:
                        raise await self._refused(connection, response, sent)
                    if response.headers.get("content-type", "").startswith("text/html"):
                        raise self._not_an_api()
                    pieces = response.aiter_bytes()
                    while (piece := await arrival.next(pieces)) is not None:
                        is_empty = has_progressed = False
                        for data in lines.feed(piece):
                            text, unseen = answer.add(data), answer.take_unseen()
                            if text or unseen:
                                has_progressed = True
                                yield TextDelta(whole_text(text), unseen)
                            else:
                                is_empty = True
                        if has_progressed or lines.kind is BodyKind.WHOLE:
                            arrival.note_progress()
                        elif is_empty:
                            yield TextDelta("")
                        if answer.is_ended:
                            await _drain(pieces)
                            break
                    if lines.kind is BodyKind.PAGE:
                        raise self._not_an_api()
                    for data in lines.end():
                        text = answer.add(data, is_whole_body=lines.kind is BodyKind.WHOLE)
                        if text:
                            yield TextDelta(whole_text(text), answer.take_unseen())
                    if answer.is_whole and (text := answer.end()):
                        yield TextDelta(whole_text(text))
        except TimeoutError:
            raise self._stalled(arrival) from None
        except httpx2.HTTPError as error:
            raise self._unreached(error) from None
        except ErrorEvent as error:
            refusal = sent.refusal(200, {}, error.event[:MAX_ERROR_BYTES])
            raise self._failure(classify(refusal, datetime.now(UTC)), connection.secrets, 200) from None
        except AnswerTooLarge:
            raise self._too_large() from None
        except (ValueError, RecursionError):
            # An event that is nested too deeply, or not JSON.
            raise self._cut() from None
        if not answer.is_whole:
            raise self._cut()
        conversation.accepted_bytes = sent.size
        content = tuple(answer.content())
        yield Completion(
            content=content,
            usage=self._usage(answer, sent, content),
            model=whole_text(answer.model or self._model),
            cut=answer.cut,
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

        url = _with_query(self._address.base_url.rstrip("/") + self._row.models, self._query)
        key = self._key()
        headers = {**self._settings.headers, **({} if key is None else self._row.key_headers(key))}
        try:
            with anyio.fail_after(LOOK_SECONDS):
                async with (
                    self._client(timeout=httpx2.Timeout(None)) as http,
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
        is_keyless = self._row.is_own_server or self._settings.base_url is not None
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
            http=self._client(timeout=timeout, limits=limits),
            open_model=lambda http: self._row.opens(self._address, key, self._settings, http),
            secrets=tuple(secret for secret in (key, *self._settings.headers.values()) if secret),
        )

    def _client(self, *, timeout: "httpx2.Timeout", limits: "httpx2.Limits | None" = None) -> "httpx2.AsyncClient":
        """Raises `ModelError` for a proxy that cannot be used."""
        import httpx2

        try:
            return httpx2.AsyncClient(
                timeout=timeout,
                limits=limits or httpx2.Limits(),
                verify=known_certificates(),
                trust_env=uses_environment(self._address.base_url),
            )
        except (ValueError, ImportError) as error:  # its form, or a package for its protocol, is missing
            raise ModelError(
                ModelErrorKind.UNREACHABLE,
                f"Connection to provider {self._provider!r} failed: {self._place}, which this program cannot use. "
                "Correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or name the host in NO_PROXY",
            ) from error

    def _conversation(self, prompt: Prompt) -> Conversation:
        name = f"messages for {self._provider}"
        conversation = prompt.derived.get(name)
        if not isinstance(conversation, Conversation):
            conversation = prompt.derived[name] = Conversation(self._dialect)
        return conversation

    async def _head(self, connection: "_Connection", prompt: Prompt) -> RequestHead:
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            return await connection.head(prompt, self._model_settings(prompt))
        except (AgentRunError, UserError) as error:
            failure = ModelFailure(kind=ModelErrorKind.REFUSED, said=str(error))
            raise self._failure(failure, connection.secrets, 200) from None

    def _usage(self, answer: GrowingAnswer, sent: "_SentRequest", content: Sequence[Part]) -> Usage:
        """What the provider counted, and an estimate of what it did not. Contract: runs 6."""
        counted, estimated = answer.usage or AnswerUsage(), 0
        if not counted.input_tokens:
            estimated = estimated_input(sent.conversation, sent.head.size, sent.prompt)
            counted = replace(counted, input_tokens=estimated)
        if not counted.output_tokens:
            counted = replace(counted, output_tokens=estimated_output(content))
            estimated += counted.output_tokens
        return Usage(
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            cached_tokens=counted.cache_read_tokens,
            cost_microusd=find_cost(
                counted, answer.model or self._model, provider=self._provider, address=self._address.base_url
            ),
            steps=1,
            estimated_tokens=estimated,
        )

    def _model_settings(self, prompt: Prompt) -> "ModelSettings":
        settings: ModelSettings = {}
        if prompt.max_output_tokens is not None:
            settings["max_tokens"] = prompt.max_output_tokens
        if prompt.thinking is not None:
            settings["thinking"] = THINKING_LEVELS[prompt.thinking]
        if self._row.caches_if_asked and prompt.purpose == "turn":
            # Unlike the others it caches only on request, and a run sends its prompt again at each step.
            settings["cache"] = True
        return settings

    def _setting(self, name: str) -> str:
        return repr(self._settings.place(self._provider, name))

    @property
    def _key_variable(self) -> str:
        return key_variable(self._provider)

    @property
    def _key_remedy(self) -> str:
        return f"set {self._setting('api_key')} or the environment variable {self._key_variable}"

    def _cut(self) -> ModelError:
        return ModelError(
            ModelErrorKind.CUT,
            f"Answer cut short by provider {self._provider!r} at {self._place}: it ended before it was whole",
            is_retryable=True,
        )

    def _too_large(self) -> ModelError:
        return ModelError(
            ModelErrorKind.CUT,
            f"Answer of provider {self._provider!r} at {self._place} was too large, and was given up",
        )

    def _redirected(self, response: "httpx2.Response") -> ModelError:
        """Only the owner's setting says where prompts and keys go, so a provider cannot send them elsewhere."""
        target = urljoin(str(response.request.url), response.headers.get("location", ""))
        parts = urlsplit(target)
        named = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        where = named if _place_from_url(target) else "nowhere"
        return ModelError(
            ModelErrorKind.UNREACHABLE,
            f"Address of provider {self._provider!r} redirects to {where[:QUOTED_CHARACTERS]}; "
            f"set {self._setting('base_url')} to the address that it moved to",
        )

    def _not_an_api(self) -> ModelError:
        return ModelError(
            ModelErrorKind.UNREACHABLE,
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
                setting = self._setting("base_url")
                message = f"Connection to {who} failed: {self._place}; see whether it runs, and {setting} is right"
        return ModelError(ModelErrorKind.UNREACHABLE, message, is_retryable=True)

    def _stalled(self, arrival: "_ByteWait") -> ModelError:
        """A hanging provider is not asked again: it would hang as long."""
        who = f"provider {self._provider!r}"
        if arrival.is_silent:
            seconds, setting = self._settings.silence_seconds, self._setting("silence_seconds")
            message = (
                f"Answer of {who} stalled: for {seconds:g} seconds it only said that it is alive; {setting} sets how "
                "long it may"
            )
            return ModelError(ModelErrorKind.STALLED, message)
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

    async def _begin(
        self, connection: "_Connection", request: "httpx2.Request", arrival: "_ByteWait"
    ) -> "httpx2.Response":
        """The beginning of the answer; follows a redirect only within the same server, where keys may go."""
        for _ in range(MAX_REDIRECTS):
            response = await arrival.begin(connection.http, request)
            target = urljoin(str(request.url), response.headers.get("location", ""))
            is_same = urlsplit(target)[:2] == urlsplit(str(request.url))[:2]
            if response.status_code not in SAME_REQUEST or not is_same:
                return response
            await response.aclose()
            request = connection.http.build_request("POST", target, headers=request.headers, content=request.content)
        return await arrival.begin(connection.http, request)

    async def _refused(
        self, connection: "_Connection", response: "httpx2.Response", sent: "_SentRequest"
    ) -> ModelError:
        if response.status_code < 400:
            return self._redirected(response)
        body = bytearray()
        with anyio.fail_after(self._settings.stall_seconds):
            async for piece in response.aiter_bytes():
                body += piece[: MAX_ERROR_BYTES - len(body)]
                if len(body) >= MAX_ERROR_BYTES:
                    break
        status, headers = response.status_code, {name.lower(): value for name, value in response.headers.items()}
        failure = classify(sent.refusal(status, headers, bytes(body)), datetime.now(UTC))
        return self._failure(failure, connection.secrets, status)

    def _failure(self, failure: ModelFailure, secrets: tuple[str, ...], status: int) -> ModelError:
        who, said = f"provider {self._provider!r}{self._via}", _quote(failure.said, secrets)
        match failure.kind:
            case ModelErrorKind.AUTHENTICATION:
                # Providers repeat parts of the key here, so their words are left out.
                message = f"Key refused by {who}: {self._key_remedy}"
            case ModelErrorKind.NOT_FOUND:
                message = f"Model {self._model!r} not found at {who} ({self._place}): {said}"
            case ModelErrorKind.CONTEXT_TOO_LONG:
                message = f"Prompt too long for model {self.name!r}: {said}"
            case ModelErrorKind.QUOTA:
                message = f"Quota used up at {who}: {said}"
            case ModelErrorKind.RATE_LIMITED:
                message = f"Rate limit of {who} reached: {said}"
            case ModelErrorKind.FILTERED:
                message = f"Content filter of {who} refused the conversation: {said}"
            case ModelErrorKind.SERVER:
                message = f"Error inside {who}{f' (HTTP {status})' if status >= 400 else ''}: {said}"
            case _:
                message = f"Request refused by {who}: {said}"
        wait = failure.retry_after_seconds
        return ModelError(
            failure.kind,
            message,
            retry_after_seconds=wait,
            is_retryable=failure.is_passing and (wait is None or wait <= self._settings.longest_retry_after_seconds),
            entry=failure.entry,
            is_larger=failure.is_larger,
        )


class _SentRequest(Struct, frozen=True, kw_only=True):
    """A request on its way, as far as its refusal must be understood."""

    prompt: Prompt
    conversation: Conversation
    head: RequestHead
    size: int

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> ErrorAnswerOfModel:
        accepted = self.conversation.accepted_bytes
        if accepted is None and any(isinstance(entry, AssistantMessage) for entry in self.prompt.entries):
            accepted = 0  # before this process began, a shorter one was taken
        return ErrorAnswerOfModel(
            status=status,
            headers=headers,
            body=body,
            sent_bytes=self.size,
            accepted_bytes=accepted,
            has_images=self.conversation.images > 0,
        )


class _ByteWait:
    """Waits for the bytes of one answer. Raises `TimeoutError` if nothing comes, or nothing of use, for too long.

    It holds one scope and one timer for all of them, because a scope or a timer of its own for each piece costs more
    than the piece. Nobody is cancelled while the answer's reader works on a piece. After a pause of the process, the
    bytes that have come meanwhile are read first.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        self.has_begun = False
        """Whether the first byte has come."""
        self._stall_seconds = settings.stall_seconds
        self._silence_seconds = settings.silence_seconds
        self._loop = get_running_loop()
        self._has_progressed = True
        """Whether the answer has grown since the wait before."""
        self._silent_at = inf
        """When it will have been alive without growing for too long."""
        self._is_late = False
        """Whether the present wait began after that."""
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
        now = self._loop.time()
        if self._has_progressed:
            self._has_progressed, self._silent_at = False, now + self._silence_seconds
        # After a pause of the process, what came meanwhile is looked at before the provider is called silent.
        was_late, self._is_late = self._is_late, self.has_begun and now >= self._silent_at
        if was_late and self._is_late:
            raise TimeoutError
        ends_at = min(now + self._stall_seconds, max(self._silent_at, now + PAUSED_SECONDS))
        self._arm(ends_at if self.has_begun else self._begins_before)
        piece = await anext(pieces, None)
        self._disarm()
        self.has_begun = True
        return piece

    def note_progress(self) -> None:
        """The answer has grown: a text, a thought or a part of a call has come."""
        self._has_progressed = True

    @property
    def is_silent(self) -> bool:
        """Whether bytes came all the time, and nothing of use."""
        return self.has_begun and self._loop.time() >= self._silent_at

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
    if dialect_of(address.provider).is_own_server:
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


def _without_query(base_url: str) -> tuple[str, str]:
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), parts.query


def _with_query(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def _quote(said: str, secrets: tuple[str, ...]) -> str:
    text = " ".join(said.split())
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return whole_text(text[:QUOTED_CHARACTERS])
