"""All writes to a log, with their changes to the session's row.

Contract: events 1, sessions 1, 2, 5, 8, send 4, flow 2, 8, 13.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from antiphon.domain.actor import AGENT, session_principal
from antiphon.domain.classification import NO_COMPARTMENTS, PUBLIC, Classification, Integrity, join_all, to_wire
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import AssistantMessage, ProvenanceKind, UserMessage, text_of
from antiphon.domain.run import Run
from antiphon.domain.session import DescriptionSource, Session, SessionStatus
from antiphon.domain.text import DESCRIPTION_LENGTH, PREVIEW_LENGTH, one_line
from antiphon.policy.flow import ceiling, is_held, is_public, may_hold
from antiphon.store import events as log
from antiphon.store import incarnations, spawns
from antiphon.store.checkpoints import CHECKPOINT_DUE
from antiphon.store.codec import classification_values
from antiphon.store.compartments import read_compartments
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.sessions import LogEnd

AGENT_ACTOR = AGENT
"""The actor of what a run does."""
INCARNATION_COLUMNS = frozenset(
    {
        "message_count",
        "turn_count",
        "preview",
        "preview_level",
        "preview_compartments",
        "preview_person",
        "context_tokens",
        "checkpoint_at",
    }
)
"""Columns of a session's row that describe its present incarnation."""


append_events = log.append
"""Stores events that are no words and no steps of a run, with changes of the session's row; returns the last `seq`."""


class Recipient(Protocol):
    """The parts of a session that a message needs to enter its log: the whole row, or its head."""

    @property
    def row(self) -> SessionRow: ...
    @property
    def id(self) -> SessionId: ...
    @property
    def status(self) -> str: ...
    @property
    def has_description(self) -> bool: ...


class Arrival(StrEnum):
    """How an arriving message changes its session."""

    POSTED = "posted"
    """Someone addresses the session: lists show it again, and it counts as an interaction."""
    RECORDED = "recorded"
    """A record for the session: lists show it again."""
    APPENDED = "appended"
    """Kept for later turns only."""


class NewMessage(Struct, frozen=True, gc=False):
    """A message that is to enter a log, and its author."""

    message: UserMessage | AssistantMessage
    actor: str
    classification: Classification
    """How the data that it was made from is classified. Contract: flow 2."""
    arrival: Arrival = Arrival.POSTED
    is_addressed: bool = False
    """Whether the message can be found by its id. The log then refuses a second one with that id."""
    occurred_at: datetime | None = None
    """When the message was written, if not when it is stored."""
    end: LogEnd | None = None
    """The end of the log, if known."""
    incarnation: SessionId | None = None
    """The incarnation it belongs to; None for the session's present one."""
    preview: str | None = None
    """The text that lists show, if not the message's own."""
    channel: str | None = None
    """The channel that the session has from now on; None leaves it."""
    untriggered: "Untriggered | None" = None
    """Whether it counts as a message of a group that started no run."""
    own_integrity: Integrity | None = None
    """The integrity of what it brings itself; None for all that its classification says."""


class Untriggered(Struct, frozen=True, kw_only=True):
    """A message of a group that starts no run. Contract: checkpoints 1."""

    due_at: int | None = None
    """When the session looks back because of it, in milliseconds; None leaves that as it is."""


def words_from(
    source: Session,
    message: UserMessage,
    arrival: Arrival = Arrival.RECORDED,
    *,
    classification: Classification,
    incarnation: SessionId | None = None,
    is_addressed: bool = False,
    preview: str | None = None,
) -> NewMessage:
    """A message in the name of the session. Contract: send 4."""
    return NewMessage(
        message=message,
        actor=str(session_principal(str(source.key))),
        classification=classification,
        arrival=arrival,
        incarnation=incarnation,
        is_addressed=is_addressed,
        preview=preview,
    )


def made_by(source: Session) -> Classification:
    """What another session's words are made of: all that it holds. Contract: flow 2."""
    return source.taint


