"""How a server is reached, and who is in the way: what `doctor` says beside the state of the database."""

import time
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from antiphon.server_url import replica_of
from antiphon.store.postgres.link import connect
from antiphon.store.postgres.replica import IDENTITY, POSITION

_ROUND_TRIPS = 5
_LIMITS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - COALESCE(current_setting('reserved_connections', true)::int, 0),
  (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
  (SELECT datconnlimit FROM pg_database WHERE datname = current_database())
"""
"""For users without special rights: of the server, of this user, of this database; -1 for no limit."""
_USED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
_HOLDERS = """
SELECT h.pid, h.application_name, COALESCE(extract(epoch FROM now() - h.xact_start)::int, 0), count(*)
FROM pg_stat_activity w CROSS JOIN unnest(pg_blocking_pids(w.pid)) b JOIN pg_stat_activity h ON h.pid = b
WHERE w.datname = current_database() AND w.wait_event_type = 'Lock' AND h.wait_event_type IS DISTINCT FROM 'Lock'
GROUP BY 1, 2, 3 ORDER BY 3 DESC LIMIT 5
"""
_LAG = f"""
SELECT pg_is_in_recovery() AND {IDENTITY} = %s,
  pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn())::bigint,
  COALESCE(extract(epoch FROM now() - pg_last_xact_replay_timestamp())::int, 0)
"""


class LockHolder(Struct, frozen=True, kw_only=True):
    """A connection that others wait for."""

    pid: int
    name: str
    seconds: int
    waiting: int


class ReplicaState(Struct, frozen=True, kw_only=True):
    """How far the replica is behind."""

    problem: str | None = None
    bytes: int = 0
    seconds: int = 0
    """Since the last commit that it replayed; says something only if bytes are missing."""


class ServerAccess(Struct, frozen=True, kw_only=True):
    round_trip_ms: float
    is_encrypted: bool
    is_local: bool
    """Whether the server is reached without a network."""
    is_pooled: bool
    """Whether another program stands between."""
    usable: int
    """How many connections users without special rights may have."""
    used: int
    holders: tuple[LockHolder, ...]
    replica: ReplicaState | None = None


async def look_at_access(connection: AsyncConnection[Any], url: str) -> ServerAccess:
    info = connection.info
    limits = await _row(connection, _LIMITS)
    holders = await (await connection.execute(_HOLDERS)).fetchall()
    (backend,) = await _row(connection, "SELECT pg_backend_pid()")
    (used,) = await _row(connection, _USED)
    return ServerAccess(
        round_trip_ms=await _measure(connection),
        is_encrypted=bool(connection.pgconn.ssl_in_use),
        is_local=info.host.startswith(("/", "@")) or info.hostaddr.startswith("127.") or info.hostaddr == "::1",
        is_pooled=info.backend_pid != backend,
        usable=min(limit for limit in limits if limit >= 0),
        used=used,
        holders=tuple(LockHolder(pid=pid, name=name, seconds=s, waiting=count) for pid, name, s, count in holders),
        replica=await _look_at_replica(connection, url),
    )


async def _look_at_replica(connection: AsyncConnection[Any], url: str) -> ReplicaState | None:
    replica = replica_of(url)
    if replica is None:
        return None
    position, server = await _row(connection, POSITION)
    try:
        standby = await connect(replica)
        try:
            is_ours, missing, seconds = await _row(standby, _LAG, server, position)
        finally:
            await standby.close()
    except psycopg.Error as error:
        return ReplicaState(problem=" ".join(str(error).split()))
    if not is_ours:
        return ReplicaState(problem="it is no standby of this database")
    return ReplicaState(bytes=max(0, missing or 0), seconds=seconds)


async def _measure(connection: AsyncConnection[Any]) -> float:
    """The median time of a statement that does nothing, in milliseconds."""
    taken: list[float] = []
    for _ in range(_ROUND_TRIPS):
        began = time.monotonic()
        await connection.execute("SELECT 1")
        taken.append(time.monotonic() - began)
    return sorted(taken)[_ROUND_TRIPS // 2] * 1000


async def _row(connection: AsyncConnection[Any], statement: str, *values: object) -> tuple[Any, ...]:
    row = await (await connection.execute(statement.encode(), values or None)).fetchone()
    assert row is not None
    return row
