"""The folders of a home's skills. Contract: foreign_agents 5.

Whoever made a folder may have put anything into it, so nothing here follows a link: every step uses the descriptor of
the directory above. What is hashed are the very bytes that are copied, so that nothing changes between the two.
"""

import errno
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock

from msgspec import Struct

from antiphon.domain.errors import Conflict, Invalid, NotFound, Unavailable
from antiphon.domain.skill import (
    MANIFEST,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    Skill,
    SkillFile,
    check_file_name,
    check_paths,
    check_skill_name,
    check_words,
    hash_of_skill,
    invalid_skill,
    is_skill_name,
)
from antiphon.engine.sessions.workspaces import remove_entry
from antiphon.engine.skills.manifest import read_manifest

SKILLS_NAME = "skills"
"""The name of their directory in the home."""
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
PROGRAM_MODE = 0o700
SETTLED_NS = 2_000_000_000
"""A change of a file within this time may leave its times as they are, so until then a folder is read anew."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_EXECUTABLE = stat.S_IXUSR


class StoredSkill(Struct, frozen=True, kw_only=True):
    """What lies in a home under the name of a skill."""

    name: str
    skill: Skill | None = None
    problem: Invalid | Unavailable | None = None
    """Why it is no skill; neither this nor a skill if there is nothing."""


class _Content(Struct, frozen=True):
    data: bytes
    is_executable: bool


class _Known(Struct, frozen=True):
    """What a folder was found to be, by the state of everything in it."""

    fingerprint: tuple[object, ...]
    found: StoredSkill


class SkillFolders:
    """The skills of one home; all its methods block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, _Known] = {}
        self._lock = Lock()

    def names(self) -> list[str]:
        """The names of what may be a skill."""
        try:
            with os.scandir(self.directory) as entries:
                return sorted(entry.name for entry in entries if is_skill_name(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def find(self, name: str) -> StoredSkill:
        """What lies there under the name; reads its files only if they changed since."""
        if not is_skill_name(name):
            return StoredSkill(name=name)
        try:
            with self._opened(name) as folder:
                before = _fingerprint(folder)
                with self._lock:
                    known = self._known.get(name)
                if known is not None and known.fingerprint == before.of_all:
                    return known.found
                found = _look(folder, name)
                is_settled = _fingerprint(folder) == before and time.time_ns() - before.newest_ns > SETTLED_NS
                with self._lock:
                    self._known.pop(name, None)
                    if is_settled:
                        self._known[name] = _Known(before.of_all, found)
                return found
        except FileNotFoundError:
            return StoredSkill(name=name)
        except OSError as error:
            return StoredSkill(name=name, problem=_unreadable(name, error))

    def path_of(self, skill: Skill) -> Path:
        """The folder, read once more just now. Raises `Conflict` (`skill_changed`) if it is not as it was."""
        name = skill.words.name
        try:
            with self._opened(name) as folder:
                found = _look(folder, name)
        except OSError as error:
            raise _changed(name) from error
        if found.skill is None or found.skill.sha256 != skill.sha256:
            raise _changed(name)
        return self.directory / name

    def read_file(self, skill: Skill, path: str) -> bytes:
        """The content of the file, which is as the hash says.

        Raises `NotFound` (`skill_file_not_found`) and `Conflict` (`skill_changed`).
        """
        name, file = skill.words.name, skill.find(path)
        if file is None:
            raise NotFound(f"File not found in the skill: {path[:200]!r} of {name!r}.", code="skill_file_not_found")
        *parents, last = path.split("/")
        try:
            with self._opened(name) as folder, _walked(folder, parents) as parent:
                content = _read_file(parent, last)
        except (OSError, Invalid) as error:
            raise _changed(name) from error
        if sha256(content.data).hexdigest() != file.sha256 or content.is_executable != file.is_executable:
            raise _changed(name)
        return content.data

    def add(self, source: Path) -> Skill:
        """Copies a folder into the home, in the place of a skill of that name; it is there whole or not at all.

        Raises `NotFound`, `Invalid` (`skill_invalid`) before anything is written, and `Unavailable` (`skill_unusable`).
        """
        place = Path(os.path.abspath(source))  # noqa: PTH100  `resolve` would follow a link
        name = check_skill_name(place.name)
        try:
            folder = os.open(place, _DIRECTORY)
        except FileNotFoundError:
            raise NotFound(f"Folder not found: {str(place)!r}.") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise invalid_skill(f"{str(place)!r} is a link or no folder") from None
            raise _unreadable(name, error) from error
        try:
            contents = _read_all(folder)
        except OSError as error:
            raise _unreadable(name, error) from error
        finally:
            os.close(folder)
        skill = _skill_of(name, contents)
        try:
            self._write(name, contents)
        except OSError as error:
            raise Unavailable(
                f"Skill cannot be stored: {str(self.directory / name)!r} ({error.strerror}). Check the rights to the "
                "directory and the space on its disk.",
                code="skill_unusable",
            ) from error
        return skill

    def remove(self, name: str) -> bool:
        """Whether there was anything. Raises `Unavailable` (`skill_unusable`)."""
        check_skill_name(name)
        try:
            with self._root(makes=False) as root:
                os.stat(name, dir_fd=root, follow_symlinks=False)
                remove_entry(root, name)
                os.fsync(root)
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unreadable(name, error) from error

    def _write(self, name: str, contents: dict[str, _Content]) -> None:
        fresh, doomed = f".{name}.{os.getpid()}.new", f".{name}.{os.getpid()}.old"
        with self._root(makes=True) as root:
            for left in (fresh, doomed):
                remove_entry(root, left)
            try:
                _write_folder(root, fresh, contents)
                with suppress(FileNotFoundError):
                    os.rename(name, doomed, src_dir_fd=root, dst_dir_fd=root)
                os.rename(fresh, name, src_dir_fd=root, dst_dir_fd=root)
                os.fsync(root)
            finally:
                for left in (fresh, doomed):
                    with suppress(OSError):
                        remove_entry(root, left)

    @contextmanager
    def _root(self, *, makes: bool) -> Generator[int]:
        home = os.open(self.directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if makes:
                with suppress(FileExistsError):
                    os.mkdir(self.directory.name, DIRECTORY_MODE, dir_fd=home)
            root = os.open(self.directory.name, _DIRECTORY, dir_fd=home)
        finally:
            os.close(home)
        try:
            yield root
        finally:
            os.close(root)

    @contextmanager
    def _opened(self, name: str) -> Generator[int]:
        with self._root(makes=False) as root, _walked(root, [name]) as folder:
            yield folder


class _Fingerprint(Struct, frozen=True):
    of_all: tuple[object, ...]
    newest_ns: int


def _fingerprint(folder: int) -> _Fingerprint:
    """The state of everything in the folder, without reading a file; cut off where no skill can be."""
    found = [("", os.fstat(folder)), *islice(_entries(folder), 2 * MAX_FILES)]
    return _Fingerprint(
        tuple(
            (path, state.st_ino, state.st_mode, state.st_nlink, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            for path, state in found
        ),
        max(max(state.st_mtime_ns, state.st_ctime_ns) for _, state in found),
    )


def _entries(folder: int, above: str = "", depth: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in the folder, what is in a directory after it; follows no link."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path, state = above + entry.name, entry.stat(follow_symlinks=False)
            yield path, state
            if stat.S_ISDIR(state.st_mode) and depth < MAX_DEPTH:
                with _walked(folder, [entry.name]) as inner:
                    yield from _entries(inner, f"{path}/", depth + 1)


def _look(folder: int, name: str) -> StoredSkill:
    try:
        return StoredSkill(name=name, skill=_skill_of(name, _read_all(folder)))
    except Invalid as error:
        return StoredSkill(name=name, problem=error)


def _skill_of(name: str, contents: dict[str, _Content]) -> Skill:
    """Raises `Invalid` (`skill_invalid`)."""
    check_paths(contents)
    if MANIFEST not in contents:
        raise invalid_skill(f"it has no {MANIFEST}")
    words = check_words(read_manifest(contents[MANIFEST].data), name)
    files = tuple(
        SkillFile(
            path=path,
            size=len(content.data),
            sha256=sha256(content.data).hexdigest(),
            is_executable=content.is_executable,
        )
        for path, content in sorted(contents.items())
    )
    return Skill(words=words, files=files, sha256=hash_of_skill(name, files))


def _read_all(folder: int) -> dict[str, _Content]:
    """All files by path. Raises `Invalid` (`skill_invalid`) for anything else in it, and for too much."""
    contents: dict[str, _Content] = {}
    total = folders = 0
    open_folders = [(os.dup(folder), "", 0)]
    try:
        while open_folders:
            current, above, depth = open_folders.pop()
            try:
                for name in _names_in(current):
                    path = above + check_file_name(name)
                    state = os.stat(name, dir_fd=current, follow_symlinks=False)
                    if stat.S_ISDIR(state.st_mode):
                        folders += 1
                        if depth >= MAX_DEPTH or folders > MAX_FILES:
                            raise invalid_skill(f"it has more than {MAX_FILES} folders, or more than {MAX_DEPTH} deep")
                        open_folders.append((os.open(name, _DIRECTORY, dir_fd=current), f"{path}/", depth + 1))
                        continue
                    contents[path] = content = _read_file(current, name)
                    total += len(content.data)
                    if len(contents) > MAX_FILES:
                        raise invalid_skill(f"it has more than {MAX_FILES} files")
                    if total > MAX_BYTES:
                        raise invalid_skill(f"it has more than {MAX_BYTES // 1024 // 1024} MiB")
            finally:
                os.close(current)
    finally:
        for current, _, _ in open_folders:
            os.close(current)
    return contents


def _names_in(folder: int) -> list[str]:
    """The names in the folder, of which there may not be too many."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > 2 * MAX_FILES:
                raise invalid_skill(f"it has more than {MAX_FILES} files")
    return sorted(names)


def _read_file(parent: int, name: str) -> _Content:
    """A regular file of one name, up to the limit. Raises `Invalid` (`skill_invalid`), `OSError`."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=parent)  # does not wait: it may be a pipe
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise invalid_skill(f"{name!r} is a link or no regular file") from None
        raise
    with open(descriptor, "rb") as file:  # noqa: PTH123
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise invalid_skill(f"{name!r} is no regular file")
        if state.st_nlink != 1:
            raise invalid_skill(f"{name!r} has more than one name (a hard link)")
        if state.st_mode & _SPECIAL:
            raise invalid_skill(f"{name!r} has the rights of another user or group (setuid, setgid or sticky)")
        data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise invalid_skill(f"{name!r} has more than {MAX_FILE_BYTES // 1024} KiB")
        if len(data) != state.st_size or os.fstat(descriptor).st_size != len(data):
            raise invalid_skill(f"{name!r} changed while it was read")
        return _Content(data, bool(state.st_mode & _EXECUTABLE))


def _write_folder(root: int, name: str, contents: dict[str, _Content]) -> None:
    os.mkdir(name, DIRECTORY_MODE, dir_fd=root)
    with _walked(root, [name]) as folder:
        made: set[str] = set()
        for path, content in contents.items():
            *parents, last = path.split("/")
            for depth in range(1, len(parents) + 1):
                if (above := "/".join(parents[:depth])) not in made:
                    with _walked(folder, parents[: depth - 1]) as parent:
                        os.mkdir(parents[depth - 1], DIRECTORY_MODE, dir_fd=parent)
                    made.add(above)
            with _walked(folder, parents) as parent:
                _write_file(parent, last, content)
        for above in (*made, ""):
            with _walked(folder, above.split("/") if above else []) as written:
                os.fsync(written)


def _write_file(parent: int, name: str, content: _Content) -> None:
    mode = PROGRAM_MODE if content.is_executable else FILE_MODE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, mode, dir_fd=parent), "wb") as file:  # noqa: PTH123
        os.fchmod(file.fileno(), mode)
        file.write(content.data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _walked(folder: int, names: list[str]) -> Generator[int]:
    """The descriptor of the folder at the end of the path; raises `OSError` for a link."""
    current = os.dup(folder)
    try:
        for name in names:
            following = os.open(name, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _changed(name: str) -> Conflict:
    return Conflict(
        f"Skill has changed since an owner reviewed it: {name!r}. It is not offered until an owner has looked at it "
        f"again: `antiphon skills trust {name}`.",
        code="skill_changed",
    )


def _unreadable(name: str, error: OSError) -> Invalid | Unavailable:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return invalid_skill(f"{name!r}, or the directory of skills, is a link or no folder")
    return Unavailable(
        f"Skill cannot be read: {name!r} ({error.strerror}). Check the rights to its folder.", code="skill_unusable"
    )
