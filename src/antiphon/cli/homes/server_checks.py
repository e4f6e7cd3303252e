"""What `antiphon doctor` says of the way to a PostgreSQL server, and of who is in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.domain.check_result import CheckResult, Grade

if TYPE_CHECKING:
    from antiphon.backends import ServerAccess

OTHER_CONNECTIONS = 6
"""Of a process, beside `database.connections`: for notifications and its job engine."""
FAR_MS = 10.0
"""A unit takes several round trips."""


def check_access(access: "ServerAccess", *, connections: int, processes: int) -> Iterator[CheckResult]:
    yield _way(access)
    yield _room(access, connections=connections, processes=max(1, processes))
    for each in access.holders:
        yield CheckResult(
            "locks",
            Grade.WARNING,
            f"process {each.pid} of the server ({each.name!r}, for {each.seconds} s) holds up {each.waiting} others",
            f"Let that program end its transaction, or end it: SELECT pg_terminate_backend({each.pid}).",
        )
    if access.replica is not None:
        yield _replica(access)


def _way(access: "ServerAccess") -> CheckResult:
    name = "way to the database"
    kind = "TLS" if access.is_encrypted else "local" if access.is_local else "not encrypted"
    detail = f"{access.round_trip_ms:.1f} ms for a round trip, {kind}"
    if access.is_pooled:
        detail += ", over a pooler in session mode"
    if not (access.is_encrypted or access.is_local):
        remedy = "Add ?sslmode=verify-full and sslrootcert to database.url; docs/OPERATIONS.md says how."
        return CheckResult(name, Grade.WARNING, detail, remedy)
    if access.round_trip_ms > FAR_MS:
        return CheckResult(name, Grade.WARNING, detail, "Run Antiphon near its database: each unit takes several.")
    return CheckResult(name, Grade.OK, detail)


def _room(access: "ServerAccess", *, connections: int, processes: int) -> CheckResult:
    name, needed = "connections", processes * (connections + OTHER_CONNECTIONS)
    count = "1 process" if processes == 1 else f"{processes} processes"
    detail = f"{access.used} of {access.usable} in use; this configuration needs up to {needed} for {count}"
    if needed > access.usable:
        remedy = "Lower database.connections, or raise max_connections or the limit of the user or the database."
        return CheckResult(name, Grade.WARNING, detail, remedy)
    return CheckResult(name, Grade.OK, detail)


def _replica(access: "ServerAccess") -> CheckResult:
    name, state = "replica", access.replica
    assert state is not None
    if state.problem is not None:
        remedy = "Correct database.replica_url. Until then, searches and lists use the database itself."
        return CheckResult(name, Grade.WARNING, state.problem, remedy)
    if state.bytes:
        detail = f"{state.bytes:,} bytes behind, its last commit is {state.seconds} s old"
        return CheckResult(name, Grade.OK, detail)
    return CheckResult(name, Grade.OK, "has replayed everything")
