"""Queries on the job engine's tables about sessions; the tables exist only on PostgreSQL."""

from antiphon.domain.ids import SessionRow
from antiphon.store.claims import is_left
from antiphon.store.database import Query

_DELIVERED = (
    "EXISTS (SELECT 1 FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id "
    "WHERE (j.args->>'session')::bigint = r.session AND (j.status = 'todo' OR "
    "(j.status = 'doing' AND w.last_heartbeat > now() - make_interval(secs => ?))))"
)

_RUNS = "a.status = 'running' AND a.is_parked = 0"


async def list_undelivered(query: Query, dead_seconds: float, limit: int) -> list[SessionRow]:
    """Sessions with work but without a job, and without a living process that works on them; at most `limit`."""
    found = await query.fetch_all(
        # Both parts are found by small indexes of their own; one condition for both would read all runs.
        "SELECT r.session FROM (SELECT q.session FROM runs q WHERE q.status = 'queued' AND NOT EXISTS (SELECT 1 "
        f"FROM runs a WHERE a.session = q.session AND {_RUNS}) "
        f"UNION SELECT a.session FROM runs a WHERE {_RUNS} AND {is_left('a.process')}) r "
        f"WHERE NOT {_DELIVERED} LIMIT ?",
        (dead_seconds, limit),
    )
    return [row[0] for row in found]
