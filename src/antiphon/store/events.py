"""The log: appending under the session's row, reading by `seq`."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from antiphon.domain.event import Event, NewEvent
from antiphon.domain.ids import MessageId, RunId, SessionId, SessionRow
from antiphon.store.codec import EVENT_COLUMNS, event_from_row, event_values, milliseconds
from antiphon.store.database import Query, SqlValue, Transaction

_INSERT = (
    "INSERT INTO events (session, seq, incarnation, created_at, type, role, actor, run_id, message_id, "
    "level, compartments, integrity, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Position(NamedTuple):
    """Where a session's log ends after an append."""

    first_seq: int
    """Of the events just appended."""
    last_seq: int
    incarnation: SessionId
    """The session's present one; another than that of the events, if those come late."""


async def append(
    tx: Transaction,
    session: SessionRow,
    incarnation: SessionId,
    events: Sequence[NewEvent],
    *,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
) -> Position:
    """Numbers and stores the events, and changes columns of the session's row in the same statement.

    `set` gives columns new values, `add` raises counters. `updated_at` never goes back. Wakes the readers.
    Contract: events 1, sessions 5.
    """
    set, add = set or {}, add or {}
    row = await tx.fetch_one(
        _advance(tuple(set), tuple(add)),
        (len(events), at_ms, at_ms, *set.values(), *add.values(), session),
    )
    assert row is not None, f"Session row {session} vanished"
    last_seq = row[0]
    first_seq = last_seq - len(events) + 1
    for seq, event in enumerate(events, first_seq):
        created_at = at_ms if event.occurred_at is None else milliseconds(event.occurred_at)
        await tx.execute(_INSERT, (session, seq, incarnation, created_at, *event_values(event)))
    tx.wake(session)
    return Position(first_seq, last_seq, row[1])


@cache
def _advance(set_columns: tuple[str, ...], add_columns: tuple[str, ...]) -> str:
    changes = [
        "last_seq = last_seq + ?",
        "updated_at = CASE WHEN updated_at < ? THEN ? ELSE updated_at END",
        *(f"{column} = ?" for column in set_columns),
        *(f"{column} = COALESCE({column}, 0) + ?" for column in add_columns),
    ]
    return f"UPDATE sessions SET {', '.join(changes)} WHERE id = ? RETURNING last_seq, incarnation"


async def read_after(query: Query, session: SessionRow, after: int, limit: int) -> list[Event]:
    """Events with `seq` above `after`, ascending, at most `limit`."""
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
        (session, after, limit),
    )
    return [event_from_row(row) for row in rows]


async def read_messages_before(
    query: Query,
    session: SessionRow,
    incarnation: SessionId,
    *,
    from_seq: int,
    before: int,
    limit: int,
    include_tools: bool,
) -> list[Event]:
    """Message events of one incarnation with `from_seq` <= `seq` < `before`, newest first, at most `limit`."""
    roles = "role IS NOT NULL" if include_tools else "role IN ('user', 'assistant')"
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq >= ? AND seq < ? "
        f"AND incarnation = ? AND {roles} ORDER BY seq DESC LIMIT ?",
        (session, from_seq, before, incarnation, limit),
    )
    return [event_from_row(row) for row in rows]


async def read_incarnation_after(
    query: Query, session: SessionRow, incarnation: SessionId, after: int, limit: int
) -> list[Event]:
    """Events of one incarnation with `seq` above `after`, ascending, at most `limit`."""
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq > ? AND incarnation = ? ORDER BY seq LIMIT ?",
        (session, after, incarnation, limit),
    )
    return [event_from_row(row) for row in rows]


async def find_message(query: Query, session: SessionRow, message_id: MessageId) -> Event | None:
    """The user message that was stored under this id."""
    row = await query.fetch_one(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND message_id = ?", (session, message_id)
    )
    return None if row is None else event_from_row(row)


async def read_run(query: Query, session: SessionRow, run_id: RunId, *, from_seq: int) -> list[Event]:
    """Events of one run, ascending."""
    rows = await query.fetch_all(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND seq >= ? AND run_id = ? ORDER BY seq",
        (session, from_seq, run_id),
    )
    return [event_from_row(row) for row in rows]


async def newest_compaction(query: Query, session: SessionRow, incarnation: SessionId) -> Event | None:
    row = await query.fetch_one(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ? AND type = 'compacted' AND incarnation = ? "
        "ORDER BY seq DESC LIMIT 1",
        (session, incarnation),
    )
    return None if row is None else event_from_row(row)


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM events WHERE session = ?", (session,))
