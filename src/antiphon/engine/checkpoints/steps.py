"""The life of a checkpoint: claimed, its usage noted, ended, each in one transaction. Contract: checkpoints 1, 2.

It stands beside the line of its session's runs. A claim raises its fence; later writes count only with the newest one.
All that it changes is stored by the unit of its end, with the cursor; so one that fails or dies changes nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.domain.actor import SYSTEM, Principal, session_principal
from antiphon.domain.checkpoint import (
    MOST_FAILURES,
    CheckpointReason,
    Drop,
    DueState,
    GiveUp,
    LookBack,
    PutOff,
    Uncovered,
    on_due,
    on_failed,
    on_finished,
)
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import REFUSALS, Invalid
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import AgentId, ProcessId, SessionId, SessionRow
from antiphon.domain.message import JsonObject, Usage
from antiphon.domain.run import GUESTS_CAP, PERSON_CAP, PLACE_CLEARANCE, Purpose, RunStatus
from antiphon.domain.session import DescriptionSource, Session
from antiphon.domain.text import DESCRIPTION_LENGTH, one_line
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, KeptSoFar, LookedBack, NoteChange
from antiphon.engine.ledger.append import AGENT_ACTOR, append_events, shown_text
from antiphon.engine.ledger.queue import new_run_id, note_ended_run
from antiphon.engine.ledger.spending import Spender, note_spent
from antiphon.engine.memory.notes import NoteAuthor, add_note, delete_note, update_note
from antiphon.engine.memory.scopes import find_scope
from antiphon.engine.memory.working import set_working_memory
from antiphon.engine.rules import Rules
from antiphon.policy.flow import may_hold
from antiphon.store import checkpoints, incarnations, processes
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.checkpoints import CheckpointFence, DueCheckpoint, StoredCheckpoint
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.runs import DAY_MS, EndedRun

LOST_CLEARANCE = LookedBack(
    error="The place where this session answers may not have what the conversation holds.", code=PLACE_CLEARANCE
)
CRASHED = LookedBack(error="The process died several times during this checkpoint.", code="crashed")
CAPS = frozenset({"daily_cap", PERSON_CAP, GUESTS_CAP})
"""Codes of failures after which a checkpoint waits for the next day."""
_NOT_AT_WORK: dict[str, SqlValue] = {
    **dict.fromkeys(("reason", "run", "started_seq", "started_at", "reads_seq", "process", "model", "principal")),
    **dict.fromkeys(("turns", "untriggered", "attempt", "input_tokens", "output_tokens", "cached_tokens", "steps"), 0),
    "cost_microusd": None,
}


class BeginCheckpoint(Struct, frozen=True, kw_only=True):
    due: DueCheckpoint
    process: ProcessId
    rules: Rules


async def begin_checkpoint(tx: Transaction, command: BeginCheckpoint) -> BegunCheckpoint | None:
    """Begins the checkpoint that is due, or takes it over from a dead process; None if nothing begins now."""
    row, incarnation = command.due
    session = await rows.find_by_row(tx, row)
    if session is None:
        return None
    life = await incarnations.find(tx, incarnation)
    if life is None or life.session != row:  # the session was deleted and made anew since it was listed
        return None
    stored = await checkpoints.find(tx, incarnation)
    if stored is None:
        stored = StoredCheckpoint(incarnation=incarnation, session=row, through_seq=life.first_seq)
    if stored.run is not None and await processes.is_alive(tx, stored.process):
        await _leave_to_its_end(tx, session)
        return None
    agent = command.rules.agents.get(session.agent_id)
    model = None if agent is None else command.rules.checkpoints.model_for(session.model or agent.model)
    is_present = incarnation == session.id
    action = on_due(await _read_due(tx, session, stored, is_present=is_present), command.rules.checkpoints, tx.now_ms)
    if model is None and isinstance(action, LookBack | PutOff):
        action = Drop()
    match action:
        case Drop():
            await _drop(tx, session, stored, is_present=is_present)
            return None
        case PutOff():
            await _put_off(tx, session, stored, action.at_ms, is_present=is_present)
            return None
        case GiveUp():
            end = _CheckpointToEnd(session=session, stored=stored, looked=CRASHED, rules=command.rules)
            await _end(tx, end)
            return None
        case LookBack():
            assert model is not None
            begin = _CheckpointToBegin(
                session=session, stored=stored, reason=action.reason, model=model, is_present=is_present
            )
            return await _begin(tx, command, begin)


async def _read_due(query: Query, session: Session, stored: StoredCheckpoint, *, is_present: bool) -> DueState:
    row = SessionRow(session.row)
    if is_present:
        turns, untriggered = await checkpoints.find_uncovered(query, row)
        is_busy = await ledger.is_busy(query, row)
    else:
        turns, untriggered = 0, 0
        is_busy = await ledger.is_unfinished_in(query, row, stored.incarnation)
    return DueState(
        uncovered=Uncovered(turns=turns, untriggered=untriggered),
        has_news=await checkpoints.has_news(query, row, stored.incarnation, stored.through_seq),
        is_busy=is_busy,
        asked=stored.asked,
        begun=stored.reason,
        attempt=stored.attempt,
        again_at=stored.again_at,
    )


async def _leave_to_its_end(tx: Transaction, session: Session) -> None:
    """The end of the one at work decides when the next is due; until then nobody looks again."""
    await rows.update(tx, session.row, {"checkpoint_at": None})


async def _drop(tx: Transaction, session: Session, stored: StoredCheckpoint, *, is_present: bool) -> None:
    if is_present:
        await rows.update(tx, session.row, {"checkpoint_at": None})
    if stored.asked is not None:
        cleared: dict[str, SqlValue] = {"asked": None, "asked_run": None, "asked_by": None, "look_at": None}
        await checkpoints.set_columns(tx, session.row, stored.incarnation, cleared)


async def _put_off(
    tx: Transaction, session: Session, stored: StoredCheckpoint, at_ms: int, *, is_present: bool
) -> None:
    if stored.asked is not None:
        await checkpoints.set_columns(tx, session.row, stored.incarnation, {"look_at": at_ms})
    elif is_present:
        await rows.update(tx, session.row, {"checkpoint_at": at_ms})


class _CheckpointToBegin(Struct, frozen=True, kw_only=True):
    session: Session
    stored: StoredCheckpoint
    reason: CheckpointReason
    model: str
    is_present: bool


async def _begin(tx: Transaction, command: BeginCheckpoint, begin: _CheckpointToBegin) -> BegunCheckpoint:
    session, stored, at_ms = begin.session, begin.stored, tx.now_ms
    row, incarnation = SessionRow(session.row), stored.incarnation
    number = stored.fence + 1
    columns: dict[str, SqlValue] = {
        "process": command.process,
        "fence": number,
        "attempt": stored.attempt + 1,
        "model": begin.model,
        "look_at": at_ms,
    }
    run, reads_seq, principal = stored.run, stored.reads_seq, stored.principal
    if run is None or reads_seq is None or principal is None:
        run = stored.asked_run if stored.asked_run is not None else new_run_id(tx)
        principal = stored.asked_by or await _writer(tx, row, incarnation)
        _, untriggered = await checkpoints.find_uncovered(tx, row) if begin.is_present else (0, 0)
        data: JsonObject = {"reason": begin.reason.value}
        event = NewEvent(
            type=EventType.INTROSPECTION_STARTED, actor=AGENT_ACTOR, classification=PUBLIC, run_id=run, data=data
        )
        addition = Addition(
            incarnation=incarnation,
            events=[event],
            at_ms=at_ms,
            set={"checkpoint_at": None} if begin.is_present else {},
            is_quiet=True,
        )
        started_seq = await append_events(tx, row, addition)
        reads_seq = started_seq - 1
        columns |= {
            "through_seq": stored.through_seq,
            "asked": None,
            "asked_run": None,
            "asked_by": None,
            "reason": begin.reason.value,
            "run": run,
            "started_seq": started_seq,
            "started_at": at_ms,
            "reads_seq": reads_seq,
            "turns": session.turn_count,
            "untriggered": untriggered,
            "principal": str(principal),
        }
    await checkpoints.set_columns(tx, row, incarnation, columns)
    ceiling = await _find_ceiling(tx, session, incarnation, command.rules)
    asker = await _find_asker(tx, row, incarnation)
    return BegunCheckpoint(
        fence=CheckpointFence(incarnation, run, number),
        run=run,
        reason=begin.reason,
        session=session,
        incarnation=incarnation,
        after=stored.through_seq,
        through=reads_seq,
        model=begin.model,
        spender=Spender(AgentId(session.agent_id), principal, SessionRow(session.row)),
        ceiling=ceiling,
        kept=_kept(session, ceiling) if begin.is_present else KeptSoFar(),
        asker=asker,
        scope=None if asker is None else await find_scope(tx, session, asker, command.rules),
    )


def _kept(session: Session, ceiling: Classification) -> KeptSoFar:
    has_memory = may_hold(session.working_memory_made_of, ceiling)
    is_described = session.description is not None and may_hold(session.description_made_of, ceiling)
    described = session.description_made_of.with_integrity(session.taint.integrity)  # whose words it was is not stored
    return KeptSoFar(
        working_memory=session.working_memory if has_memory else "",
        description=session.description if is_described else None,
        made_of=(session.working_memory_made_of if has_memory else PUBLIC).join(described if is_described else PUBLIC),
    )


async def _find_asker(query: Query, session: SessionRow, incarnation: SessionId) -> Principal | None:
    """Whose turn was the last; who wrote last in a conversation without turns, as of a group that nobody answered."""
    found = await checkpoints.newest_asker(query, session, incarnation)
    found = found or await checkpoints.newest_writer(query, session, incarnation)
    return None if found is None else Principal.parse(found)


async def _writer(query: Query, session: SessionRow, incarnation: SessionId) -> Principal:
    """The checkpoint counts against their caps."""
    return await _find_asker(query, session, incarnation) or SYSTEM


async def _find_ceiling(query: Query, session: Session, incarnation: SessionId, rules: Rules) -> Classification:
    """What the incarnation has taken in, as far as the place of its answers may have it now. Contract: flow 2."""
    life = await incarnations.find(query, incarnation)
    assert life is not None
    return life.taint.meet(await find_ceiling(query, session, rules.sinks))


async def note_usage(tx: Transaction, begun: BegunCheckpoint, used: "UsedByCheckpoint") -> bool:
    """Adds what a response used to the checkpoint, and to the sums of the day; returns whether the fence holds."""
    if not await checkpoints.add_usage(tx, begun.fence, used.usage, used.model):
        return False
    if used.is_counted:
        await note_spent(tx, begun.spender, used.usage)
    return True


class UsedByCheckpoint(Struct, frozen=True, kw_only=True):
    usage: Usage
    model: str
    is_counted: bool
    """Whether its tokens count against the caps."""
    at_ms: int


class _CheckpointToEnd(Struct, frozen=True, kw_only=True):
    session: Session
    stored: StoredCheckpoint
    looked: LookedBack
    rules: Rules

    @property
    def is_success(self) -> bool:
        return self.looked.error is None

    @property
    def is_present(self) -> bool:
        return self.stored.incarnation == self.session.id


class FinishCheckpoint(Struct, frozen=True, kw_only=True):
    begun: BegunCheckpoint
    looked: LookedBack
    rules: Rules


async def finish_checkpoint(tx: Transaction, command: FinishCheckpoint) -> bool:
    """Ends the checkpoint; returns whether the fence held. A success changes all that it decided, and the cursor."""
    begun = command.begun
    stored = await checkpoints.find_claimed(tx, begun.fence)
    session = await rows.find_by_row(tx, begun.session.row)
    if stored is None or session is None:
        return False
    looked = command.looked
    ceiling = await _find_ceiling(tx, session, begun.incarnation, command.rules)
    if looked.error is None and not may_hold(looked.changes.made_of, ceiling):
        looked = LOST_CLEARANCE
    end = _CheckpointToEnd(session=session, stored=stored, looked=looked, rules=command.rules)
    written = WrittenNotes()
    if looked.error is None and looked.changes.notes:
        written = await _write_notes(tx, end, begun, ceiling)
    await _end(tx, end, written)
    return True


class WrittenNotes(Struct, frozen=True, kw_only=True):
    """How many notes a checkpoint changed, and how many changes came too late or were refused."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0


