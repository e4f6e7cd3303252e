"""Rows of sessions."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PEOPLE, Classification
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.message import JsonObject
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import (
    NOWHERE,
    DeliveryContext,
    DescriptionSource,
    SendOverride,
    Session,
    SessionStatus,
    SessionSummary,
    SessionType,
    Source,
)
from antiphon.domain.targets import NamedTarget
from antiphon.domain.telling import Told
from antiphon.policy.flow import is_public
from antiphon.policy.reach import Reach
from antiphon.policy.shown import shown_session
from antiphon.store import codec, incarnations
from antiphon.store.database import NeedsSessions, Query, Row, SqlValue, Transaction
from antiphon.store.names import DISPLAY_NAME, has_words, with_folded
from antiphon.store.scopes import ANY, MAX_DEPTH, Condition, all_of, branches, flow, inside, when, within
from antiphon.store.select_list import Combined, SelectList


def delivery_context(
    channel: str | None, to: str | None, account_id: str | None, thread_id: str | None
) -> DeliveryContext:
    if channel is None and to is None and account_id is None and thread_id is None:
        return NOWHERE
    return DeliveryContext(channel=channel, to=to, account_id=account_id, thread_id=thread_id)


def _metadata(text: str) -> JsonObject:
    return {} if text == "{}" else codec.json_object(text)


def _clearance(level: int | None, compartments: int, person: str | None) -> Classification | None:
    return codec.optional_clearance(level, compartments, person)


def _participants(joined: str | None) -> tuple[str, ...]:
    return () if joined is None else tuple(sorted(joined.split(" ")))


def _ancestors(depth: int, **stored: SessionRow | None) -> tuple[SessionRow | None, ...]:
    return tuple(stored.values())[:depth]


_DISPLAYED = f"{DISPLAY_NAME} AS display_name"
_SUMMARY_COLUMNS = f"""s.id AS row, s.key, s.agent_id, s.incarnation AS id, s.status, s.last_seq, s.created_at,
s.updated_at, i.started_at, s.interacted_at, s.metadata, s.label, {_DISPLAYED}, s.description, s.preview,
s.message_count, s.turn_count, p.key AS parent_key, s.send_policy, s.queue_mode, s.delivery_channel, s.delivery_to,
s.delivery_account_id, s.delivery_thread_id, s.model, s.thinking_level, s.verbose_level, s.context_tokens,
s.aborted_last_run, s.pending_approvals, s.input_tokens, s.output_tokens, s.cached_tokens, s.cost_microusd, s.steps,
s.source_kind, s.source_interactive, s.source_platform, s.source_trigger_id, s.type, i.taint_integrity AS integrity,
(SELECT group_concat(t.principal, ' ') FROM participants t WHERE t.session = s.id) AS participants"""
_SUMMARY_FIELDS: dict[str, Combined | Callable[[Any], object]] = {
    "key": codec.stored_key,
    "status": codec.member_of(SessionStatus),
    "created_at": codec.moment_of_list,
    "updated_at": codec.moment_of_list,
    "started_at": codec.moment_of_list,
    "integrity": codec.integrity,
    "interacted_at": codec.moment_of_list,
    "metadata": _metadata,
    "send_policy": codec.member_of(SendOverride),
    "queue_mode": codec.member_of(QueueMode),
    "participants": Combined(_participants, joined="participants"),
    "aborted_last_run": bool,
    "source_interactive": bool,
    "type": codec.member_of(SessionType),
    "delivery": Combined(
        delivery_context,
        channel="delivery_channel",
        to="delivery_to",
        account_id="delivery_account_id",
        thread_id="delivery_thread_id",
    ),
    "usage": codec.USAGE,
    "source": Combined(
        Source,
        kind="source_kind",
        interactive="source_interactive",
        platform="source_platform",
        trigger_id="source_trigger_id",
        type="type",
    ),
}
_SUMMARY = SelectList(SessionSummary, _SUMMARY_COLUMNS, **_SUMMARY_FIELDS)
SESSION = SelectList(
    Session,
    f"""{_SUMMARY_COLUMNS}, s.first_seq, i.first_seq AS incarnation_seq, s.description_source, i.working_memory,
