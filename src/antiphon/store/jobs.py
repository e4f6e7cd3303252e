"""Queries on the job engine's tables about sessions; the tables exist only on PostgreSQL."""

from antiphon.domain.ids import SessionRow
from antiphon.store.claims import is_left
from antiphon.store.database import Query

_DELIVERED = (
    "EXISTS (SELECT 1 FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id "
    "WHERE (j.args->>'session')::bigint = r.session AND (j.status = 'todo' OR "
    "(j.status = 'doing' AND w.last_heartbeat > now() - make_interval(secs => ?))))"
)


async def list_undelivered(query: Query, dead_seconds: float, limit: int) -> list[SessionRow]:
    """Sessions with work but without a job, and without a living process that works on them; at most `limit`."""
    found = await query.fetch_all(
        "SELECT DISTINCT r.session FROM runs r WHERE (r.status = 'queued' AND NOT EXISTS (SELECT 1 FROM runs a "
        "WHERE a.session = r.session AND a.status = 'running') "
        f"OR r.status = 'running' AND {is_left('r.process')}) AND NOT {_DELIVERED} LIMIT ?",
        (dead_seconds, limit),
    )
    return [row[0] for row in found]
