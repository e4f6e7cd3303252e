"""Asks a person to approve calls of a run: the run ends its job, and nothing waits but rows. Contract: approvals 1."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.approval import Approval, ApprovalState, AskedCall
from antiphon.domain.classification import Classification
from antiphon.domain.distrust import ReadSource
from antiphon.domain.ids import ApprovalId
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.deliveries.asking import count_asked, requested_event
from antiphon.engine.deliveries.requests import ask_deciders
from antiphon.engine.ledger.fence import Fence
from antiphon.engine.ledger.run_log import Steps, record_steps
from antiphon.engine.rules import Rules
from antiphon.store import approvals
from antiphon.store import runs as ledger
from antiphon.store.codec import milliseconds, moment
from antiphon.store.database import Transaction
from antiphon.store.spawns import DUE


class AskApproval(Struct, frozen=True, kw_only=True):
    calls: Sequence[AskedCall]
    made_of: Classification
    """The join of what the calls were made from."""
    sources: Sequence[ReadSource]
    """What the run had read that it does not trust."""
    rules: Rules


async def ask_approval(tx: Transaction, fence: Fence, command: AskApproval) -> bool | None:
    """Stores the request and stops the run until it is answered. None if the fence is old or the run ended.

    False if the run is to be cancelled: then it does not ask. The time that is left of its limit is kept, so the wait
    does not count. Contract: runs 1, approvals 1.
    """
    found = await ledger.find_in_log(tx, fence.run_id)
    if found is None or found.run.fence != fence.number or found.run.status is not RunStatus.RUNNING:
        return None
    run, at_ms = found.run, tx.now_ms
    if run.is_cancel_requested:
        return False
    approval = Approval(
        id=ApprovalId(tx.new_id("appr")),
        session=run.session,
        session_key=run.session_key,
        session_id=run.session_id,
        run=run.id,
        agent_id=run.agent_id,
        principal=run.principal,
        state=ApprovalState.PENDING,
        calls=tuple(command.calls),
        sources=tuple(command.sources),
        asked_at=moment(at_ms),
        expires_at=tx.now + command.rules.approval.expire_after,
    )
    await approvals.insert(tx, approval)
    left_ms = None if run.deadline is None else max(milliseconds(run.deadline) - at_ms, 1)
    is_cancelled = await ledger.pause(
        tx,
        run.id,
        {
            "status": RunStatus.AWAITING_APPROVAL.value,
            "approval": approval.id,
            "attempt": 0,  # the claim that resumes it is its first one since
            "process": None,
            "deadline": None,
            **({} if left_ms is None else {"time_limit": left_ms}),
            "waiting_for": None,
            "wait_until": None,
            "delay": None,
            **ledger.made_of_columns(run.made_of.join(command.made_of)),
        },
    )
    if is_cancelled:
        await approvals.make_due(tx, [run.id])
    await record_steps(
        tx,
        run,
        Steps([requested_event(approval, command.made_of)], is_counted=False),
        set={"status": SessionStatus.AWAITING_APPROVAL.value},
        add={"pending_approvals": 1},
        end=found.end,
    )
    await ask_deciders(tx, approval.id, command.made_of, command.rules)
    tx.wake(DUE)
    count_asked(approval)
    return True
