"""Saves a home with an embedded database to one file, and restores it.

The file is a tar archive: a manifest, the database, the configuration of the home, the workspaces, the skills, what
client libraries of channels keep, and an entry that ends it.
Agents control what lies in workspaces, so nothing here follows a link, neither when it is read nor when it is written.
"""

import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, Encoder
from msgspec.json import format as indented

from antiphon.backends import DATABASE_NAME
from antiphon.channels.kind import STATE_NAME
from antiphon.clock import Clock
from antiphon.domain.errors import Conflict, Invalid, Unavailable
from antiphon.engine.sessions.workspaces import WORKSPACES_NAME
from antiphon.engine.skills.folders import SKILLS_NAME
from antiphon.private_files import check_private_directory
from antiphon.settings.file import JSON5_NAME, TOML_NAME
from antiphon.store.backup import check_copy, copy_database, copy_state
from antiphon.store.migrations import StoreUnusable
from antiphon.version import VERSION

FORMAT = 1
MANIFEST_NAME = "antiphon-backup.json"
END_NAME = "antiphon-backup.end"
SETTINGS = (TOML_NAME, JSON5_NAME)
DIRECTORIES = (WORKSPACES_NAME, SKILLS_NAME, STATE_NAME)
_PIECE = 1024 * 1024
_MAX_MANIFEST = 64 * 1024
_MAX_DEPTH = 200
"""Of directories in a workspace; what is deeper is left out, as is a path of more bytes than `_MAX_NAME`."""
_MAX_NAME = 2048
_SPARSE = 16
"""A file of a workspace that claims this many times its bytes on the disk is left out."""
_DATABASE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")
"""The ends of the names of files that belong to a database; its copy needs none."""
_PARTIAL = ".partial-"
"""In the name of an unfinished backup or home, before the number of its process."""


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a backup says about itself."""

    format: int
    version: str
    """Of the Antiphon that wrote it."""
    schema: int
    created_at: int
    """In milliseconds since 1970: everything that was acknowledged before is in it."""
    database_sha256: str
    database_bytes: int


class Contents(Struct, frozen=True, kw_only=True):
    """What was copied from workspaces and skills; the last entry, so that a file that was cut is noticed."""

    files: int
    """Files of workspaces and skills."""
    skipped: int
    """What was not copied from workspaces: sockets, devices, sparse files, and what vanished or could not be read."""
    changed: int
    """Files that became shorter while they were read; their ends are zeros."""


class BackupSummary(Struct, frozen=True, kw_only=True):
    """A backup that was written or restored."""

    manifest: Manifest
    contents: Contents


def write_backup(home: Path, file: Path, clock: Clock, *, replaces: bool) -> BackupSummary:
    """Writes the home's backup to a file for its user alone (0600), which is there whole or not at all.

    Works beside a running gateway. Raises `Conflict` (`file_exists`) for a file that exists and is not to be replaced,
    `StoreUnusable`, and `OSError`.
    """
    database = home / DATABASE_NAME
    if not database.exists():
        raise StoreUnusable(
            f"Database is missing: {str(database)!r}. There is nothing to back up.", code="store_missing"
        )
    check_private_directory(home)
    if file.is_dir():
        raise Invalid(f"Backup needs the name of a file: {str(file)!r} is a directory.", code="usage")
    if not replaces and file.exists():
        raise _exists(file)
    with _partial_directory(file) as partial:
        created_at, copy, archive = clock.now_ms(), partial / DATABASE_NAME, partial / file.name
        _check_room(partial, 2 * database.stat().st_size)  # the copy, and the archive that holds it
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        schema = copy_database(database, copy)
        with copy.open("rb") as content:
            manifest = Manifest(
                format=FORMAT,
                version=VERSION,
                schema=schema,
                created_at=created_at,
                database_sha256=file_digest(content, "sha256").hexdigest(),
                database_bytes=copy.stat().st_size,
            )
        with os.fdopen(os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as written:
            with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
                writing = _Writing(tar, partial, home)
                writing.add_bytes(MANIFEST_NAME, indented(Encoder().encode(manifest)) + b"\n")
                writing.add_ours(copy, DATABASE_NAME)
                for name in SETTINGS:
                    with suppress(FileNotFoundError):
                        writing.add_ours(home / name, name)
                for name in DIRECTORIES:
                    writing.add_directory(home, name)
                contents = Contents(files=writing.files, skipped=writing.skipped, changed=writing.changed)
                writing.add_bytes(END_NAME, Encoder().encode(contents) + b"\n")
            written.flush()
            os.fsync(written.fileno())
        _put_in_place(archive, file, replaces=replaces)
    return BackupSummary(manifest=manifest, contents=contents)


def restore_backup(file: Path, home: Path) -> BackupSummary:
    """Restores the backup as a home; checks it before anything is in place.

    Raises `Conflict` (`home_not_empty`), `Invalid` (`not_a_backup`), `StoreUnusable` for a damaged database or one of a
    newer version, and `OSError`.
    """
    if home.is_symlink() or (home.exists() and not home.is_dir()) or (home.is_dir() and any(home.iterdir())):
        raise Conflict(
            f"Home is not empty: {str(home)!r}. Name another one with --home, or move its files away.",
            code="home_not_empty",
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as content, _partial_directory(home) as partial:
        made = partial / "home"
        made.mkdir(mode=0o700)
        with _explained(file), tarfile.open(fileobj=content, mode="r:") as tar:
            found = _Reading(tar, made).read()
        _check_database(made / DATABASE_NAME, found.manifest)
        _sync(made)
        made.rename(home)  # takes the place of an empty directory
        _sync(home.parent)
    return found


class _Writing:
    """Adds files to an archive, as they are at that moment."""

    def __init__(self, tar: tarfile.TarFile, place: Path, home: Path) -> None:
        self._tar = tar
        self._place = place
        self._home = home
        self.files = self.skipped = self.changed = 0

    def add_bytes(self, name: str, content: bytes) -> None:
        self._tar.addfile(_entry(name, size=len(content)), io.BytesIO(content))

    def add_ours(self, path: Path, name: str) -> None:
        """A file of the home itself. Raises `OSError`, also for a link in its place."""
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as content:
            self._add(name, content)

    def add_directory(self, home: Path, name: str) -> None:
        """A directory of the home with all that lies in it; nothing if there is none."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self._walk(os.open(home / name, _DIRECTORY), name)

    def _walk(self, directory: int, name: str, depth: int = 0) -> None:
        try:
            self._tar.addfile(_entry(name, kind=tarfile.DIRTYPE, mode=os.fstat(directory).st_mode))
            for each in sorted(os.listdir(directory)):
                shown = f"{name}/{each}"
                found = None if depth >= _MAX_DEPTH else _look(directory, each, shown)
                if found is None:
                    self.skipped += 1
                elif isinstance(found, str):
                    self._tar.addfile(_entry(shown, kind=tarfile.SYMTYPE, target=found))
                elif stat.S_ISDIR(os.fstat(found).st_mode):
                    self._walk(found, shown, depth + 1)
                elif name.startswith(STATE_NAME) and self._is_of_database(found, shown):
                    self._add_database(found, shown)
                elif _is_sparse(os.fstat(found)):
                    os.close(found)
                    self.skipped += 1
                else:
                    with os.fdopen(found, "rb") as content:
                        self._add(shown, content)
                    self.files += 1
        finally:
            os.close(directory)

    def _is_of_database(self, file: int, name: str) -> bool:
        """Whether the file is a library's embedded database, or belongs to one."""
        return name.endswith(_BESIDE) or os.pread(file, len(_DATABASE), 0) == _DATABASE

    def _add_database(self, file: int, name: str) -> None:
        """The database as it is at one moment, while the library may be writing to it; without what is beside it."""
        os.close(file)
        if name.endswith(_BESIDE):
            return
        copy = self._place / "state"
        copy.unlink(missing_ok=True)
        copy_state(self._home / name, copy)
        with copy.open("rb") as content:
            self._add(name, content)
        self.files += 1

    def _add(self, name: str, content: IO[bytes]) -> None:
        status = os.fstat(content.fileno())
        _check_room(self._place, status.st_size)
        padded = _Padded(content)
        self._tar.addfile(
            _entry(name, size=status.st_size, mode=status.st_mode, modified_at=int(status.st_mtime)), padded
        )
        self.changed += padded.was_short


