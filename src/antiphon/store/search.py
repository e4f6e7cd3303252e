"""The index of words: which messages contain them, and how far each log is indexed.

A row of the index may outlive its message for a while: searches find nothing below a log's lowest `seq`.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.redaction import RULES
from antiphon.policy.reach import Grant, Reach
from antiphon.policy.visibility import Visibility
from antiphon.store import codec
from antiphon.store.codec import EVENT_COLUMNS, event_from_row
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.names import DISPLAY_NAME
from antiphon.store.scopes import ANY, Condition, all_of, branches, flow, inside, skipped_before, when

SCHEMA = 9
"""The migration that created the present index."""
ID_BITS = 15
"""Low bits of an id, below the time in milliseconds, which takes up to 48 of the 63."""
ID_STEP = 1 << ID_BITS
NARROW = 32
"""For a reach of at most this many sessions, the index query names the sessions."""
ROWS_AT_ONCE = 64
BACKLOG = (
    "FROM sessions s LEFT JOIN indexed_logs x ON x.session = s.id "
    f"WHERE (s.last_seq > COALESCE(x.indexed_seq, 0) OR s.first_seq > COALESCE(x.first_seq, s.first_seq) "
    f"OR x.reading < {RULES})"
)
LAG = (
    "SELECT COUNT(*) FROM sessions s LEFT JOIN indexed_logs x ON x.session = s.id JOIN events e ON e.session = s.id "
    f"WHERE (s.last_seq > COALESCE(x.indexed_seq, 0) OR x.reading < {RULES}) "
    f"AND e.seq > CASE WHEN x.reading < {RULES} THEN 0 ELSE COALESCE(x.indexed_seq, 0) END "
    "AND e.role IN ('user', 'assistant')"
)
"""The number of messages that are not indexed yet."""


class _Place(NamedTuple):
    """The place of an index row: a message in its session's log."""

    id: int
    session: SessionRow
    seq: int
    key: str
    label: str | None
    display_name: str | None
    description: str | None


class FoundMessage(Struct, frozen=True, kw_only=True):
    """A message with all words, as it is in the log."""

    id: int
    """Of its row in the index; the next page continues below it."""
    key: SessionKey
    label: str | None
    display_name: str | None
    description: str | None
    """Of the session, if the message belongs to its present incarnation."""
    event: Event
    number: int
    """Its `seq`; for a session, events before it that the session must not notice are not counted."""


class LogState(NamedTuple):
    """How far a log is indexed, and where it ends."""

    session: SessionRow
    first_seq: int
    last_seq: int
    indexed_first_seq: int
    """Events below it were removed from the index."""
    indexed_seq: int
    is_outdated: bool = False
    """Whether it was indexed under older redaction rules."""

    @property
    def is_to_take_out(self) -> bool:
        return self.is_outdated or self.first_seq > self.indexed_first_seq


class IndexedMessage(Struct, frozen=True, kw_only=True):
    """A message to be indexed."""

    session: SessionRow
    seq: int
    incarnation: SessionId
    created_at_ms: int
    classification: Classification
    words: Sequence[str]


async def find_narrow(query: Query, reach: Reach) -> list[SessionRow] | None:
    """The sessions in the reach, or a few more, if they are few and an index finds them; else None."""
    viewer = reach.viewer
    if viewer is None and reach.participant is not None:
        rows = await query.fetch_all(
            "SELECT session FROM participants WHERE principal = ? LIMIT ?", (reach.participant, NARROW + 1)
        )
        return [session for (session,) in rows] if len(rows) <= NARROW else None
    if viewer is None or viewer.visibility not in (Visibility.SELF, Visibility.TREE):
        return None
    found: list[SessionRow] = []
    for branch in await branches(query, reach):
        rows = await query.fetch_all(
            f"SELECT s.id FROM sessions s JOIN incarnations i ON i.id = s.incarnation WHERE {branch.text} LIMIT ?",
            (*branch.values, NARROW + 1),
        )
        found += [row[0] for row in rows]
        if len(found) > NARROW:
            return None
    return found


