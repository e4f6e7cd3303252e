"""A disk that loses power: SQLite on a VFS whose every write is kept in a journal, and what a cut leaves of it.

A write is durable once its file was synced. At a cut the writes since then are lost, or some of them, or parts
of them that end at sector borders, in any order.
"""

import errno
import itertools
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock

import apsw

from antiphon.store.database import Row, SqlValue
from antiphon.store.sqlite import SqliteConnection

SECTOR = 512
_numbers = itertools.count()


class Cut(StrEnum):
    """What becomes of writes that were not synced when the power went."""

    ALL_LOST = "all_lost"
    SOME_LOST = "some_lost"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Write:
    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    name: str


@dataclass(frozen=True, slots=True)
class Delete:
    name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that the testing program saw at this point, such as an acknowledgement."""

    value: object


Entry = Write | Truncate | Sync | Delete | Mark


class FaultyDisk:
    """Gives connections whose writes are journaled, and which fail when told to. One for each home."""

    def __init__(self) -> None:
        self.journal: list[Entry] = []
        self.error: int | None = None
        """Writes and syncs fail with this `errno` while it is set: `EIO` or `ENOSPC`."""
        self.has_bad_sector = False
        """Makes the next read fail, once."""
        self._lock = Lock()
        self._vfs = _Vfs(f"faulty-{next(_numbers)}", self)

    def connect(self, path: Path) -> SqliteConnection:
        """For `Parts.connect`."""
        return ApswConnection(apsw.Connection(str(path), vfs=self._vfs.name))

    def mark(self, value: object) -> None:
        self.note(Mark(value))

    def note(self, entry: Entry) -> None:
        with self._lock:
            self.journal.append(entry)

    def check(self) -> None:
        match self.error:
            case None:
                return
            case errno.ENOSPC:
                raise apsw.exception_for(apsw.SQLITE_FULL)
            case _:
                raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)

    def check_read(self) -> None:
        if self.has_bad_sector:
            self.has_bad_sector = False
            raise apsw.exception_for(apsw.SQLITE_IOERR_READ)


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: FaultyDisk) -> None:
        self.name = name
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "_File":  # noqa: N802
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.note(Delete(Path(filename).name))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or f"temporary-{next(_numbers)}").name
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.check_read()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.check()
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - its stub needs Python 3.12
        self._disk.note(Write(self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.check()
        super().xTruncate(newsize)
        self._disk.note(Truncate(self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.check()
        # The file is not really synced: the machine that runs the test keeps its power.
        self._disk.note(Sync(self._name))


class ApswConnection:
    """An apsw connection as a `SqliteConnection`: rows read at once, errors as the standard driver has them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> "Rows":
        try:
            cursor = self._connection.execute(statement, tuple(parameters))  # pyright: ignore[reportUnknownMemberType]
            rows = list(cursor)
            return Rows(rows, self._connection.changes())
        except apsw.Error as error:
            raise _standard_error(error) from error

    def close(self) -> None:
        try:
            self._connection.close()
        except apsw.Error as error:
            raise _standard_error(error) from error


@dataclass(slots=True)
class Rows:
    rows: list[Row]
    rowcount: int

    def fetchone(self) -> Row | None:
        return self.rows.pop(0) if self.rows else None

    def fetchall(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows


def _standard_error(error: apsw.Error) -> sqlite3.Error:
    kind = sqlite3.IntegrityError if isinstance(error, apsw.ConstraintError) else sqlite3.OperationalError
    raised = kind(str(error))
    raised.sqlite_errorcode = getattr(error, "extendedresult", 0)
    return raised


@dataclass(slots=True)
class _Image:
    """One file: what is durable of it, and what was written since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=lambda: list[Write | Truncate]())
    exists: bool = False
    """Whether it was ever synced; a file that never was is gone after a cut."""


class Replay:
    """Plays a journal forward, and tells at any point what a cut would leave there."""

    def __init__(self, journal: Sequence[Entry]) -> None:
        self._journal = journal
        self._images: dict[str, _Image] = {}
        self.position = 0
        self.marks: list[object] = []
        """Those that were made before the position."""

    def play_to(self, position: int) -> None:
        for entry in self._journal[self.position : position]:
            self._play(entry)
        self.position = position

    def _play(self, entry: Entry) -> None:
        match entry:
            case Write(name) | Truncate(name):
                self._images.setdefault(name, _Image()).pending.append(entry)
            case Sync(name):
                image = self._images.setdefault(name, _Image())
                for change in image.pending:
                    _apply(image.durable, change)
                image.pending.clear()
                image.exists = True
            case Delete(name):
                self._images.pop(name, None)
            case Mark(value):
                self.marks.append(value)

    def leave(self, directory: Path, cut: Cut, chance: random.Random) -> None:
        """Makes the directory hold what a cut at the position leaves."""
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            path.unlink()
        for name, image in self._images.items():
            if image.exists or (image.pending and cut is not Cut.ALL_LOST):
                content = bytearray(image.durable)
                for change in _survivors(image.pending, cut, chance):
                    _apply(content, change)
                (directory / name).write_bytes(content)


def _survivors(pending: list[Write | Truncate], cut: Cut, chance: random.Random) -> list[Write | Truncate]:
    match cut:
        case Cut.ALL_LOST:
            return []
        case Cut.SOME_LOST:
            return [change for change in pending if chance.random() < 0.5]
        case Cut.TORN:
            return [torn for change in pending for torn in _tear(change, chance)]


def _tear(change: Write | Truncate, chance: random.Random) -> list[Write | Truncate]:
    """The sectors of the write that reached the disk; each did or did not."""
    if isinstance(change, Truncate):
        return [change] if chance.random() < 0.5 else []
    kept: list[Write | Truncate] = []
    start = 0
    while start < len(change.data):
        end = min(start + SECTOR - (change.offset + start) % SECTOR, len(change.data))
        if chance.random() < 0.5:
            kept.append(Write(change.name, change.offset + start, change.data[start:end]))
        start = end
    return kept


def _apply(content: bytearray, change: Write | Truncate) -> None:
    match change:
        case Truncate(size=size):
            del content[size:]
            content.extend(bytes(size - len(content)))
        case Write(offset=offset, data=data):
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
