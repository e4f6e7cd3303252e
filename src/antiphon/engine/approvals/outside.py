"""Calls from outside a run that need an approval: asked, and carried out once after the decision.

Contract: approvals 3, 5.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.approval import Approval, ApprovalState, AskedCall, find_identical
from antiphon.domain.errors import REFUSALS, Conflict, NotFound
from antiphon.domain.idempotency import KeyedCall
from antiphon.domain.ids import ApprovalId, Ids, ProcessId
from antiphon.domain.message import ToolResult
from antiphon.domain.session import Session, SessionStatus
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import FoundCaller, find_caller
from antiphon.engine.access.keyed_calls import UNKNOWN
from antiphon.engine.access.reach import Rights
from antiphon.engine.approvals.asking import requested_event
from antiphon.engine.approvals.standing import find_covering
from antiphon.engine.deliveries.requests import ask_deciders
from antiphon.engine.ledger.append import append_events
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.policy.system import system_grant
from antiphon.store import approvals, keyed_calls, processes, standing_approvals
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.codec import json_text, moment
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.people import find_standing
from antiphon.store.spawns import DUE

MAX_OPEN = 50
"""Open requests of one session, beyond which calls from outside are refused instead of asked about."""
BATCH = 100


class AskFromOutside(Struct, frozen=True, kw_only=True):
    id: ApprovalId
    caller: Caller
    origin: str
    """Identifies the call; a repeated one finds its request."""
    call: AskedCall
    expires_at: datetime
    rules: Rules
    at_ms: int


class BeginApprovedCall(Struct, frozen=True, kw_only=True):
    id: ApprovalId
    process: ProcessId
    rules: Rules
    is_idempotent: bool
    """Whether a call that was cut may run again."""
    at_ms: int


class OutsideApprovals:
    """Approvals of calls that act as a session without being one of its runs."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        waits: Waits,
        rules: Rules,
        process: ProcessId,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._waits = waits
        self._rules = rules
        self._process = process
        self._clock = clock
        self._ids = ids

    async def ask(self, caller: Caller, origin: str, call: AskedCall) -> Approval | StandingApproval | KeyedCall:
        """The request of the call, whatever became of it; a new one the first time, unless it is allowed always.

        A call that is asked about already joins that request; one that has begun unasked does not ask. Raises
        `NotFound`, `Conflict` (`too_many_approvals`).
        """
        command = AskFromOutside(
            id=ApprovalId(self._ids.new("appr")),
            caller=caller,
            origin=origin,
            call=call,
            expires_at=self._clock.now() + self._rules.approval.expire_after,
            rules=self._rules,
            at_ms=self._clock.now_ms(),
        )
        return await self._database.run(ask_from_outside, command, sessions=(caller.session,))

    async def find(self, origin: str) -> Approval | None:
        """The request of the call, if it has asked before."""
        return await self._database.read(approvals.find_by_origin, origin)

    async def forget(self, approval: Approval, origin: str) -> None:
        """The same call asks anew from now on."""
        await self._database.run(approvals.forget_origin, origin, sessions=(approval.session,))

    async def wait_outcome(self, approval: Approval, timeout: timedelta) -> str | None:
        """The answer of the approved call, as JSON; None if it has none after that time."""
        outcome = approval.outcome

        async def has_outcome() -> bool:
            nonlocal outcome
            found = await self._database.read(approvals.find, approval.id)
            outcome = None if found is None else found.outcome
            return found is None or not found.is_due

        if approval.is_due:
            await self._waits.wait_until(approval.session, timeout, has_outcome)
        return outcome

    async def find_result(self, approval: Approval, call: AskedCall) -> ToolResult | None:
        """The result of a call that the run of the request carried out; None if it has none yet."""
        return await self._database.read(_find_result, approval, call)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` whenever a call was approved, until the returned function is called."""
        return self._notifier.subscribe(approvals.APPROVED, wake)

    async def list_to_carry_out(self, is_known: Callable[[Approval], bool]) -> Sequence[Approval]:
        """Requests with an approved call that no living process carries out, those decided first.

        Only those whose tool `is_known` here: however many others wait, they hold up none of these.
        """
        found: list[Approval] = []
        last: Approval | None = None
        while len(found) < BATCH:
            page = await self._database.read(approvals.list_to_carry_out, self._process, last, BATCH)
            found += filter(is_known, page)
            if len(page) < BATCH:
                break
            last = page[-1]
        return found

    async def begin(self, approval: Approval, *, is_idempotent: bool) -> FoundCaller | None:
        """The caller of the approved call, which this process is to carry out now; None if it is not to.

        A call that may have taken effect in a process that died has its outcome then, unless it is idempotent.
        """
        command = BeginApprovedCall(
            id=approval.id,
            process=self._process,
            rules=self._rules,
            is_idempotent=is_idempotent,
            at_ms=self._clock.now_ms(),
        )
        return await self._database.run(begin_call, command, sessions=(approval.session,))

    async def end(self, approval: Approval, outcome: str) -> None:
        """Stores the answer of the call that this process has begun; repetitions get it."""
        begun = replace(approval, begun_by=self._process)
        await self._database.run(end_call, begun, outcome, sessions=(approval.session,))


_RESET = {"status": "error", "code": "reset", "error": "The session was reset before the call began."}


async def ask_from_outside(tx: Transaction, command: AskFromOutside) -> Approval | StandingApproval | KeyedCall:
    if found := await approvals.find_by_origin(tx, command.origin):
        return found
    if begun := await keyed_calls.find_by_origin(tx, command.origin):
        return begun
    standing = await find_standing(tx, command.caller.principal)
    # The caller may have been merged since it was found.
    command = replace(command, caller=replace(command.caller, principal=standing.principal))
    always = await standing_approvals.list_of(tx, command.caller.principal, command.caller.agent_id, None)
    if allowed := find_covering(always, command.call, None):
        return allowed
    session = await rows.find_by_row(tx, command.caller.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    pending = await approvals.list_pending(tx, session.row)
    if found := find_identical(pending, command.call, command.caller.principal):
        await approvals.join(tx, command.origin, found)
        return found
    if session.pending_approvals >= MAX_OPEN:
        raise Conflict(
            f"Session has {MAX_OPEN} open requests for approval: {str(session.key)!r}. Decide some of them first.",
            code="too_many_approvals",
        )
    return await _store(tx, session, command)


async def _store(tx: Transaction, session: Session, command: AskFromOutside) -> Approval:
    """A new request, with its event."""
    approval = Approval(
        id=command.id,
        session=session.row,
        session_key=str(session.key),
        session_id=session.id,
        run=None,
        origin=command.origin,
        agent_id=command.caller.agent_id,
        principal=command.caller.principal,
        state=ApprovalState.PENDING,
        calls=(command.call,),
        asked_at=moment(command.at_ms),
        expires_at=command.expires_at,
    )
    await approvals.insert(tx, approval)
    set: dict[str, SqlValue] = {}
    if session.status is SessionStatus.IDLE:
        set["status"] = SessionStatus.AWAITING_APPROVAL.value
    addition = Addition(
        incarnation=approval.session_id,
        events=[requested_event(approval, session.taint)],
        at_ms=command.at_ms,
        set=set,
        add={"pending_approvals": 1},
    )
    await append_events(tx, session.row, addition)
    await ask_deciders(tx, approval.id, session.taint, command.rules)
    tx.wake(DUE)
    return approval


async def begin_call(tx: Transaction, command: BeginApprovedCall) -> FoundCaller | None:
    """Notes that the process carries out the call, with the rights that its principal has in this moment."""
    approval = await approvals.find(tx, command.id)
    if approval is None or not approval.is_due:
        return None
    if approval.begun_at is not None:
        if approval.begun_by == command.process or await processes.is_alive(tx, approval.begun_by):
            return None
        if not command.is_idempotent:
            await end_call(tx, approval, UNKNOWN)
            return None
    try:
        found = await find_caller(
            tx,
            Rights(approval.principal, command.rules),
            NamedTarget(None, approval.session_id),
            approval.id,
        )
    except REFUSALS as error:
        refused = {"status": "error", "code": error.code, "error": error.message}
        await end_call(tx, approval, json_text(refused))
        return None
    if found.session.id != approval.session_id:
        await end_call(tx, approval, json_text(_RESET))
        return None
    columns: dict[str, SqlValue] = {"begun_at": command.at_ms, "begun_by": command.process}
    return found if await approvals.CLAIMS.write(tx, approval.claim, columns) else None


async def end_call(tx: Transaction, approval: Approval, outcome: str) -> None:
    """Stores the answer, if nobody has taken the call over from who has it as the approval says."""
    await approvals.CLAIMS.write(tx, approval.claim, {"outcome": outcome, "is_due": 0})
    tx.wake(approval.session)


async def _find_result(query: Query, approval: Approval, call: AskedCall) -> ToolResult | None:
    assert approval.run is not None
    events = await log.read_run(query, system_grant(approval.session), approval.run, from_seq=call.message_seq)
    results = (event.message for event in events)
    return next(
        (
            result
            for result in results
            if isinstance(result, ToolResult) and (result.call_seq, result.call_index) == (call.message_seq, call.index)
        ),
        None,
    )
