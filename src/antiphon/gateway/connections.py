"""Client connections, limited in number, time and size before their bytes are interpreted.

uvicorn parses and answers; this module adds the limits that it lacks. Why: docs/decisions/0013. Contract: gateway 5.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Any, Protocol, cast

import httptools
from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from antiphon.channels.kinds import own_kinds
from antiphon.gateway.refusals import RefusedRequests
from antiphon.wire.encoding import compact_json

PIECE_BYTES = 16 * 1024
"""Bytes passed to the parser at a time. Counts by piece are wrong by no more than this."""
SOCKET_LINE_BYTES = 8 * 1024
"""For the request line and each header of a request for a WebSocket."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 1024 * 1024
"""How much is read after a refusal, so that the client sees the answer."""
SWEEP_SECONDS = 0.5
NEVER = float("inf")

SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"cookie",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"last-event-id",
        b"idempotency-key",
        b"antiphon-session",
        b"antiphon-page",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-fetch-site",
        *(name.lower().encode() for kind in own_kinds().values() if kind.address for name in kind.address.headers),
    }
)
"""Headers that decide something. If one came twice, two readers could each use another value."""

_STATUS_LINES = {400: b"HTTP/1.1 400 Bad Request\r\n", 503: b"HTTP/1.1 503 Service Unavailable\r\n"}
_TYPES = {400: "invalid_request", 503: "unavailable"}


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """What a client may use before it is identified."""

    connections: int = 4096
    """Open connections; above this, the one that has been idle longest is dropped."""
    head_seconds: float = 10.0
    """From the connection, or from the first byte of a later request, to the end of the head."""
    idle_seconds: float = 75.0
    """Between two requests."""
    body_seconds: float = 20.0
    """For a body, in addition to the time that its bytes take at the lowest rate."""
    body_rate: int = 16 * 1024
    """The lowest rate of a body, in bytes per second."""
    stall_seconds: float = 60.0
    """How long a client may leave a waiting answer unread."""
    head_bytes: int = 64 * 1024
    """For the request line and the headers; trailers may have as many again."""
    headers: int = 100
    """How many, including trailers."""
    pipelined: int = 8
    """Requests that wait behind another on the same connection."""
    chunks: int = 1000
    """Chunks of a body; more are allowed if the average chunk has `chunk_bytes`."""
    chunk_bytes: int = 64
    """Each chunk costs as much time as some kilobytes in one piece."""

    socket_stall_seconds: float = 30.0
    """How long the client of a WebSocket may leave everything unread."""
    first_frame_bytes: int = 64 * 1024
    """For a WebSocket's messages until its caller is known."""
    frame_bytes: int = 8 * 1024 * 1024
    """For its messages afterwards."""
    fragments: int = 1000
    """Pieces of one message; more are allowed if the average piece has `chunk_bytes`."""
    ping_seconds: float = 30.0
    """Between two pings to the client of a WebSocket, and for its answer."""
    pings: int = 100
    """Pings and pongs that a client may send at once; each second brings back ten."""


def _problem_of_handshake(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """What is wrong with a request for a WebSocket; empty if nothing is."""
    named = {name.lower(): value.strip() for name, value in headers}
    if named.get(b"sec-websocket-version") != b"13":
        return "WebSocket has another version. Send 'Sec-WebSocket-Version: 13'."
    if b"transfer-encoding" in named or named.get(b"content-length", b"0") != b"0":
        return "Request for a WebSocket has a body. Send none."
    try:
        key = base64.b64decode(named.get(b"sec-websocket-key", b""), validate=True)
    except binascii.Error:
        key = b""
    return "" if len(key) == 16 else "Header 'Sec-WebSocket-Key' does not hold 16 bytes in base64."


class _RefusedRequest(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class WatchedConnection(Protocol):
    """A connection of any kind, as far as it is watched while its client does not read."""

    transport: asyncio.Transport

    @property
    def is_answer_proven(self) -> bool: ...

    def sweep_answer(self, now: float) -> None: ...


class Connections:
    """The open connections: idle, receiving a body, or with an unread answer."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.refusals = RefusedRequests()
        self.idle: dict[HttpConnection, None] = {}
        """Without a complete head, oldest first."""
        self.incoming: dict[HttpConnection, None] = {}
        """With an incomplete request body, or refused and not closed yet."""
        self.stalled: dict[WatchedConnection, None] = {}
        """With an answer that waits for the client to read it."""
        self.unproven: dict[WatchedConnection, None] = {}
        """WebSockets whose caller is not known yet, oldest first."""
        self._sweeping: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Sweeps twice a second while there are connections to watch."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def forget(self, connection: "WatchedConnection") -> None:
        places = (self.idle, self.incoming, self.stalled, self.unproven)
        for place in cast("tuple[dict[WatchedConnection, None], ...]", places):
            place.pop(connection, None)

    def make_room(self) -> bool:
        """Drops the connection that matters least: the oldest idle one, else the oldest unproven one.

        Unproven connections that send a body come before those that do not read their answer.
        """
        found: WatchedConnection | None = next(iter(self.idle), None) or next(iter(self.unproven), None)
        if found is None:
            found = next((each for each in self.incoming if not each.is_proven), None)
        if found is None:
            found = next((each for each in self.stalled if not each.is_answer_proven), None)
        if found is None:
            return False
        self.refusals.note("connection_dropped")
        self.forget(found)
        found.transport.abort()
        return True

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in tuple(self.idle):
            connection.sweep_head(now)
        for connection in tuple(self.incoming):
            connection.sweep_body(now)
        for connection in tuple(self.stalled):
            connection.sweep_answer(now)
        if self.idle or self.incoming or self.stalled:
            self.watch()


class AnswerOutlet:
    """The streamed answer to one request: takes whole pieces once its head is sent."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_writable(self) -> bool:
        """False while more waits in the buffer than the system takes at once, and for a client that is gone."""
        cycle = self._cycle
        is_open = cycle.response_started and not cycle.response_complete and not cycle.disconnected
        return is_open and bool(cycle.chunked_encoding) and not cycle.flow.write_paused

    def write(self, frames: bytes) -> None:
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(frames), frames))


