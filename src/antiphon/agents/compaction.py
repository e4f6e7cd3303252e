"""Keeps a long conversation within the model's context. Contract: runs 9."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from antiphon.agents.asking import Asking
from antiphon.agents.model import ModelError, ModelErrorKind, RefusedEntry
from antiphon.agents.prompt import Framing
from antiphon.agents.repair import Shortening
from antiphon.agents.summary import BYTES_PER_TOKEN, summarise
from antiphon.domain.classification import join_all
from antiphon.domain.distrust import sources_data
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.message import (
    NO_USAGE,
    JsonObject,
    Message,
    TextPart,
    ToolCallPart,
    ToolResult,
    Usage,
    UserMessage,
)
from antiphon.domain.transcript import Entry, Input, Step, Summary, sources_of
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.runs.context import RunContext

logger = logging.getLogger(__name__)

KEPT_SHARE = 0.25
SMALLER_SHARE = 0.25
"""How much of the room for a summary's source is used if all of it was refused."""
Summariser = Callable[[Sequence[Entry]], Awaitable[tuple[str, Usage]]]
"""The summary of the older entries, and what a model used for it. It may raise `ModelError`."""
TURNS_LEFT_OUT = "[The turns after these were left out, because they did not fit.]"


def estimate_tokens(entries: Sequence[Entry], instructions: str) -> int:
    """The provider's last count, plus bytes / 3 of all later entries."""
    size = 0
    for entry in reversed(entries):
        if isinstance(entry, Step) and entry.message.usage.total_tokens:
            size += _size_of_results(entry)
            return entry.message.usage.total_tokens + size // BYTES_PER_TOKEN
        size += _size(entry)
    return (size + len(instructions.encode())) // BYTES_PER_TOKEN


async def compact(
    context: RunContext,
    entries: Sequence[Entry],
    summarised: Summariser,
    *,
    how: Shortening = Shortening.SUMMARY,
) -> bool:
    """Replaces all but the newest quarter by a summary, as a `compacted` event; returns whether it did.

    If the model cannot summarise, the oldest turns are left out, and the log and the prompt say so.
    """
    cut = _cut(entries) or (_before_own(context, entries) if how is Shortening.OLDEST else 0)
    if cut == 0:
        return False
    older, kept = entries[:cut], entries[cut:]
    last, transcript = older[-1], context.transcript
    assert transcript is not None
    through = transcript.summarised_through if isinstance(last, Summary) else last.seq
    data: JsonObject = {
        "throughSeq": through,
        "fromSeq": transcript.needed_from(through, kept),
        "entries": len(older),
    }
    if sources := sources_data(sources_of(older)):
        data["sources"] = sources
    usage = NO_USAGE
    if how is Shortening.OLDEST:
        data |= {"summary": _summary_before(older), "error": "The provider refused the conversation as too long."}
    else:
        try:
            data["summary"], usage = await summarised(older)
        except ModelError as error:
            logger.warning("Compaction failed", extra={"action": "compaction_failed", "run_id": context.run.id})
            if how is Shortening.IF_SUMMARISED:
                return False
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


def summariser_of(asking: Asking, framing: Framing, how: Shortening = Shortening.SUMMARY) -> Summariser:
    """Summaries by the run's model."""

    async def summarised(older: Sequence[Entry]) -> tuple[str, Usage]:
        return await _summarised(asking, older, framing, how)

    return summarised


async def _summarised(asking: Asking, older: Sequence[Entry], framing: Framing, how: Shortening) -> tuple[str, Usage]:
    """The summary; of less of the conversation if all of it is too long for the model, too."""
    try:
        return await summarise(asking, older, framing)
    except ModelError as error:
        may_be_too_long = how is Shortening.IF_SUMMARISED and error.entry is RefusedEntry.UNKNOWN
        if error.kind is not ModelErrorKind.CONTEXT_TOO_LONG and not may_be_too_long:
            raise
        return await summarise(asking, older, framing, share=SMALLER_SHARE)


def _summary_before(older: Sequence[Entry]) -> str | None:
    """The summary that stood at the beginning, as long as it is not all that is left to leave out."""
    first = older[0]
    if not isinstance(first, Summary) or first.text is None or len(older) == 1:
        return None
    return f"{first.text}\n{TURNS_LEFT_OUT}"


def _before_own(context: RunContext, entries: Sequence[Entry]) -> int:
    """How many entries stand before the messages that the run answers."""
    transcript = context.transcript
    assert transcript is not None
    own = {entry.seq for entry in transcript.inputs_of(context.run.id)}
    return next(
        (index for index, entry in enumerate(entries) if not isinstance(entry, Summary) and entry.seq in own), 0
    )


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
    size = sum(len(each.text.encode()) for each in message.cites) if isinstance(message, UserMessage) else 0
    for part in message.content:
        match part:
            case TextPart():
                size += len(part.text.encode())
            case ToolCallPart():
                size += len(part.name) + len(part.arguments.encode())
            case _:
                size += 3_000  # an image or a thought: about a thousand tokens
    return size
