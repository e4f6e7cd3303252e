"""What a session governs its own children with: listing, cancelling and steering them. Contract: spawn 8."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.errors import Conflict, Invalid, NotFound, TooLarge
from antiphon.domain.ids import Ids, MessageId, RunId, SessionId
from antiphon.domain.message import Provenance, ProvenanceKind, UserMessage, text_content
from antiphon.domain.report import Stage
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.spawn import Mode, Spawn
from antiphon.engine.arrivals import append_words, shown_columns
from antiphon.engine.callers import Caller, find_origin
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.runs import cancel_work
from antiphon.engine.spawn import queue_work
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Database, Query, Transaction

MAX_MESSAGE_BYTES = 1024 * 1024
TOOL = "subagents"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child as its requester sees it."""

    session: Session
    run_id: RunId
    """Of its newest result, there or still owed."""
    run: Run | None
    task: str
    mode: Mode
    is_at_work: bool
    created_at: datetime


class Steered(NamedTuple):
    child: Session
    run_id: RunId


class SteerChild(Struct, frozen=True, kw_only=True):
    caller: Caller
    name: str
    text: str
    message_id: MessageId
    run_id: RunId
    at_ms: int


class Subagents:
    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids

    async def cancel(self, caller: Caller, name: str) -> list[Child]:
        """Calls off the child's work with that of all its descendants, or of `all` children; those that had any.

        Raises `NotFound` for what is no child of the caller's.
        """
        return accepted(
            await self._database.run(cancel_children, caller, name, self._clock.now_ms(), sessions=(caller.session,))
        )

    async def steer(self, caller: Caller, name: str, text: str) -> Steered:
        """Says something to a child at work; it reads it before its next step. A child that stays begins a run.

        Raises `NotFound`, `Invalid` (`empty_message`), `Conflict` (`child_ended`).
        """
        if not text.strip():
            raise Invalid("Message is empty. Say what the child is to do.", code="empty_message")
        if (size := len(text.encode())) > MAX_MESSAGE_BYTES:
            raise TooLarge(
                f"Message is too large: {size} bytes, the most is {MAX_MESSAGE_BYTES}. Say where to find it.",
                code="message_too_large",
            )
        command = SteerChild(
            caller=caller,
            name=name,
            text=text,
            message_id=MessageId(self._ids.new("msg")),
            run_id=RunId(self._ids.new("run")),
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(steer_child, command, sessions=(caller.session,)))

    async def list(self, caller: Caller) -> list[Child]:
        """The session's children, in the order of their spawning."""
        return await self._database.read(_list, caller)


async def _list(query: Query, caller: Caller) -> list[Child]:
    found = await spawns.list_children(query, caller.session)
    return [child for spawn in found if (child := await _child(query, spawn)) is not None]


async def _child(query: Query, spawn: Spawn) -> Child | None:
    session = await rows.find_by_row(query, spawn.child)
    report = await spawns.find_newest_of_child(query, spawn.child)
    if session is None or report is None:
        return None
    run_id = RunId(report.id)
    run = (await ledger.find_ends(query, [run_id])).get(run_id)
    return Child(
        session=session,
        run_id=run_id,
        run=run,
        task=spawn.task,
        mode=spawn.mode,
        is_at_work=report.stage is Stage.OPEN,
        created_at=session.created_at,
    )


async def _find_own(query: Query, caller: Caller, name: str) -> Child | Refusal:
    """The one child of that key, id, label or run. What is missing and what is another's get one answer."""
    found = [child for child in await _list(query, caller) if name in _names_of(child)]
    if len(found) > 1:
        return Refusal(
            Invalid(f"Label is not unique: {name[:200]!r}. Name the child by its sessionKey.", code="ambiguous_label")
        )
    if not found:
        return Refusal(NotFound(f"Child not found: {name[:200]!r}. subagents with action 'list' shows them."))
    return found[0]


def _names_of(child: Child) -> set[str | None]:
    return {str(child.session.key), child.session.id, child.session.label, child.run_id}


async def cancel_children(tx: Transaction, caller: Caller, name: str, at_ms: int) -> list[Child] | Refusal:
    await find_origin(tx, caller)
    if name == ALL:
        children = [child for child in await _list(tx, caller) if child.is_at_work]
    else:
        found = await _find_own(tx, caller, name)
        if isinstance(found, Refusal):
            return found
        children = [found] if found.is_at_work else []
    for child in children:
        await rows.hold(tx, child.session.row)  # else a queued run could begin while it is ended here
        await spawns.change_report(tx, child.run_id, {"is_taken": 1})
        await cancel_work(tx, child.session.row, at_ms)
    return children


async def steer_child(tx: Transaction, command: SteerChild) -> Steered | Refusal:
    caller = command.caller
    origin = await find_origin(tx, caller)
    found = await _find_own(tx, caller, command.name)
    if isinstance(found, Refusal):
        return found
    source = await rows.find_by_row(tx, caller.session)
    assert source is not None
    child = found.session
    active = await ledger.find_active(tx, child.row)
    queued = await ledger.find_queued(tx, child.row)
    joined = next((run for run in (*((active,) if active else ()), *queued) if _is_joinable(run)), None)
    if joined is None and found.mode is Mode.RUN:
        return Refusal(
            Conflict(
                f"Child is not at work: {command.name[:200]!r}. Spawn another, or one of mode 'session', which stays.",
                code="child_ended",
            )
        )
    message = UserMessage(
        message_id=command.message_id,
        content=text_content(command.text),
        provenance=Provenance(kind=ProvenanceKind.INTER_SESSION, source_session_key=str(source.key), source_tool=TOOL),
    )
    run_id = command.run_id if joined is None else joined.id
    shown = shown_columns(command.text, describes=False)
    seq = await append_words(tx, child, SessionId(child.id), message, source, run_id, command.at_ms, shown)
    if joined is not None:
        await ledger.change(tx, joined.id, {"newest_seq": seq})
        return Steered(child, run_id)
    spawn = await spawns.find(tx, child.row)
    assert spawn is not None
    await queue_work(tx, caller, spawn, source, child, origin, run_id, seq, command.at_ms)
    return Steered(child, run_id)


def _is_joinable(run: Run) -> bool:
    is_live = run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not run.is_cancel_requested
    return is_live and run.report is not None