i.memory_level, i.memory_compartments, i.memory_integrity, i.memory_person, s.preview_level, s.preview_compartments,
s.preview_person, s.description_level, s.description_compartments, s.description_person, i.taint_level,
i.taint_compartments, i.taint_integrity, i.taint_person, i.workspace_level, i.workspace_compartments,
i.workspace_integrity, i.workspace_person, i.workspace_seq, s.base_level, s.base_compartments, s.base_integrity,
s.base_person, s.clearance_level, s.clearance_compartments, s.clearance_person, s.parent, s.depth,
s.depth AS ancestor_count, s.ancestor_0, s.ancestor_1, s.ancestor_2, s.ancestor_3, s.ancestor_4""",
    **_SUMMARY_FIELDS,
    description_source=codec.member_of(DescriptionSource),
    taint=codec.combined_classification("taint"),
    workspace=codec.combined_classification("workspace"),
    base=codec.combined_classification("base"),
    preview_made_of=codec.combined_secrecy("preview"),
    description_made_of=codec.combined_secrecy("description"),
    working_memory_made_of=codec.combined_classification("memory"),
    clearance=Combined(
        _clearance, level="clearance_level", compartments="clearance_compartments", person="clearance_person"
    ),
    ancestors=Combined(
        _ancestors, depth="ancestor_count", **{name: name for name in (f"ancestor_{n}" for n in range(MAX_DEPTH))}
    ),
)

_FROM_PRESENT = "FROM sessions s JOIN incarnations i ON i.id = s.incarnation LEFT JOIN sessions p ON p.id = s.parent"
_SELECT = f"SELECT {SESSION.text} {_FROM_PRESENT}"
_USED = ("s.context_tokens", "s.aborted_last_run", "s.input_tokens", "s.output_tokens", "s.cached_tokens", "s.steps")
"""The numbers that tell something of a session's runs; the cost comes on top."""


@lru_cache(maxsize=256)
def _summary_for(clearance: Classification) -> Condition:
    """The select list of summaries, without what does not flow to the clearance, as `policy/shown` says."""
    if clearance is EVERYTHING:
        return Condition(_SUMMARY.text)
    base, taint = flow("s.base_", clearance), flow("i.taint_", clearance)
    hidden = {
        "s.label": when(base, "s.label"),
        _DISPLAYED: when(base, DISPLAY_NAME),
        "s.description": when(all_of([base, flow("s.description_", clearance)]), "s.description"),
        "s.preview": when(all_of([base, flow("s.preview_", clearance)]), "s.preview"),
        "s.cost_microusd": when(all_of([base, taint]), "s.cost_microusd"),
        **{column: when(all_of([base, taint]), column, "0") for column in _USED},
    }
    texts: list[str] = []
    values: list[SqlValue] = []
    for column in _SUMMARY.columns:
        found = hidden.get(column, Condition(column))
        texts.append(found.text)
        values += found.values
    return Condition(", ".join(texts), tuple(values))


class LogEnd(Struct, frozen=True, gc=False):
    """The end of a session's log, read in a transaction that has appended nothing since."""

    last_seq: int
    incarnation: SessionId
    """The present incarnation."""
    base: Classification
    """The session's base: no event of the log is below it."""
    taint: Classification | None = None
    """The taint of the incarnation of the run with which it was read; None if it was not read with a run."""
    workspace: Classification | None = None
    """What the workspace of that incarnation was made of."""
    shows_classified: bool = True
    """Whether the text that lists show may be made of more than the base; False makes public texts cheaper to store."""
    head: bytes | None = None
    """The hash of its last event; None if it has none yet."""


class Child(NamedTuple):
    row: SessionRow
    parent: SessionRow
    key: str


class SessionHead(NamedTuple):
    """The fields of a session that storing a message needs; cheap to read."""

    row: SessionRow
    key: str
    agent_id: AgentId
    id: SessionId
    status: str
    type: str
    last_seq: int
    first_seq: int
    has_description: bool
    send_policy: str | None
    channel: str | None
    """The channel for its answers."""
    queue_mode: str | None
    source_kind: str
    untriggered_count: int
    """Messages that started no run and that no checkpoint covers."""
    base_level: int
    base_compartments: int
    base_integrity: int
    base_person: str | None
    shows_classified: int
    head: bytes | None

    @property
    def end(self) -> LogEnd:
        base = codec.classification(self.base_level, self.base_compartments, self.base_integrity, self.base_person)
        return LogEnd(self.last_seq, self.id, base, None, None, bool(self.shows_classified), self.head)


