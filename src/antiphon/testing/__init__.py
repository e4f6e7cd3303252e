"""A fake model provider for tests: a real HTTP server that speaks OpenAI's chat completions.

    async with fake_provider([Reply(text="hello")]) as fake:
        settings = {"fake": ProviderSettings(base_url=fake.base_url)}
        model = open_provider_model("fake:any", settings)
        ...
    assert fake.requests[0].body["messages"]

`run_fake_provider` is the same without `async`, for tests that start other processes.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Final, TypeAlias, cast

import anyio
import anyio.lowlevel
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from antiphon.domain.message import JsonObject, JsonValue
from antiphon.testing.serving import FakeServer, run_fake, serve_fake

logger = logging.getLogger(__name__)

DRIP_SECONDS: Final = 0.02


class Ending(StrEnum):
    """How the body of a reply ends."""

    DONE = "done"
    STALL = "stall"
    """The body stops, and the connection stays open until the client leaves."""
    CUT = "cut"
    """The socket is closed in the middle, as in a crash."""
    TRUNCATED = "truncated"
    """The body ends properly, but without the rest and without `[DONE]`, as from a proxy that gives up."""
    HANG = "hang"
    """Nothing comes, not even the status, until the client leaves."""
    DRIP = "drip"
    """Single bytes of comments follow, without end, until the client leaves."""
    ENDLESS = "endless"
    """The last event is repeated until the client leaves."""


class Call(Struct, frozen=True, kw_only=True):
    """A tool call of a reply."""

    name: str
    arguments: str | Sequence[str] = "{}"
    """JSON text. A sequence is streamed in exactly these fragments, which may split it anywhere."""
    call_id: str | None = None
    """`call_<request>_<index>` unless given. Real ids may repeat from one response to the next."""


class Reply(Struct, frozen=True, kw_only=True):
    """A response with status 200."""

    text: str | Sequence[str] = ()
    """A sequence is streamed in exactly these pieces."""
    thinking: str | Sequence[str] = ()
    """Streamed before the text, as `reasoning_content`."""
    calls: Sequence[Call] = ()
    """Parallel calls; their fragments are streamed in turn, one of each."""
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    finish_reason: str | None = None
    """By default `tool_calls` or `stop`, depending on the reply."""
    model: str | None = None
    """The model named in the answer; by default the requested one."""
    ending: Ending = Ending.DONE
    events: int | None = None
    """How many events are streamed before an ending other than `DONE`; by default all but `[DONE]`."""
    packet_bytes: int | None = None
    """Sends the stream in packets of this size, which split events and characters."""


class Failure(Struct, frozen=True, kw_only=True):
    """A response with an error status, in OpenAI's shape."""

    status: int
    message: str = "The fake provider was told to fail."
    code: str | None = None
    type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Raw(Struct, frozen=True, kw_only=True):
    """A response whose body is sent as it is."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeats: bytes = b""
    """Follows the body again and again, until the client leaves."""


UNAUTHORIZED = Failure(status=401, message="Incorrect API key provided.", code="invalid_api_key")
MODEL_NOT_FOUND = Failure(status=404, message="The model does not exist.", code="model_not_found")
RATE_LIMITED = Failure(
    status=429, message="Rate limit reached.", code="rate_limit_exceeded", headers={"Retry-After": "7"}
)
SERVER_ERROR = Failure(status=500, message="The server had an error.")
CONTEXT_TOO_LONG = Failure(
    status=400,
    message="This model's maximum context length is 8192 tokens.",
    code="context_length_exceeded",
)


@dataclass(slots=True, kw_only=True)
class FakeRequest:
    """A request that the fake received."""

    index: int
    path: str
    headers: Mapping[str, str]
    """With names in lower case."""
    body: JsonObject
    left: bool = False
    """Whether the client left during a stalled reply."""

    @property
    def messages(self) -> list[JsonObject]:
        return cast("list[JsonObject]", self.body.get("messages", []))


Answering: TypeAlias = Reply | Failure | Raw
Script: TypeAlias = Sequence[Answering] | Callable[[FakeRequest], Answering]
"""The answers to requests that pass the checks: a sequence in order, or a function that runs in a thread."""


class FakeProvider(FakeServer):
    """A running fake, made by `fake_provider` and `run_fake_provider`."""

    def __init__(self, script: Script, *, api_key: str | None, models: Sequence[str]) -> None:
        super().__init__()
        self._script = script
        self._api_key = api_key
        self._models = models
        self._played = 0
        self.requests: list[FakeRequest] = []
        """Every request to `/v1/chat/completions`, including refused ones, in order of arrival."""

    @property
    def base_url(self) -> str:
        """The `base_url` for an OpenAI client."""
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self) -> Sequence[Route]:
        return [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._list_models, methods=["GET"]),
        ]

    async def _list_models(self, request: Request) -> Response:
        if self._is_refused(request.headers):
            return _failure(UNAUTHORIZED)
        models: list[JsonValue] = [_model(name) for name in self._models]
        return JSONResponse({"object": "list", "data": models})

    async def _complete(self, request: Request) -> Response:
        try:
            body = cast("JsonValue", json.loads(await request.body()))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return _failure(Failure(status=400, message="We could not parse the JSON body of your request."))
        with self.changed:
            received = FakeRequest(
                index=len(self.requests), path=request.url.path, headers=dict(request.headers), body=body
            )
            self.requests.append(received)
            self.changed.notify_all()
        if self._is_refused(received.headers):
            return _failure(UNAUTHORIZED)
        if complaint := _complaint(body):
            return _failure(Failure(status=400, message=complaint))
        answering = self._answer(received)
        if isinstance(answering, Failure):
            return _failure(answering)
        if isinstance(answering, Raw):
            return _RawAnswer(self, received, answering, self.stopped)
        return _StreamedAnswer(self, received, answering, self.stopped)

    def _is_refused(self, headers: Mapping[str, str]) -> bool:
        return self._api_key is not None and headers.get("authorization") != f"Bearer {self._api_key}"

    def _answer(self, request: FakeRequest) -> Answering:
        self._played += 1
        if not callable(self._script):
            if self._played > len(self._script):
                return Failure(status=400, message="The script of the fake provider is at its end.")
            return self._script[self._played - 1]
        try:
            return self._script(request)
        except Exception as error:
            logger.exception("Fake provider's script failed", extra={"action": "script_failed"})
            return Failure(status=400, message=f"The script of the fake provider failed: {error!r}")

    def note_client_left(self, request: FakeRequest) -> None:
        with self.changed:
            request.left = True
            self.changed.notify_all()


@contextmanager
def run_fake_provider(
    script: Script, *, api_key: str | None = None, models: Sequence[str] = ("fake-model",)
) -> Generator[FakeProvider]:
    """Serves the script on a free port of 127.0.0.1, in its own thread, until left.

    With an `api_key`, requests with another key get 401. Requests are checked as the real API does: every call of an
    assistant message must be answered by the tool messages after it, else the answer is 400.
    """
    with run_fake(FakeProvider(script, api_key=api_key, models=models)) as fake:
        yield fake


@asynccontextmanager
async def fake_provider(
    script: Script, *, api_key: str | None = None, models: Sequence[str] = ("fake-model",)
) -> AsyncGenerator[FakeProvider]:
    """`run_fake_provider` for async tests."""
    async with serve_fake(FakeProvider(script, api_key=api_key, models=models)) as fake:
        yield fake


class _HeldAnswer(Response):
    """A body that may go on until the client leaves."""

    def __init__(self, fake: FakeProvider, request: FakeRequest, stopped: anyio.Event) -> None:
        super().__init__()
        self._fake = fake
        self._request = request
        self._stopped = stopped

    async def _stall(
        self, receive: Receive, send: Send | None = None, packet: bytes = b"", pause_seconds: float = 0
    ) -> None:
        """Waits until the client leaves; sends it the packet again and again, if there is one."""
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                if not self._stopped.is_set():
                    self._fake.note_client_left(self._request)
                group.cancel_scope.cancel()

            async def repeat(send: Send) -> None:
                while True:
                    await send({"type": "http.response.body", "body": packet, "more_body": True})
                    await anyio.sleep(pause_seconds)

            group.start_soon(watch)
            if send is not None:
                group.start_soon(repeat, send)
            await self._stopped.wait()
            group.cancel_scope.cancel()


class _RawAnswer(_HeldAnswer):
    """Bytes as they are."""

    def __init__(self, fake: FakeProvider, request: FakeRequest, raw: Raw, stopped: anyio.Event) -> None:
        super().__init__(fake, request, stopped)
        self._raw = raw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = self._raw
        named = {"content-type": raw.content_type, **raw.headers}
        headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
        await send({"type": "http.response.start", "status": raw.status, "headers": headers})
        await send({"type": "http.response.body", "body": raw.body, "more_body": bool(raw.repeats)})
        if raw.repeats:
            await self._stall(receive, send, raw.repeats, DRIP_SECONDS)


class _StreamedAnswer(_HeldAnswer):
    """The body of a reply. It can stall, break off and be split anywhere."""

    def __init__(self, fake: FakeProvider, request: FakeRequest, reply: Reply, stopped: anyio.Event) -> None:
        super().__init__(fake, request, stopped)
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self._reply
        streams = self._request.body.get("stream") is True
        if streams:
            events = _events(self._request, reply)
            kept = events if reply.ending is Ending.DONE else events[:-1][: reply.events]
            packets = [f"data: {event}\n\n".encode() for event in kept]
        else:
            whole = _dump(_completion(self._request, reply)).encode()
            packets = [whole if reply.ending is Ending.DONE else whole[: len(whole) // 2]]
        if size := reply.packet_bytes:
            data = b"".join(packets)
            packets = [data[start : start + size] for start in range(0, len(data), size)]
        if reply.ending is Ending.HANG:
            await self._stall(receive)
            return
        kind = b"text/event-stream" if streams else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for packet in packets:
            await send({"type": "http.response.body", "body": packet, "more_body": True})
            await anyio.lowlevel.checkpoint()
        match reply.ending:
            case Ending.DONE | Ending.TRUNCATED:
                await send({"type": "http.response.body", "body": b""})
            case Ending.STALL:
                await self._stall(receive)
            case Ending.DRIP:
                await self._stall(receive, send, b":", DRIP_SECONDS)
            case Ending.ENDLESS:
                await self._stall(receive, send, packets[-1], 0)
            case Ending.CUT:
                # If the application returns in the middle of its body, the server closes the socket.
                pass


def _pieces(text: str | Sequence[str]) -> Sequence[str]:
    return ([text] if text else []) if isinstance(text, str) else text


def _events(request: FakeRequest, reply: Reply) -> list[str]:
    fragments = [list(_fragments(request, call, index)) for index, call in enumerate(reply.calls)]
    deltas: list[JsonObject] = [
        {"role": "assistant", "content": ""},
        *({"reasoning_content": piece} for piece in _pieces(reply.thinking)),
        *({"content": piece} for piece in _pieces(reply.text)),
        *({"tool_calls": [each]} for turn in zip_longest(*fragments) for each in turn if each),
    ]
    chunks = [_chunk(request, reply, {"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    chunks.append(_chunk(request, reply, {"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}))
    options = request.body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        chunks.append({**_chunk(request, reply), "usage": _usage(reply)})
    return [*map(_dump, chunks), "[DONE]"]


def _fragments(request: FakeRequest, call: Call, index: int) -> Iterator[JsonObject]:
    yield {
        "index": index,
        "id": _call_id(request, call, index),
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }
    for piece in _pieces(call.arguments):
        yield {"index": index, "function": {"arguments": piece}}


def _completion(request: FakeRequest, reply: Reply) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": "".join(_pieces(reply.text)) or None}
    if reply.thinking:
        message["reasoning_content"] = "".join(_pieces(reply.thinking))
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": _call_id(request, call, index),
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(_pieces(call.arguments))},
            }
            for index, call in enumerate(reply.calls)
        ]
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    return {**_chunk(request, reply, choice), "object": "chat.completion", "usage": _usage(reply)}


def _chunk(request: FakeRequest, reply: Reply, *choices: JsonObject) -> JsonObject:
    return {
        "id": f"chatcmpl-{request.index}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": reply.model or request.body["model"],
        "choices": list(choices),
    }


def _usage(reply: Reply) -> JsonObject:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def _call_id(request: FakeRequest, call: Call, index: int) -> str:
    return call.call_id or f"call_{request.index}_{index}"


def _dump(value: JsonObject) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Providers send emoji in pieces. Half of a surrogate pair can only be sent escaped.
    return text if text.isascii() or text.encode("utf-8", "replace").decode() == text else json.dumps(value)


def _model(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "antiphon"}


def _failure(failure: Failure) -> Response:
    kind = failure.type or ("invalid_request_error" if failure.status < 429 else "server_error")
    error: JsonObject = {"message": failure.message, "type": kind, "param": None, "code": failure.code}
    return JSONResponse({"error": error}, status_code=failure.status, headers=dict(failure.headers))


def _complaint(body: JsonObject) -> str | None:
    """The real API's complaint about a request, in its words."""
    messages = body.get("messages")
    if not isinstance(body.get("model"), str):
        return "you must provide a model parameter"
    if not isinstance(messages, list) or not messages:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1."
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            return f"Invalid type for 'messages[{index}]': expected an object."
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in open_ids:
                return (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceding message "
                    f"with 'tool_calls': messages[{index}] answers {call_id!r}."
                )
            open_ids.remove(call_id)
            continue
        if open_ids:
            break
        calls = cast("list[JsonObject]", message.get("tool_calls") or [])
        open_ids = [cast("str", call.get("id")) for call in calls]
        if len(set(open_ids)) < len(open_ids):
            return f"Duplicate value for 'tool_call_id' in messages[{index}]."
    if open_ids:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(open_ids)
        )
    return None
