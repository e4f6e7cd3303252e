"""A run that waits for an approval does not hold its session: it is parked for others, and another run continues it.

Contract: approvals 2.
"""

from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import SYSTEM
from antiphon.domain.approval import Approval, ApprovalState, Consequence, moved, on_other_run, tools_of
from antiphon.domain.classification import Classification, Integrity
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import MessageId, RunId
from antiphon.domain.message import (
    OF_DECISIONS,
    AssistantMessage,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.domain.transcript import OpenCall, open_calls
from antiphon.engine.ledger.append import AGENT_ACTOR, Arrival, NewMessage, derived_id
from antiphon.engine.ledger.run_log import Steps, call_name, made_by_run, record_steps
from antiphon.engine.reports.parking import continuation_of, go_on
from antiphon.policy.system import system_grant
from antiphon.store import approvals, standing_approvals
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store.database import Transaction
from antiphon.store.runs import InLog

WAITS = (
    "This call waits for approval (request {id}) and has not run. It runs once it is approved; then you go on with its "
    "result. Do not call it again meanwhile."
)
_WAITS_FOR = "waitsFor"


async def park(tx: Transaction, found: InLog) -> None:
    """Gives the run's open calls the result that they wait, and frees its session for other runs."""
    run = found.run
    approval = await approvals.find_pending_of_run(tx, run.id)
    assert approval is not None, f"Run {run.id} waits for an approval that was not asked for"
    parked = on_other_run(approval)
    assert parked.then is Consequence.PARK
    events = await log.read_run(tx, system_grant(run.session), run.id, from_seq=run.seq)
    made_of = await made_by_run(tx, run, events)
    results = [_waiting_result(run, call, approval, made_of) for call in open_calls(events)]
    await approvals.update_pending(tx, parked.approval)
    await ledger.change(tx, run.id, {"is_parked": 1})
    await record_steps(tx, run, Steps(results, is_counted=False), end=found.end)


def _waiting_result(run: Run, call: OpenCall, approval: Approval, made_of: Classification) -> NewEvent:
    result = ToolResult(
        message_id=call_name(run.id, call),
        call_seq=call.message_seq,
        call_index=call.index,
        tool=call.part.name,
        tool_call_id=call.part.call_id,
        content=text_content(WAITS.format(id=approval.id)),
        details={_WAITS_FOR: approval.id},
    )
    return NewEvent(
        type=EventType.TOOL_RESULT,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=run.id,
        message=result,
        own_integrity=Integrity.TRUSTED,
    )


class _Repeated(NamedTuple):
    """The step whose calls wait."""

    seq: int
    message: AssistantMessage
    classification: Classification
    own_integrity: Integrity
    indexes: list[int]
    """Which of its calls wait, in order."""


async def continue_parked(tx: Transaction, parked: Run, session: Session, approval: Approval) -> None:
    """Queues the run that continues the parked one.

    The request, its answers, and what is allowed until the run ends belong to the continuation from now on.
    """
    run_id = continuation_of(parked)
    await go_on(tx, parked, session, _notice(run_id, approval, session.taint, tx.now_ms), end=None)
    await approvals.move(tx, replace(approval, run=run_id))
    await standing_approvals.move(tx, parked.id, run_id)


async def repeat_calls(tx: Transaction, run: Run) -> None:
    """Makes the calls that wait the first step of the run that continues a parked one, as it begins.

    Not earlier: another run may work until then, and its steps come before these. Does nothing the second time.
    What a client asks for is no call of the run: it only gets the answer.
    """
    approval = next((found for found in await approvals.list_of_run(tx, run.id) if found.is_parked), None)
    if approval is None or run.continues is None:
        return
    if approval.is_of_client:
        await approvals.move(tx, replace(approval, is_parked=False))
        return
    parked, found = await ledger.find(tx, run.continues), await ledger.find_in_log(tx, run.id)
    assert parked is not None and found is not None
    repeated = _repeated(await log.read_run(tx, system_grant(run.session), parked.id, from_seq=parked.seq), approval)
    step = AssistantMessage(
        message_id=MessageId(derived_id("msg", tx.now_ms, run.id, "repeated")),
        content=_content(repeated),
        saw=found.end.last_seq,
        model=repeated.message.model,
        is_undecided=True,
    )
    event = NewEvent(
        type=EventType.ASSISTANT_MESSAGE,
        actor=AGENT_ACTOR,
        classification=repeated.classification,
        run_id=run.id,
        message=step,
        own_integrity=repeated.own_integrity,
    )
    seq = await record_steps(tx, run, Steps([event], is_counted=False), end=found.end)
    places = {(repeated.seq, old): (seq, new) for new, old in enumerate(repeated.indexes)}
    await approvals.move(tx, moved(approval, run.id, places))


def _repeated(events: list[Event], approval: Approval) -> _Repeated:
    waiting = [
        event.message
        for event in events
        if isinstance(event.message, ToolResult) and (event.message.details or {}).get(_WAITS_FOR) == approval.id
    ]
    assert waiting, f"No call waits for approval {approval.id}"
    seq = waiting[0].call_seq
    step = next(event for event in events if event.seq == seq)
    assert isinstance(step.message, AssistantMessage)
    indexes = sorted(result.call_index for result in waiting)
    return _Repeated(seq, step.message, step.classification, step.own_integrity, indexes)


def _content(repeated: _Repeated) -> tuple[ThinkingPart | ToolCallPart, ...]:
    """The calls that wait, byte for byte, after the thoughts that some providers want back with them."""
    thoughts = tuple(part for part in repeated.message.content if isinstance(part, ThinkingPart))
    calls = repeated.message.calls
    return (*thoughts, *(calls[index] for index in repeated.indexes))


def _notice(run_id: RunId, approval: Approval, taint: Classification, at_ms: int) -> NewMessage:
    message = UserMessage(
        message_id=MessageId(derived_id("msg", at_ms, run_id, "decided")),
        content=text_content(decided_text(approval)),
        provenance=OF_DECISIONS,
    )
    actor = str(approval.decided_by or SYSTEM)
    made_of = taint.with_integrity(Integrity.TRUSTED)  # the words are ours
    return NewMessage(message=message, actor=actor, classification=made_of, arrival=Arrival.RECORDED, is_addressed=True)


def decided_text(approval: Approval) -> str:
    """What was decided, as the model and people read it."""
    tools = tools_of(approval.calls)
    if approval.state is ApprovalState.EXPIRED:
        return f"[Nobody answered the request to approve {tools} in time. The calls are denied.]"
    allowed = tools_of([call for call in approval.calls if call.is_allowed])
    denied = tools_of([call for call in approval.calls if call.verdict is not None and not call.is_allowed])
    said = "; ".join([*([f"approved: {allowed}"] if allowed else []), *([f"denied: {denied}"] if denied else [])])
    return f"[The calls that waited for approval were decided. {said[:1].upper()}{said[1:]}.]"
