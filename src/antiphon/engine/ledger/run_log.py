"""What a run adds to its log, with the sums that are kept of it: counters, preview, and what was used."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from antiphon.domain.event import NewEvent
from antiphon.domain.ids import RunId
from antiphon.domain.message import (
    NO_USAGE,
    AssistantMessage,
    ToolResult,
    text_content,
    text_of,
)
from antiphon.domain.run import Run
from antiphon.domain.text import PREVIEW_LENGTH, one_line
from antiphon.domain.transcript import OpenCall
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.sessions import LogEnd

AGENT_ACTOR = "agent"
INCARNATION_COLUMNS = frozenset({"message_count", "turn_count", "preview", "context_tokens"})
"""Columns of a session's row that tell of its present incarnation; what comes late for an ended one leaves them."""
OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the process stopped before its result was stored. "
    "It may or may not have taken effect. Check before calling again."
)
NOT_RUN = "This call was not run: the run ended before it began."


async def append_steps(
    tx: Transaction,
    run: Run,
    events: Sequence[NewEvent],
    *,
    counted: bool,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
    end: LogEnd | None = None,
) -> int:
    """Appends and keeps the sums: counters, preview, and what was used by run, session and day."""
    set, add = dict(set or {}), dict(add or {})
    usage = NO_USAGE
    for event in events:
        match event.message:
            case AssistantMessage() as message:
                usage = usage + message.usage
                add["message_count"] = add.get("message_count", 0) + 1
                if text := text_of(message.content):
                    set["preview"] = one_line(text, PREVIEW_LENGTH)
                if message.usage.steps:
                    set["context_tokens"] = message.usage.total_tokens
            case ToolResult():
                add["message_count"] = add.get("message_count", 0) + 1
            case _:
                usage = usage + event.usage
    if usage.steps:
        await ledger.add_usage(tx, run.id, usage)
        add |= {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "steps": usage.steps,
        }
        if usage.cost_microusd is not None:
            add["cost_microusd"] = usage.cost_microusd
        if counted:
            spent = ledger.Spent(usage.total_tokens, usage.cost_microusd or 0)
            await ledger.add_spent(tx, day_of(at_ms), run.agent_id, spent)
    if run.code == "reset":
        set = {column: value for column, value in set.items() if column not in INCARNATION_COLUMNS}
        add = {column: value for column, value in add.items() if column not in INCARNATION_COLUMNS}
    return await append(tx, run, events, at_ms=at_ms, set=set, add=add, end=end)


async def append(
    tx: Transaction,
    run: Run,
    events: Sequence[NewEvent],
    *,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
    end: LogEnd | None = None,
) -> int:
    """Appends to the incarnation that the run belongs to, even after a reset."""
    position = await log.append(tx, run.session, run.session_id, events, at_ms=at_ms, set=set, add=add, end=end)
    if position.incarnation != run.session_id:
        await rows.stretch_incarnation(tx, run.session_id, position.last_seq)
    return position.last_seq


def day_of(at_ms: int) -> str:
    """The UTC day, `yyyy-mm-dd`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


def call_name(run_id: RunId, call: OpenCall) -> str:
    """The same in every attempt of the run. Contract: runs 8."""
    return f"{run_id}-{call.message_seq}-{call.index}"


def closing_result(call: OpenCall, message_id: str) -> ToolResult:
    """What stands for the outcome of a call that will have none."""
    return ToolResult(
        message_id=message_id,
        call_seq=call.message_seq,
        call_index=call.index,
        tool=call.part.name,
        tool_call_id=call.part.call_id,
        content=text_content(OUTCOME_UNKNOWN if call.is_begun else NOT_RUN),
        is_error=True,
    )
