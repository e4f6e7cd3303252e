"""The hashes of events, which make a chain of each log. Contract: flow 12."""

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.domain.hash_chain import first_hash, name_of_log, next_hash
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.step import Asking, Statement

_BEFORE_PERSON = (
    "session, seq, incarnation, created_at, type, role, actor, run_id, message_id, level, compartments, integrity"
)
HASHED = f"{_BEFORE_PERSON}, COALESCE(hashed_person, person), payload"
"""The values over which an event's hash is made, in this order; the person is who it was then."""
HEAD_OR_SECRET = "head, CASE WHEN head IS NULL THEN (SELECT secret FROM home_keys WHERE id = 1) END"
"""Of a session's row: the hash of the log's last event; if it has none yet, what the first hash is made of."""
_MESSAGE_ID = 8
ROWS_AT_ONCE = 2_000


class ForkPoint(NamedTuple):
    """Where a fork leaves the log that it is made of, as values of its row."""

    source: SessionRow
    seq: int
    hash: bytes

    @property
    def columns(self) -> dict[str, SqlValue]:
        return {"head": self.hash, "chain_from": self.hash, "fork_source": self.source, "fork_seq": self.seq}


def values_of(row: Sequence[SqlValue]) -> Sequence[SqlValue]:
    """What the hash of an event is made over, from `HASHED`."""
    message_id = row[_MESSAGE_ID]
    if isinstance(message_id, str) and "\0" in message_id:  # PostgreSQL stores no NUL
        return (*row[:_MESSAGE_ID], message_id.replace("\0", "\ufffd"), *row[_MESSAGE_ID + 1 :])
    return row


def hash_before(session: SessionRow, head: bytes | None, secret: str | None) -> bytes:
    """The hash before the next event, from the values of `HEAD_OR_SECRET`."""
    return first_hash(secret or "", name_of_log(session)) if head is None else head


async def find_head(query: Query, session: SessionRow) -> bytes:
    """The hash before the next event of the log."""
    row = await query.fetch_one(f"SELECT {HEAD_OR_SECRET} FROM sessions WHERE id = ?", (session,))
    return hash_before(session, *((None, None) if row is None else row))


async def find_fork_point(query: Query, source: SessionRow, seq: int) -> ForkPoint | None:
    """Where a fork after that event begins; None if neither the event nor those before it have a hash.

    Of events from before the chain began, which one hash covers, that is the last of them.
    """
    row = await query.fetch_one(
        "SELECT s.unchained_seq, s.covered, (SELECT e.hash FROM events e WHERE e.session = s.id AND e.seq = ?) "
        "FROM sessions s WHERE s.id = ?",
        (seq, source),
    )
    if row is None:
        return None
    unchained_seq, covered, hash = row
    if hash is not None:
        return ForkPoint(source, seq, hash)
    return None if covered is None else ForkPoint(source, unchained_seq, covered)


async def find_hash_below(query: Query, session: SessionRow, seq: int) -> bytes | None:
    """The hash of the newest event below `seq`; None if there is no such event."""
    row = await query.fetch_one(
        "SELECT hash, seq FROM events WHERE session = ? AND seq < ? ORDER BY seq DESC LIMIT 1", (session, seq)
    )
    if row is None or row[0] is not None:
        return None if row is None else row[0]
    start = await query.fetch_one(
        "SELECT chain_from, (SELECT secret FROM home_keys WHERE id = 1) FROM sessions WHERE id = ?", (session,)
    )
    assert start is not None
    found, after = hash_before(session, *start), 0
    while rows := await query.fetch_all(
        f"SELECT {HASHED} FROM events WHERE session = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT {ROWS_AT_ONCE}",
        (session, after, seq),
    ):
        for each in rows:
            found = next_hash(found, values_of(each))
        after = rows[-1][1]
    return found


async def prune(tx: Transaction, session: SessionRow, seq: int) -> None:
    """Notes the hash before the event, before those below it are deleted."""
    hash = await find_hash_below(tx, session, seq)
    if hash is not None:
        await tx.execute("UPDATE sessions SET chain_from = ? WHERE id = ?", (hash, session))


def cover_events(secret: str) -> Asking:
    """Covers the events of each log from before by one hash, with which its chain begins.

    They are read once, in their order; none of them is written. `secret` is the home key of a home without one.
    """
    key = yield Statement("SELECT secret FROM home_keys WHERE id = 1")
    session, head, seq = 0, b"", 0
    while rows := (
        yield Statement(
            f"SELECT {_BEFORE_PERSON}, person, payload FROM events WHERE (session, seq) > (?, ?) "
            f"ORDER BY session, seq LIMIT {ROWS_AT_ONCE}",
            (session, seq),
        )
    ):
        if not key:
            yield Statement("INSERT INTO home_keys (id, secret) VALUES (1, ?)", (secret,))
            key = [(secret,)]
        for row in rows:
            if row[0] != session:
                if session:
                    yield _covered(session, head, seq)
                session, head = row[0], first_hash(key[0][0], name_of_log(row[0]))
            head, seq = next_hash(head, values_of(row)), row[1]
    if session:
        yield _covered(session, head, seq)


def _covered(session: int, head: bytes, seq: int) -> Statement:
    return Statement(
        "UPDATE sessions SET head = ?, covered = ?, unchained_seq = ? WHERE id = ?", (head, head, seq, session)
    )
