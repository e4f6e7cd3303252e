"""Calls from outside a run that run once: for their `Idempotency-Key`, or after a yes. Contract: tools 1, approvals 5.

The begin of such a call is stored before the call has any effect. If its process ends before the answer is stored, what
became of the call is unknown, and it does not run again, unless it was approved and its tool is idempotent. A caller
that goes away does not end the call. The yes is stored, too, so any process that has the tool may carry out the call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import anyio
from msgspec.structs import replace

from antiphon.domain.approval import Approval, AskedCall
from antiphon.domain.call import OutsideCall
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import Ids, ProcessId, SessionRow
from antiphon.domain.message import ToolResult
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import FoundCaller
from antiphon.engine.access.reach import Outsider, Rights
from antiphon.engine.calls.steps import (
    MAX_AT_WORK,
    UNKNOWN,
    AskFromOutside,
    BeginKeyedCall,
    BeginsNow,
    TakeCall,
    Told,
    ask_from_outside,
    begin_keyed_call,
    end_call,
    find_result,
    find_told,
    is_left,
    take_call,
)
from antiphon.engine.ledger.due_loop import DueLoop
from antiphon.engine.ledger.waits import LONGEST_WAIT, Waits
from antiphon.engine.rules import Rules
from antiphon.store import approvals, calls
from antiphon.store.database import Database
from antiphon.trouble import Setbacks, Trouble, is_of_all

logger = logging.getLogger(__name__)

STOPPED = "Gateway is stopping: the call may have taken effect. Ask again with the same key."
SWEEP_SECONDS = 5.0
"""Between looks without a wake, for calls that a dead process left."""
RETRY_SECONDS = 0.5
MAX_AT_ONCE = 16
"""Approved calls that a process carries out."""
BATCH = 100


class CallOutcome(NamedTuple):
    answer: str
    """As JSON."""
    made_of: Classification = PUBLIC


CarryOut: TypeAlias = Callable[[FoundCaller], Awaitable[CallOutcome]]


class KeyedRequest(NamedTuple):
    """Who calls, as which session, with which key, and the hash of what they call."""

    actor: Outsider
    target: NamedTarget
    key: str
    sha256: str


class ApprovedWork(NamedTuple):
    tool: str
    is_idempotent: bool
    carry_out: CarryOut


class Gate(Protocol):
    def work_of(self, approval: Approval) -> ApprovedWork | None:
        """What carries out the approved call; None in a process without its tool."""
        ...


class OutsideCalls(DueLoop[Outsider | None]):
    """The calls that run once; those that this process carries out are at work, with who began them by a key."""

    def __init__(
        self, database: Database, waits: Waits, gate: Gate, rules: Rules, *, process: ProcessId, ids: Ids
    ) -> None:
        super().__init__(
            partial(waits.notifier.subscribe, calls.APPROVED),
            looking=Trouble(
                logger, "Reading approved calls", action="approved_calls_failed", means="Approved calls do not run."
            ),
            setbacks=Setbacks(
                logger,
                "Approved call",
                action="approved_call_broken",
                means="It is tried again; others are carried out.",
            ),
            pause=SWEEP_SECONDS,
        )
        self._database = database
        self._waits = waits
        self._gate = gate
        self._rules = rules
        self._process = process
        self._ids = ids
        self._carrying = Trouble(
            logger, "Carrying out a call", action="approved_call_failed", means="Its outcome is reported as unknown."
        )
        self._storing = Trouble(
            logger, "Storing an outcome", action="outcome_failed", means="The outcome may be reported as unknown."
        )

    async def find(self, origin: str) -> Told | None:
        """What became of the call with that origin; None if it did not come before."""
        return await self._database.read(find_told, origin)

    async def ask(self, caller: Caller, origin: str, call: AskedCall) -> Told | StandingApproval:
        """The request of the call, whatever became of it; a new one the first time, unless it is allowed always.

        A call that is asked about already joins that request; one that has begun unasked does not ask. Raises
        `NotFound`, `Conflict` (`too_many_approvals`).
        """
        command = AskFromOutside(caller=caller, origin=origin, call=call, rules=self._rules)
        return await self._database.run(ask_from_outside, command, sessions=(caller.session,))

    async def forget(self, approval: Approval, origin: str) -> None:
        """The same call asks anew from now on."""
        await self._database.run(calls.forget_origin, origin, sessions=(approval.session,))

    async def once(self, request: KeyedRequest, carry_out: CarryOut) -> Told:
        """What became of the call, which is carried out now unless it has begun or asked before.

        It goes on if whoever waits for it here goes away. Raises like `Callers.find`, and what `carry_out` raises.
        """
        if self._is_stopped:
            raise Unavailable(STOPPED, code="stopped")
        command = BeginKeyedCall(
            id=self._ids.new("call"),
            rights=Rights(request.actor, self._rules),
            target=request.target,
            key=request.key,
            sha256=request.sha256,
            process=self._process,
            is_one_too_many=list(self._at_work.values()).count(request.actor) >= MAX_AT_WORK,
        )
        told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        told.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may be there to ask
        self._start(command.id, request.actor, self._begin, command, carry_out, told)
        return await asyncio.shield(told)

    async def settled(self, id: str, session: SessionRow) -> OutsideCall | None:
        """The call once it is over, or as it is after `LONGEST_WAIT`; None if it was deleted with its session."""
        call: OutsideCall | None = None

        async def is_over() -> bool:
            nonlocal call
            call = await self._database.read(calls.find, id)
            if call is None or not call.is_due:
                return True
            if call.approval is not None:
                return False  # what was approved is left to who has its tool.
            is_dropped = call.begun_by == self._process and id not in self._at_work
            if is_dropped or await self._database.read(is_left, call, self._process):
                command = replace(self._take_command(id), is_dropped=is_dropped)
                await self._database.run(take_call, command, sessions=(session,))
            return False

        await self._waits.wait_until(session, LONGEST_WAIT, is_over)
        return call

    async def find_result(self, approval: Approval, call: AskedCall) -> ToolResult | None:
        """The result of a call that the run of the request carried out; None if it has none yet."""
        return await self._database.read(find_result, approval, call)

    async def settle_due(self) -> float:
        """Begins what is due; a process that has the tool of another carries that out."""
        for approval in await self._list_to_carry_out():
            work, at_work = self._gate.work_of(approval), list(self._at_work.values()).count(None)
            if work is not None and self._may_begin(approval.id) and at_work < MAX_AT_ONCE:
                self._start(approval.id, None, self._take, approval, work)
        return SWEEP_SECONDS

    async def _list_to_carry_out(self) -> Sequence[Approval]:
        """Requests with an approved call that no living process carries out, those decided first.

        Only those whose tool is known here: however many others wait, they hold up none of these.
        """
        found: list[Approval] = []
        last: Approval | None = None
        while len(found) < BATCH:
            page = await self._database.read(approvals.list_to_carry_out, self._process, last, BATCH)
            found += (each for each in page if self._gate.work_of(each) is not None)
            if len(page) < BATCH:
                break
            last = page[-1]
        return found

    async def _begin(self, command: BeginKeyedCall, carry_out: CarryOut, told: asyncio.Future[Told]) -> None:
        try:
            begun = await self._database.run(begin_keyed_call, command, sessions=(command.target,))
            if isinstance(begun, BeginsNow):
                await self._carry_out(begun, carry_out, told)
            else:
                told.set_result(begun)
        except Exception as error:
            _tell(told, error)
        finally:
            _tell(told, Unavailable(STOPPED, code="stopped"))

    async def _take(self, approval: Approval, work: ApprovedWork) -> None:
        command = self._take_command(approval.id, may_repeat=work.is_idempotent)
        with self._setbacks.attempt(approval.id, approval_id=approval.id, tool=work.tool):
            while True:
                try:
                    begun = await self._database.run(take_call, command, sessions=(approval.session,))
                    break
                except Unavailable as error:
                    if not is_of_all(error):
                        raise
                    self._looking.failed(error)
                    await anyio.sleep(RETRY_SECONDS)
                    # The store may hold that this process has begun it: it has not.
                    command = replace(command, is_dropped=True, may_repeat=True)
            if begun is not None:
                await self._carry_out(begun, work.carry_out)

    async def _carry_out(self, begun: BeginsNow, work: CarryOut, told: asyncio.Future[Told] | None = None) -> None:
        """Carries out the call and stores its answer; what goes wrong is told who waits, else logged."""
        try:
            outcome = await work(begun.found)
        except Exception as error:
            outcome = CallOutcome(UNKNOWN)
            if told is None:
                self._carrying.failed(error)
            else:
                _tell(told, error)
        await self._end(replace(begun.call, outcome=outcome.answer, made_of=outcome.made_of), told)

    async def _end(self, call: OutsideCall, told: asyncio.Future[Told] | None) -> None:
        """Stores the answer, however long the store cannot take it; who waits has it at the latest after one try."""
        while True:
            try:
                await self._database.run(end_call, call, sessions=(call.session,))
            except Unavailable as error:
                self._storing.failed(error)
                is_stored = False
            else:
                self._storing.worked()
                is_stored = True
            if told is not None and not told.done():
                told.set_result(call)
            if is_stored:
                return
            await anyio.sleep(RETRY_SECONDS)

    def _take_command(self, id: str, *, may_repeat: bool = False) -> TakeCall:
        return TakeCall(id=id, process=self._process, rules=self._rules, may_repeat=may_repeat)


def _tell(told: asyncio.Future[Told], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)
