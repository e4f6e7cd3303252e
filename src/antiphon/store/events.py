"""The log: appends under the session's row, reads by `seq`."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.event import Event, NewEvent
from antiphon.domain.hash_chain import next_hash
from antiphon.domain.ids import MessageId, RunId, SessionId, SessionRow
from antiphon.policy.flow import is_public
from antiphon.policy.reach import Grant
from antiphon.store import incarnations, log_hashes, sessions
from antiphon.store.codec import (
    COLUMNS_WITHIN,
    EVENT_COLUMNS,
    classification,
    classification_columns,
    classification_values,
    event_from_row,
    event_values,
    event_within,
    milliseconds,
)
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.log_hashes import HEAD_OR_SECRET, hash_before, values_of
from antiphon.store.names import with_folded
from antiphon.store.scopes import ANY, Condition, any_of, flow, skipped_before
from antiphon.store.sessions import LogEnd

EVENT_WIDTH = 15
NEVER = Condition("1 = 0")
INSERTED_AT_ONCE = 16


class Addition(Struct, frozen=True, gc=False):
    """New events of an incarnation, present or ended, and the changes of the session's row that come with them."""

    incarnation: SessionId
    events: Sequence[NewEvent]
    at_ms: int
    set: Mapping[str, SqlValue] = {}
    """New values of columns."""
    add: Mapping[str, int] = {}
    """Amounts by which columns grow."""
    end: LogEnd | None = None
    """The end of the log before, if known; saves a query."""
    is_quiet: bool = False
    """Whether `updated_at` stays as it is, because nobody did anything."""
    is_stored: bool = False
    """Whether `store` has stored the events already, under the numbers that they get now."""


async def append(tx: Transaction, session: SessionRow, addition: Addition) -> int:
    """Numbers and stores the events, and changes columns of the session's row; returns the last `seq`.

    No event is stored below the session's base. `updated_at` never goes back, and stays as it is if none of the events
    flows to the session's taint. An ended incarnation extends to events that come late. Wakes the readers. Each event
    carries its hash, and the session's row that of the last.
    Contract: events 1, sessions 5, flow 2, 12, 13.
    """
    incarnation, at_ms, end = addition.incarnation, addition.at_ms, addition.end
    set, add = with_folded(addition.set), addition.add
    count = len(addition.events)
    seen = NEVER if addition.is_quiet else _seen(addition.events)
    if end is None or end.head is None:
        values = (count, at_ms, *seen.values, at_ms, *set.values(), *add.values(), session)
        row = await tx.fetch_one(_advance(False, seen.text, tuple(set), tuple(add)), values)
        assert row is not None, f"Session row {session} vanished"
        last_seq, present, *stored, head, secret = row
        if count and not addition.is_stored:
            before, base = hash_before(session, head, secret), classification(*stored)
            last = await store(tx, session, addition, first=last_seq - count + 1, base=base, before=before)
            await set_head(tx, session, last)
    else:
        last_seq, present = end.last_seq + count, end.incarnation
        rows, head = _rows(session, addition, first=end.last_seq + 1, base=end.base, head=end.head)
        values = (count, at_ms, *seen.values, at_ms, head, *set.values(), *add.values(), session)
        await tx.execute(_advance(True, seen.text, tuple(set), tuple(add)), values)
        await _insert_all(tx, rows)
    if present != incarnation:
        await incarnations.stretch(tx, incarnation, last_seq)
    tx.wake(session)
    return last_seq


async def store(
    tx: Transaction, session: SessionRow, addition: Addition, *, first: int, base: Classification, before: bytes
) -> bytes:
    """Stores the events, numbered from `first`, none of them below `base`; returns the hash of the last.

    `before` is the hash before them. The session's row does not know them.
    """
    rows, last = _rows(session, addition, first=first, base=base, head=before)
    await _insert_all(tx, rows)
    return last


async def set_head(tx: Transaction, session: SessionRow, head: bytes) -> None:
    """Stores the hash of the log's last event."""
    await tx.execute("UPDATE sessions SET head = ? WHERE id = ?", (head, session))


def _rows(
    session: SessionRow, addition: Addition, *, first: int, base: Classification, head: bytes
) -> tuple[list[tuple[SqlValue, ...]], bytes]:
    """The rows of the events, each with its hash, and the hash of the last."""
    incarnation, at_ms = addition.incarnation, addition.at_ms
    rows: list[tuple[SqlValue, ...]] = []
    for seq, event in enumerate(addition.events, first):
        created_at = at_ms if event.occurred_at is None else milliseconds(event.occurred_at)
        row = (session, seq, incarnation, created_at, *event_values(event, base))
        head = next_hash(head, values_of(row))
        rows.append((*row, head))
    return rows, head


async def _insert_all(tx: Transaction, rows: Sequence[tuple[SqlValue, ...]]) -> None:
    for start in range(0, len(rows), INSERTED_AT_ONCE):
        part = rows[start : start + INSERTED_AT_ONCE]
        await tx.execute(_insert(len(part)), part[0] if len(part) == 1 else [*chain.from_iterable(part)])