def expression(words: Sequence[str], sessions: Sequence[SessionRow] | None) -> str:
    """The query for `message_words`: all words, in one of the sessions if any are given."""
    asked = list(words)
    if sessions is not None:
        asked.insert(0, f"({' OR '.join(map(session_word, sessions))})")
    return " AND ".join(asked)


def session_word(session: SessionRow) -> str:
    """A word indexed with every message of the session; no text contains it."""
    return f"_{session}"


async def find_messages(
    query: Query, reach: Reach, asked: str, *, before: int, depth: int, limit: int
) -> tuple[list[FoundMessage], int | None]:
    """Messages in the reach among the `depth` newest with an id below `before`; and where to continue, if anywhere.

    Newest first, at most `limit`. For an asking session, session, incarnation and message must flow to it; for people,
    in sessions they take part in, only the message. Contract: flow 3, visibility 4.
    """
    reached = await inside(query, reach)
    messages = flow("hit.", reach.clearance)
    incarnations = ANY if reach.viewer is None else flow("o.taint_", reach.clearance)
    description = when(
        all_of([flow("s.base_", reach.clearance), flow("s.description_", reach.clearance)]), "s.description"
    )
    rows = await query.fetch_all(
        # First the index rows, then one row of each other table: no planner may begin elsewhere. PostgreSQL expects
        # that hardly any message passes `flow`, so it is asked only once the rows of the page are there.
        "WITH page (id) AS MATERIALIZED ("
        "SELECT rowid FROM message_words(?) WHERE rowid < ? ORDER BY rowid DESC LIMIT ?), "
        "hit AS MATERIALIZED (SELECT m.id, m.session, m.seq, m.incarnation, m.level, m.compartments, m.person "
        "FROM page CROSS JOIN indexed_messages m WHERE m.id = page.id), "
        "found AS (SELECT hit.id, hit.session, hit.seq, hit.incarnation FROM hit CROSS JOIN sessions s "
        "CROSS JOIN incarnations i CROSS JOIN incarnations o "
        "WHERE s.id = hit.session AND i.id = s.incarnation AND o.id = hit.incarnation AND hit.seq >= s.first_seq "
        f"AND {reached.text} AND {messages.text} AND {incarnations.text} ORDER BY hit.id DESC LIMIT ?) "
        # One row at least: where the page ends is read with its messages, so that the index is asked once.
        "SELECT last.id, last.count, found.id, found.session, found.seq, s.key, s.label, "
        f"{DISPLAY_NAME}, "
        f"CASE WHEN found.incarnation = s.incarnation THEN {description.text} END "
        "FROM (SELECT MIN(id) AS id, COUNT(*) AS count FROM page) last LEFT JOIN found ON TRUE "
        "LEFT JOIN sessions s ON s.id = found.session ORDER BY found.id DESC",
        (
            asked,
            before,
            depth,
            *reached.values,
            *messages.values,
            *incarnations.values,
            limit,
            *description.values,
        ),
    )
    last_id, count, *_ = rows[0]
    places = [_Place(*row[2:]) for row in rows if row[2] is not None]
    found = await _read_found(query, places, None if reach.viewer is None else reach.clearance)
    if len(places) == limit:
        return found, places[-1].id
    return found, last_id if count == depth else None


async def _read_found(query: Query, places: Sequence[_Place], clearance: Classification | None) -> list[FoundMessage]:
    """The messages at these places that still exist, in the same order; `clearance` is that of an asking session."""
    if not places:
        return []
    columns = ", ".join(f"e.{column}" for column in EVENT_COLUMNS.split(", "))
    skipped = Condition("0") if clearance is None else skipped_before("e.session", "e.seq", clearance)
    rows = await query.fetch_all(
        f"WITH place (session, seq) AS (VALUES {', '.join(['(?, ?)'] * len(places))}) SELECT {columns}, {skipped.text} "
        "FROM place CROSS JOIN events e WHERE e.session = place.session AND e.seq = place.seq",
        [*(value for place in places for value in (place.session, place.seq)), *skipped.values],
    )
    events = {(row[0], row[2]): (event_from_row(row[:-1]), row[-1]) for row in rows}
    return [
        FoundMessage(
            id=place.id,
            key=codec.stored_key(place.key),
            label=place.label,
            display_name=place.display_name,
            description=place.description,
            event=events[place.session, place.seq][0],
            number=place.seq - events[place.session, place.seq][1],
        )
        for place in places
        if (place.session, place.seq) in events
    ]