def _look(directory: int, name: str, shown: str) -> int | str | None:
    """An open file or directory, or the target of a link; None for anything else, and for what cannot be read."""
    try:
        if len(shown.encode()) > _MAX_NAME:
            return None
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=directory)
            target.encode()
            return target
        if stat.S_ISDIR(status.st_mode):
            return os.open(name, _DIRECTORY, dir_fd=directory)
        if stat.S_ISREG(status.st_mode):
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    except (OSError, UnicodeError):  # it vanished, nobody may read it, or its name is no text
        return None
    return None


def _is_sparse(status: os.stat_result) -> bool:
    """Whether a file claims far more bytes than it has on the disk, and would swell the backup."""
    return status.st_size > _PIECE and status.st_blocks * 512 * _SPARSE < status.st_size


def _check_room(place: Path, size: int) -> None:
    """Raises `Unavailable` (`disk_full`) if the disk of the backup has not that many bytes free."""
    free = shutil.disk_usage(place).free
    if size > free:
        raise Unavailable(
            f"Disk is full: the backup needs {size} more bytes, and {free} are free. Free some space and try again.",
            code="disk_full",
        )


class _Padded(io.RawIOBase):
    """A file, filled up with zeros if it becomes shorter or unreadable while it is copied."""

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__()
        self._content = content
        self.was_short = False

    def read(self, size: int = -1) -> bytes:
        try:
            found = self._content.read(size)
        except OSError:
            found = b""
        if len(found) < size:
            self.was_short = True
            found += b"\0" * (size - len(found))
        return found


