"""HTTP on loopback for a harness alone: on a socket that may be in the network of a sandbox, request by request."""

import asyncio
import logging
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import h11
from anyio.abc import TaskStatus

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 200
"""Of one socket; more are closed at once."""
IDLE_SECONDS: Final = 120.0
_CHUNK: Final = 64 * 1024


class StatusAlone(Exception):
    """A request that is answered with a status and nothing else."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class LoopbackHttp:
    """HTTP over one connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def begin(self) -> bool:
        """Whether another request may come."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return self._http.our_state is h11.IDLE

    async def read(self, max_body: int) -> tuple[h11.Request, bytes]:
        """The next request with its body. Raises `EOFError` if none comes, `StatusAlone` for a body that is longer."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            match event:
                case h11.Request():
                    head = event
                    if head.headers and self._http.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                case h11.Data():
                    body += event.data
                    if len(body) > max_body:
                        raise StatusAlone(413)
                case h11.EndOfMessage():
                    assert head is not None
                    return head, bytes(body)
                case h11.ConnectionClosed():
                    raise EOFError
                case _:
                    with anyio.fail_after(IDLE_SECONDS):
                        self._http.receive_data(await self._reader.read(_CHUNK))

    async def send(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._send(h11.Response(status_code=status, headers=[*headers, length]))
        if body:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def begin_answer(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Begins an answer that comes in pieces."""
        await self._send(h11.Response(status_code=status, headers=[*headers]))

    async def piece(self, data: bytes) -> None:
        if data:
            await self._send(h11.Data(data=data))

    async def end_answer(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


async def serve_loopback(
    listener: socket.socket,
    answer: Callable[[LoopbackHttp], Awaitable[None]],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Has each request on the socket answered, until cancelled; then the socket is closed."""
    connections = 0

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal connections
        connections += 1
        connection = LoopbackHttp(reader, writer)
        try:
            while await connection.begin():
                await answer(connection)
        except (OSError, h11.ProtocolError, TimeoutError, EOFError):
            pass  # the other side has gone, or speaks no HTTP
        except Exception:
            logger.exception("Request of a harness failed", extra={"action": "harness_request_failed"})
        finally:
            connections -= 1
            writer.close()

    async with anyio.create_task_group() as tasks:

        def begin(reader: StreamReader, writer: StreamWriter) -> None:
            if connections >= MAX_CONNECTIONS:
                writer.close()
            else:
                tasks.start_soon(serve, reader, writer)

        server = await asyncio.start_server(begin, sock=listener)
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            server.close()