async def count_lag(query: Query) -> int:
    """The number of messages that are not indexed yet."""
    row = await query.fetch_one(LAG)
    assert row is not None
    return row[0]


async def list_backlog(query: Query, limit: int) -> list[SessionRow]:
    """Sessions with messages to index or to remove, latest change first. Reads a row of every session."""
    rows = await query.fetch_all(f"SELECT s.id {BACKLOG} ORDER BY s.updated_at DESC, s.id DESC LIMIT ?", (limit,))
    return [row[0] for row in rows]


async def list_recent_backlog(query: Query, since_ms: int, limit: int) -> list[SessionRow]:
    """Like `list_backlog`, for listed sessions that changed since then."""
    rows = await query.fetch_all(
        f"SELECT s.id {BACKLOG} AND s.deleted_at IS NULL AND s.status <> 'inactive' AND s.updated_at >= ? "
        "ORDER BY s.updated_at DESC, s.id DESC LIMIT ?",
        (since_ms, limit),
    )
    return [row[0] for row in rows]


async def newest_change(query: Query) -> int:
    """When a listed session last changed; 0 if there is none."""
    row = await query.fetch_one(
        "SELECT MAX(updated_at) FROM sessions WHERE deleted_at IS NULL AND status <> 'inactive'"
    )
    assert row is not None
    return row[0] or 0


async def find_states(query: Query, sessions: Sequence[SessionRow]) -> Sequence[LogState]:
    """The states of the sessions with messages to index or to remove."""
    rows = await query.fetch_all(
        f"SELECT s.id, s.first_seq, s.last_seq, COALESCE(x.first_seq, s.first_seq), COALESCE(x.indexed_seq, 0), "
        f"CASE WHEN x.reading < {RULES} THEN 1 ELSE 0 END "
        f"{BACKLOG} AND s.id IN ({', '.join('?' * len(sessions))})",
        sessions,
    )
    return [LogState(*numbers, is_outdated=bool(is_outdated)) for *numbers, is_outdated in rows]


class Unindexed(NamedTuple):
    """The next messages of one log that are not in the index yet, ascending."""

    events: list[Event]
    size: int
    """In bytes, as they are stored."""
    is_whole: bool
    """Whether they reach to the end of the log."""


async def read_unindexed(query: Query, grant: Grant, state: LogState, *, limit: int, max_bytes: int) -> Unindexed:
    """The messages of people and models; stops once it has `limit` messages or `max_bytes`."""
    events: list[Event] = []
    size, count = 0, 8
    while size < max_bytes and len(events) < limit:
        asked = min(count, limit - len(events))
        rows = await query.fetch_all(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq > ? AND seq <= ? "
            "AND role IN ('user', 'assistant') ORDER BY seq LIMIT ?",
            (grant.session, events[-1].seq if events else state.indexed_seq, state.last_seq, asked),
        )
        for row in rows:
            if size >= max_bytes:
                return Unindexed(events, size, is_whole=False)
            events.append(event_from_row(row))
            size += len(row[-1])
        if len(rows) < asked:
            return Unindexed(events, size, is_whole=True)
        count *= 2
    return Unindexed(events, size, is_whole=False)


async def take_turn(tx: Transaction) -> None:
    """From here to COMMIT, no other process assigns ids."""
    await tx.execute("UPDATE index_turns SET turns = turns + 1 WHERE id = 1")


