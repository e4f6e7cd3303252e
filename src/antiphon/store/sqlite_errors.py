"""Translates SQLite's errors for the waiting callers."""

import os
import sqlite3
from pathlib import Path

from antiphon.domain.errors import Unavailable
from antiphon.store.codec import unreadable
from antiphon.store.migrations import StoreUnusable

LEAST_FREE_BYTES = 64 * 1024
"""With less than this, SQLite cannot make its log and the index of the log."""

_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BROKEN = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def translate(error: BaseException, path: Path) -> BaseException:
    """The error to raise for an error of the driver, or of opening a connection."""
    if isinstance(error, StoreUnusable):
        return Unavailable(error.message, code=error.code)
    if not isinstance(error, sqlite3.Error):
        return error
    primary = primary_code(error)
    if primary == sqlite3.SQLITE_FULL or (primary in _BROKEN and is_disk_full(path)):
        return Unavailable("Disk is full: nothing was stored. Free some space and try again.", code="disk_full")
    if primary in _BROKEN:
        return failed(error)
    if primary in _CORRUPT:
        return corrupt(str(error))
    if is_undecodable(error):
        return unreadable("a text is not UTF-8")
    if primary in _BUSY:
        return Unavailable("Store is busy: another program has locked the database. Try again.", code="store_busy")
    return error


def translate_read(error: BaseException, path: Path) -> BaseException:
    """As `translate`; a read that failed says nothing about what can be stored."""
    if isinstance(error, sqlite3.Error) and primary_code(error) in _BROKEN:
        return Unavailable(
            f"Store cannot be read ({error}). Try again; if this stays, check the disk and the log of Antiphon.",
            code="store_failed",
        )
    return translate(error, path)


def primary_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_undecodable(error: BaseException) -> bool:
    """Whether a stored text is not UTF-8, which the driver says without a code."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


def is_lasting(error: BaseException) -> bool:
    """Whether nothing may be stored after this error of a unit until the process is restarted."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in (*_CORRUPT, *_BROKEN)


def is_damage(error: BaseException) -> bool:
    """Whether the file itself is damaged."""
    if isinstance(error, StoreUnusable):
        return error.code == "store_corrupt"
    return isinstance(error, sqlite3.Error) and primary_code(error) in _CORRUPT


def is_about_schema(error: BaseException) -> bool:
    """Whether a statement names something that the database does not have."""
    return isinstance(error, sqlite3.OperationalError) and "no such" in str(error)


def is_disk_full(path: Path) -> bool:
    """Whether the file system of the database has no room for anything."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LEAST_FREE_BYTES


def closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")


def corrupt(why: str) -> Unavailable:
    return Unavailable(
        f"Store is corrupt ({why}): nothing more is stored. Stop Antiphon, run `antiphon doctor --deep`, "
        "and restore a backup.",
        code="store_corrupt",
    )


def failed(error: BaseException) -> Unavailable:
    return Unavailable(
        f"Store failed ({error}): nothing is stored until the process is restarted.",
        code="store_failed",
    )


def unusable(path: Path, error: sqlite3.DatabaseError) -> StoreUnusable:
    """Why the file cannot be opened."""
    if is_damage(error):
        return StoreUnusable(
            f"Database is corrupt: {str(path)!r} ({error}). It was not changed. "
            "Restore a backup, or move it away to start with an empty database.",
            code="store_corrupt",
        )
    if primary_code(error) == sqlite3.SQLITE_FULL or is_disk_full(path):
        return disk_full(path)
    return StoreUnusable(f"Database cannot be opened: {str(path)!r} ({error})")


def disk_full(path: Path) -> StoreUnusable:
    return StoreUnusable(
        f"Disk is full: nothing can be stored in {str(path)!r}. Free some space and start again.", code="disk_full"
    )