class LogHead(Struct, frozen=True, gc=False):
    """The fields of a session that a message needs which no run answers."""

    row: SessionRow
    key: str
    id: SessionId
    status: str
    has_description: bool
    end: LogEnd


def log_head(columns: Row) -> LogHead:
    """From the values of `LOG_HEAD`."""
    row, key, id, status, last_seq, has_description, *made_of, shows, head = columns
    end = LogEnd(last_seq, id, codec.classification(*made_of), None, None, shows != 0, head)
    return LogHead(row, key, id, status, has_description, end)


SHOWS_CLASSIFIED = (
    "CASE WHEN s.preview_level > 0 OR s.preview_compartments <> 0 OR s.preview_person IS NOT NULL THEN 1 ELSE 0 END"
)
HEAD = f"""s.id, s.key, s.agent_id, s.incarnation, s.status, s.type, s.last_seq, s.first_seq,
s.description IS NOT NULL, s.send_policy, s.delivery_channel, s.queue_mode,
s.source_kind, s.untriggered_count,
{codec.classification_columns("s.base_")}, {SHOWS_CLASSIFIED}, s.head"""
LOG_HEAD = f"""s.id, s.key, s.incarnation, s.status, s.last_seq, s.description IS NOT NULL,
{codec.classification_columns("s.base_")}, {SHOWS_CLASSIFIED}, s.head"""
_SELECT_HEAD = f"SELECT {HEAD} FROM sessions s"
_SELECT_LOG_HEAD = f"SELECT {LOG_HEAD} FROM sessions s"


async def find_head_by_key(query: Query, key: SessionKey) -> SessionHead | None:
    row = await query.fetch_one(f"{_SELECT_HEAD} WHERE s.key = ? AND s.deleted_at IS NULL", (key.value,))
    return None if row is None else SessionHead(*row)


async def find_head(query: Query, session: SessionRow) -> SessionHead | None:
    row = await query.fetch_one(f"{_SELECT_HEAD} WHERE s.id = ? AND s.deleted_at IS NULL", (session,))
    return None if row is None else SessionHead(*row)


async def find_log_head_by_key(query: Query, key: SessionKey) -> LogHead | None:
    row = await query.fetch_one(f"{_SELECT_LOG_HEAD} WHERE s.key = ? AND s.deleted_at IS NULL", (key.value,))
    return None if row is None else log_head(row)


async def find_log_head(query: Query, session: SessionRow) -> LogHead | None:
    row = await query.fetch_one(f"{_SELECT_LOG_HEAD} WHERE s.id = ? AND s.deleted_at IS NULL", (session,))
    return None if row is None else log_head(row)


class SessionFilter(Struct, frozen=True, kw_only=True):
    """The rows that a list shows; every condition applies before the limit. Contract: visibility 4."""

    agent_id: AgentId | None = None
    kinds: frozenset[SessionKind] | None = None
    label: str | None = None
    search: str | None = None
    """Words, between blanks, that are all parts of names or the key."""
    updated_since: datetime | None = None
    below: str | None = None
    """The beginning of the keys, with one segment after it."""
    include_inactive: bool = False
    rows: tuple[SessionRow, ...] | None = None
    """Only these; at most 500."""


class ListCursor(Struct, frozen=True):
    """The last row of a page; the next page begins after it."""

    updated_at_ms: int
    row: SessionRow


async def find_by_key(query: Query, key: SessionKey) -> Session | None:
    """The living session with the key."""
    return _one(await query.fetch_one(f"{_SELECT} WHERE s.key = ? AND s.deleted_at IS NULL", (key.value,)))


async def find_by_row(query: Query, session: SessionRow) -> Session | None:
    return _one(await query.fetch_one(f"{_SELECT} WHERE s.id = ? AND s.deleted_at IS NULL", (session,)))


