"""Harnesses that run in this process, each with the turn of one run; some wait for an approval, for a while.

A turn outlives the claim of its run while it is parked: so its process belongs to this room, not to the worker.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.harness import Harness, open_harness
from antiphon.acp.permissions import PermissionRequest
from antiphon.acp.provider_usage import ProviderUsage
from antiphon.acp.recorder import Recorder
from antiphon.acp.run_tools import Offer
from antiphon.acp.turn import HarnessTurn
from antiphon.acp.updates import TurnUsage, Update
from antiphon.acp.walls import Walls
from antiphon.domain.approval import Approval
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.domain.run import Run
from antiphon.engine.ledger.waits import Waits

logger = logging.getLogger(__name__)

MOST_PARKED: Final = 16
"""Processes that wait for approvals at the same time; the one that has waited longest makes room."""
HELD_ITEMS: Final = 1_000
CLOSE_SECONDS: Final = 15.0
"""How long a turn that is called off may take to end by itself, so that the harness can store what it has."""
WAITS: Final[JsonObject] = {
    "status": "pending",
    "message": "The call waits for approval and has not run. It runs once it is approved; then you go on with its "
    "result. Do not call it again meanwhile.",
}
ENDED: Final[JsonObject] = {
    "status": "error",
    "code": "run_over",
    "error": "The turn that called this tool is over. Nothing more is done for it.",
}


@dataclass(slots=True, eq=False)
class ToolRequest:
    """A call of one of our tools, which the run makes for its harness."""

    name: str
    arguments: JsonObject
    answer: JsonObject | None = None
    done: anyio.Event = field(default_factory=anyio.Event)

    def end(self, answer: JsonObject) -> None:
        if self.answer is None:
            self.answer = answer
            self.done.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOver:
    stop_reason: str
    usage: TurnUsage | None


@dataclass(frozen=True, slots=True)
class Counted:
    """The provider has counted something, which the recorder has."""


Item: TypeAlias = Counted | Update | PermissionRequest | ToolRequest | TurnOver | HarnessError


class LiveTurn:
    """One harness that runs, for one run."""

    def __init__(self, run: Run) -> None:
        self.run_id = RunId(run.id)
        self.session = SessionRow(run.session)
        self.harness: Harness | None = None
        self.walls: Walls | None = None
        self.native_id = ""
        self.is_walled = False
        """Whether its process runs within walls."""
        self.recorder = Recorder()
        self.waiting: PermissionRequest | ToolRequest | None = None
        """What its process waits for while it is parked."""
        self.offer: Offer | None = None
        """How the harness reaches the tools of its run."""
        self.withdraw: Callable[[Offer], None] | None = None
        self.refused: tuple[Approval, JsonObject] | None = None
        """The last request of its turn that was denied: some end the turn then, and their model does not hear of it."""
        self.error: HarnessError | None = None
        """Why it could not be opened."""
        self.items: MemoryObjectReceiveStream[Item]
        self._send: MemoryObjectSendStream[Item]
        self._send, self.items = anyio.create_memory_object_stream[Item](HELD_ITEMS)
        self._calls: list[ToolRequest] = []
        self.opened = anyio.Event()
        self.closing = anyio.Event()
        self.gone = anyio.Event()
        self.unparked = anyio.Event()
        self.tasks: TaskGroup | None = None
        self._turn: HarnessTurn | None = None

    def prompt(self, text: str, saw: int) -> None:
        """Begins the next turn of the native session; what it tells comes as items."""
        assert self.harness is not None and self.tasks is not None
        self.recorder.begin(saw, text)
        self._turn = self.harness.prompt(self.native_id, [text])
        self.tasks.start_soon(self._pump, self._turn)

    async def _pump(self, turn: HarnessTurn) -> None:
        try:
            async for told in turn:
                await self._send.send(told)
            over = TurnOver(stop_reason=turn.stop_reason or "end_turn", usage=turn.usage)
            await self._send.send(over)
        except HarnessError as error:
            await self._send.send(self.explained(error))

    def count(self, usage: ProviderUsage) -> None:
        """What the provider counts is the harness's usage from now on, in place of its own words."""
        self.recorder.provider, usage.tell = usage, self._tell

    def _tell(self) -> None:
        with suppress(anyio.WouldBlock):  # much waits to be read, and the end of the turn asks the recorder
            self._send.send_nowait(Counted())

    def explained(self, error: HarnessError) -> HarnessError:
        """The error with what its walls say of it: a harness that they ended has only ended for its own side."""
        why = None if self.walls is None else self.walls.error
        return why or error

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """The answer of a call that the run makes for the harness."""
        request = ToolRequest(name, arguments)
        if self.closing.is_set():
            return ENDED
        self._calls.append(request)
        try:
            await self._send.send(request)
            await request.done.wait()
        finally:
            self._calls.remove(request)
        assert request.answer is not None
        return request.answer

    async def call_off(self) -> None:
        """Cancels the turn, and gives the harness a moment to end it by itself."""
        if self.harness is None or self._turn is None or self._turn.is_over:
            return
        with anyio.move_on_after(CLOSE_SECONDS):
            try:
                await self.harness.cancel(self.native_id)
                self.end_calls()  # it may take in the cancellation only once they have an answer
                async for item in self.items:
                    if isinstance(item, TurnOver | HarnessError):
                        break
            except AntiphonError:
                pass  # it is dead, which is what was wanted

    def end_calls(self) -> None:
        """Ends the calls that wait, and takes the run's tools away."""
        if self.offer is not None and self.withdraw is not None:
            self.withdraw(self.offer)
        for request in tuple(self._calls):
            request.end(WAITS if request is self.waiting else ENDED)


