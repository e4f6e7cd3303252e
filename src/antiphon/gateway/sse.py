"""Server-sent events: a log followed live, with ids for resuming. Contract: gateway 1.

Delivery runs in its own task on the server's raw `send`, because each wake would walk a deep chain of awaits.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import anyio
from msgspec.structs import replace
from starlette.responses import Response

from antiphon.domain.delay import Delay, DelayOver
from antiphon.domain.event import Event, EventType, is_bad_end
from antiphon.domain.ids import RunId
from antiphon.domain.message import ToolResult
from antiphon.domain.run import RunStatus
from antiphon.engine.access.credentials import CredentialEnding, Watch
from antiphon.engine.access.names import PersonNames
from antiphon.feed.follow import Frame, Hub, HubClosed, LogLost, Permit, Reader, ReaderEnded, View
from antiphon.gateway.asgi import Receive, Scope, Send
from antiphon.metrics import READERS, SSE
from antiphon.wire import messages as wire
from antiphon.wire import runs as wire_runs
from antiphon.wire.encoding import compact_json

SSE_TYPE = "text/event-stream"
PIECE_BYTES = 64 * 1024
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = [
    (b"content-type", f"{SSE_TYPE}; charset=utf-8".encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def frame(name: str, data: object, *, id: int | None = None) -> Frame:
    """One event of the stream."""
    head = f"event: {name}\n" if id is None else f"event: {name}\nid: {id}\n"
    return head.encode() + b"data: " + compact_json(data) + b"\n\n"


def _delta(run_id: RunId, text: str | None) -> Frame:
    return frame("delta", {"runId": run_id, "text": text or "", **({} if text is not None else {"restart": True})})


def _delay(run_id: RunId, delay: Delay | DelayOver) -> Frame:
    """Why the run waits for its model's provider, or that it goes on."""
    return frame("delay", wire_runs.delay_event(run_id, delay))


def reset_frame(reason: str) -> Frame:
    return frame("reset", {"reason": reason})


def _end(reason: str) -> Frame:
    """The last event when the reader's credential has ended."""
    return frame("end", {"reason": reason})


def _end_with(watch: Watch, reader: Reader) -> None:
    """Ends the reader when its request's credential ends."""

    def end(reason: CredentialEnding) -> None:
        reader.end(reason.value)

    watch.on_end = end
    if watch.ended is not None:
        end(watch.ended)


@lru_cache(maxsize=8)
def message_view(names: PersonNames, *, include_tools: bool) -> View:
    """Messages as in the history page, one frame each, the runs that did not end well, and requests for approval."""

    def encode(event: Event) -> Frame:
        if event.type in (EventType.APPROVAL_REQUESTED, EventType.APPROVAL_RESOLVED):
            return frame("approval", _event(event, names), id=event.seq)
        if is_bad_end(event):
            return frame("ending", wire.ending(event), id=event.seq)
        if event.message is None or (isinstance(event.message, ToolResult) and not include_tools):
            return b""
        shown = wire.message(event, author=names.author_of(event), compartments=names.compartments)
        return frame("message", shown, id=event.seq)

    return View(
        encode=encode, encode_delta=_delta, encode_delay=_delay, encode_reset=reset_frame, keep_alive=KEEP_ALIVE
    )


def _event(event: Event, names: PersonNames) -> wire.EventShape:
    return wire.event(event, names.name_of(event.actor), names.compartments)


@lru_cache(maxsize=8)
def event_view(names: PersonNames) -> View:
    """Every event of the log."""
    return View(
        encode=lambda event: frame(event.type, _event(event, names), id=event.seq),
        encode_delta=_delta,
        encode_delay=_delay,
        encode_reset=reset_frame,
        keep_alive=KEEP_ALIVE,
    )


