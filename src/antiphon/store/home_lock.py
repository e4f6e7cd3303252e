"""The lock that keeps a home to one process, and the watch over its database files while they are open."""

import contextlib
import fcntl
import os
import time
from datetime import datetime
from pathlib import Path

from antiphon.domain.errors import Unavailable
from antiphon.store.migrations import StoreUnusable

PATIENCE_SECONDS = 10.0
"""For a process that was killed: its lock ends with it, which takes a moment if it had much memory."""
PAUSE_SECONDS = 0.05
MAX_PID = 2**31 - 1
EMBEDDED = "embedded"
"""In the lock: the process that has it is a Python program, which no command can reach."""


def take_lock(path: Path) -> int:
    """Locks the database; closing the returned file unlocks it. Raises `StoreUnusable` if another process has it.

    The kernel ends the lock with its process, so nobody has to remove anything after a crash.
    """
    lock_path = path.with_name(path.name + ".lock")
    try:
        file = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(f"Home is not writable: {str(path.parent)!r} ({error.strerror})") from error
    try:
        _wait_for(file, path.parent)
    except BaseException:
        os.close(file)
        raise
    with contextlib.suppress(OSError):  # a full disk says so elsewhere
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _wait_for(file: int, home: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            holder = _holder(file)
            if holder is None or not _is_ending(holder) or time.monotonic() > deadline:
                raise _in_use(home, holder, _embedded_since(file)) from error
        time.sleep(PAUSE_SECONDS)


def describe_holder(path: Path, since: datetime) -> None:
    """Adds to the lock, which this process must have, that a Python program has opened the database, and when."""
    text = f"{os.getpid()}\n{EMBEDDED} {since:%Y-%m-%d %H:%M} UTC\n"
    path.with_name(path.name + ".lock").write_text(text)


def _holder(file: int) -> int | None:
    """The number of the process that wrote it into the lock; None if it is not written yet, or is no such number."""
    text = os.pread(file, 64, 0).partition(b"\n")[0].strip()
    return int(text) if text.isdigit() and 0 < int(text) <= MAX_PID else None


def _embedded_since(file: int) -> str | None:
    """Since when a Python program has the database open; None for any other process."""
    kind, _, since = os.pread(file, 64, 0).decode("ascii", "replace").partition("\n")[2].strip().partition(" ")
    return since if kind == EMBEDDED else None


def _is_ending(pid: int) -> bool:
    """Whether the process was killed or has ended, so that its lock is about to end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return not _is_living(pid)
    is_exiting = bool(int(fields[6]) & 0x4)
    return is_exiting or fields[0] in "ZX"


def _is_living(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(home: Path, holder: int | None, embedded_since: str | None) -> StoreUnusable:
    if embedded_since is not None and holder is not None and holder != os.getpid():
        return StoreUnusable(
            f"Home is open in a Python program (process {holder}, by `antiphon.open`, since {embedded_since}): "
            f"{str(home)!r}. Use it from that program, or end the program first: no command can reach it meanwhile.",
            code="home_embedded",
        )
    match holder:
        case None:
            who = "another process"
        case _ if holder == os.getpid():
            who = f"this process ({holder}), which opened it before"
        case _:
            who = f"another process ({holder})"
    return StoreUnusable(
        f"Home is in use by {who}: {str(home)!r}. Stop it first, or choose another home with --home.",
        code="home_in_use",
    )


class OpenFiles:
    """The files of an open database, to notice that another file, or none, stands in their place."""

    def __init__(self, path: Path, *, lock: int) -> None:
        self._path = path
        self._files: list[tuple[Path, tuple[int, int]]] = []
        names = (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm"))
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.append((name, _identity(name.stat())))
        self._files.append((path.with_name(path.name + ".lock"), _identity(os.fstat(lock))))

    def find_problem(self) -> Unavailable | None:
        """Why nothing more may be stored: it would be lost with the next start. None if all are in their place."""
        for name, identity in self._files:
            try:
                found = _identity(name.stat())
            except OSError:
                return self._problem(name, "deleted or moved")
            if found != identity:
                return self._problem(name, "replaced")
        return None

    def _problem(self, name: Path, what: str) -> Unavailable:
        return Unavailable(
            f"Database file was {what} while it was in use: {str(name)!r}. Nothing more is stored. Stop Antiphon, put "
            "the files back or restore a backup, and start it again.",
            code="store_replaced",
        )


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