class _Reading:
    """Makes a home of an archive. Links are made last, so that no entry is written through one."""

    def __init__(self, tar: tarfile.TarFile, home: Path) -> None:
        self._tar = tar
        self._home = home
        self._links: list[tuple[Path, str]] = []
        self._modes: list[tuple[Path, int]] = []
        self._directories = {home}
        self._names: set[Path] = set()

    def read(self) -> BackupSummary:
        manifest = self._read_manifest()
        while (member := self._next()).name != END_NAME:
            self._make(member)
        contents = _decode(self._text(member), Contents)
        if self._tar.next() is not None:
            raise _no_backup("it goes on after its end")
        for path, target in self._links:
            path.symlink_to(target)
        for path, mode in reversed(self._modes):
            path.chmod(mode)
        return BackupSummary(manifest=manifest, contents=contents)

    def _next(self) -> tarfile.TarInfo:
        member = self._tar.next()
        if member is None:
            raise _no_backup("it was cut")
        return member

    def _text(self, member: tarfile.TarInfo) -> bytes:
        if not member.isreg() or member.size > _MAX_MANIFEST:
            raise _no_backup(f"its entry is too large: {member.name!r}")
        return self._content(member).read()

    def _read_manifest(self) -> Manifest:
        first = self._next()
        if first.name != MANIFEST_NAME:
            raise _no_backup("it does not begin with a manifest")
        manifest = _decode(self._text(first), Manifest)
        if manifest.format != FORMAT:
            raise _no_backup(f"its format is {manifest.format}, and this program reads {FORMAT}")
        return manifest

    def _make(self, member: tarfile.TarInfo) -> None:
        path = self._place(member)
        mode = member.mode & 0o700
        if member.isdir():
            path.mkdir(mode=0o700)
            self._directories.add(path)
            self._modes.append((path, mode))
        elif member.issym():
            self._links.append((path, member.linkname))
        elif member.isreg():
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as written:
                shutil.copyfileobj(self._content(member), written, _PIECE)
                written.flush()
                os.fsync(written.fileno())
            os.utime(path, (member.mtime, member.mtime))
            if path.parent != self._home:
                self._modes.append((path, mode))
        else:
            raise _no_backup(f"it has an entry of another kind: {member.name[:200]!r}")

    def _place(self, member: tarfile.TarInfo) -> Path:
        """Where the entry belongs. Raises `Invalid` for a name that no backup has."""
        parts = PurePosixPath(member.name).parts
        is_ours = len(parts) == 1 and parts[0] in (DATABASE_NAME, *SETTINGS) and member.isreg()
        is_within = parts[:1] != () and parts[0] in DIRECTORIES and ".." not in parts
        if not (is_ours or is_within) or "\0" in member.name:
            raise _no_backup(f"it has an entry with another name: {member.name[:200]!r}")
        if len(parts) == 1 and is_within and not member.isdir():
            raise _no_backup(f"its entry {parts[0]!r} is no directory")
        if len(parts) > _MAX_DEPTH + 1 or len(member.name.encode("utf-8", "surrogateescape")) > _MAX_NAME:
            raise _no_backup(f"it has an entry deeper than any backup: {member.name[:200]!r}")
        path = self._home.joinpath(*parts)
        if path in self._names or path.parent not in self._directories:
            raise _no_backup(f"it has an entry twice, or below what is no directory: {member.name[:200]!r}")
        self._names.add(path)
        return path

    def _content(self, member: tarfile.TarInfo) -> IO[bytes]:
        content = self._tar.extractfile(member)
        assert content is not None
        return content


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links say."""
T = TypeVar("T")


def _decode(text: bytes, kind: type[T]) -> T:
    try:
        return Decoder(kind).decode(text)
    except (DecodeError, ValidationError, UnicodeError) as error:
        raise _no_backup(f"its manifest cannot be read: {error}") from error


def _check_database(path: Path, manifest: Manifest) -> None:
    if not path.is_file():
        raise _no_backup("it has no database")
    with path.open("rb") as content:
        if file_digest(content, "sha256").hexdigest() != manifest.database_sha256:
            raise StoreUnusable(
                "Database of the backup is not the one that was saved: the file was changed. Use another backup.",
                code="store_corrupt",
            )
    check_copy(path)


def _entry(
    name: str,
    *,
    kind: bytes = tarfile.REGTYPE,
    size: int = 0,
    mode: int = 0o600,
    modified_at: int = 0,
    target: str = "",
) -> tarfile.TarInfo:
    """An entry that names no user, so that it belongs to the user who restores it."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.mode, entry.linkname = kind, size, stat.S_IMODE(mode) & 0o700, target
    entry.mtime = modified_at
    return entry


