"""Keeps a long conversation within the model's context. Contract: runs 9."""

import logging
from collections.abc import Sequence

from antiphon.agents.asking import Asking
from antiphon.agents.model import ModelError
from antiphon.agents.prompt import Framing
from antiphon.agents.summary import BYTES_PER_TOKEN, summarise
from antiphon.domain.classification import join_all
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.message import (
    NO_USAGE,
    JsonObject,
    Message,
    TextPart,
    ToolCallPart,
    ToolResult,
)
from antiphon.domain.transcript import Entry, Input, Step, Summary
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.runs.context import RunContext

logger = logging.getLogger(__name__)

KEPT_SHARE = 0.25


def estimate_tokens(entries: Sequence[Entry], instructions: str) -> int:
    """The provider's last count, plus bytes / 3 of all later entries."""
    size = 0
    for entry in reversed(entries):
        if isinstance(entry, Step) and entry.message.usage.steps:
            size += _size_of_results(entry)
            return entry.message.usage.total_tokens + size // BYTES_PER_TOKEN
        size += _size(entry)
    return (size + len(instructions.encode())) // BYTES_PER_TOKEN


async def compact(context: RunContext, asking: Asking, entries: Sequence[Entry], framing: Framing) -> bool:
    """Replaces all but the newest quarter by a summary, as a `compacted` event; returns whether it did.

    If the model cannot summarise, the oldest turns are left out, and the log and the prompt say so.
    """
    cut = _cut(entries)
    if cut == 0:
        return False
    older, kept = entries[:cut], entries[cut:]
    last, transcript = older[-1], context.transcript
    assert isinstance(last, Input | Step) and transcript is not None
    data: JsonObject = {
        "throughSeq": last.seq,
        "fromSeq": transcript.needed_from(last.seq, kept),
        "entries": len(older),
    }
    usage = NO_USAGE
    try:
        data["summary"], usage = await summarise(asking, older, framing)
    except ModelError as error:
        logger.warning("Compaction failed", extra={"action": "compaction_failed", "run_id": context.run.id})
        data |= {"summary": None, "error": error.message}
    event = NewEvent(
        type=EventType.COMPACTED,
        actor=AGENT_ACTOR,
        classification=join_all(entry.classification for entry in older),
        run_id=context.run.id,
        data=data,
        usage=usage,
    )
    await context.record([event])
    return True


def _cut(entries: Sequence[Entry]) -> int:
    """How many of the oldest entries to replace; calls and their results are one entry and never split."""
    sizes = [_size(entry) for entry in entries]
    budget = sum(sizes) * KEPT_SHARE
    kept = 0
    for index in range(len(entries) - 1, -1, -1):
        kept += sizes[index]
        if kept > budget:
            cut = min(index + 1, len(entries) - 1)
            return 0 if cut == 1 and isinstance(entries[0], Summary) else cut
    return 0


def _size(entry: Entry) -> int:
    match entry:
        case Summary():
            return len((entry.text or "").encode())
        case Input():
            return _size_of(entry.message)
        case Step():
            return _size_of(entry.message) + _size_of_results(entry)


def _size_of_results(step: Step) -> int:
    return sum(_size_of(result) for result in step.results if isinstance(result, ToolResult))


def _size_of(message: Message) -> int:
    size = 0
    for part in message.content:
        match part:
            case TextPart():
                size += len(part.text.encode())
            case ToolCallPart():
                size += len(part.name) + len(part.arguments.encode())
            case _:
                size += 3_000  # an image or a thought: about a thousand tokens
    return size
