"""A finding: the facts about a child that ended, and the three texts of its record. Contract: spawn 7."""

import re
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.message import Part, TextPart, Usage
from antiphon.domain.run import RunStatus
from antiphon.domain.session_ids import transcript_path
from antiphon.domain.text import flat


class ResultSource(StrEnum):
    """Where a result came from."""

    REPLY = "reply"
    TOOL = "tool"
    """The last tool call with an effect; the child itself said nothing."""
    EARLIER_WORDS = "earlier_words"
    """The child's words before its last reply, which was empty."""


_SOURCE_NOTES = {
    ResultSource.TOOL: "The {} wrote no reply; the result is from its last tool call.",
    ResultSource.EARLIER_WORDS: "The {}'s last reply is empty; the result is its last text before that.",
}


class Finding(Struct, frozen=True, kw_only=True):
    """The facts about a child that ended. Statuses and numbers come from the runtime, never from a model."""

    name: str
    """The label, else the key; of a task its name."""
    task_run: str | None = None
    """Of a task: the run that brought the result."""
    session_key: str
    session_id: str
    status: RunStatus
    error: str | None
    result: str
    source: ResultSource
    notes: tuple[str, ...]
    runtime_ms: int
    usage: Usage


NO_RESULT = "(no output)"
WITHHELD = (
    "[A result is waiting that this session may not read: it is classified higher. sessions_wait with its runId and "
    "accept returns it if this session may hold it.]"
)


def status_line(status: RunStatus, error: str | None) -> str:
    """`ok | error: … | timeout | cancelled`, on one line."""
    return f"error: {flat(error or '') or 'unknown'}" if status is RunStatus.ERROR else status.value


class Record(Struct, frozen=True, kw_only=True):
    """A record as it is read again."""

    name: str
    """The child's label, else its key; of a task its name."""
    is_of_task: bool = False
    """Whether a task brought it."""
    status: str
    """`ok | error: … | timeout | cancelled`."""
    result: str
    notes: str
    """Notes and statistics."""

    @property
    def is_ok(self) -> bool:
        return self.status == RunStatus.OK


SUB_AGENT, TASK = "Sub-agent", "Task"
_LEAD = re.compile(rf"({SUB_AGENT}|{TASK}): ([^\n]*)\nStatus: ([^\n]*)\nResult:\n")


def read_record(parts: Sequence[Part]) -> Record | None:
    """What `record_parts` wrote; None for anything else."""
    match parts:
        case [TextPart(text=lead), TextPart(text=result), TextPart(text=notes)]:
            found = _LEAD.fullmatch(lead)
            return found and Record(
                name=found[2], is_of_task=found[1] == TASK, status=found[3], result=result, notes=notes.strip()
            )
        case _:
            return None


def read_task_name(lead: str) -> str | None:
    """The name of the task whose result follows that text; None for a sub-agent's."""
    found = _LEAD.fullmatch(lead)
    return found[2] if found is not None and found[1] == TASK else None


def record_parts(finding: Finding) -> tuple[Part, ...]:
    """Three texts: before the result, the result, after the result. Contract: spawn 7."""
    result = finding.result or NO_RESULT
    notes = list(finding.notes)
    if finding.result and finding.source in _SOURCE_NOTES:
        notes.insert(0, _SOURCE_NOTES[finding.source].format(_kind(finding).lower()))
    if finding.status is RunStatus.TIMEOUT:
        notes.insert(0, "The time limit was reached; the result may be incomplete.")
    told = f"\nNotes: {' '.join(notes) if notes else 'none'}\n{_stats(finding)}"
    return (TextPart(text=_lead(finding)), TextPart(text=result), TextPart(text=told))


def withheld_parts(finding: Finding) -> tuple[Part, ...]:
    """Says that a result waits; not what it is, how it ended, when, or what it cost. Contract: flow 4, 6."""
    lead = f"{_kind(finding)}: {flat(finding.name)}\nStatus: {RunStatus.OK.value}\nResult:\n"
    named = "" if finding.task_run is None else f" · runId {finding.task_run}"
    stats = f"\nStats: session {finding.session_key}{named}"
    return (TextPart(text=lead), TextPart(text=WITHHELD), TextPart(text=stats))


def quarantined_parts(finding: Finding) -> tuple[Part, ...]:
    """The record of a child in quarantine: without numbers, which it could have chosen. Contract: flow 10."""
    told = f"\nNotes: {' '.join(finding.notes)}\nStats: session {finding.session_key}"
    return (TextPart(text=_lead(finding)), TextPart(text=finding.result or NO_RESULT), TextPart(text=told))


def _kind(finding: Finding) -> str:
    return SUB_AGENT if finding.task_run is None else TASK


def _lead(finding: Finding) -> str:
    return f"{_kind(finding)}: {flat(finding.name)}\nStatus: {status_line(finding.status, finding.error)}\nResult:\n"


def _stats(finding: Finding) -> str:
    usage = finding.usage
    stats = [
        f"runtime {finding.runtime_ms / 1000:.1f} s",
        f"tokens {usage.input_tokens} in, {usage.output_tokens} out",
        f"session {finding.session_key}",
        f"id {finding.session_id}",
        f"transcript {transcript_path(finding.session_id)}",
    ]
    if usage.cost_microusd is not None:
        stats.append(f"cost {usage.cost_microusd / 1_000_000:.4f} USD")
    return "Stats: " + " · ".join(stats)