async def append_words(tx: Transaction, session: Recipient, words: NewMessage, *, run_id: RunId | None = None) -> int:
    """Stores the message, answered by the run if one is given; returns its `seq`.

    A late message for an ended incarnation leaves the columns of the present one unchanged. So does a message that no
    run answers, if it does not flow to the session's taint: other sessions do not learn of it. Contract: flow 13.
    """
    incarnation = words.incarnation or session.id
    is_present = incarnation == session.id
    made_of = words.classification
    is_noticed = run_id is not None or is_public(made_of) or await may_be_noticed(tx, session.row, made_of)
    add = {"message_count": 1} if is_present else {}
    if words.untriggered is not None and is_noticed:
        add["untriggered_count"] = 1
        if words.untriggered.due_at is not None:
            tx.wake(CHECKPOINT_DUE)
    set = _changes(session, words, tx.now_ms, is_present=is_present) if is_noticed else {}
    addition = Addition(incarnation, (_event(words, run_id),), tx.now_ms, set, add, words.end)
    last_seq = await log.append(tx, session.row, addition)
    if not is_noticed:
        await log.note_unnoticed(tx, session.row, last_seq, made_of)
    if "status" in set:
        await spawns.archive_again(tx, session.row, tx.now_ms)
    return last_seq


async def may_be_noticed(query: Query, session: SessionRow, made_of: Classification) -> bool:
    """Whether sessions that see this one may learn that such an event was stored. Reads nothing for public ones."""
    if is_public(made_of):
        return True
    taint = await incarnations.find_present_taint(query, session)
    return taint is None or is_held(made_of, taint)


async def append_steps(
    tx: Transaction,
    run: Run,
    events: Sequence[NewEvent],
    *,
    set: Mapping[str, SqlValue],
    add: Mapping[str, int],
    end: LogEnd | None = None,
) -> int:
    """Stores steps of the run and changes the session's row with them; returns the last `seq`.

    Counts the messages and previews the last text. Late steps of an ended incarnation leave the columns of the
    present one unchanged. The incarnation's taint rises to what the steps were made of, with an event before them.
    Contract: flow 2.
    """
    set, add = {**set}, {**add}
    shown: tuple[str, Classification] | None = None
    for event in events:
        if event.message is None:
            continue
        add["message_count"] = add.get("message_count", 0) + 1
        if isinstance(event.message, AssistantMessage):
            if text := text_of(event.message.content):
                shown = text, event.classification
            if event.message.usage.steps:
                set["context_tokens"] = event.message.usage.total_tokens
    if shown is not None:
        text, made_of = shown
        _show(set, one_line(text, PREVIEW_LENGTH), made_of, end)
    if run.code == "reset":
        set = {column: value for column, value in set.items() if column not in INCARNATION_COLUMNS}
        add = {column: value for column, value in add.items() if column not in INCARNATION_COLUMNS}
    made_of = join_all(event.classification for event in events)
    if made_of is not PUBLIC and (raised := await _raise_taint(tx, run, made_of, end)):
        events = [raised, *events]
    addition = Addition(incarnation=run.session_id, events=events, at_ms=tx.now_ms, set=set, add=add, end=end)
    return await log.append(tx, run.session, addition)


async def _raise_taint(tx: Transaction, run: Run, made_of: Classification, end: LogEnd | None) -> NewEvent | None:
    """Raises the taint of the run's incarnation; the event that says so, None unless more than integrity changed."""
    taint = None if end is None else end.taint
    if taint is None:
        incarnation = await incarnations.find(tx, run.session_id)
        if incarnation is None:
            return None
        taint = incarnation.taint
    raised = taint.join(made_of)
    if raised == taint:
        return None
    await incarnations.set_taint(tx, run.session_id, raised)
    if is_held(made_of, taint):
        return None
    names = await read_compartments(tx) if raised.compartments else NO_COMPARTMENTS
    return NewEvent(
        type=EventType.TAINT_RAISED,
        actor=AGENT_ACTOR,
        classification=raised,
        run_id=run.id,
        data={"from": to_wire(taint, names), "to": to_wire(raised, names)},
    )


async def raise_workspace(tx: Transaction, session: SessionRow, incarnation: SessionId, left: Classification) -> None:
    """Raises what the workspace of the incarnation was made of, before a call leaves data there. Contract: flow 8."""
    tx.hold(session)
    held = await incarnations.find_workspace(tx, incarnation)
    if held is not None and held.join(left) != held:
        await incarnations.set_workspace(tx, incarnation, held.join(left))


async def keep_taint(tx: Transaction, ended: SessionId, renewed: SessionId) -> Classification:
    """Gives an incarnation the taint of the one that ended before it, and returns it. Contract: sessions 6."""
    before = await incarnations.find(tx, ended)
    assert before is not None
    await incarnations.set_taint(tx, renewed, before.taint)
    return before.taint


