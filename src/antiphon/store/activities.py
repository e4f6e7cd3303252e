"""Sessions with a run that has not ended, and how the last runs ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.event import Event
from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.run import RunStatus
from antiphon.policy.reach import Reach
from antiphon.store import codec
from antiphon.store.database import Query, SqlValue
from antiphon.store.names import DISPLAY_NAME
from antiphon.store.scopes import Condition, all_of, flow, when, within
from antiphon.store.select_list import SelectList

LONGEST_PAYLOAD = 65_536
"""Characters of a stored request; longer ones, such as one with an image, are not read for a list."""

BUSY_SESSIONS = (
    "SELECT session FROM runs WHERE status IN ('running', 'awaiting_approval') AND is_parked = 0 "
    "UNION ALL SELECT session FROM runs WHERE status = 'queued' "
    "UNION ALL SELECT session FROM runs WHERE is_parked = 1"
)
"""Rows of sessions at work, as in `list_activities`; a row may appear several times."""


class AwaitedSession(NamedTuple):
    """A session for whose work another session waits."""

    key: str
    label: str | None


class Activity(Struct, frozen=True, kw_only=True):
    """The run that a session works on, or else will begin next."""

    session: SessionRow
    session_key: str
    label: str | None
    agent_id: AgentId
    run: RunId
    seq: int
    """The `seq` of the event that queued it."""
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    process: ProcessId | None
    """The process that claimed it."""
    preview: str | None
    """A preview of the session's last message."""
    is_parked: bool
    """Whether the run has ended and waits for its children before it is continued."""
    waits_for: tuple[AwaitedSession, ...] = ()
    waits_until: datetime | None = None
    pending_approvals: int
    """Open requests of the session."""
    unfinished: int
    """Runs of the session that have not ended, including this one."""

    @property
    def since(self) -> datetime:
        return self.started_at or self.created_at


class LastRun(Struct, frozen=True, kw_only=True):
    """How a session's newest ended run ended."""

    run: RunId
    status: RunStatus
    code: str | None
    error: str | None
    ended_at: datetime | None


_LABEL = f"CASE WHEN s.label IS NOT NULL THEN s.label ELSE {DISPLAY_NAME} END"
_ACTIVITY = SelectList(
    Activity,
    f"r.session, s.key AS session_key, {_LABEL} AS label, r.agent_id, r.id AS run, r.seq, "
    "r.status, r.created_at, r.started_at, r.process, s.preview, s.pending_approvals, "
    "CASE WHEN r.status = 'awaiting_approval' THEN 0 ELSE r.is_parked END AS is_parked, placed.runs AS unfinished",
    status=codec.member_of(RunStatus),
    created_at=codec.moment,
    started_at=codec.moment,
    is_parked=bool,
    unfinished=int,
)
_LAST_RUN = SelectList(
    LastRun,
    "r.id AS run, r.status, r.code, r.error, r.ended_at",
    status=codec.member_of(RunStatus),
    ended_at=codec.moment,
)


class ActivityPage(Struct, frozen=True):
    activities: list[Activity]
    total: int


async def list_activities(
    query: Query, reach: Reach, *, limit: int, sessions: Sequence[SessionRow] | None = None
) -> ActivityPage:
    """One for each busy session in the reach, of `sessions` or of all: sessions at work first, each kind by start."""
    if sessions is not None and not sessions:
        return ActivityPage([], 0)
    these = "" if sessions is None else f" AND r.session IN ({', '.join('?' * len(sessions))})"
    values: tuple[SqlValue, ...] = () if sessions is None else tuple(sessions) * 3
    inside = await within(query, reach, "r.session")
    # The sign keeps SQLite from reading all runs in the order of their sessions, to spare it the sorting of a few.
    columns = "SELECT r.id, +r.session AS session, r.seq, r.mode, r.status, r.is_parked FROM runs r WHERE"
    base = flow("s.base_", reach.clearance)
    label, preview = when(base, _LABEL), when(all_of([base, flow("s.preview_", reach.clearance)]), "s.preview")
    shown = _ACTIVITY.text.replace(_LABEL, label.text).replace("s.preview", preview.text)
    rows = await query.fetch_all(
        f"WITH unfinished AS ({columns} r.status IN ('running', 'awaiting_approval') AND r.is_parked = 0{these} "
        f"UNION ALL {columns} r.status = 'queued'{these} UNION ALL {columns} r.is_parked = 1{these}), "
        "placed AS (SELECT id, COUNT(*) OVER (PARTITION BY session) AS runs, ROW_NUMBER() OVER (PARTITION BY session "
        "ORDER BY CASE WHEN status = 'queued' AND mode = 'interrupt' THEN 1 WHEN status = 'queued' THEN 2 "
        "WHEN is_parked = 1 THEN 3 ELSE 0 END, seq) AS place "
        "FROM unfinished) "
        f"SELECT {shown}, r.waiting_for, r.wait_until, COUNT(*) OVER () FROM placed "
        "JOIN runs r ON r.id = placed.id JOIN sessions s ON s.id = r.session WHERE placed.place = 1 "
        f"AND {inside.text} "
        "ORDER BY CASE r.status WHEN 'queued' THEN 1 ELSE 0 END, COALESCE(r.started_at, r.created_at), r.id LIMIT ?",
        (*values, *label.values, *preview.values, *inside.values, limit),
    )
    found = [(_ACTIVITY.read(activity), waiting_for, wait_until) for *activity, waiting_for, wait_until, _ in rows]
    total = next((total for *_, total in rows), 0)
    waiting = {activity.run: waiting_for.split(",") for activity, waiting_for, _ in found if waiting_for is not None}
    parked = [activity.run for activity, *_ in found if activity.is_parked]
    awaited = await _read_awaited(query, reach, waiting, parked)
    activities = [
        replace(activity, waits_for=tuple(others), waits_until=codec.optional_moment(wait_until))
        if (others := awaited.get(activity.run))
        else activity
        for activity, _, wait_until in found
    ]
    return ActivityPage(activities, int(total))