def run_view(run_id: RunId, names: PersonNames, on_end: Callable[[], None]) -> View:
    """The messages of one run, and its end; calls `on_end` when the end is encoded.

    A run that yielded ends with the run that continues it.
    """
    messages = message_view(names, include_tools=True)
    current = run_id

    def is_of_run(event: Event) -> bool:
        nonlocal current
        if event.type == "run_started" and event.data.get("continues") == current and event.run_id is not None:
            current = event.run_id
        return event.run_id == current

    def encode(event: Event) -> Frame:
        if not is_of_run(event):
            return b""
        if event.type == "run_finished":
            if event.data.get("isParked"):
                return b""
            on_end()
            return frame("run", {"runId": run_id, **event.data}, id=event.seq)
        return messages.encode(event)

    def encode_hidden(event: Event) -> Frame:
        """The run's end, and nothing else of what is above the reader's clearance."""
        if not is_of_run(event) or event.type != "run_finished" or event.data.get("isParked"):
            return b""
        on_end()
        return frame("run", {"runId": run_id, "status": RunStatus.OK.value, "withheld": True}, id=event.seq)

    def encode_delta(delta_run: RunId, text: str | None) -> Frame:
        return _delta(run_id, text) if delta_run == current else b""

    def encode_delay(delayed: RunId, delay: Delay | DelayOver) -> Frame:
        return _delay(run_id, delay) if delayed == current else b""

    return replace(
        messages, encode=encode, encode_delta=encode_delta, encode_delay=encode_delay, encode_hidden=encode_hidden
    )


class FollowResponse(Response):
    """Sends some frames at once, then the events of the session's log after the cursor."""

    def __init__(
        self,
        hub: Hub,
        permit: Permit,
        *,
        after: int,
        view: View,
        first: Sequence[Frame] = (),
        is_over: Callable[[], bool] | None = None,
        cut: Frame = b"",
    ) -> None:
        """`is_over` is asked after each frame; `cut` is sent last if the gateway stops before the stream is over."""
        super().__init__(status_code=200)
        self._hub = hub
        self._permit = permit
        self._after = after
        self._view = view
        self._first = b"".join(first)
        self._is_over = is_over
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: Send = scope["antiphon.send"]
        async with anyio.create_task_group() as tasks:

            async def disconnected() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            async def deliver(on_stall: Callable[[], None]) -> None:
                with READERS.during(SSE):
                    await self._deliver(raw, on_stall, scope)
                tasks.cancel_scope.cancel()

            def stalled() -> None:
                # Data waiting for a client that does not read would keep the connection open.
                scope["antiphon.abort"]()
                tasks.cancel_scope.cancel()

            tasks.start_soon(disconnected)
            tasks.start_soon(deliver, stalled)

    async def _deliver(self, send: Send, on_stall: Callable[[], None], scope: Scope) -> None:
        last = b""
        permit, is_over = self._permit, self._is_over
        watch: Watch | None = scope.get("antiphon.watch")
        following = self._hub.follow(
            permit,
            self._after,
            self._view,
            on_stall=on_stall,
            outlet=scope.get("antiphon.outlet") if is_over is None else None,
        )
        async with following as reader:
            if watch is not None:
                _end_with(watch, reader)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if self._first:
                await self._send(send, reader, self._first)
                self._first = b""
            while is_over is None or not is_over():
                try:
                    frame = await reader.next()
                except LogLost as lost:
                    last = self._view.encode_reset(lost.reason)
                    break
                except HubClosed:
                    last = self._cut
                    break
                except ReaderEnded as ended:
                    last = _end(ended.reason)
                    break
                await self._send(send, reader, frame)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send(self, send: Send, reader: Reader, frame: Frame) -> None:
        """Sends in pieces, so that at most one waits in the connection's buffer."""
        for start in range(0, len(frame), PIECE_BYTES):
            reader.sending_since = self._hub.clock.monotonic()
            await send({"type": "http.response.body", "body": frame[start : start + PIECE_BYTES], "more_body": True})
        reader.sending_since = None
