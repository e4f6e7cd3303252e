"""Rows of sessions and incarnations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.session import (
    NOWHERE,
    DeliveryContext,
    DescriptionSource,
    SendOverride,
    Session,
    SessionStatus,
    SessionType,
    Source,
)
from antiphon.store import codec
from antiphon.store.database import Query, Row, SqlValue, Transaction

_COLUMNS = """s.id, s.key, s.agent_id, s.incarnation, s.status, s.last_seq, s.first_seq, i.first_seq,
s.source_kind, s.source_interactive, s.source_platform, s.source_trigger_id, s.type, s.metadata,
s.created_at, i.started_at, s.interacted_at, s.updated_at, s.label, s.display_name, s.description,
s.description_source, s.preview, s.message_count, s.turn_count, i.working_memory,
i.taint_level, i.taint_compartments, i.taint_integrity, s.base_level, s.base_compartments, s.base_integrity,
s.clearance_level, s.clearance_compartments, s.parent, p.key, s.depth, s.send_policy,
s.delivery_channel, s.delivery_to, s.delivery_account_id, s.delivery_thread_id,
s.model, s.thinking_level, s.verbose_level, s.context_tokens, s.aborted_last_run,
s.input_tokens, s.output_tokens, s.cached_tokens, s.cost_microusd, s.steps"""

_SELECT = (
    f"SELECT {_COLUMNS} FROM sessions s JOIN incarnations i ON i.id = s.incarnation "
    "LEFT JOIN sessions p ON p.id = s.parent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a key, present or ended."""

    id: SessionId
    session: SessionRow
    first_seq: int
    last_seq: int | None
    """None while it is the present one."""


class SessionHead(NamedTuple):
    """What taking a message in needs of a session; cheap to read."""

    row: SessionRow
    key: str
    agent_id: AgentId
    id: SessionId
    status: str
    type: str
    last_seq: int
    first_seq: int
    is_described: int


_HEAD = (
    "SELECT id, key, agent_id, incarnation, status, type, last_seq, first_seq, description IS NOT NULL FROM sessions"
)


async def find_head_by_key(query: Query, key: SessionKey) -> SessionHead | None:
    row = await query.fetch_one(f"{_HEAD} WHERE key = ? AND deleted_at IS NULL", (key.value,))
    return None if row is None else SessionHead(*row)


async def find_head(query: Query, session: SessionRow) -> SessionHead | None:
    row = await query.fetch_one(f"{_HEAD} WHERE id = ? AND deleted_at IS NULL", (session,))
    return None if row is None else SessionHead(*row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which rows a list shows; every condition holds before the limit is applied. Contract: visibility 4."""

    agent_id: AgentId | None = None
    kinds: frozenset[SessionKind] | None = None
    label: str | None = None
    search: str | None = None
    updated_since: datetime | None = None
    include_inactive: bool = False


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The last row of a page; the next begins behind it."""

    updated_at_ms: int
    row: int


async def find_by_key(query: Query, key: SessionKey) -> Session | None:
    """The living session of the key."""
    return _one(await query.fetch_one(f"{_SELECT} WHERE s.key = ? AND s.deleted_at IS NULL", (key.value,)))


async def find_by_row(query: Query, session: SessionRow) -> Session | None:
    return _one(await query.fetch_one(f"{_SELECT} WHERE s.id = ? AND s.deleted_at IS NULL", (session,)))


async def find_incarnation(query: Query, session_id: SessionId) -> Incarnation | None:
    row = await query.fetch_one("SELECT id, session, first_seq, last_seq FROM incarnations WHERE id = ?", (session_id,))
    if row is None:
        return None
    return Incarnation(id=row[0], session=row[1], first_seq=row[2], last_seq=row[3])


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a log begins and ends."""

    first_seq: int
    last_seq: int


async def find_bounds(query: Query, session: SessionRow) -> Bounds | None:
    """None for a deleted session."""
    row = await query.fetch_one(
        "SELECT first_seq, last_seq FROM sessions WHERE id = ? AND deleted_at IS NULL", (session,)
    )
    return None if row is None else Bounds(row[0], row[1])


async def insert(
    tx: Transaction,
    *,
    key: SessionKey,
    agent_id: AgentId,
    session_id: SessionId,
    source: Source,
    metadata: Mapping[str, object],
    at_ms: int,
    columns: Mapping[str, SqlValue],
) -> SessionRow:
    """A new row and its first incarnation, with an empty log; revives a deleted key's row."""
    values: dict[str, SqlValue] = {
        "agent_id": agent_id,
        "kind": key.kind.value,
        "incarnation": session_id,
        "status": SessionStatus.IDLE.value,
        "deleted_at": None,
        "source_kind": source.kind,
        "source_interactive": int(source.interactive),
        "source_platform": source.platform,
        "source_trigger_id": source.trigger_id,
        "type": source.type.value,
        "metadata": codec.json_text(metadata),
        "created_at": at_ms,
        "interacted_at": at_ms,
        "updated_at": at_ms,
        **columns,
    }
    names = ("key", *values)
    statement = (
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in values)} "
        "RETURNING id, last_seq"
    )
    row = await tx.fetch_one(statement, (key.value, *values.values()))
    assert row is not None
    await start_incarnation(tx, row[0], session_id, first_seq=row[1] + 1, at_ms=at_ms)
    return row[0]