async def _write_notes(
    tx: Transaction, end: _CheckpointToEnd, begun: BegunCheckpoint, ceiling: Classification
) -> WrittenNotes:
    """Changes notes of the scope that it read, unless the session has another one by now. Contract: checkpoints 2."""
    changes = end.looked.changes
    scope = None if begun.asker is None else await find_scope(tx, end.session, begun.asker, end.rules)
    if scope is None or scope != begun.scope:
        return WrittenNotes(refused=len(changes.notes))
    counts = {"added": 0, "updated": 0, "deleted": 0, "refused": 0}
    for number, change in enumerate(changes.notes):
        author = NoteAuthor(
            scope=scope,
            made_of=changes.made_of,
            ceiling=ceiling,
            made_by=str(session_principal(str(end.session.key))),
            session=SessionRow(end.session.row),
            seq=begun.through,
            call_id=f"{begun.run}-{number}",
        )
        try:
            async with tx.attempt():
                counts[await _write_note(tx, author, change)] += 1
        except REFUSALS:
            counts["refused"] += 1
    return WrittenNotes(**counts)


async def _write_note(tx: Transaction, author: NoteAuthor, change: NoteChange) -> str:
    """What was done: the field of `WrittenNotes`."""
    if change.id is None:
        await add_note(tx, author, change.text or "")
        return "added"
    if change.text is None:
        await delete_note(tx, author, change.id)
        return "deleted"
    await update_note(tx, author, change.id, change.text)
    return "updated"


