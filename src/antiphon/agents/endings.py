"""The ends of runs, with what their readers are told, whoever carries the runs out."""

import logging
from collections.abc import Sequence

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.domain.classification import Classification
from antiphon.domain.message import AssistantMessage, ToolResult, text_content
from antiphon.domain.run import PLACE_CLEARANCE, Outcome, Purpose, Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.transcript import Step, Transcript
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.policy.flow import ceiling, may_hold
from antiphon.policy.session_tools import YIELD_TOOL

logger = logging.getLogger(__name__)


def yielded(step: Step) -> str | None:
    """The text of a step that yielded; None if it did not yield."""
    for result in step.results:
        if isinstance(result, ToolResult) and result.tool == YIELD_TOOL and not result.is_error:
            called = step.message.calls[result.call_index]
            return str(read_call_arguments(called.arguments).values.get("message") or "")
    return None


def spoken_by_yield(context: RunContext, transcript: Transcript, words: str) -> AssistantMessage | None:
    if not words:
        return None
    return AssistantMessage(
        message_id=context.ids.new("msg"),
        content=text_content(words),
        saw=transcript.last_seq,
        is_undecided=True,
    )


def failed(code: str, message: str) -> RunEnding:
    return RunEnding(outcome=Outcome(status=RunStatus.ERROR, error=message, code=code))


def spoke(said: AssistantMessage, message: AssistantMessage | None = None) -> RunEnding:
    """The end of a run whose last step said this; `message` is what is not stored yet."""
    return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=said.text, cut=said.cut), message=message)


def is_empty(run: Run, message: AssistantMessage) -> bool:
    """Whether the answer says nothing where somebody waits for words."""
    is_awaited = run.purpose.speaks_for_itself and run.purpose is not Purpose.CHILD and run.report is None
    return is_awaited and not message.calls and not message.text.strip()


def unreadable(seqs: Sequence[int]) -> RunEnding:
    return failed(
        "unreadable_entry",
        f"Entry {seqs[0]} of this session cannot be read: its stored form is damaged"
        f"{f' (and {len(seqs) - 1} more)' if len(seqs) > 1 else ''}. Nothing was sent to the model. "
        "Continue in a fork of the session, which has a note in its place, or restore a backup.",
    )


def above_ceiling(context: RunContext, session: Session, held: Classification) -> RunEnding:
    """The end of a run whose session holds more than its ceiling. Contract: flow 2."""
    if may_hold(held, ceiling(session)):
        logger.warning(
            "Run ended because its place lost clearance",
            extra={"action": PLACE_CLEARANCE, "run_id": context.run.id, "session": session.key.value},
        )
        return failed(
            PLACE_CLEARANCE,
            "The place where this session answers may not have what the session holds. Reset the session, or raise the "
            "clearance of its channel and of the person there.",
        )
    return failed(
        "above_clearance",
        "The session holds more than its clearance allows. Reset the session, or raise its clearance.",
    )