def size_of(event: NewEvent) -> int:
    """The size of the event as it is stored."""
    payload = event_values(event, PUBLIC)[-1]
    assert isinstance(payload, str)
    return len(payload)


@cache
def _insert(count: int) -> str:
    row = f"({', '.join('?' * EVENT_WIDTH)})"
    return (
        "INSERT INTO events (session, seq, incarnation, created_at, type, role, actor, run_id, message_id, "
        f"level, compartments, integrity, person, payload, hash) VALUES {', '.join([row] * count)}"
    )


def _seen(events: Sequence[NewEvent]) -> Condition:
    """Whether sessions that see this one may notice one of the events: one flows to its taint. Contract: flow 13."""
    for event in events:
        if is_public(event.classification):
            return ANY
    made_of = {event.classification for event in events}
    return any_of([sessions.sees(each) for each in made_of]) if made_of else ANY


@cache
def _advance(is_known: bool, seen: str, set_columns: tuple[str, ...], add_columns: tuple[str, ...]) -> str:
    noticed = "" if seen == ANY.text else f" AND ({seen})"
    changes = [
        "last_seq = last_seq + ?",
        f"updated_at = CASE WHEN updated_at < ?{noticed} THEN ? ELSE updated_at END",
        *(("head = ?",) if is_known else ()),
        *(f"{column} = ?" for column in set_columns),
        *(f"{column} = COALESCE({column}, 0) + ?" for column in add_columns),
    ]
    returning = (
        "" if is_known else f" RETURNING last_seq, incarnation, {classification_columns('base_')}, {HEAD_OR_SECRET}"
    )
    return f"UPDATE sessions SET {', '.join(changes)} WHERE id = ?{returning}"


class Stretch(NamedTuple):
    """Consecutive events, and their size in bytes."""

    events: list[Event]
    size: int


async def read_stretch(query: Query, grant: Grant, after: int, *, limit: int, max_bytes: int) -> Stretch:
    """Events of the log with `seq` above `after`, ascending; stops once it has `limit` events or `max_bytes`."""
    events: list[Event] = []
    size, count = 0, 8
    while size < max_bytes and len(events) < limit:
        rows = await query.fetch_all(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
            (grant.session, events[-1].seq if events else after, min(count, limit - len(events))),
        )
        for row in rows:
            events.append(event_from_row(row))
            size += len(row[-1])
            if size >= max_bytes:
                break
        if len(rows) < count:
            break
        count *= 2
    return Stretch(events, size)


async def read_messages_before(
    query: Query,
    grant: Grant,
    incarnation: SessionId,
    *,
    from_seq: int,
    before: int,
    limit: int,
    include_tools: bool,
) -> list[Event]:
    """Message events of one incarnation with `from_seq` <= `seq` < `before`, newest first, at most `limit`.

    Only those that flow to the clearance of the grant. Contract: flow 3.
    """
    assert grant.covers(incarnation)
    roles = "role IS NOT NULL" if include_tools else "role IN ('user', 'assistant')"
    readable = flow("", grant.clearance)
    rows = await query.fetch_all(
        f"SELECT {COLUMNS_WITHIN} FROM events WHERE session = ? AND seq >= ? AND seq < ? "
        f"AND incarnation = ? AND {roles} AND {readable.text} ORDER BY seq DESC LIMIT ?",
        (grant.session, from_seq, before, incarnation, *readable.values, limit),
    )
    return [event_within(grant.session, incarnation, row) for row in rows]


class NumberedEvents(NamedTuple):
    """Events with the numbers by which sessions know them."""

    events: list[Event]
    """Each with that number as its `seq`."""
    seqs: list[int]
    """Where they stand in the log, in the same order."""


async def read_numbered_before(
    query: Query, grant: Grant, incarnation: SessionId, *, before: int, limit: int, include_tools: bool, from_seq: int
) -> NumberedEvents:
    """Like `read_messages_before`, numbered for a session: events that it must not notice are not counted."""
    assert grant.covers(incarnation)
    roles = "role IS NOT NULL" if include_tools else "role IN ('user', 'assistant')"
    readable, skipped = flow("", grant.clearance), skipped_before("events.session", "events.seq", grant.clearance)
    rows = await query.fetch_all(
        f"SELECT {COLUMNS_WITHIN}, {skipped.text} FROM events WHERE session = ? AND seq < ? AND seq >= ? "
        f"AND incarnation = ? AND {roles} AND {readable.text} ORDER BY seq DESC LIMIT ?",
        (*skipped.values, grant.session, before, from_seq, incarnation, *readable.values, limit),
    )
    found = NumberedEvents([], [])
    for row in rows:
        event = event_within(grant.session, incarnation, row[:-1])
        found.events.append(replace(event, seq=event.seq - row[-1]))
        found.seqs.append(event.seq)
    return found


async def note_unnoticed(tx: Transaction, session: SessionRow, seq: int, made_of: Classification) -> None:
    """Leaves the event out of the numbers that sessions below it see."""
    level, compartments, _, person = classification_values(made_of)
    await tx.execute(
        "INSERT INTO unnoticed_events (session, seq, level, compartments, person) VALUES (?, ?, ?, ?, ?)",
        (session, seq, level, compartments, person),
    )


