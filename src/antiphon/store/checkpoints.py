"""Rows of checkpoints: the cursor of each incarnation, what was asked for, and what is at work."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.checkpoint import CheckpointReason
from antiphon.domain.ids import ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.message import NO_USAGE, Usage
from antiphon.store import codec
from antiphon.store.claims import Claims, is_left
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.select_list import SelectList

CHECKPOINT_DUE = SessionRow(-8)
"""Not a session's row; woken when a checkpoint is due at once."""
CLAIMS = Claims("checkpoints", "incarnation", "run", "fence", held="process IS NOT NULL")


class CheckpointFence(NamedTuple):
    """A process's right to write for the checkpoint of an incarnation: the values that name its claim.

    A session that was made anew may have the incarnation's id and the number again, but not the run.
    """

    incarnation: SessionId
    run: RunId
    number: int


class StoredCheckpoint(Struct, frozen=True, kw_only=True):
    """The row of an incarnation."""

    incarnation: SessionId
    session: SessionRow
    through_seq: int = 0
    """The cursor: the last event that a successful checkpoint covers."""
    failures: int = 0
    """In a row."""
    again_at: int | None = None
    """After a failure: in milliseconds, before that no checkpoint begins by itself."""
    asked: CheckpointReason | None = None
    asked_run: RunId | None = None
    """The id of the run that a checkpoint leaves that was asked for."""
    asked_by: Principal | None = None
    reason: CheckpointReason | None = None
    """Of the one at work; None if none is."""
    run: RunId | None = None
    started_seq: int | None = None
    """The `seq` of its `introspection_started`."""
    started_at: datetime | None = None
    reads_seq: int | None = None
    """The last event that it reads."""
    turns: int = 0
    """The session's completed turns when it began."""
    untriggered: int = 0
    """The messages without a run that were not covered when it began."""
    process: ProcessId | None = None
    fence: int = 0
    attempt: int = 0
    model: str | None = None
    principal: Principal | None = None
    """Whose caps its tokens count against."""
    usage: Usage = NO_USAGE


_STORED = SelectList(
    StoredCheckpoint,
    """c.incarnation, c.session, c.through_seq, c.failures, c.again_at, c.asked, c.asked_run, c.asked_by, c.reason,
c.run, c.started_seq, c.started_at, c.reads_seq, c.turns, c.untriggered, c.process, c.fence, c.attempt,
c.model, c.principal, c.input_tokens, c.output_tokens, c.cached_tokens, c.cost_microusd, c.steps""",
    asked=codec.member_of(CheckpointReason),
    asked_by=codec.stored_principal,
    reason=codec.member_of(CheckpointReason),
    started_at=codec.moment,
    principal=codec.stored_principal,
    usage=codec.USAGE,
)


async def find(query: Query, incarnation: SessionId) -> StoredCheckpoint | None:
    row = await query.fetch_one(f"SELECT {_STORED.text} FROM checkpoints c WHERE c.incarnation = ?", (incarnation,))
    return None if row is None else _STORED.read(row)


async def find_claimed(query: Query, fence: CheckpointFence) -> StoredCheckpoint | None:
    """The row, if it has that fence."""
    found = await find(query, fence.incarnation)
    return found if found is not None and (found.run, found.fence) == (fence.run, fence.number) else None


async def set_columns(
    tx: Transaction, session: SessionRow, incarnation: SessionId, columns: Mapping[str, SqlValue]
) -> None:
    """Sets columns of the incarnation's row, which comes into being if it does not exist."""
    names = ("incarnation", "session", *columns)
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns)
    await tx.execute(
        f"INSERT INTO checkpoints ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT (incarnation) DO UPDATE SET {assignments}",
        (incarnation, session, *columns.values()),
    )


async def add_usage(tx: Transaction, fence: CheckpointFence, usage: Usage, model: str) -> bool:
    """Adds to the usage of the checkpoint at work; returns whether it has that fence."""
    return await CLAIMS.change(tx, fence, f"model = ?, {codec.USAGE_ADDED}", model, *codec.usage_added(usage))


class DueCheckpoint(NamedTuple):
    """An incarnation to look at."""

    session: SessionRow
    incarnation: SessionId


async def list_due(query: Query, at_ms: int, limit: int) -> list[DueCheckpoint]:
    """Incarnations whose time has come, and those whose checkpoint's process has died; the longest due first."""
    timed = await query.fetch_all(
        "SELECT id, incarnation FROM sessions WHERE checkpoint_at IS NOT NULL AND checkpoint_at <= ? "
        "AND incarnation IS NOT NULL ORDER BY checkpoint_at LIMIT ?",
        (at_ms, limit),
    )
    opened = await query.fetch_all(
        "SELECT c.session, c.incarnation FROM checkpoints c WHERE c.look_at IS NOT NULL AND c.look_at <= ? "
        f"AND (c.run IS NULL OR {is_left('c.process')}) ORDER BY c.look_at LIMIT ?",
        (at_ms, limit),
    )
    return [DueCheckpoint(*row) for row in dict.fromkeys([*opened, *timed])]


async def next_due(query: Query) -> int | None:
    """When the next one is due that nobody works on."""
    row = await query.fetch_one(
        "SELECT (SELECT MIN(checkpoint_at) FROM sessions WHERE checkpoint_at IS NOT NULL), "
        "(SELECT MIN(look_at) FROM checkpoints WHERE look_at IS NOT NULL AND run IS NULL)"
    )
    assert row is not None
    return min((each for each in row if each is not None), default=None)


async def find_uncovered(query: Query, session: SessionRow) -> tuple[int, int]:
    """The completed turns that no checkpoint covers, and the messages without a run."""
    row = await query.fetch_one(
        "SELECT turn_count - covered_turns, untriggered_count FROM sessions WHERE id = ?", (session,)
    )
    return (0, 0) if row is None else (row[0], row[1])


async def has_news(query: Query, session: SessionRow, incarnation: SessionId, after: int) -> bool:
    """Whether a message or an error of the incarnation lies behind `after`."""
    row = await query.fetch_one(
        "SELECT 1 FROM events WHERE session = ? AND seq > ? AND incarnation = ? "
        "AND type IN ('user_message', 'assistant_message', 'error') LIMIT 1",
        (session, after, incarnation),
    )
    return row is not None


async def newest_writer(query: Query, session: SessionRow, incarnation: SessionId) -> str | None:
    """The actor of the newest message from outside, as text."""
    row = await query.fetch_one(
        "SELECT actor FROM events WHERE session = ? AND incarnation = ? AND type = 'user_message' "
        "ORDER BY seq DESC LIMIT 1",
        (session, incarnation),
    )
    return None if row is None else row[0]


async def newest_asker(query: Query, session: SessionRow, incarnation: SessionId) -> str | None:
    """The principal of the newest run of the incarnation that answers a person's message, as text."""
    row = await query.fetch_one(
        "SELECT principal FROM runs WHERE session = ? AND incarnation = ? AND purpose = 'message' "
        "ORDER BY seq DESC LIMIT 1",
        (session, incarnation),
    )
    return None if row is None else row[0]


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM checkpoints WHERE session = ?", (session,))
