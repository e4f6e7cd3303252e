"""One connection of JSON-RPC to a harness: its requests in their order, the answers to ours, and one end for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    Event,
    create_memory_object_stream,
    create_task_group,
    fail_after,
)
from anyio.abc import ByteReceiveStream, ByteSendStream

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.framing import (
    REQUEST_CANCELLED,
    MessageId,
    MessageLines,
    RpcAnswer,
    RpcCall,
    RpcError,
    broken,
    line_of,
    message_of,
)
from antiphon.domain.message import JsonObject, JsonValue

MAX_OPEN_CALLS: Final = 64
"""Requests of the harness that wait for an answer of this side."""


class RpcRequest:
    """A request of the other side. It is answered once; further answers are ignored."""

    def __init__(self, connection: "RpcConnection", call: RpcCall) -> None:
        assert call.id is not None
        self.id = call.id
        self.method = call.method
        self.params = call.params
        self._connection = connection
        self._closed = Event()

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set()

    async def wait_closed(self) -> None:
        """Waits until it is answered, withdrawn by the other side, or the connection has ended."""
        await self._closed.wait()

    def answer(self, result: JsonObject) -> None:
        self._connection.answer(self, {"result": result})

    def refuse(self, error: RpcError) -> None:
        told: dict[str, object] = {"code": error.number, "message": error.text}
        self._connection.answer(self, {"error": told if error.data is None else {**told, "data": error.data}})

    def close(self) -> None:
        self._closed.set()


class Peer(Protocol):
    """What is done with the messages of the other side.

    - Both are called one after the other, in the order of the messages; while one waits nothing more is read.
    - A `HarnessError` from either ends the connection with it.
    """

    async def asked(self, request: RpcRequest) -> None:
        """Takes a request; it is answered now or later."""
        ...

    async def told(self, call: RpcCall) -> None:
        """Takes a notification."""
        ...

    async def closed(self) -> HarnessError:
        """Why nothing more comes, once the other side has closed its output."""
        ...


@dataclass(slots=True)
class Pending:
    """A request of this side that waits for its answer."""

    done: Event
    when_done: Callable[[], None] | None
    result: JsonValue = None
    error: RpcError | HarnessError | None = None

    def end(self) -> None:
        self.done.set()
        if self.when_done is not None:
            self.when_done()


class RpcConnection:
    """Messages over two streams. `run` carries it; after its end every call raises the error that ended it."""

    def __init__(
        self,
        receive: ByteReceiveStream,
        send: ByteSendStream,
        peer: Peer,
        *,
        stall_seconds: float,
        on_end: Callable[[HarnessError], None],
    ) -> None:
        """`stall_seconds` is how long the other side may take in nothing of a message; `on_end` is called before all
        that wait see the error."""
        self._lines = MessageLines(receive)
        self._send = send
        self._peer = peer
        self._stall_seconds = stall_seconds
        self._on_end = on_end
        self._pending: dict[int, Pending] = {}
        self._asked = 0
        self._open: dict[MessageId, RpcRequest] = {}
        self._outgoing, self._to_send = create_memory_object_stream[bytes](10_000)
        self._ended = Event()
        self.error: HarnessError | None = None
        self.received = 0
        """How many messages have come."""
        self.is_idle = False
        """Whether it waits for the next message, and for nobody to take in the last one."""

    async def run(self) -> None:
        """Reads and writes until either fails or `end` is called; raises nothing but cancellation."""
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._read)
                await self._ended.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.end(HarnessError(HarnessCode.ENDED, "Harness was ended."))
            self._outgoing.close()
            self._to_send.close()

    def end(self, error: HarnessError) -> None:
        """Ends the connection: each request that waits fails with the error. The first error counts."""
        if self.error is not None:
            return
        self.error = error
        self._on_end(error)
        self._ended.set()
        for request in self._open.values():
            request.close()
        self._open.clear()
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.error = error
            each.end()

    async def wait_ended(self) -> HarnessError:
        await self._ended.wait()
        assert self.error is not None
        return self.error

    async def request(self, method: str, params: JsonObject, *, seconds: float) -> JsonObject:
        """The result of the request. Raises `RpcError`, `HarnessError`; too late ends all."""
        pending = self.begin(method, params)
        try:
            with fail_after(seconds):
                await pending.done.wait()
        except TimeoutError:
            late = HarnessError(HarnessCode.STALLED, f"Harness did not answer {method!r} within {seconds:g} seconds.")
            self.end(late)
            raise late from None
        return result_of(pending, method)

    def begin(self, method: str, params: JsonObject, when_done: Callable[[], None] | None = None) -> Pending:
        """Sends a request; `when_done` is called in the order of the messages. Raises `HarnessError`."""
        self._check()
        self._asked += 1
        pending = self._pending[self._asked] = Pending(Event(), when_done)
        self._put({"id": self._asked, "method": method, "params": params})
        return pending

    def notify(self, method: str, params: JsonObject) -> None:
        self._check()
        self._put({"method": method, "params": params})

    def answer(self, request: RpcRequest, answer: dict[str, object]) -> None:
        if self._open.get(request.id) is request:
            del self._open[request.id]
            request.close()
            self._put({"id": request.id, **answer})

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _put(self, message: dict[str, object]) -> None:
        try:
            self._outgoing.send_nowait(line_of(message))
        except Exception as error:  # the stream is full or closed
            self.end(self._stalled())
            raise self.error or self._stalled() from error

    async def _write(self) -> None:
        async for line in self._to_send:
            try:
                with fail_after(self._stall_seconds):
                    await self._send.send(line)
            except TimeoutError:
                return self.end(self._stalled())
            except (BrokenResourceError, ClosedResourceError, OSError):
                return None  # its output tells why, or ends as well
        return None

    async def _read(self) -> None:
        try:
            while (line := await self._next_line()) is not None:
                self.received += 1
                await self._take(message_of(line))
        except HarnessError as error:
            self.end(error)
        else:
            self.end(await self._peer.closed())

    async def _next_line(self) -> bytes | None:
        self.is_idle = True
        try:
            return await self._lines.next()
        finally:
            self.is_idle = False

    async def _take(self, message: RpcCall | RpcAnswer) -> None:
        match message:
            case RpcAnswer():
                self._take_answer(message)
            case RpcCall(method="$/cancel_request", id=None):
                self._withdraw(message.params.get("requestId"))
            case RpcCall() if message.id is None:
                await self._peer.told(message)
            case RpcCall():
                assert message.id is not None
                if message.id in self._open:
                    raise broken("it used the id of an open request again")
                if len(self._open) >= MAX_OPEN_CALLS:
                    raise broken(f"it has more than {MAX_OPEN_CALLS} open requests")
                request = self._open[message.id] = RpcRequest(self, message)
                await self._peer.asked(request)

    def _take_answer(self, answer: RpcAnswer) -> None:
        """An answer to nothing, as a second one, is ignored."""
        pending = self._pending.pop(answer.id, None) if isinstance(answer.id, int) else None
        if pending is not None:
            pending.result, pending.error = answer.result, answer.error
            pending.end()

    def _withdraw(self, number: JsonValue) -> None:
        request = self._open.get(number) if isinstance(number, int | str) else None
        if request is not None:
            request.refuse(RpcError(REQUEST_CANCELLED, "Request cancelled"))

    def _stalled(self) -> HarnessError:
        return HarnessError(HarnessCode.STALLED, f"Harness took in nothing for {self._stall_seconds:g} seconds.")


def result_of(pending: Pending, method: str) -> JsonObject:
    """The result of an answered request. Raises its `RpcError` or `HarnessError`."""
    assert pending.done.is_set()
    if pending.error is not None:
        raise pending.error
    if pending.result is None:
        return {}
    if not isinstance(pending.result, dict):
        raise broken(f"its answer to {method!r} is no object")
    return pending.result
