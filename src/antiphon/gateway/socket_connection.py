"""A WebSocket, with limits on what its client sends and on what waits unread. Contract: gateway 2, 5."""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from antiphon.gateway.connections import LINGER_SECONDS, Connections
from antiphon.metrics import READERS_CUT

PINGS_PER_SECOND = 10
TOO_SLOW = 1013
"""The code for a client that does not read."""

_quiet = logging.getLogger(f"{__name__}.uvicorn")
_quiet.setLevel(logging.ERROR)  # it would log each connection, with the query, where a client may have put a secret


class SocketConnection(WebSocketsSansIOProtocol):
    """One client's WebSocket. Is in the scope as `antiphon.socket`, to which whole frames are written.

    Lost connections, closing and pings are uvicorn's. This class limits messages, pieces and pings, and what waits.
    """

    transport: asyncio.Transport
    scope: Any
    conn: Any

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.logger = _quiet
        self._all = connections
        self._limits = connections.limits
        self.conn.logger, self.conn.debug = _quiet, False
        self.conn.max_message_size = self._limits.first_frame_bytes
        self._message_bytes = 0
        self._pings = float(self._limits.pings)
        self._pinged_at = 0.0
        self._waiting_bytes = 0
        self._waiting_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pinged_at = self.loop.time()
        self._all.unproven[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.close_sent or self.conn.parser_exc is None:
            super().data_received(data)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["antiphon.socket"] = self
            self.scope["antiphon.abort"] = self.transport.abort

    def handle_parser_exception(self) -> None:
        """Also for an unreadable request for a WebSocket, which uvicorn does not expect."""
        if self.handshake_complete or self.conn.close_sent is not None:
            super().handle_parser_exception()
        else:
            self.transport.abort()

    def handle_text(self, event: Frame) -> None:
        self._message_bytes = len(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self.frames = []
        self.end(1003, "Frames are texts. Send JSON as text.")

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        self._message_bytes += len(event.data)
        if len(self.frames) > self._limits.fragments + self._message_bytes // self._limits.chunk_bytes:
            self.frames = []
            self.end(1008, "Message comes in too many small pieces. Send larger ones.")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        try:
            data.decode()
        except UnicodeDecodeError:
            self.end(1007, "Text is not UTF-8.")
            return
        self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(data)})
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        if self._takes_ping():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._takes_ping():
            super().handle_pong(event)

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        self.pong_timer = self.pending_ping_payload = None
        self.end(TOO_SLOW, "Client does not answer pings. Connect again and resume after the last seq.")

    def _takes_ping(self) -> bool:
        """False if the connection was ended: too many pings came, or too many answers wait unread."""
        now = self.loop.time()
        self._pings = min(float(self._limits.pings), self._pings + (now - self._pinged_at) * PINGS_PER_SECOND) - 1
        self._pinged_at = now
        if self._pings >= 0:
            return not self.close_sent
        self.conn.data_to_send()  # answers that nobody will read
        self.end(1008, "Too many pings. Send one a second.")
        return False

    @property
    def is_answer_proven(self) -> bool:
        return self not in self._all.unproven

    def prove(self) -> None:
        """From now on the caller is known: larger messages are read, and the connection is not dropped for others."""
        self._all.unproven.pop(self, None)
        self.conn.logger, self.conn.debug = _quiet, False
        self.conn.max_message_size = self._limits.frame_bytes

    @property
    def stall_seconds(self) -> float:
        return self._limits.socket_stall_seconds

    @property
    def is_writable(self) -> bool:
        """False while more waits in the buffer than the system takes at once."""
        return self.writable.is_set()

    def write(self, frames: bytes) -> None:
        """Writes whole frames at once, unless the connection is closing. `is_writable` says whether to go on."""
        if not self.close_sent and not self.transport.is_closing():
            self.transport.write(frames)

    async def wait_writable(self) -> None:
        """Returns once `is_writable`, or when the connection is lost."""
        while not self.writable.is_set():
            await self.writable.wait()

    def end(self, code: int, reason: str) -> None:
        """Closes the connection. A client that does not answer the close, or does not read, is cut soon after."""
        if self.close_sent or self.transport.is_closing():
            return
        if code != 1000:
            self._all.refusals.note(f"socket_{code}")
        if code == TOO_SLOW:
            READERS_CUT.add()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._all.forget(self)
        self.writable.set()  # whoever waits to write finds that there is nothing more to write
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        if not self.close_sent:
            self._waiting_bytes = self.transport.get_write_buffer_size()
            self._waiting_since = self.loop.time()
            self._all.stalled[self] = None
            self._all.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all.stalled.pop(self, None)

    def sweep_answer(self, now: float) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting < self._waiting_bytes:
            self._waiting_bytes, self._waiting_since = waiting, now
        elif now - self._waiting_since > self._limits.socket_stall_seconds:
            self._all.stalled.pop(self, None)
            self.end(TOO_SLOW, "Client does not read. Connect again and resume after the last seq.")