async def list_rows(query: Query, sessions: Sequence[SessionRow]) -> list[Session]:
    """The living ones of these sessions, in no order."""
    found: list[Session] = []
    for start in range(0, len(sessions), 500):
        part = sessions[start : start + 500]
        rows = await query.fetch_all(
            f"{_SELECT} WHERE s.deleted_at IS NULL AND s.id IN ({', '.join('?' * len(part))})", part
        )
        found += map(SESSION.read, rows)
    return found


async def list_reached(query: Query, reach: Reach, sessions: Sequence[SessionRow]) -> list[Session]:
    """The living ones of these sessions that are in the reach, in no order."""
    if not sessions:
        return []
    inside = await within(query, reach, "s.id")
    found = await query.fetch_all(
        f"{_SELECT} WHERE s.deleted_at IS NULL AND s.id IN ({', '.join('?' * len(sessions))}) AND {inside.text}",
        (*sessions, *inside.values),
    )
    return [shown_session(SESSION.read(row), reach.clearance) for row in found]


async def find_key(query: Query, session: SessionRow) -> SessionKey | None:
    """The row's key, even if the session is deleted."""
    row = await query.fetch_one("SELECT key FROM sessions WHERE id = ?", (session,))
    return None if row is None else codec.stored_key(row[0])


async def find_as_in(query: Query, session: SessionRow, incarnation: SessionId) -> Session | None:
    """The session as it is now, with the taint of that incarnation: of what was said there. Contract: sessions 6."""
    found = await find_by_row(query, session)
    if found is None or found.id == incarnation:
        return found
    ended = await incarnations.find(query, incarnation)
    return found if ended is None else replace(found, taint=ended.taint)


class Bounds(Struct, frozen=True):
    """The first and last `seq` of a log."""

    first_seq: int
    last_seq: int


async def find_bounds(query: Query, session: SessionRow) -> Bounds | None:
    """None for a deleted session."""
    row = await query.fetch_one(
        "SELECT first_seq, last_seq FROM sessions WHERE id = ? AND deleted_at IS NULL", (session,)
    )
    return None if row is None else Bounds(*row)


async def find_last_seqs(query: Query, sessions: Sequence[SessionRow]) -> dict[SessionRow, int]:
    """The last `seq` of each log, of living and deleted sessions."""
    found: dict[SessionRow, int] = {}
    for start in range(0, len(sessions), 500):
        part = sessions[start : start + 500]
        rows = await query.fetch_all(
            f"SELECT id, last_seq FROM sessions WHERE id IN ({', '.join('?' * len(part))})", part
        )
        found |= dict(rows)
    return found


async def list_last_seqs(query: Query, *, above: SessionRow, limit: int) -> dict[SessionRow, int]:
    """The last `seq` of each log, of living and deleted sessions, in the order of their rows."""
    rows = await query.fetch_all("SELECT id, last_seq FROM sessions WHERE id > ? ORDER BY id LIMIT ?", (above, limit))
    return dict(rows)


class NewSession(Struct, frozen=True, kw_only=True):
    """A session to be created."""

    key: SessionKey
    agent_id: AgentId
    id: SessionId
    """The id of its first incarnation."""
    source: Source
    metadata: JsonObject = {}
    columns: Mapping[str, SqlValue] = {}
    """Values of more columns."""


async def insert(tx: Transaction, new: NewSession, at_ms: int) -> SessionRow:
    """Creates a row and its first incarnation, with an empty log; revives the row of a deleted key."""
    source = new.source
    own: dict[str, SqlValue] = {
        "key": new.key.value,
        "agent_id": new.agent_id,
        "kind": new.key.kind.value,
        "incarnation": new.id,
        "status": SessionStatus.IDLE.value,
        "deleted_at": None,
        "told": None,
        "source_kind": source.kind,
        "source_interactive": int(source.interactive),
        "source_platform": source.platform,
        "source_trigger_id": source.trigger_id,
        "type": source.type.value,
        "metadata": codec.json_text(new.metadata),
        "created_at": at_ms,
        "interacted_at": at_ms,
        "updated_at": at_ms,
    }
    values = {**own, **new.columns}
    names, stored = zip(*with_folded(values).items(), strict=True)
    statement = (
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names if name != 'key')} "
        "WHERE sessions.deleted_at IS NOT NULL RETURNING id, last_seq"
    )
    row = await tx.fetch_one(statement, stored)
    if row is None:
        raise NeedsSessions([NamedTarget(new.key, None)])  # somebody else was faster
    session, last_seq = row
    if last_seq:
        # Children that it had risen above kept it as their parent; the new session is not.
        await _leave_children(tx, session)
        await _bury_child(tx, session, own | {"key": f"agent:{new.agent_id}:subagent:{uuid4()}"}, at_ms)
    await incarnations.start(tx, session, new.id, first_seq=last_seq + 1, at_ms=at_ms)
    return session


