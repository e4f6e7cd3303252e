"""Translates a server's errors for the waiting callers."""

import psycopg

from antiphon.domain.errors import Unavailable

_LOST = ("08", "57P", "53300", "25006", "25P03")
"""State prefixes of a lost server: it went away, starts, has too many clients, switches roles, or dropped us."""


class OutcomeUnknown(Exception):
    """The connection broke during COMMIT."""


def is_beaten(error: psycopg.Error) -> bool:
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
        case _:
            return error


def outcome_unknown() -> Unavailable:
    return Unavailable(
        "Outcome is unknown: the database connection broke before it confirmed. "
        "Send the message again with the same message id.",
        code="outcome_unknown",
    )


def closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")