async def hand_back_checkpoint(tx: Transaction, fence: CheckpointFence) -> None:
    await checkpoints.CLAIMS.hand_back(tx, fence)


NO_NOTES = WrittenNotes()


async def _end(tx: Transaction, end: _CheckpointToEnd, written: WrittenNotes = NO_NOTES) -> None:
    session, stored, looked, at_ms = end.session, end.stored, end.looked, tx.now_ms
    row, changes = SessionRow(session.row), end.looked.changes
    assert stored.run is not None and stored.reason is not None and stored.started_seq is not None
    assert stored.started_at is not None and stored.reads_seq is not None and stored.principal is not None
    data: JsonObject = {"success": end.is_success, "reason": stored.reason.value}
    set: dict[str, SqlValue] = {}
    add: dict[str, int] = {}
    reply: str | None = None
    if end.is_success:
        changed = await _apply(tx, end, set)
        reply = _in_words(changed, written)
        data |= {"throughSeq": stored.reads_seq, "changed": [*changed]}
        data |= {"notes": {name: count for name, count in asdict(written).items() if count}}
    else:
        data |= {"error": looked.error, "code": looked.code}
    columns = await _next_columns(tx, end, set, add)
    event = NewEvent(
        type=EventType.INTROSPECTION_FINISHED,
        actor=AGENT_ACTOR,
        classification=changes.made_of,
        run_id=stored.run,
        data=data,
    )
    addition = Addition(incarnation=stored.incarnation, events=[event], at_ms=at_ms, set=set, add=add, is_quiet=True)
    await append_events(tx, row, addition)
    await checkpoints.set_columns(tx, row, stored.incarnation, {**_NOT_AT_WORK, **columns})
    run = EndedRun(
        id=stored.run,
        purpose=Purpose.CHECKPOINT,
        incarnation=stored.incarnation,
        agent_id=AgentId(session.agent_id),
        principal=stored.principal,
        status=RunStatus.OK if end.is_success else RunStatus.ERROR,
        seq=stored.started_seq,
        started_at=stored.started_at,
        reply=reply,
        error=looked.error,
        code=looked.code,
        made_of=changes.made_of,
        model=stored.model if stored.usage.steps else None,
        usage=stored.usage,
    )
    await note_ended_run(tx, row, run)


