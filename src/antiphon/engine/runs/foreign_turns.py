"""What a run stores of a turn that an external harness makes. Contract: foreign_agents 2, approvals 3."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.approval import Approval
from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import AssistantMessage, ToolResult
from antiphon.domain.native_record import NativeRecord
from antiphon.domain.run import Run, RunStatus
from antiphon.engine.deliveries.outbox import Outgoing
from antiphon.engine.deliveries.saying import may_speak, say_step, sends_interim
from antiphon.engine.ledger.append import AGENT_ACTOR, raise_workspace
from antiphon.engine.ledger.fence import Fence
from antiphon.engine.ledger.run_log import Steps, UsedModel, record_steps
from antiphon.policy.exit import takes
from antiphon.policy.voices import Voices
from antiphon.store import approvals, native_sessions
from antiphon.store import runs as ledger
from antiphon.store.database import Query, Transaction
from antiphon.store.runs import InLog


class BeginTurn(Struct, frozen=True, kw_only=True):
    native: NativeRecord
    carried: Classification
    """What the prompt was made of; the workspace goes along."""
    left: Classification
    """What the turn leaves in the workspace."""
    clearance: Classification
    """What the harness may have."""


async def begin_turn(tx: Transaction, fence: Fence, command: BeginTurn) -> bool | None:
    """Stores what the harness is about to be prompted with, before it is. None if the fence is old or the run ended.

    False if the workspace holds more by now than the harness may have.
    """
    found = await _fenced(tx, fence)
    if found is None:
        return None
    run, held = found.run, found.end.workspace or PUBLIC
    if not takes(command.clearance, command.carried.join(held)):
        return False
    await native_sessions.put(tx, SessionRow(run.session), command.native)
    if held.join(command.left) != held:
        await raise_workspace(tx, run.session, run.session_id, command.left)
    return True


class ForeignStep(Struct, frozen=True, kw_only=True):
    """What a harness has said and done since its last step."""

    message: AssistantMessage
    """Its words, and the calls that it has carried out itself."""
    results: tuple[ToolResult, ...]
    """Theirs, in order; where the message stands is not known before it is stored."""
    words: Outgoing
    """Its words for the run's place."""
    voices: Voices
    model: UsedModel
    beside_log: Integrity


async def record_foreign_step(tx: Transaction, fence: Fence, step: ForeignStep) -> bool:
    """Stores the step with the results of its calls, so that no call is ever open; False if the fence is old.

    Its words go to the run's place in the same unit. Contract: runs 2.
    """
    found = await _fenced(tx, fence)
    if found is None:
        return False
    run, place, made_of = found.run, found.run.place or found.place, step.words.made_of
    said = NewEvent(
        type=EventType.ASSISTANT_MESSAGE,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=run.id,
        message=step.message,
        own_integrity=step.beside_log,
    )
    seq = await record_steps(tx, run, Steps((said,), step.model.is_counted, model=step.model.name), end=found.end)
    if step.results:
        results = [_result_event(run, replace(each, call_seq=seq), step) for each in step.results]
        await record_steps(tx, run, Steps(results, step.model.is_counted))
    has_words = bool(step.message.text.strip()) and run.purpose.speaks_for_itself
    if has_words and may_speak(run, place) and await sends_interim(tx, run, place, step.voices):
        await say_step(tx, run, place, step.words, seq=seq)
    return True


def _result_event(run: Run, result: ToolResult, step: ForeignStep) -> NewEvent:
    return NewEvent(
        type=EventType.TOOL_RESULT,
        actor=AGENT_ACTOR,
        classification=step.words.made_of,
        run_id=run.id,
        message=result,
        own_integrity=step.beside_log,
    )


async def pass_on(tx: Transaction, fence: Fence, approval: Approval) -> bool | None:
    """Notes that the harness gets the answer now, before it does, so that it gets it once.

    None if the fence is old or the run ended; False if it has it already.
    """
    if await _fenced(tx, fence) is None:
        return None
    present = await approvals.find(tx, approval.id)
    if present is None or present.is_pending or all(call.is_passed_on for call in present.calls):
        return False
    await approvals.move(tx, replace(present, calls=tuple(replace(call, is_passed_on=True) for call in present.calls)))
    return True


async def find_native(query: Query, run: Run) -> NativeRecord | None:
    """What a harness keeps behind the run's incarnation."""
    return await native_sessions.find(query, run.session_id)


async def _fenced(tx: Transaction, fence: Fence) -> InLog | None:
    found = await ledger.find_in_log(tx, fence.run_id)
    is_ours = found is not None and found.run.fence == fence.number and found.run.status is RunStatus.RUNNING
    return found if is_ours else None
