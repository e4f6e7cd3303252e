"""Calls from outside a run that need an approval: asked, and begun once after the decision. Contract: approvals 5."""

from datetime import datetime

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.approval import Approval, ApprovalState, AskedCall
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.ids import ApprovalId, Ids
from antiphon.domain.session import SessionStatus
from antiphon.engine.access.caller import Caller
from antiphon.engine.approvals.asking import requested_event
from antiphon.engine.ledger.append import append_events
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.store import approvals
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import Database, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.spawns import DUE

MAX_OPEN = 50
"""Open requests of one session, beyond which calls from outside are refused instead of asked about."""


class AskFromOutside(Struct, frozen=True, kw_only=True):
    id: ApprovalId
    caller: Caller
    origin: str
    """Identifies the call; a repeated one finds its request."""
    call: AskedCall
    expires_at: datetime
    at_ms: int


class OutsideApprovals:
    """Approvals of calls that act as a session without being one of its runs."""

    def __init__(self, database: Database, rules: Rules, *, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def ask(self, caller: Caller, origin: str, call: AskedCall) -> Approval:
        """The request of the call, whatever became of it; a new one the first time. Raises `NotFound`."""
        command = AskFromOutside(
            id=ApprovalId(self._ids.new("appr")),
            caller=caller,
            origin=origin,
            call=call,
            expires_at=self._clock.now() + self._rules.approval.expire_after,
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(ask_from_outside, command, sessions=(caller.session,)))

    async def begin(self, approval: Approval, *, keeps_origin: bool) -> bool:
        """Whether the approved call may begin now: it may once. Without its origin, the same call asks again later."""
        return await self._database.run(
            begin_call, approval, self._clock.now_ms(), keeps_origin, sessions=(approval.session,)
        )

    async def forget(self, approval: Approval, *, keeps_origin: bool) -> None:
        """Without its origin, the same call asks again after a refusal."""
        if not keeps_origin:
            await self._database.run(approvals.forget_origin, approval.id, sessions=(approval.session,))

    async def end(self, approval: Approval, outcome: str) -> None:
        """Stores the answer, which repetitions of the call get."""
        await self._database.run(approvals.store_outcome, approval.id, outcome, sessions=(approval.session,))


async def ask_from_outside(tx: Transaction, command: AskFromOutside) -> Approval | Refusal:
    if found := await approvals.find_by_origin(tx, command.origin):
        return found
    session = await rows.find_by_row(tx, command.caller.session)
    if session is None:
        return Refusal(NotFound("Session not found: the caller's own session was deleted."))
    if session.pending_approvals >= MAX_OPEN:
        return Refusal(
            Conflict(
                f"Session has {MAX_OPEN} open requests for approval: {str(session.key)!r}. Decide some of them first.",
                code="too_many_approvals",
            )
        )
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
        events=[requested_event(approval)],
        at_ms=command.at_ms,
        set=set,
        add={"pending_approvals": 1},
    )
    await append_events(tx, session.row, addition)
    tx.wake(DUE)
    return approval


async def begin_call(tx: Transaction, approval: Approval, at_ms: int, keeps_origin: bool) -> bool:
    return await approvals.begin(tx, approval.id, at_ms, keeps_origin=keeps_origin)