def _in_words(changed: Sequence[str], written: WrittenNotes) -> str:
    """What a checkpoint changed, for people."""
    what = {"workingMemory": "renewed the working memory", "description": "renewed the description"}
    did = [what[each] for each in changed]
    for done, count in (("added", written.added), ("corrected", written.updated), ("deleted", written.deleted)):
        if count:
            did.append(f"{done} {count} note{'' if count == 1 else 's'}")
    if not did:
        return "It found nothing to keep."
    return f"It {', '.join(did[:-1])} and {did[-1]}." if len(did) > 1 else f"It {did[0]}."


async def _apply(tx: Transaction, end: _CheckpointToEnd, set: dict[str, SqlValue]) -> list[str]:
    """Stores what the checkpoint decided; returns what it changed, for the log."""
    changes, changed = end.looked.changes, list[str]()
    if changes.working_memory is not None:
        with suppress(Invalid):  # it is too long, and stays as it was
            await set_working_memory(tx, end.stored.incarnation, changes.working_memory, changes.made_of)
            changed.append("workingMemory")
    if changes.description is not None and end.is_present:
        set |= shown_text("description", one_line(changes.description, DESCRIPTION_LENGTH), changes.made_of)
        set["description_source"] = DescriptionSource.AI.value
        changed.append("description")
    return changed


async def _next_columns(
    query: Query, end: _CheckpointToEnd, set: dict[str, SqlValue], add: dict[str, int]
) -> dict[str, SqlValue]:
    """What the row says afterwards, and in `set` and `add` the session's: the cursor moves only on success."""
    stored, rules, at_ms = end.stored, end.rules.checkpoints, query.now_ms
    columns: dict[str, SqlValue] = {"look_at": None if stored.asked is None else at_ms}
    if end.is_success:
        columns |= {"through_seq": stored.reads_seq, "failures": 0, "again_at": None}
        if end.is_present:
            _, untriggered = await checkpoints.find_uncovered(query, end.session.row)
            left = Uncovered(turns=end.session.turn_count - stored.turns, untriggered=untriggered - stored.untriggered)
            set |= {"covered_turns": stored.turns, "checkpoint_at": on_finished(left, rules, at_ms)}
            add["untriggered_count"] = -stored.untriggered
        return columns
    is_capped = end.looked.code in CAPS
    failures = stored.failures + (0 if is_capped else 1)
    again = _next_day(at_ms) if is_capped else on_failed(failures, rules, at_ms)
    columns |= {"failures": failures, "again_at": again}
    if end.is_present:
        set["checkpoint_at"] = again
    elif failures < MOST_FAILURES and stored.asked is None:
        columns |= {"asked": CheckpointReason.NEW_SESSION.value, "look_at": again}
    return columns


def _next_day(at_ms: int) -> int:
    """A little after the UTC day has ended."""
    return (at_ms // DAY_MS + 1) * DAY_MS + timedelta(minutes=1) // timedelta(milliseconds=1)
