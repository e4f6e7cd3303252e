"""Which sessions have a run that has not ended, and how the last ones ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.run import RunStatus
from antiphon.store import codec
from antiphon.store.database import Query, Row, SqlValue

LONGEST_PAYLOAD = 65_536
"""A request that is stored in more than so many characters, as one with an image is, is not read for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The run that a session works on, or else the one that it will begin next."""

    session: SessionRow
    session_key: str
    label: str | None
    agent_id: AgentId
    run: RunId
    seq: int
    """Of the event that queued it."""
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    process: ProcessId | None
    """That claimed it."""
    preview: str | None
    """Of the session's last message."""
    waits_for: str | None
    """Key of the session for whose run it waits."""
    waits_for_label: str | None
    waits_until: datetime | None
    unfinished: int
    """Runs of the session that have not ended, this one included."""

    @property
    def since(self) -> datetime:
        return self.started_at or self.created_at


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """How a session's newest ended run ended."""

    run: RunId
    status: RunStatus
    code: str | None
    error: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ActivityPage:
    activities: list[Activity]
    total: int


async def list_activities(query: Query, *, limit: int, sessions: Sequence[SessionRow] | None = None) -> ActivityPage:
    """One for each busy session, of these or of all: at work first, each kind by the time since which it is."""
    if sessions is not None and not sessions:
        return ActivityPage([], 0)
    these = "" if sessions is None else f" AND r.session IN ({', '.join('?' * len(sessions))})"
    values: tuple[SqlValue, ...] = () if sessions is None else (*sessions, *sessions)
    columns = "SELECT r.id, r.session, r.seq, r.mode, r.status FROM runs r WHERE"
    found = await query.fetch_all(
        f"WITH unfinished AS ({columns} r.status IN ('running', 'awaiting_approval'){these} "
        f"UNION ALL {columns} r.status = 'queued'{these}), "
        "placed AS (SELECT id, COUNT(*) OVER (PARTITION BY session) AS runs, ROW_NUMBER() OVER (PARTITION BY session "
        "ORDER BY CASE WHEN status <> 'queued' THEN 0 WHEN mode = 'interrupt' THEN 1 ELSE 2 END, seq) AS place "
        "FROM unfinished) "
        "SELECT r.session, s.key, COALESCE(s.label, s.display_name), r.agent_id, r.id, r.seq, r.status, r.created_at, "
        "r.started_at, r.process, s.preview, t.key, COALESCE(t.label, t.display_name), "
        "CASE WHEN t.key IS NULL THEN NULL ELSE r.wait_until END, "
        "placed.runs, COUNT(*) OVER () FROM placed JOIN runs r ON r.id = placed.id JOIN sessions s ON s.id = r.session "
        "LEFT JOIN runs w ON w.id = r.waiting_for AND w.status IN ('queued', 'running', 'awaiting_approval') "
        "LEFT JOIN sessions t ON t.id = w.session WHERE placed.place = 1 "
        "ORDER BY CASE r.status WHEN 'queued' THEN 1 ELSE 0 END, COALESCE(r.started_at, r.created_at), r.id LIMIT ?",
        (*values, limit),
    )
    return ActivityPage([_activity(row) for row in found], int(found[0][-1]) if found else 0)


async def read_requests(query: Query, activities: Sequence[Activity]) -> dict[RunId, str]:
    """The text of the message that each run answers, as far as that can be had cheaply."""
    found: dict[RunId, str] = {}
    if not activities:
        return found
    places = {(activity.session, activity.seq): activity.run for activity in activities}
    stored = await query.fetch_all(
        f"SELECT {codec.EVENT_COLUMNS} FROM events WHERE LENGTH(payload) <= ? "
        f"AND ({' OR '.join(['(session = ? AND seq = ?)'] * len(places))})",
        (LONGEST_PAYLOAD, *(value for place in places for value in place)),
    )
    for row in stored:
        event = codec.event_from_row(row)
        if isinstance(event.message, UserMessage):
            found[places[event.session, event.seq]] = text_of(event.message.content)
    return found


async def find_last_runs(query: Query, sessions: Sequence[SessionRow]) -> dict[SessionRow, LastRun]:
    """Of each of these sessions that has an ended run."""
    if not sessions:
        return {}
    found = await query.fetch_all(
        "SELECT r.session, r.id, r.status, r.code, r.error, r.ended_at FROM runs r WHERE r.id IN ("
        "SELECT (SELECT e.id FROM runs e WHERE e.session = s.id "
        "AND e.status NOT IN ('queued', 'running', 'awaiting_approval') ORDER BY e.seq DESC LIMIT 1) "
        f"FROM sessions s WHERE s.id IN ({', '.join('?' * len(sessions))}))",
        tuple(sessions),
    )
    return {
        SessionRow(row[0]): LastRun(
            run=RunId(row[1]),
            status=RunStatus(row[2]),
            code=row[3],
            error=row[4],
            ended_at=codec.optional_moment(row[5]),
        )
        for row in found
    }


def _activity(row: Row) -> Activity:
    return Activity(
        session=SessionRow(row[0]),
        session_key=row[1],
        label=row[2],
        agent_id=AgentId(row[3]),
        run=RunId(row[4]),
        seq=row[5],
        status=RunStatus(row[6]),
        created_at=codec.moment(row[7]),
        started_at=codec.optional_moment(row[8]),
        process=row[9],
        preview=row[10],
        waits_for=row[11],
        waits_for_label=row[12],
        waits_until=codec.optional_moment(row[13]),
        unfinished=int(row[14]),
    )
