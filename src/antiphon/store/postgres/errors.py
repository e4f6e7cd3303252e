"""Translates a server's errors for the waiting callers."""

import psycopg

from antiphon.domain.errors import Unavailable

_LOST = ("08", "57P", "53300", "25006", "25P03")
"""State prefixes of a lost server: it went away, starts, has too many clients, switches roles, or dropped us."""


class OutcomeUnknown(Exception):
    """The connection broke during COMMIT."""


def is_beaten(error: psycopg.Error, reruns: int) -> bool:
    """Whether another transaction may have been in the way, so that the units should run again.

    A row that another one inserted meanwhile looks like a row that a unit inserts in spite of what it has read: only
    the former is gone when the unit has run again.
    """
    if isinstance(error, psycopg.errors.UniqueViolation):
        return reruns == 0
    return isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected)


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
        case psycopg.errors.SystemError() | psycopg.errors.InternalError_() if _is_of_server(error):
            return Unavailable(
                f"Database server failed ({_first_line(error)}): nothing was stored. See the server's log.",
                code="store_failed",
            )
        case _:
            return error


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


def outcome_unknown() -> Unavailable:
    return Unavailable(
        "Outcome is unknown: the database connection broke before it confirmed. "
        "Send the message again with the same message id.",
        code="outcome_unknown",
    )


def closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")
