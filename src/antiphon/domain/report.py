"""A report: the result that a child owes to the session which spawned it, and what follows when it comes.

Pure. The engine tells what happened and does what is answered; between a child's end and what follows there is only
the report's row. Contract: spawn 7, 8.
"""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.exchange import ANNOUNCE_SKIP
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import Part, TextPart, Usage
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import is_silent
from antiphon.domain.text import flat


class Stage(StrEnum):
    """How far a result came on its way to the requester."""

    OPEN = "open"
    """The child is at work, or waits for children of its own."""
    RECORDED = "recorded"
    """It stands in the requester's log; what follows waits for the end of the run that spawned the child."""
    ANNOUNCING = "announcing"
    """The child words what the requester's channel is told."""
    DONE = "done"
    KEPT = "kept"
    """Nobody is left whom it could be given to: it stays in the child's log, and is listed."""


class Report(Struct, frozen=True, kw_only=True):
    """One row."""

    id: str
    """That of the run which was to bring the result first; what a spawn answers as `runId`."""
    run: RunId
    """The run whose end brings it: the first, or the one that continues it."""
    child: SessionRow
    requester: SessionRow | None
    """None once nobody is left."""
    requester_incarnation: SessionId | None
    origin_run: RunId | None
    """The requester's run that is to have ended before anything follows; the spawning one, or what continues it."""
    is_from_outside: bool = False
    """Whether it was spawned by a call from outside a run: its record starts nothing. Contract: tools 1."""
    waiter: RunId | None = None
    """The requester's run that yielded until this and others are there."""
    place: DeliveryContext | None = None
    """Where the requester's answers went when the child was spawned, if that is outside."""
    principal: Principal
    """Whose rights the child has, and what follows from its result."""
    is_sandboxed: bool = False
    """Whether the child, its requester or a session that caused it is sandboxed; so is what follows then."""
    stage: Stage
    is_taken: bool = False
    """Whether the requester has the result already, by a wait."""


class Following(StrEnum):
    """What follows from a record, once the run that spawned the child has ended."""

    NOTHING = "nothing"
    ANNOUNCE = "announce"
    """A turn of the child that words what the requester's channel is told."""
    RUN = "run"
    """A run of the requester that answers the record."""


def what_follows(report: Report, *, is_present: bool, may_flow: bool) -> Following:
    """`is_present` says whether the requester's incarnation is still the one that spawned.

    A child whose words may not flow to its requester says nothing to that one's channel. Contract: spawn 7, flow 6.
    """
    if report.is_taken or report.is_from_outside or not is_present or report.waiter is not None:
        return Following.NOTHING
    return Following.ANNOUNCE if report.place is not None and may_flow else Following.RUN


def announced_text(status: RunStatus, reply: str, record: str) -> str | None:
    """What the requester's channel is told after the announce turn; None where that chose to say nothing.

    The record itself where the turn failed, or has no words for it.
    """
    if status is not RunStatus.OK or not reply.strip():
        return record
    return None if is_silent(reply, ANNOUNCE_SKIP) else reply


class ResultSource(StrEnum):
    """What a result was taken from."""

    REPLY = "reply"
    TOOL = "tool"
    """The last tool call that did something: the child itself said nothing."""
    EARLIER_WORDS = "earlier_words"
    """What the child said before its last reply, which was empty."""


_SOURCE_NOTES = {
    ResultSource.TOOL: "The sub-agent said nothing; the result is that of its last tool call.",
    ResultSource.EARLIER_WORDS: "The sub-agent's last reply is empty; the result is what it said before.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is told of a child that ended. Statuses and numbers are the runtime's, never a model's."""

    name: str
    """Its label, else its key."""
    session_key: str
    session_id: str
    status: RunStatus
    error: str | None
    result: str | None
    """None if it may not flow to the requester."""
    source: ResultSource
    notes: tuple[str, ...]
    runtime_ms: int
    usage: Usage


NO_RESULT = "(no output)"
WITHHELD = (
    "[A result waits that this session may not read: it holds data above this session. The owner can release it.]"
)


def status_line(status: RunStatus, error: str | None) -> str:
    """`ok | error: … | timeout | cancelled`, on one line."""
    return f"error: {flat(error or '') or 'unknown'}" if status is RunStatus.ERROR else status.value


def record_parts(finding: Finding) -> tuple[Part, ...]:
    """Three texts: what goes before the result, the result, what comes behind. Contract: spawn 7."""
    if finding.result is None:
        return _withheld_parts(finding)
    result = finding.result or NO_RESULT
    notes = list(finding.notes)
    if finding.result and finding.source in _SOURCE_NOTES:
        notes.insert(0, _SOURCE_NOTES[finding.source])
    if finding.status is RunStatus.TIMEOUT:
        notes.insert(0, "The time limit was reached; the result is what there was by then.")
    lead = f"Sub-agent: {flat(finding.name)}\nStatus: {status_line(finding.status, finding.error)}\nResult:\n"
    told = f"\nNotes: {' '.join(notes) if notes else 'none'}\n{_stats(finding)}"
    return (TextPart(text=lead), TextPart(text=result), TextPart(text=told))


def _withheld_parts(finding: Finding) -> tuple[Part, ...]:
    """That a result waits, and nothing of what it is or took. Contract: flow 6."""
    lead = f"Sub-agent: {flat(finding.name)}\nStatus: {finding.status.value}\nResult:\n"
    return (TextPart(text=lead), TextPart(text=WITHHELD), TextPart(text=f"\nStats: session {finding.session_key}"))


def _stats(finding: Finding) -> str:
    usage = finding.usage
    stats = [
        f"runtime {finding.runtime_ms / 1000:.1f} s",
        f"tokens {usage.input_tokens} in, {usage.output_tokens} out",
        f"session {finding.session_key}",
        f"id {finding.session_id}",
        f"transcript /sessions/{finding.session_key}/transcript",
    ]
    if usage.cost_microusd is not None:
        stats.append(f"cost {usage.cost_microusd / 1_000_000:.4f} USD")
    return "Stats: " + " · ".join(stats)