async def insert_hidden(tx: Transaction, new: NewSession, at_ms: int) -> SessionRow:
    """Creates a row that looks deleted, with an empty log, until `insert` revives it under its key."""
    names, stored = zip(
        *{
            "key": new.key.value,
            "agent_id": new.agent_id,
            "kind": new.key.kind.value,
            "status": SessionStatus.IDLE.value,
            "deleted_at": at_ms,
            "source_kind": new.source.kind,
            "source_interactive": int(new.source.interactive),
            "type": new.source.type.value,
            "metadata": "{}",
            "created_at": at_ms,
            "interacted_at": at_ms,
            "updated_at": at_ms,
            **new.columns,
        }.items(),
        strict=True,
    )
    row = await tx.fetch_one(
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) RETURNING id", stored
    )
    assert row is not None
    return row[0]


async def _bury_child(tx: Transaction, session: SessionRow, values: Mapping[str, SqlValue], at_ms: int) -> None:
    """Gives the spawn and the results of the session before this one to a tombstone: the new one is nobody's child."""
    owed = await tx.fetch_one(
        "SELECT EXISTS (SELECT 1 FROM spawns WHERE child = ?) OR EXISTS (SELECT 1 FROM reports WHERE child = ?)",
        (session, session),
    )
    if owed is None or not owed[0]:
        return
    names, stored = zip(
        *with_folded({**values, "incarnation": None, "deleted_at": at_ms, "metadata": "{}"}).items(), strict=True
    )
    row = await tx.fetch_one(
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) RETURNING id", stored
    )
    assert row is not None
    await tx.execute("UPDATE spawns SET child = ? WHERE child = ?", (row[0], session))
    await tx.execute("UPDATE reports SET child = ? WHERE child = ?", (row[0], session))


async def find_told(query: Query, session: SessionRow) -> tuple[Told, ...]:
    """What places of the session were told since a turn succeeded there."""
    row = await query.fetch_one("SELECT told FROM sessions WHERE id = ?", (session,))
    return () if row is None else codec.told(row[0])


async def update(tx: Transaction, session: SessionRow, columns: Mapping[str, SqlValue]) -> None:
    """Sets columns without an event, for changes that no reader of the log needs."""
    columns = with_folded(columns)
    await tx.execute(_update(tuple(columns)), (*columns.values(), session))


@cache
def _update(columns: tuple[str, ...]) -> str:
    return f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in columns)} WHERE id = ?"


async def list_logs(query: Query, after: SessionRow, limit: int) -> list[tuple[SessionRow, int]]:
    """Rows of living sessions above `after`, ascending, each with the lowest `seq` of its log."""
    rows = await query.fetch_all(
        "SELECT id, first_seq FROM sessions WHERE deleted_at IS NULL AND id > ? ORDER BY id LIMIT ?", (after, limit)
    )
    return [(SessionRow(session), first_seq) for session, first_seq in rows]


async def list_idle_before(query: Query, before_ms: int, limit: int) -> list[SessionRow]:
    """At most `limit` sessions that are idle since before `before_ms`."""
    rows = await query.fetch_all(
        "SELECT id FROM sessions WHERE deleted_at IS NULL AND status = 'idle' AND interacted_at < ? "
        "ORDER BY updated_at LIMIT ?",
        (before_ms, limit),
    )
    return [SessionRow(session) for (session,) in rows]


async def hide_idle(tx: Transaction, sessions: Sequence[SessionRow], before_ms: int) -> int:
    """Makes those of the sessions `inactive` that are idle since before `before_ms`; returns how many."""
    return await tx.change(
        "UPDATE sessions SET status = 'inactive' WHERE deleted_at IS NULL AND status = 'idle' AND interacted_at < ? "
        f"AND id IN ({', '.join('?' * len(sessions))})",
        (before_ms, *sessions),
    )