async def start_incarnation(
    tx: Transaction, session: SessionRow, session_id: SessionId, *, first_seq: int, at_ms: int
) -> None:
    """A new life with empty working memory, at the session's base classification."""
    await tx.execute(
        "INSERT INTO incarnations (id, session, first_seq, started_at, taint_level, taint_compartments, "
        "taint_integrity) SELECT ?, id, ?, ?, base_level, base_compartments, base_integrity "
        "FROM sessions WHERE id = ?",
        (session_id, first_seq, at_ms, session),
    )


async def end_incarnation(tx: Transaction, session_id: SessionId, *, last_seq: int, at_ms: int) -> None:
    await tx.execute("UPDATE incarnations SET last_seq = ?, ended_at = ? WHERE id = ?", (last_seq, at_ms, session_id))


async def stretch_incarnation(tx: Transaction, session_id: SessionId, last_seq: int) -> None:
    """Lets an ended incarnation reach to an event that came late; changes nothing in a present one."""
    await tx.execute(
        "UPDATE incarnations SET last_seq = ? WHERE id = ? AND last_seq IS NOT NULL", (last_seq, session_id)
    )


async def set_taint(tx: Transaction, session_id: SessionId, taint: Classification) -> None:
    await tx.execute(
        "UPDATE incarnations SET taint_level = ?, taint_compartments = ?, taint_integrity = ? WHERE id = ?",
        (*codec.classification_values(taint), session_id),
    )


async def update(tx: Transaction, session: SessionRow, columns: Mapping[str, SqlValue]) -> None:
    """Sets columns without an event, for what no reader of the log needs to know."""
    await tx.execute(_update(tuple(columns)), (*columns.values(), session))


@cache
def _update(columns: tuple[str, ...]) -> str:
    return f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in columns)} WHERE id = ?"


async def hide_idle_before(tx: Transaction, before_ms: int, limit: int) -> int:
    """Makes at most `limit` idle sessions `inactive`, whose last interaction was before; returns how many."""
    return await tx.execute(
        "UPDATE sessions SET status = 'inactive' WHERE id IN (SELECT id FROM sessions WHERE deleted_at IS NULL "
        "AND status = 'idle' AND interacted_at < ? ORDER BY updated_at LIMIT ?)",
        (before_ms, limit),
    )


async def bury(tx: Transaction, session: SessionRow, *, at_ms: int) -> None:
    """Leaves a tombstone. The deletion takes a number, so that a cursor at the old end is told from a new one."""
    await tx.execute("DELETE FROM participants WHERE session = ?", (session,))
    await tx.execute("UPDATE sessions SET incarnation = NULL, parent = NULL WHERE id = ?", (session,))
    await tx.execute("UPDATE sessions SET parent = NULL WHERE parent = ?", (session,))
    await tx.execute("DELETE FROM incarnations WHERE session = ?", (session,))
    await tx.execute(
        "UPDATE sessions SET deleted_at = ?, last_seq = last_seq + 1, first_seq = last_seq + 2, message_count = 0, "
        "turn_count = 0, label = NULL, display_name = NULL, description = NULL, description_source = NULL, "
        "preview = NULL, send_policy = NULL, model = NULL, thinking_level = NULL, verbose_level = NULL, "
        "context_tokens = 0, input_tokens = 0, output_tokens = 0, cached_tokens = 0, cost_microusd = NULL, "
        "steps = 0, aborted_last_run = 0, clearance_level = NULL, clearance_compartments = NULL WHERE id = ?",
        (at_ms, session),
    )


