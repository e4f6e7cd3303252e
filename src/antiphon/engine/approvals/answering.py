"""Stores how an approval request ended, with its event and the session's count of open requests."""

from collections.abc import Sequence

from antiphon.domain.actor import SYSTEM
from antiphon.domain.approval import Approval, ApprovalState, on_withdrawn
from antiphon.domain.classification import Classification
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.session import SessionStatus
from antiphon.engine.deliveries.requests import show_answer
from antiphon.engine.ledger.append import append_events
from antiphon.metrics import APPROVALS_ANSWERED, TRUSTED, UNTRUSTED
from antiphon.store import approvals
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.events import Addition


async def store_answer(tx: Transaction, approval: Approval) -> bool:
    """Stores the state of a request that was pending and is not any more; False if it was answered before.

    A session in which nothing else happens is idle again once no request is open. Contract: approvals 3, sessions 2.
    """
    if not await approvals.update_pending(tx, approval):
        return False
    session = await rows.find_by_row(tx, approval.session)
    assert session is not None
    set: dict[str, SqlValue] = {}
    if session.status is SessionStatus.AWAITING_APPROVAL and session.pending_approvals <= 1:
        set["status"] = SessionStatus.IDLE.value
    addition = Addition(
        incarnation=approval.session_id,
        events=[_resolved_event(approval, session.taint)],
        at_ms=tx.now_ms,
        set=set,
        add={"pending_approvals": -1},
    )
    await append_events(tx, approval.session, addition)
    await show_answer(tx, approval)
    if approval.state is ApprovalState.DECIDED:
        APPROVALS_ANSWERED.add(UNTRUSTED if approval.is_untrusted else TRUSTED)
    return True


async def withdraw(tx: Transaction, run: RunId) -> None:
    """Withdraws the open request of the run, which is about to end. Contract: approvals 2, runs 5."""
    approval = await approvals.find_pending_of_run(tx, run)
    if approval is not None:
        await store_answer(tx, on_withdrawn(approval, at=moment(tx.now_ms)).approval)


async def withdraw_all(tx: Transaction, session: SessionRow) -> None:
    """Withdraws the open requests of calls from outside a run; runs withdraw their own when they end."""
    for approval in await approvals.list_pending(tx, session):
        if approval.run is None:
            await store_answer(tx, on_withdrawn(approval, at=moment(tx.now_ms)).approval)


async def withdraw_results(tx: Transaction, reports: Sequence[str]) -> None:
    """Withdraws the open requests about these results, which their session has accepted itself. Contract: flow 6."""
    for approval in await approvals.list_pending_of_results(tx, reports) if reports else ():
        await store_answer(tx, on_withdrawn(approval, at=moment(tx.now_ms)).approval)


def _resolved_event(approval: Approval, taint: Classification) -> NewEvent:
    calls: list[JsonValue] = [
        {"callId": call.id, "tool": call.tool, **({} if call.verdict is None else {"decision": call.verdict.value})}
        for call in approval.calls
    ]
    data: JsonObject = {"approvalId": approval.id, "state": approval.state.value, "calls": calls}
    if approval.note is not None:
        data["note"] = approval.note
    return NewEvent(
        type=EventType.APPROVAL_RESOLVED,
        actor=str(approval.decided_by or SYSTEM),
        classification=taint,
        run_id=approval.run,
        data=data,
    )