class LiveTurns:
    """The harnesses of this process. `run` must be running."""

    def __init__(self, waits: Waits, park_time: timedelta) -> None:
        self._waits = waits
        self._park_time = park_time
        self._parked: dict[RunId, LiveTurn] = {}
        self._tasks: TaskGroup | None = None
        self._started = anyio.Event()

    async def run(self) -> None:
        """Holds the harnesses until cancelled; then all of them are killed."""
        async with anyio.create_task_group() as self._tasks:
            self._started.set()
            await anyio.sleep_forever()

    @property
    def parked(self) -> Sequence[RunId]:
        """The runs whose processes wait for an approval."""
        return tuple(self._parked)

    async def open(self, run: Run, walls: AbstractAsyncContextManager[Walls]) -> LiveTurn:
        """Starts a harness for the run within what is around it. Raises `HarnessError`."""
        await self._started.wait()
        assert self._tasks is not None
        live = LiveTurn(run)
        self._tasks.start_soon(self._hold, live, walls)
        try:
            await live.opened.wait()
        except BaseException:
            await self.close(live)
            raise
        if live.error is not None:
            raise live.error
        return live

    async def _hold(self, live: LiveTurn, around: AbstractAsyncContextManager[Walls]) -> None:
        """Keeps the process until it is closed; it ends whole, whatever happens."""
        try:
            async with (
                around as live.walls,
                open_harness(live.walls.command) as live.harness,
                anyio.create_task_group() as live.tasks,
            ):
                if live.walls.usage is not None:
                    live.count(live.walls.usage)
                live.opened.set()
                await live.closing.wait()
                live.tasks.cancel_scope.cancel()
        except Exception as error:
            live.error = live.error or live.explained(_error_in(error))
            if live.opened.is_set():
                logger.exception("Harness failed", extra={"action": "harness_failed", "run_id": live.run_id})
        finally:
            live.closing.set()
            live.end_calls()
            live.opened.set()
            live.gone.set()

    async def take(self, run: Run) -> LiveTurn | None:
        """The run's own parked turn, which it goes on with. Those of other runs of its session are ended.

        Contract: approvals 2.
        """
        for live in tuple(self._parked.values()):
            if live.session == run.session and live.run_id != run.id:
                await self._unpark(live)
                await self.end(live)
        live = self._parked.get(RunId(run.id))
        if live is None:
            return None
        await self._unpark(live)
        if live.closing.is_set() or live.harness is None or live.harness.error is not None:
            await self.close(live)
            return None
        return live

    async def park(self, live: LiveTurn, waiting: PermissionRequest | ToolRequest) -> None:
        """Lets the process wait, as long as the settings say and its run is not over."""
        assert self._tasks is not None
        live.waiting, live.unparked = waiting, anyio.Event()
        if not self._park_time:
            await self.end(live)
            return
        if len(self._parked) >= MOST_PARKED:
            oldest = next(iter(self._parked.values()))
            await self._unpark(oldest)
            await self.end(oldest)
        self._parked[live.run_id] = live
        self._tasks.start_soon(self._watch, live)

    async def _watch(self, live: LiveTurn) -> None:
        """Ends a parked turn when its time or its run is over."""
        unparked = live.unparked
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, unparked, tasks.cancel_scope)
            tasks.start_soon(_cancel_when, live.closing, tasks.cancel_scope)
            with suppress(AntiphonError):  # the run was deleted, or the program stops
                await self._waits.wait(live.run_id, self._park_time, live.session)
            tasks.cancel_scope.cancel()
        if self._parked.get(live.run_id) is live and not unparked.is_set():
            await self._unpark(live)
            await self.end(live)

    async def _unpark(self, live: LiveTurn) -> None:
        self._parked.pop(live.run_id, None)
        live.unparked.set()

    async def end(self, live: LiveTurn) -> None:
        """Calls the turn off, and closes it."""
        try:
            await live.call_off()
        finally:
            await self.close(live)

    async def close(self, live: LiveTurn | None) -> None:
        """Ends the process with all that it has started."""
        if live is None:
            return
        live.closing.set()
        live.end_calls()
        with anyio.CancelScope(shield=True):
            await live.gone.wait()


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _error_in(error: Exception) -> HarnessError:
    """The error of a harness, also within a group of errors of its tasks."""
    if isinstance(error, HarnessError):
        return error
    if isinstance(error, ExceptionGroup):
        within: Sequence[Exception] = cast("ExceptionGroup[Exception]", error).exceptions
        return _error_in(within[0])
    return HarnessError(HarnessCode.FAILED, "Harness could not be held: an internal error, see the log.")