async def _read_awaited(
    query: Query, reach: Reach, waiting: Mapping[RunId, Sequence[str]], parked: Sequence[RunId]
) -> dict[RunId, list[AwaitedSession]]:
    """By run: the sessions in the reach whose runs or, if it is parked, whose results it waits for."""
    awaited: dict[RunId, list[AwaitedSession]] = {}
    inside, label = await within(query, reach, "s.id"), when(flow("s.base_", reach.clearance), _LABEL)
    if ids := sorted({run for runs in waiting.values() for run in runs}):
        rows = await query.fetch_all(
            f"SELECT w.id, s.key, {label.text} FROM runs w JOIN sessions s ON s.id = w.session "
            f"WHERE w.id IN ({', '.join('?' * len(ids))}) "
            f"AND (w.is_parked = 1 OR w.status IN ('queued', 'running', 'awaiting_approval')) AND {inside.text}",
            (*label.values, *ids, *inside.values),
        )
        sessions = {run: AwaitedSession(key, label) for run, key, label in rows}
        awaited = {waiter: [sessions[run] for run in runs if run in sessions] for waiter, runs in waiting.items()}
    if parked:
        rows = await query.fetch_all(
            f"SELECT t.waiter, s.key, {label.text} FROM reports t "
            "JOIN sessions s ON s.id = t.child "
            f"WHERE t.stage = 'open' AND t.waiter IN ({', '.join('?' * len(parked))}) AND {inside.text} ORDER BY t.id",
            (*label.values, *parked, *inside.values),
        )
        for waiter, key, label in rows:
            awaited.setdefault(waiter, []).append(AwaitedSession(key, label))
    return awaited


async def read_requests(query: Query, reach: Reach, activities: Sequence[Activity]) -> dict[RunId, str]:
    """The text of the message that each run answers, as `read_texts` has it."""
    places = {(activity.session, activity.seq): activity.run for activity in activities}
    return {places[place]: text for place, text in (await read_texts(query, reach, list(places))).items()}


async def read_texts(
    query: Query, reach: Reach, places: Sequence[tuple[SessionRow, int]]
) -> dict[tuple[SessionRow, int], str]:
    """The texts of the messages posted at these places, by session and `seq`.

    Leaves out those that cannot be read cheaply, and those that do not flow to the reach's clearance.
    """
    found: dict[tuple[SessionRow, int], str] = {}
    if not places:
        return found
    readable = all_of([await within(query, reach, "session"), flow("", reach.clearance)])
    stored = await query.fetch_all(
        f"SELECT {codec.EVENT_COLUMNS} FROM events WHERE LENGTH(payload) <= ? AND {readable.text} "
        f"AND ({' OR '.join(['(session = ? AND seq = ?)'] * len(places))})",
        (LONGEST_PAYLOAD, *readable.values, *(value for place in places for value in place)),
    )
    for row in stored:
        event = codec.event_from_row(row)
        if isinstance(event.message, UserMessage):
            found[SessionRow(event.session), event.seq] = text_of(event.message.content)
    return found


async def read_last_events(query: Query, reach: Reach, sessions: Sequence[SessionRow]) -> dict[SessionRow, Event]:
    """The newest event of each of these sessions in the reach, if it flows to its clearance and can be read cheaply."""
    if not sessions:
        return {}
    readable = all_of([await within(query, reach, "session"), flow("", reach.clearance)])
    stored = await query.fetch_all(
        f"SELECT {codec.EVENT_COLUMNS} FROM events WHERE (session, seq) IN (SELECT s.id, s.last_seq FROM sessions s "
        f"WHERE s.id IN ({', '.join('?' * len(sessions))})) AND LENGTH(payload) <= ? AND {readable.text}",
        (*sessions, LONGEST_PAYLOAD, *readable.values),
    )
    return {event.session: event for event in map(codec.event_from_row, stored)}


async def find_last_runs(query: Query, reach: Reach, sessions: Sequence[SessionRow]) -> dict[SessionRow, LastRun]:
    """For each of these sessions that is in the reach and has an ended run.

    A run that does not flow to the reach's clearance has the status `ok`, and no time. Contract: flow 4.
    """
    if not sessions:
        return {}
    inside, readable = await within(query, reach, "s.id"), flow("r.", reach.clearance)
    parts = [
        Condition("r.id"),
        when(readable, "r.status", "'ok'"),
        *(when(readable, column) for column in ("r.code", "r.error", "r.ended_at")),
    ]
    found = await query.fetch_all(
        f"SELECT r.session, {', '.join(part.text for part in parts)} FROM runs r WHERE r.id IN ("
        "SELECT (SELECT e.id FROM runs e WHERE e.session = s.id "
        "AND e.purpose <> 'checkpoint' "
        "AND e.status NOT IN ('queued', 'running', 'awaiting_approval') ORDER BY e.seq DESC LIMIT 1) "
        f"FROM sessions s WHERE s.id IN ({', '.join('?' * len(sessions))}) AND {inside.text})",
        (*(value for part in parts for value in part.values), *sessions, *inside.values),
    )
    return {SessionRow(session): _LAST_RUN.read(run) for session, *run in found}