class HttpConnection(HttpToolsProtocol):
    """One client's connection. Puts `antiphon.abort` (also drops unsent data) and `antiphon.outlet` into each scope."""

    transport: asyncio.Transport
    flow: FlowControl
    scope: Any
    cycle: Any
    parser: Any

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._limits = connections.limits
        self._is_refused = False
        self._is_in_head = False
        self._is_in_body = False
        self._has_begun = False
        """Whether a byte came since the last request."""
        self._unread = 0
        """Consecutive bytes outside a body: a head's, trailers, extensions of chunks."""
        self._head_bytes = 0
        self._seen: set[bytes] = set()
        self._header_count = 0
        self._deadline = NEVER
        self._body_since = 0.0
        self._body_bytes = 0
        self._chunks = 0
        self._has_body_come = False
        self._socket: asyncio.Protocol | None = None
        """What the connection has become."""
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last that came."""
        self._waiting_bytes = 0
        self._waiting_since = 0.0

    @property
    def is_proven(self) -> bool:
        """Whether the guard identified the caller of the request that is being received."""
        return self.scope is not None and self.scope.get("antiphon.principal") is not None

    @property
    def is_answer_proven(self) -> bool:
        """Whether the guard identified the caller of the request that is being answered."""
        return self._answering is not None and self._answering.scope.get("antiphon.principal") is not None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._all.make_room():
            self._refuse("too_many_connections", "Gateway has too many open connections. Try again.", status=503)
            return
        self._rest(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.forget(self)
        if self._answering is not None:
            self._answering.disconnected = True  # uvicorn marks the last request, which may be another
            self._answering.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        cast("dict[str, object]", cycle.scope)["antiphon.outlet"] = AnswerOutlet(cycle)
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._unread += len(data)
            if self._unread > LINGER_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        if not self._has_begun:
            self._has_begun = True
            if self in self._all.idle:
                self._deadline = min(self._deadline, self.loop.time() + self._limits.head_seconds)
        for start in range(0, len(data), PIECE_BYTES):
            piece = data if len(data) <= PIECE_BYTES else data[start : start + PIECE_BYTES]
            if not self._take(piece):
                rest = data[start + len(piece) :]
                if self._socket is not None and rest:
                    self._socket.data_received(rest)
                return

    def _take(self, piece: bytes) -> bool:
        """False once nothing more may be parsed."""
        self._has_body_come = False
        try:
            self.parser.feed_data(piece)
            self._unread = 0 if self._has_body_come else self._unread + len(piece)
            if self._unread > self._limits.head_bytes + PIECE_BYTES:
                raise self._head_too_large()
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._become_socket(piece[upgrade.args[0] :])
                return False
            # The client offered another protocol but did not demand it: answer the request and read nothing after it.
            self.cycle.keep_alive = False
            return False
        except httptools.HttpParserError as error:
            refused = error.__context__
            if not isinstance(refused, _RefusedRequest):
                refused = _RefusedRequest("invalid_http", "Request is not valid HTTP/1.1.")
            self._refuse(refused.code, refused.message)
            return False
        except _RefusedRequest as refused:
            self._refuse(refused.code, refused.message)
            return False
        return not self._is_refused

    def _should_upgrade(self) -> bool:
        """Whether the request asks for a WebSocket that can be opened: RFC 6455 names method and version."""
        is_plain = self.parser.get_http_version() == "1.1" and self.parser.get_method() == b"GET"
        return is_plain and not self.pipeline and self._is_answered and super()._should_upgrade()

    @property
    def _is_for_socket(self) -> bool:
        return bool(self.parser.should_upgrade()) and self._should_upgrade()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _become_socket(self, rest: bytes) -> None:
        """Hands the connection over, with the bytes that came behind the head."""
        longest = max((len(name) + len(value) for name, value in self.headers), default=0)
        if max(len(self.url), longest) > SOCKET_LINE_BYTES:
            self._refuse("head_too_large", f"Header is larger than {SOCKET_LINE_BYTES} bytes. Send shorter ones.")
            return
        if problem := _problem_of_handshake(self.headers):
            self._refuse("not_a_socket", problem)
            return
        self._all.forget(self)
        self.connections.discard(self)
        head = [b"GET ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            head += (name, b": ", value, b"\r\n")
        socket: Any = cast("Any", self.ws_protocol_class)(
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        socket.connection_made(self.transport)
        self.transport.set_protocol(socket)
        self._socket = socket
        socket.data_received(b"".join((*head, b"\r\n")))
        if rest:
            socket.data_received(rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)["antiphon.abort"] = self.transport.abort
        self._is_in_head = self._has_begun = True
        self._head_bytes = self._header_count = 0
        self._seen = set()
        if len(self.pipeline) >= self._limits.pipelined:
            raise _RefusedRequest(
                "too_many_requests_at_once", "OpenChannel has too many waiting requests. Use several connections."
            )

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        self._header_count += 1
        if self._header_count > self._limits.headers:
            raise _RefusedRequest(
                "too_many_headers", f"Request has more than {self._limits.headers} headers. Send fewer."
            )
        if not self._is_in_head:
            return  # a trailer cannot change what the head decided
        lower = name.lower()
        if lower in SINGLE:
            if lower in self._seen:
                raise _RefusedRequest("repeated_header", f"Header is given twice: {lower.decode()!r}. Send it once.")
            self._seen.add(lower)
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            raise self._head_too_large()

    def _head_too_large(self) -> _RefusedRequest:
        return _RefusedRequest(
            "head_too_large", f"Head is larger than {self._limits.head_bytes} bytes. Send fewer or shorter headers."
        )

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._is_in_head = False
        if self._is_for_socket:
            return
        self._is_in_body = True
        self._unread = 0
        self._head_bytes = 0  # trailers are counted separately
        self._body_since = self.loop.time()
        self._body_bytes = self._chunks = 0
        self._all.idle.pop(self, None)
        self._all.incoming[self] = None
        self._all.watch()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > self._limits.chunks + self._body_bytes // self._limits.chunk_bytes:
            raise _RefusedRequest(
                "chunks_too_small", "Body comes in too many small chunks. Send larger chunks, or a Content-Length."
            )

    def on_body(self, body: bytes) -> None:
        self._has_body_come = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_for_socket:
            return
        self._is_in_body = self._has_begun = False
        self._all.incoming.pop(self, None)
        super().on_message_complete()
        if self.cycle.response_complete:
            self._rest(self._limits.idle_seconds)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_refused:
            return
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self._watch_answer()
        elif self.cycle.response_complete and not self._is_in_body:
            self._rest(self._limits.head_seconds if self._has_begun else self._limits.idle_seconds)

    def _rest(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        self._all.idle.pop(self, None)
        self._all.idle[self] = None
        self._all.watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_answer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all.stalled.pop(self, None)

    def _watch_answer(self) -> None:
        self._waiting_bytes = self.transport.get_write_buffer_size()
        self._waiting_since = self.loop.time()
        self._all.stalled[self] = None
        self._all.watch()

    def sweep_head(self, now: float) -> None:
        if now < self._deadline:
            return
        if self._has_begun:
            self._refuse("head_too_slow", f"Head took longer than {self._limits.head_seconds:g} s. Send it at once.")
            return
        self._all.forget(self)
        self.transport.abort()

    def sweep_body(self, now: float) -> None:
        if self._is_refused:
            if now >= self._deadline:
                self._all.forget(self)
                self.transport.abort()
            return
        if self.flow.read_paused:
            self._body_since += SWEEP_SECONDS  # the delay is ours
            return
        limits = self._limits
        if now - self._body_since > limits.body_seconds + self._body_bytes / limits.body_rate:
            self._refuse("body_too_slow", f"Body comes slower than {limits.body_rate} bytes a second. Send it faster.")

    def sweep_answer(self, now: float) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting < self._waiting_bytes:
            self._waiting_bytes, self._waiting_since = waiting, now
        elif now - self._waiting_since > self._limits.stall_seconds:
            self._all.refusals.note("answer_not_taken")
            self._all.forget(self)
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Does nothing: the sweep closes idle connections."""

    def _refuse(self, code: str, message: str, *, status: int = 400) -> None:
        """Answers, unless another answer has begun, and closes once the client had a chance to read it."""
        self._all.refusals.note(code)
        self._all.forget(self)
        self._is_refused = True
        cycle = self.cycle
        is_answering = cycle is not None and (self.pipeline or (cycle.response_started and not cycle.response_complete))
        is_answered = cycle is not None and cycle.response_complete and self._is_in_body
        if is_answering or is_answered or (cycle is not None and not cycle.response_complete and not self._is_in_body):
            self.transport.abort()
            return
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        body = compact_json({"ok": False, "error": {"type": _TYPES[status], "message": message, "code": code}})
        again = b"retry-after: 1\r\n" if status == 503 else b""
        self.transport.write(
            b"%scontent-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n%s"
            % (_STATUS_LINES[status], len(body), again, body)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._unread = 0
        self._deadline = self.loop.time() + LINGER_SECONDS
        self._all.incoming[self] = None
        self._all.watch()
        self.flow.resume_reading()