class Deleted(NamedTuple):
    """A deleted session."""

    row: SessionRow
    agent_id: AgentId
    created_at: datetime


async def list_deleted(query: Query, sessions: Sequence[SessionRow]) -> list[Deleted]:
    """The sessions that were deleted and not created again since."""
    marks = ", ".join("?" * len(sessions))
    found = await query.fetch_all(
        f"SELECT id, agent_id, created_at FROM sessions WHERE deleted_at IS NOT NULL AND id IN ({marks})", sessions
    )
    return [Deleted(row, agent_id, codec.moment(created_at)) for row, agent_id, created_at in found]


def sees(made_of: Classification) -> Condition:
    """Whether data with this classification flows to the present taint of the row of `sessions`."""
    return Condition(
        "EXISTS (SELECT 1 FROM incarnations i WHERE i.id = sessions.incarnation AND i.taint_level >= ? "
        "AND (? & ~i.taint_compartments) = 0 "
        "AND (CAST(? AS TEXT) IS NULL OR i.taint_person = ? OR i.taint_person = ?))",
        (int(made_of.level), made_of.compartments, made_of.person, made_of.person, PEOPLE),
    )


async def bury(tx: Transaction, session: SessionRow, *, taint: Classification, at_ms: int) -> None:
    """Leaves a tombstone. The deletion gets a number, which separates a cursor at the old end from a new one.

    `taint` is what the session held. Its children lose their parent, except for those that did not see it any more:
    they do not learn that it is gone. Contract: sessions 7, flow 4.
    """
    await tx.execute("DELETE FROM participants WHERE session = ?", (session,))
    own = ", ".join(f"ancestor_{depth} = NULL" for depth in range(MAX_DEPTH))
    below = [await _having(tx, f"ancestor_{depth}", session) for depth in range(MAX_DEPTH)]
    tx.hold(*(row for rows in below for row in rows))
    await _leave_children(tx, session, ANY if is_public(taint) else sees(taint))
    for depth, rows in enumerate(below):
        await _set_null(tx, f"ancestor_{depth}", rows)
    await tx.execute(
        f"UPDATE sessions SET incarnation = NULL, parent = NULL, depth = 0, {own} WHERE id = ?", (session,)
    )
    await tx.execute("DELETE FROM incarnations WHERE session = ?", (session,))
    await tx.execute(
        "UPDATE sessions SET deleted_at = ?, last_seq = last_seq + 1, first_seq = last_seq + 2, chain_from = head, "
        "covered = NULL, unchained_seq = 0, fork_source = NULL, fork_seq = NULL, message_count = 0, "
        "turn_count = 0, label = NULL, folded_label = NULL, display_name = NULL, folded_display_name = NULL, "
        "description = NULL, description_source = NULL, preview = NULL, preview_level = 0, preview_compartments = 0, "
        "preview_person = NULL, description_level = 0, description_compartments = 0, description_person = NULL, "
        "send_policy = NULL, model = NULL, "
        "thinking_level = NULL, verbose_level = NULL, queue_mode = NULL, checkpoint_at = NULL, covered_turns = 0, "
        "untriggered_count = 0, "
        "context_tokens = 0, input_tokens = 0, output_tokens = 0, cached_tokens = 0, cost_microusd = NULL, "
        "steps = 0, aborted_last_run = 0, pending_approvals = 0, clearance_level = NULL, "
        "clearance_compartments = NULL, clearance_person = NULL, base_level = 0, base_compartments = 0, "
        "base_integrity = 0, base_person = NULL, delivery_channel = NULL, delivery_to = NULL, "
        "delivery_account_id = NULL, delivery_thread_id = NULL WHERE id = ?",
        (at_ms, session),
    )


async def _leave_children(tx: Transaction, session: SessionRow, which: Condition = ANY) -> None:
    """Takes their parent from the session's children."""
    children = await _having(tx, "parent", session, which)
    tx.hold(*children)
    await _set_null(tx, "parent", children)