@contextmanager
def _partial_directory(final: Path) -> Generator[Path]:
    """A private directory beside the final place, removed in the end, as are those that dead processes left."""
    for old in _left_behind(final):
        _remove(old)
    partial = final.with_name(f".{final.name}{_PARTIAL}{os.getpid()}")
    partial.mkdir(mode=0o700)
    try:
        yield partial
    finally:
        _remove(partial)


def _remove(directory: Path) -> None:
    """Removes the directory as far as possible, however deep it is; `shutil.rmtree` gives up where recursion ends."""
    waiting, found = [directory], list[Path]()
    while waiting:
        found.append(each := waiting.pop())
        with suppress(OSError):
            each.chmod(0o700)
            for path in each.iterdir():
                if path.is_dir() and not path.is_symlink():
                    waiting.append(path)
                else:
                    path.unlink(missing_ok=True)
    for each in reversed(found):
        with suppress(OSError):
            each.rmdir()


def _left_behind(final: Path) -> Iterator[Path]:
    start = f".{final.name}{_PARTIAL}"
    for path in final.parent.iterdir():
        number = path.name.removeprefix(start)
        if path.name.startswith(start) and number.isdecimal() and path.is_dir() and not path.is_symlink():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                yield path
            except (PermissionError, OverflowError):
                continue


def _put_in_place(archive: Path, file: Path, *, replaces: bool) -> None:
    """Gives the complete file its name, in one step. Raises `Conflict` if another one has it by now."""
    if replaces:
        archive.replace(file)
    else:
        try:
            os.link(archive, file)
        except FileExistsError as error:
            raise _exists(file) from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            archive.rename(file)
    _sync(file.parent)


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _explained(file: Path) -> Generator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise Invalid(
            f"File is not a whole backup of Antiphon: {str(file)!r} ({error}).", code="not_a_backup"
        ) from error


def _exists(file: Path) -> Conflict:
    return Conflict(f"File exists: {str(file)!r}. Choose another name, or replace it with --force.", code="file_exists")


def _no_backup(why: str) -> Invalid:
    return Invalid(f"File is not a backup of Antiphon: {why}.", code="not_a_backup")
