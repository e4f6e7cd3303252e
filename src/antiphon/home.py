"""A home's files: made private, and checked before a start and without one."""

import errno
from pathlib import Path

from antiphon.backends import DATABASE_NAME, MOVED_SUFFIX
from antiphon.clock import SystemClock
from antiphon.owner_token import OWNER_TOKEN_NAME
from antiphon.private_files import check_files, create_private_file, make_private_directory, mend_files
from antiphon.store.checkup import DatabaseState, check_database
from antiphon.store.migrations import StoreUnusable

BELIEVED_FILES = ("gateway.json", "owner.*")
"""Patterns of files in the home whose content is trusted; a file that others could have written is refused."""
OWN_FILES = (f"{DATABASE_NAME}*", "gateway.json", "owner.*", "*.lock", "*.log", "*.sock", "mcp/*.log")
"""Patterns of files that Antiphon makes in the home."""


def prepare_home(home: Path, *, is_embedded: bool) -> None:
    """Makes the home private and checks that it can be used, also for the database if that is embedded.

    Raises `StoreUnusable`, and `NotPrivate` if another user controls the home or files in it.
    """
    try:
        make_private_directory(home)
        check_files(home, *BELIEVED_FILES)
        mend_files(home, *OWN_FILES)
    except OSError as error:
        what = "is not writable" if error.errno == errno.EROFS and home.exists() else "cannot be made"
        raise StoreUnusable(f"Home {what}: {str(home)!r} ({error.strerror})") from error
    database, moved = home / DATABASE_NAME, home / (DATABASE_NAME + MOVED_SUFFIX)
    if not is_embedded:
        return
    if moved.exists() and not database.exists():
        raise StoreUnusable(
            f"Database was moved to PostgreSQL: {str(moved)!r} is what was left. Set database.url to its address; "
            f"to go back to the state before the move, rename the file to {DATABASE_NAME!r}.",
            code="store_moved",
        )
    if not (home / OWNER_TOKEN_NAME).exists():
        create_private_file(database)
        return
    if not database.exists() or database.stat().st_size == 0:
        raise StoreUnusable(
            f"Database is missing or empty, though the home was in use: {str(database)!r}. Restore a backup; "
            f"to start anew on purpose, remove {str(home / OWNER_TOKEN_NAME)!r} too.",
            code="store_missing",
        )


def check_home(home: Path) -> DatabaseState | None:
    """The state of the home's database, read without changing it; None if it has none. Raises `StoreUnusable`."""
    path = home / DATABASE_NAME
    return check_database(path, SystemClock().now()) if path.exists() else None