async def _having(query: Query, column: str, value: SessionRow, which: Condition = ANY) -> list[SessionRow]:
    """The sessions with that value in the column."""
    rows = await query.fetch_all(f"SELECT id FROM sessions WHERE {column} = ? AND {which.text}", (value, *which.values))
    return [SessionRow(row) for (row,) in rows]


async def _set_null(tx: Transaction, column: str, sessions: Sequence[SessionRow]) -> None:
    for start in range(0, len(sessions), 500):
        part = sessions[start : start + 500]
        await tx.execute(f"UPDATE sessions SET {column} = NULL WHERE id IN ({', '.join('?' * len(part))})", part)


async def add_participant(tx: Transaction, session: SessionRow, principal: str) -> None:
    await tx.execute(
        "INSERT INTO participants (session, principal) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (session, principal),
    )


async def find_first_words(query: Query, principal: str) -> str | None:
    """How the oldest session of the principal is described, as far as anybody may read it; None without a session."""
    row = await query.fetch_one(
        "SELECT CASE WHEN s.description_level = 0 AND s.description_compartments = 0 AND s.description_person IS NULL "
        "THEN COALESCE(s.description, '') ELSE '' END FROM participants t JOIN sessions s ON s.id = t.session "
        "WHERE t.principal = ? AND s.deleted_at IS NULL ORDER BY s.id LIMIT 1",
        (principal,),
    )
    return None if row is None else row[0]


async def add_stored_bytes(tx: Transaction, session: SessionRow, principal: str, size: int) -> None:
    """Adds to the bytes that the participant has stored; does nothing for other principals."""
    await tx.execute(
        "UPDATE participants SET stored_bytes = stored_bytes + ? WHERE session = ? AND principal = ?",
        (size, session, principal),
    )


class Taken(NamedTuple):
    """The part of its share that a participant has used."""

    sessions: int
    stored_bytes: int


async def taken_by(query: Query, principal: str) -> Taken:
    row = await query.fetch_one(
        "SELECT COUNT(*), COALESCE(SUM(stored_bytes), 0) FROM participants WHERE principal = ?", (principal,)
    )
    assert row is not None
    return Taken(*map(int, row))


async def stored_in(query: Query, session: SessionRow) -> int:
    """The bytes that all participants with a share have stored in the session."""
    row = await query.fetch_one("SELECT COALESCE(SUM(stored_bytes), 0) FROM participants WHERE session = ?", (session,))
    assert row is not None
    return int(row[0])


async def set_parent(tx: Transaction, session: SessionRow, parent: SessionRow) -> None:
    """Makes a new session the child of another one, permanently."""
    copied = ", ".join(
        f"ancestor_{depth} = (SELECT CASE WHEN p.depth = {depth} THEN p.id ELSE p.ancestor_{depth} END "
        "FROM sessions p WHERE p.id = ?)"
        for depth in range(MAX_DEPTH)
    )
    await tx.execute(
        f"UPDATE sessions SET parent = ?, depth = (SELECT depth + 1 FROM sessions WHERE id = ?), {copied} WHERE id = ?",
        (parent, parent, *[parent] * MAX_DEPTH, session),
    )


async def find_visible_by_label(
    query: Query, reach: Reach, label: str, agent_id: AgentId | None, *, limit: int
) -> list[SessionSummary]:
    """Listed sessions with that label in the reach, at most `limit`."""
    return await list_page(query, reach, SessionFilter(label=label, agent_id=agent_id), limit=limit, after=None)


async def list_children(query: Query, reach: Reach, parents: Sequence[SessionRow], limit: int) -> list[Child]:
    """Living sessions in the reach that one of `parents` spawned, newest first, at most `limit`."""
    if not parents:
        return []
    reached = await inside(query, reach)
    rows = await query.fetch_all(
        "WITH s AS MATERIALIZED (SELECT id, parent, key, agent_id, incarnation, ancestor_0, ancestor_1, ancestor_2, "
        f"ancestor_3, ancestor_4 FROM sessions WHERE parent IN ({', '.join('?' * len(parents))}) "
        "AND deleted_at IS NULL) "
        "SELECT s.id, s.parent, s.key FROM s JOIN incarnations i ON i.id = s.incarnation "
        f"WHERE {reached.text} ORDER BY s.id DESC LIMIT ?",
        (*parents, *reached.values, limit),
    )
    return [Child(*row) for row in rows]


