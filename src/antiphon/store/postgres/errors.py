"""Translates a server's errors for the waiting callers."""

import psycopg

from antiphon.domain.errors import Unavailable

_LOST = ("08", "57P", "53300", "25006", "25P03")
"""State prefixes of a lost server: it went away, starts, has too many clients, switches roles, or dropped us."""


_READ_ONLY = ("session is read-only", "server is in hot standby mode")
"""What connecting says if none of the servers may be written to."""
_FULL = ("too many clients", "remaining connection slots", "too many connections")
"""What a server says that takes no more connections; while connecting, errors have no state."""


class NoPassword(psycopg.OperationalError):
    """The command for the password failed, so no connection was opened."""


class OutcomeUnknown(Exception):
    """The connection broke during COMMIT."""

    def __init__(self, xid: str) -> None:
        """`xid` is the transaction's number."""
        self.xid = xid


def is_beaten(error: psycopg.Error, reruns: int) -> bool:
    """Whether another transaction may have been in the way, so that the units should run again.

    A row that another one inserted meanwhile looks like a row that a unit inserts in spite of what it has read: only
    the former is gone when the unit has run again.
    """
    if isinstance(error, psycopg.errors.UniqueViolation):
        return reruns == 0
    return isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected)


def is_locked_out(error: psycopg.Error) -> bool:
    """Whether a lock did not come in time."""
    return isinstance(error, psycopg.errors.LockNotAvailable)


def locked(holder: str | None) -> Unavailable:
    """The error for a unit that waits for a lock; `holder` tells who has held one for the longest time."""
    who = "another connection" if holder is None else holder
    return Unavailable(f"Store is busy: {who} holds a lock. Nothing was stored. Try again.", code="store_busy")


def unreachable(error: psycopg.Error) -> Unavailable:
    """The error for a server that is lost, or that takes no more connections."""
    if error.sqlstate == "53300" or any(mark in str(error) for mark in _FULL):
        return Unavailable(
            f"Database takes no more connections ({_last_line(error)}): nothing was stored. Raise its "
            "max_connections, or lower database.connections. Try again in a moment.",
            code="store_unreachable",
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or any(mark in str(error) for mark in _READ_ONLY):
        return Unavailable(
            "Database is read-only: it is a standby, or set to read-only, and nothing was stored. Name the primary in "
            "database.url, or all servers and target_session_attrs=read-write.",
            code="store_read_only",
        )
    why = f" ({error})" if isinstance(error, NoPassword) else ""
    return Unavailable(
        f"Database cannot be reached{why}: nothing was stored. Try again in a moment.", code="store_unreachable"
    )


def is_lost(error: psycopg.Error) -> bool:
    """Whether the server failed, not the statement."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def translate(error: psycopg.Error) -> Exception:
    """The error to raise for the server's error."""
    match error:
        case psycopg.errors.DiskFull():
            return Unavailable("Disk is full: nothing was stored. Free some space and try again.", code="disk_full")
        case psycopg.errors.InsufficientPrivilege():
            return Unavailable(
                f"Database refused: {str(error).strip()}. Give its user the rights that docs/OPERATIONS.md lists.",
                code="store_denied",
            )
        case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
            return _corrupt(error)
        case psycopg.errors.UndefinedColumn() | psycopg.errors.UndefinedTable():
            return _corrupt(error)  # the schema was checked at the start: another program has changed it since
        case psycopg.errors.QueryCanceled():
            return Unavailable(f"Database ended a statement ({_first_line(error)}). Try again.", code="store_busy")
        case psycopg.errors.SystemError() | psycopg.errors.InternalError_() if _is_of_server(error):
            return Unavailable(
                f"Database server failed ({_first_line(error)}): nothing was stored. See the server's log.",
                code="store_failed",
            )
        case psycopg.OperationalError():
            return Unavailable(
                f"Database server failed ({_first_line(error)}): nothing was stored. See the server's log.",
                code="store_failed",
            )
        case _:
            return error


def named(error: Exception) -> Exception:
    """An error for the log: a fault of the server as what it is, without a traceback, and everything else as it is."""
    if not isinstance(error, psycopg.Error):
        return error
    return unreachable(error) if is_lost(error) else translate(error)


def _corrupt(error: psycopg.Error) -> Unavailable:
    return Unavailable(
        f"Store is corrupt ({_first_line(error)}). Run `antiphon doctor --deep`, and restore a backup.",
        code="store_corrupt",
    )


def _is_of_server(error: psycopg.Error) -> bool:
    """Whether the server's files or the server itself failed; a function of ours raises other states."""
    return error.sqlstate is not None and error.sqlstate.startswith(("58", "XX"))


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


def _last_line(error: psycopg.Error) -> str:
    return str(error).strip().rpartition("\n")[2]


def outcome_unknown() -> Unavailable:
    return Unavailable(
        "Outcome is unknown: the database connection broke before it confirmed. "
        "Send the message again with the same message id.",
        code="outcome_unknown",
    )


def closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")