async def add_participant(tx: Transaction, session: SessionRow, principal: str) -> None:
    await tx.execute(
        "INSERT INTO participants (session, principal) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (session, principal),
    )


async def is_participant(query: Query, session: SessionRow, principal: str) -> bool:
    row = await query.fetch_one("SELECT 1 FROM participants WHERE session = ? AND principal = ?", (session, principal))
    return row is not None


async def list_page(query: Query, where: SessionFilter, *, limit: int, after: ListCursor | None) -> list[Session]:
    """Living sessions, newest first, at most `limit`."""
    conditions, values = ["s.deleted_at IS NULL"], list[SqlValue]()

    def require(condition: str, *parameters: SqlValue) -> None:
        conditions.append(condition)
        values.extend(parameters)

    if not where.include_inactive:
        require("s.status <> 'inactive'")
    if where.agent_id is not None:
        require("s.agent_id = ?", where.agent_id)
    if where.kinds is not None:
        require(f"s.kind IN ({', '.join('?' * len(where.kinds))})", *sorted(where.kinds))
    if where.label is not None:
        require("s.label = ?", where.label)
    if where.updated_since is not None:
        require("s.updated_at >= ?", codec.milliseconds(where.updated_since))
    if where.search is not None:
        pattern = _like(where.search)
        require(
            "(LOWER(s.key) LIKE ? ESCAPE '!' OR LOWER(s.label) LIKE ? ESCAPE '!' "
            "OR LOWER(s.display_name) LIKE ? ESCAPE '!')",
            pattern,
            pattern,
            pattern,
        )
    if after is not None:
        require("(s.updated_at, s.id) < (?, ?)", after.updated_at_ms, after.row)
    rows = await query.fetch_all(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY s.updated_at DESC, s.id DESC LIMIT ?",
        (*values, limit),
    )
    return [session_from_row(row) for row in rows]


def cursor_of(session: Session) -> ListCursor:
    return ListCursor(codec.milliseconds(session.updated_at), session.row)


def _like(text: str) -> str:
    for special in "!%_":
        text = text.replace(special, "!" + special)
    return f"%{text.lower()}%"


def _one(row: Row | None) -> Session | None:
    return None if row is None else session_from_row(row)


_STATUSES = {status.value: status for status in SessionStatus}
_TYPES = {type.value: type for type in SessionType}


def session_from_row(row: Row) -> Session:
    return Session(
        row=row[0],
        key=codec.stored_key(row[1]),
        agent_id=row[2],
        id=row[3],
        status=_STATUSES[row[4]],
        last_seq=row[5],
        first_seq=row[6],
        incarnation_seq=row[7],
        source=Source(
            kind=row[8],
            interactive=bool(row[9]),
            platform=row[10],
            trigger_id=row[11],
            type=_TYPES[row[12]],
        ),
        metadata={} if row[13] == "{}" else codec.json_object(row[13]),
        created_at=codec.moment(row[14]),
        started_at=codec.moment(row[15]),
        interacted_at=codec.moment(row[16]),
        updated_at=codec.moment(row[17]),
        label=row[18],
        display_name=row[19],
        description=row[20],
        description_source=None if row[21] is None else DescriptionSource(row[21]),
        preview=row[22],
        message_count=row[23],
        turn_count=row[24],
        working_memory=row[25],
        taint=codec.classification(*row[26:29]),
        base=codec.classification(*row[29:32]),
        clearance=None if row[32] is None else codec.classification(row[32], row[33], 1),
        parent=row[34],
        parent_key=row[35],
        depth=row[36],
        send_policy=None if row[37] is None else SendOverride(row[37]),
        delivery=_delivery(*row[38:42]),
        model=row[42],
        thinking_level=row[43],
        verbose_level=row[44],
        context_tokens=row[45],
        aborted_last_run=bool(row[46]),
        usage=codec.usage(row[47:52]),
    )


def _delivery(channel: str | None, to: str | None, account_id: str | None, thread_id: str | None) -> DeliveryContext:
    if channel is None and to is None and account_id is None and thread_id is None:
        return NOWHERE
    return DeliveryContext(channel=channel, to=to, account_id=account_id, thread_id=thread_id)