async def append_copies(
    tx: Transaction,
    session: Session,
    copies: Sequence[NewEvent],
    *,
    is_described: bool = False,
    taint: Classification = PUBLIC,
    is_stored: bool = False,
) -> None:
    """Stores copies of another log in a new session, at their classifications; lists show the words of the copies.

    The session's taint becomes the join of its base, the given taint and the copies that it may take in. The events
    may be stored already, under the numbers that follow the session's last one.
    Contract: sessions 8, flow 8.
    """
    set: dict[str, SqlValue] = {}
    if is_described:
        set |= _described(copies)
    taken = (copy.classification for copy in copies if may_hold(copy.classification, ceiling(session)))
    joined = join_all([taint, session.base, *taken])
    await incarnations.set_taint(tx, SessionId(session.id), joined)
    add = {"message_count": sum(copy.message is not None for copy in copies)}
    addition = Addition(incarnation=session.id, events=copies, at_ms=tx.now_ms, set=set, add=add, is_stored=is_stored)
    last_seq = await log.append(tx, session.row, addition)
    for seq, copy in enumerate(copies, last_seq - len(copies) + 1):
        if not is_held(copy.classification, joined):
            await log.note_unnoticed(tx, session.row, seq, copy.classification)


def _described(copies: Sequence[NewEvent]) -> dict[str, SqlValue]:
    """The preview and description that these messages would have left."""
    texts: list[tuple[str, Classification]] = []
    asked: list[tuple[str, Classification]] = []
    for copy in copies:
        message = copy.message
        if isinstance(message, UserMessage | AssistantMessage) and (text := text_of(message.content)):
            texts.append((text, copy.classification))
            if _is_external(message):
                asked.append((text, copy.classification))
    if not texts:
        return {}
    text, made_of = texts[-1]
    changes = shown_text("preview", one_line(text, PREVIEW_LENGTH), made_of)
    if asked:
        text, made_of = asked[0]
        changes |= shown_text("description", one_line(text, DESCRIPTION_LENGTH), made_of)
        changes["description_source"] = DescriptionSource.FALLBACK.value
    return changes


def _is_external(message: UserMessage | AssistantMessage) -> bool:
    """Whether a person wrote it."""
    return isinstance(message, UserMessage) and message.provenance.kind is ProvenanceKind.EXTERNAL


def _event(words: NewMessage, run_id: RunId | None) -> NewEvent:
    message = words.message
    type = EventType.USER_MESSAGE if isinstance(message, UserMessage) else EventType.ASSISTANT_MESSAGE
    return NewEvent(
        type,
        words.actor,
        words.classification,
        run_id,
        message,
        None,
        words.is_addressed,
        words.occurred_at,
        own_integrity=words.own_integrity,
    )


def _changes(session: Recipient, words: NewMessage, at_ms: int, *, is_present: bool) -> dict[str, SqlValue]:
    changes: dict[str, SqlValue] = {}
    if words.arrival is not Arrival.APPENDED:
        if words.arrival is Arrival.POSTED:
            changes["interacted_at"] = at_ms
        if session.status == SessionStatus.INACTIVE:
            changes["status"] = SessionStatus.IDLE.value
    if words.untriggered is not None and words.untriggered.due_at is not None:
        changes["checkpoint_at"] = words.untriggered.due_at
    if is_present and words.channel is not None:
        changes["delivery_channel"] = words.channel
    text = text_of(words.message.content)
    if not is_present or not text:
        return changes
    preview = one_line(text, PREVIEW_LENGTH) if words.preview is None else words.preview
    _show(changes, preview, words.classification, words.end)
    if session.has_description or words.arrival is Arrival.RECORDED:
        return changes
    if isinstance(words.message, UserMessage):
        changes |= shown_text("description", one_line(text, DESCRIPTION_LENGTH), words.classification)
        changes["description_source"] = DescriptionSource.FALLBACK.value
    return changes


def _show(changes: dict[str, SqlValue], text: str, made_of: Classification, end: LogEnd | None) -> None:
    """Adds the columns of the preview; only the text if it is public, as the one before it was."""
    if end is not None and not end.shows_classified and is_public(made_of):
        changes["preview"] = text
    else:
        changes |= shown_text("preview", text, made_of)


def shown_text(column: str, text: str | None, made_of: Classification) -> dict[str, SqlValue]:
    """The columns of a text that lists show, with what it was made of besides the session's base. Contract: flow 8."""
    level, compartments, _, person = classification_values(made_of)
    return {column: text, f"{column}_level": level, f"{column}_compartments": compartments, f"{column}_person": person}


def derived_id(prefix: str, at_ms: int, *parts: str) -> str:
    """An id that a unit can derive without drawing: equal for equal parts and time, sortable by time like other ids."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{prefix}_{at_ms:011x}{digest[:20]}"