async def list_groups_of(query: Query, principal: str) -> list[SessionKey]:
    """The keys of the sessions of groups in which the principal takes part."""
    rows = await query.fetch_all(
        "SELECT s.key FROM participants t JOIN sessions s ON s.id = t.session "
        "WHERE t.principal = ? AND s.type = 'group' AND s.deleted_at IS NULL",
        (principal,),
    )
    return [codec.stored_key(key) for (key,) in rows]


async def is_participant(query: Query, session: SessionRow, principal: str) -> bool:
    row = await query.fetch_one("SELECT 1 FROM participants WHERE session = ? AND principal = ?", (session, principal))
    return row is not None


async def list_page(
    query: Query, reach: Reach, where: SessionFilter, *, limit: int, after: ListCursor | None
) -> list[SessionSummary]:
    """Living sessions in the reach, newest first, at most `limit`."""
    conditions = _conditions(where, flow("s.base_", reach.clearance))
    if after is not None:
        conditions.append(Condition("(s.updated_at, s.id) < (?, ?)", (after.updated_at_ms, after.row)))
    if reach.is_everything:
        return await _list_branch(query, reach.clearance, conditions, limit)
    found: list[SessionSummary] = []
    for branch in await branches(query, reach):
        found += await _list_branch(query, reach.clearance, [branch, *conditions], limit)
    found.sort(key=lambda session: (session.updated_at, session.row), reverse=True)
    return found[:limit]


async def _list_branch(
    query: Query, clearance: Classification, conditions: list[Condition], limit: int
) -> list[SessionSummary]:
    shown, where = _summary_for(clearance), all_of(conditions)
    rows = await query.fetch_all(
        f"SELECT {shown.text} {_FROM_PRESENT} WHERE {where.text} ORDER BY s.updated_at DESC, s.id DESC LIMIT ?",
        (*shown.values, *where.values, limit),
    )
    return [_SUMMARY.read(row) for row in rows]


def _conditions(where: SessionFilter, readable: Condition) -> list[Condition]:
    """`readable` is met by sessions whose names the reader may have; no other is found by them. Contract: flow 3."""
    conditions = [Condition("s.deleted_at IS NULL")]
    if not where.include_inactive:
        conditions.append(Condition("s.status <> 'inactive'"))
    if where.agent_id is not None:
        conditions.append(Condition("s.agent_id = ?", (where.agent_id,)))
    if where.kinds is not None:
        kinds = sorted(where.kinds) or [""]
        conditions.append(Condition(f"s.kind IN ({', '.join('?' * len(kinds))})", tuple(kinds)))
    if where.label is not None:
        labelled = Condition("s.label = ?", (unicodedata.normalize("NFC", where.label),))
        conditions.append(labelled if readable is ANY else all_of([labelled, readable]))
    if where.updated_since is not None:
        conditions.append(Condition("s.updated_at >= ?", (codec.milliseconds(where.updated_since),)))
    if where.below is not None:
        length = len(where.below)
        direct = "substr(s.key, 1, CAST(? AS INTEGER)) = ? AND substr(s.key, CAST(? AS INTEGER)) NOT LIKE '%:%'"
        conditions.append(Condition(direct, (length, where.below, length + 1)))
    if where.rows is not None:
        conditions.append(Condition(f"s.id IN ({', '.join('?' * len(where.rows))})", where.rows))
    if where.search is not None:
        conditions.append(has_words(where.search, readable))
    return conditions


def clearance_in(columns: Mapping[str, SqlValue]) -> Classification | None:
    """The clearance that these columns set; None if they set none."""
    level, compartments, person = (columns.get(f"clearance_{name}") for name in ("level", "compartments", "person"))
    if level is None:
        return None
    assert isinstance(level, int) and isinstance(compartments, int) and not isinstance(person, int | float | bytes)
    return _clearance(level, compartments, person)


def cursor_of(session: SessionSummary) -> ListCursor:
    return ListCursor(codec.milliseconds(session.updated_at), session.row)


def _one(row: Row | None) -> Session | None:
    return None if row is None else SESSION.read(row)
