"""Additions of a run to its log, with the sums of its usage."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, join_all
from antiphon.domain.event import Event, NewEvent
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import (
    NO_USAGE,
    AssistantMessage,
    ToolResult,
    text_content,
)
from antiphon.domain.run import Run
from antiphon.domain.transcript import OpenCall
from antiphon.engine.ledger.append import append_steps
from antiphon.engine.ledger.spending import Spender, note_spent
from antiphon.policy.flow import is_held, is_public
from antiphon.policy.sinks import Sinks
from antiphon.store import incarnations
from antiphon.store import runs as ledger
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.sessions import LogEnd

OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the process stopped before its result was stored. "
    "It may or may not have taken effect. Check before calling again."
)
NOT_RUN = "This call was not run: the run ended before it began."


class UsedModel(Struct, frozen=True, kw_only=True, gc=False):
    """The model that a run's steps come from."""

    name: str | None = None
    """None where no model speaks."""
    is_counted: bool = True
    """Whether its tokens count against the daily cap."""


NO_MODEL = UsedModel()


class Steps(Struct, frozen=True, gc=False):
    """Events that a run adds to its log."""

    events: Sequence[NewEvent]
    is_counted: bool
    """Whether the tokens of their messages count against the daily cap."""
    made_of: Classification = PUBLIC
    """What the end of the run was made of, if it ends with them; PUBLIC for fixed words."""
    sinks: Sinks | None = None
    """The clearances of sinks, if the events are results; these may be above the session's ceiling."""
    uses_workspace: bool = False
    """Whether they were made of the workspace too."""
    is_withheld: bool = False
    """Whether they are above the ceiling, so that they do not raise the session. Contract: flow 2."""
    model: str | None = None
    """The model that wrote their messages; None if no model did."""


async def record_steps(
    tx: Transaction,
    run: Run,
    steps: Steps,
    *,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
    end: LogEnd | None = None,
) -> int:
    """Appends to the run's incarnation, and updates the usage of run, session and day."""
    add = dict(add or {})
    usage = NO_USAGE
    for event in steps.events:
        match event.message:
            case AssistantMessage() as message:
                usage = usage + message.usage
            case _:
                usage = usage + event.usage
    if usage.steps:
        await ledger.add_usage(tx, run.id, usage, steps.model)
        add |= {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "steps": usage.steps,
        }
        if usage.cost_microusd is not None:
            add["cost_microusd"] = usage.cost_microusd
        if steps.is_counted:
            await note_spent(tx, Spender(run.agent_id, run.principal, SessionRow(run.session)), usage)
    if steps.is_withheld and end is not None:
        end = replace(end, taint=EVERYTHING)  # nothing raises it
    return await append_steps(tx, run, steps.events, set=set or {}, add=add, end=end)


async def made_by_run(query: Query, run: Run, events: Sequence[Event]) -> Classification:
    """What the run took in and said, of these events of it.

    What was withheld from the run, or not read yet, is above its incarnation's taint and does not count.
    """
    made_of = join_all(event.classification for event in events)
    if is_public(made_of) or (incarnation := await incarnations.find(query, run.session_id)) is None:
        return made_of
    return join_all(event.classification for event in events if is_held(event.classification, incarnation.taint))


def call_name(run_id: RunId, call: OpenCall) -> str:
    """The call's id, equal in every attempt of the run. Contract: runs 8."""
    return call_name_of(run_id, call.message_seq, call.index)


def call_name_of(run_id: RunId, message_seq: int, index: int) -> str:
    return f"{run_id}-{message_seq}-{index}"


def closing_result(call: OpenCall, message_id: str) -> ToolResult:
    """The result to store for a call that will never have one."""
    return ToolResult(
        message_id=message_id,
        call_seq=call.message_seq,
        call_index=call.index,
        tool=call.part.name,
        tool_call_id=call.part.call_id,
        content=text_content(OUTCOME_UNKNOWN if call.is_begun else NOT_RUN),
        is_error=True,
    )
