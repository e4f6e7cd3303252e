"""The frames of the WebSocket, as JSON texts: requests, answers and events. Contract: gateway 2."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from antiphon.incoming import Misfit, NotJson, decode, misfit
from antiphon.wire.encoding import Shape, compact_json
from antiphon.wire.errors import ErrorShape

PROTOCOL = 1
"""The version of the protocol that this gateway speaks."""
MAX_ID_LENGTH = 100
MAX_METHOD_LENGTH = 100

RequestId = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]


class RequestFrame(Struct, frozen=True, kw_only=True, tag="req", tag_field="type", forbid_unknown_fields=True):
    """A request of the client. Its answer has the same `id`, which no other open request of the connection has."""

    id: RequestId
    method: Annotated[str, Meta(max_length=MAX_METHOD_LENGTH)]
    """The name of an operation, or of another method."""
    params: Raw = Raw(b"{}")
    """The parameters of the operation, in one flat object."""


class AnswerFrame(Shape, frozen=True, kw_only=True, tag="res", tag_field="type", omit_defaults=True):
    """The answer to a request."""

    id: str | None
    """None for a frame whose `id` could not be read."""
    ok: bool
    payload: Any = None
    """The answer of the operation; absent if it has none."""
    error: ErrorShape | None = None
    """If `ok` is false: the same error as over HTTP."""


class EventFrame(Shape, frozen=True, kw_only=True, tag="event", tag_field="type", omit_defaults=True):
    """Something that happened."""

    event: str
    payload: Any
    seq: int | None = None
    """The event's number in its session's log; resume after it."""


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The versions of the protocol that the client speaks."""

    min: Annotated[int, Meta(ge=1, le=10**6)]
    max: Annotated[int, Meta(ge=1, le=10**6)]


class ConnectParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of `connect`, the first request."""

    protocol: Range
    client: Annotated[str, Meta(min_length=1, max_length=200)]
    """The name of the program, for logs."""
    token: Annotated[str, Meta(max_length=1000)] | None = None
    """Unless the Authorization header has it, or a browser's cookie stands for it."""
    page: Annotated[str, Meta(max_length=1000)] | None = None
    """The page secret, which belongs to the browser's cookie."""


class ServerShape(Shape, frozen=True, kw_only=True):
    version: str


class SocketLimits(Shape, frozen=True, kw_only=True):
    """What one connection may use."""

    frame_bytes: int
    open_requests: int
    subscriptions: int
    waiting_bytes: int
    """Events that wait for a client to read them; above this it is cut."""
    stall_seconds: float
    """How long a client may leave everything unread."""


class Hello(Shape, frozen=True, kw_only=True):
    """The answer to `connect`."""

    protocol: int
    principal: str
    scopes: list[str]
    server: ServerShape
    limits: SocketLimits
    methods: list[str]
    """Every method, whether or not the scopes allow it."""


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TOKEN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?|[{}\[\]]', re.DOTALL)
_NAMES = tuple(b'"%s"' % name.encode() for name in ("type", *RequestFrame.__struct_fields__))
_text = msgspec.json.Decoder(str)
_envelope = msgspec.json.Decoder(dict[str, Raw])
_id = msgspec.json.Decoder(RequestId)
_request = msgspec.json.Decoder(RequestFrame)


class BadFrame(Exception):
    """A frame that is no request, with its `id` as far as that could be read."""

    def __init__(self, id: str | None, error: Misfit | NotJson) -> None:
        super().__init__(error.message)
        self.id = id
        self.error = error


def read_request(data: bytes) -> RequestFrame:
    """The request in a frame, of which it keeps nothing else. Raises `BadFrame`."""
    try:
        frame = decode(data, _request)
        if _names_twice(data):
            raise misfit("frame: names a field twice. Send each field once")
        return _alone(frame)
    except Misfit as error:
        raise BadFrame(_readable_id(data), error) from None
    except NotJson as error:
        raise BadFrame(_readable_id(data), NotJson(error.message.replace("Body", "Frame", 1))) from None


def _names_twice(data: bytes) -> bool:
    """Whether the frame, which is valid JSON, has a field twice: two readers could each use another value."""
    if b"\\u" not in data and all(data.count(name) < 2 for name in _NAMES):
        return False
    depth = 0
    seen: set[str] = set()
    for token in _TOKEN.finditer(data):
        mark = token[0][:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
        elif depth == 1 and token[2] is not None:
            name = _text.decode(token[1])
            if name in seen:
                return True
            seen.add(name)
    return False


def _alone(frame: RequestFrame) -> RequestFrame:
    """Without the rest of the frame's bytes, which `Raw` would keep."""
    return replace(frame, params=frame.params.copy())


def _readable_id(data: bytes) -> str | None:
    """The id, if it can be read although something else cannot."""
    try:
        id = _id.decode(_envelope.decode(_SURROGATE.sub(rb"\\ufffd", data))["id"])
        return None if "\ufffd" in id else id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return None


def check_protocol(asked: Range) -> None:
    """Raises `Misfit` unless the client speaks the gateway's version."""
    if not asked.min <= PROTOCOL <= asked.max:
        raise misfit(f"protocol: this gateway speaks version {PROTOCOL}")


def answer_frame(id: str, payload: object) -> bytes:
    return text_frame(compact_json(AnswerFrame(id=id, ok=True, payload=payload)))


def error_frame(id: str | None, error: ErrorShape) -> bytes:
    return text_frame(compact_json(AnswerFrame(id=id, ok=False, error=error)))


def event_frame(event: str, payload: object, *, seq: int | None = None) -> bytes:
    return text_frame(compact_json(EventFrame(event=event, payload=payload, seq=seq)))


def text_frame(data: bytes) -> bytes:
    """The text as a frame of RFC 6455. A server's frames are not masked, so all connections may share one."""
    size = len(data)
    if size < 126:
        return b"\x81" + bytes((size,)) + data
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2) + data
    return b"\x81\x7f" + size.to_bytes(8) + data