async def advance(tx: Transaction, state: LogState, indexed_seq: int) -> bool:
    """Stores how far the log is indexed; False if it has changed since `state` was read."""
    changed = await tx.change(
        f"INSERT INTO indexed_logs (session, first_seq, indexed_seq, reading) VALUES (?, ?, ?, {RULES}) "
        "ON CONFLICT (session) DO UPDATE SET indexed_seq = excluded.indexed_seq "
        "WHERE indexed_logs.indexed_seq = ? AND indexed_logs.first_seq = ?",
        (state.session, state.indexed_first_seq, indexed_seq, state.indexed_seq, state.indexed_first_seq),
    )
    return changed == 1


async def insert(tx: Transaction, messages: Sequence[IndexedMessage]) -> None:
    """Adds messages to the index; this unit must already have advanced their logs."""
    if not messages:
        return
    ids = await _give_ids(tx, [message.created_at_ms for message in messages])
    ordered = sorted(zip(ids, messages, strict=True), key=lambda pair: pair[0])  # the fastest order for writing
    for start in range(0, len(ordered), ROWS_AT_ONCE):
        part = ordered[start : start + ROWS_AT_ONCE]
        rows: list[SqlValue] = []
        texts: list[SqlValue] = []
        for id, message in part:
            level, compartments, _, person = codec.classification_values(message.classification)
            rows += (id, message.session, message.seq, message.incarnation, level, compartments, person)
            texts += (id, " ".join((session_word(message.session), *message.words)))
        await tx.execute(_insert_messages(len(part)), rows)
        await tx.execute(_insert_words(len(part)), texts)


@cache
def _insert_messages(count: int) -> str:
    return (
        "INSERT INTO indexed_messages (id, session, seq, incarnation, level, compartments, person) VALUES "
        + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * count)
    )


@cache
def _insert_words(count: int) -> str:
    return "INSERT INTO message_words (rowid, words) VALUES " + ", ".join(["(?, ?)"] * count)


async def _give_ids(tx: Transaction, times_ms: Sequence[int]) -> list[int]:
    """An unused id for each time, ascending for equal times; if a millisecond is full, an id of a later one."""
    next_ids = await _next_ids(tx, dict.fromkeys(time_ms << ID_BITS for time_ms in times_ms))
    ids: list[int] = []
    for time_ms in times_ms:
        low = time_ms << ID_BITS
        while next_ids[low] == low + ID_STEP:
            low += ID_STEP
            if low not in next_ids:
                next_ids |= await _next_ids(tx, (low,))
        ids.append(next_ids[low])
        next_ids[low] += 1
    return ids


async def _next_ids(tx: Transaction, lows: Collection[int]) -> dict[int, int]:
    """The first unused id of each millisecond, by its lowest id."""
    rows = await tx.fetch_all(
        f"WITH low (id) AS (VALUES {', '.join(['(?)'] * len(lows))}) SELECT low.id, "
        "COALESCE((SELECT MAX(m.id) FROM indexed_messages m WHERE m.id >= low.id AND m.id < low.id + ?) + 1, low.id) "
        "FROM low",
        (*lows, ID_STEP),
    )
    return dict(rows)


async def delete_below(tx: Transaction, state: LogState, limit: int) -> int:
    """Removes deleted messages, or all messages of an outdated log, at most `limit`; returns how many."""
    end = state.last_seq + 1 if state.is_outdated else state.first_seq
    rows = await tx.fetch_all(
        "SELECT id FROM indexed_messages WHERE session = ? AND seq < ? ORDER BY seq LIMIT ?",
        (state.session, end, limit),
    )
    if rows:
        ids = [row[0] for row in rows]
        listed = ", ".join("?" * len(ids))
        await tx.execute(f"DELETE FROM message_words WHERE rowid IN ({listed})", ids)
        await tx.execute(f"DELETE FROM indexed_messages WHERE id IN ({listed})", ids)
    if len(rows) < limit and state.is_outdated:
        await tx.execute(
            f"UPDATE indexed_logs SET indexed_seq = 0, reading = {RULES} WHERE session = ? AND reading < {RULES}",
            (state.session,),
        )
    if len(rows) < limit:
        await tx.execute(
            "UPDATE indexed_logs SET first_seq = ? WHERE session = ? AND first_seq < ?",
            (state.first_seq, state.session, state.first_seq),
        )
    return len(rows)