async def read_ends(
    query: Query, grant: Grant, incarnation: SessionId, *, from_seq: int, before: int, limit: int
) -> list[Event]:
    """The ends of runs of one incarnation with `from_seq` <= `seq` < `before`, newest first, at most `limit`.

    Only those that flow to the clearance of the grant, as everything that a grant reads. Contract: flow 3.
    """
    assert grant.covers(incarnation)
    readable = flow("", grant.clearance)
    rows = await query.fetch_all(
        f"SELECT {COLUMNS_WITHIN} FROM events WHERE session = ? AND incarnation = ? AND type = 'run_finished' "
        f"AND seq >= ? AND seq < ? AND {readable.text} ORDER BY seq DESC LIMIT ?",
        (grant.session, incarnation, from_seq, before, *readable.values, limit),
    )
    return [event_within(grant.session, incarnation, row) for row in rows]


async def read_incarnation_after(
    query: Query, grant: Grant, incarnation: SessionId, after: int, *, limit: int
) -> list[Event]:
    """Events of one incarnation with `seq` above `after`, ascending, at most `limit`."""
    assert grant.covers(incarnation)
    readable = flow("", grant.clearance)
    rows = await query.fetch_all(
        f"SELECT {COLUMNS_WITHIN} FROM events WHERE session = ? AND seq > ? AND incarnation = ? AND {readable.text} "
        "ORDER BY seq LIMIT ?",
        (grant.session, after, incarnation, *readable.values, limit),
    )
    return [event_within(grant.session, incarnation, row) for row in rows]


async def is_raised_after(query: Query, grant: Grant, incarnation: SessionId, seq: int) -> bool:
    """Whether the taint of the incarnation rose after the event."""
    assert grant.covers(incarnation)
    row = await query.fetch_one(
        "SELECT 1 FROM events WHERE session = ? AND seq > ? AND incarnation = ? AND type = 'taint_raised' LIMIT 1",
        (grant.session, seq, incarnation),
    )
    return row is not None


async def size_of_incarnation(query: Query, grant: Grant, incarnation: SessionId, up_to: int) -> int:
    """The size of the readable events of one incarnation up to `up_to`, as they are stored, without reading them."""
    assert grant.covers(incarnation)
    readable = flow("", grant.clearance)
    row = await query.fetch_one(
        "SELECT COALESCE(SUM(LENGTH(payload)), 0) FROM events WHERE session = ? AND seq <= ? AND incarnation = ? "
        f"AND {readable.text}",
        (grant.session, up_to, incarnation, *readable.values),
    )
    assert row is not None
    return int(row[0])


async def find_message(query: Query, grant: Grant, message_id: MessageId) -> Event | None:
    """The user message that was stored under this id."""
    row = await query.fetch_one(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND message_id = ?", (grant.session, message_id)
    )
    return None if row is None else event_from_row(row)


async def find_events(query: Query, grant: Grant, seqs: Sequence[int]) -> dict[int, Event]:
    """The events with these numbers, by number, as far as they flow to the clearance of the grant. Contract: flow 3."""
    if not seqs:
        return {}
    readable = flow("", grant.clearance)
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq IN ({', '.join('?' * len(seqs))}) "
        f"AND {readable.text}",
        (grant.session, *seqs, *readable.values),
    )
    return {event.seq: event for event in map(event_from_row, rows)}


async def read_run(query: Query, grant: Grant, run_id: RunId, *, from_seq: int) -> list[Event]:
    """Events of one run, ascending."""
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq >= ? AND run_id = ? ORDER BY seq",
        (grant.session, from_seq, run_id),
    )
    return [event_from_row(row) for row in rows]


async def newest_compaction(query: Query, grant: Grant, incarnation: SessionId) -> Event | None:
    assert grant.covers(incarnation)
    row = await query.fetch_one(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND type = 'compacted' AND incarnation = ? "
        "ORDER BY seq DESC LIMIT 1",
        (grant.session, incarnation),
    )
    return None if row is None else event_from_row(row)


async def first_seq_since(query: Query, session: SessionRow, since_ms: int, *, below: int) -> int:
    """The lowest `seq` below `below` of an event since then; `below` if all earlier events are older."""
    row = await query.fetch_one(
        "SELECT seq FROM events WHERE session = ? AND seq < ? AND created_at >= ? ORDER BY seq LIMIT 1",
        (session, below, since_ms),
    )
    return below if row is None else row[0]


async def delete_below(tx: Transaction, session: SessionRow, seq: int) -> None:
    """Prunes the log: readers with cursors below `seq - 1` have now lost events."""
    await log_hashes.prune(tx, session, seq)
    await tx.execute("DELETE FROM events WHERE session = ? AND seq < ?", (session, seq))
    await tx.execute("UPDATE sessions SET first_seq = ? WHERE id = ?", (seq, session))


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM events WHERE session = ?", (session,))
