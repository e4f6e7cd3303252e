"""Workspaces: the directory of each incarnation for its commands and attachments. Contract: spawn 5, sessions 6.

Files that people sent lie beside it, where sandboxed commands cannot write. Agents control the content of workspaces,
so nothing here follows a link: every step uses the descriptor of the directory above.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from itertools import count, islice
from pathlib import Path, PurePosixPath
from shutil import disk_usage

from msgspec import Struct

from antiphon.domain.attachments import MANIFEST_NAME, Attachment, receipt
from antiphon.domain.errors import AntiphonError, Conflict, Unavailable
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.listing import MAX_DEPTH, MAX_LISTED, ListedEntry, hash_of_listing
from antiphon.domain.session import Session

WORKSPACES_NAME = "workspaces"
"""The name of their directory in the home."""
RECEIVED_NAME = "received"
"""The name of the directory, beside an agent's workspaces, of files that people sent."""
HOMES_NAME = "homes"
"""The name of the directory, beside an agent's workspaces, of what harnesses keep by themselves."""
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_UNFINISHED = ".new"
"""Suffix of an unfinished file or directory."""
_DOOMED = ".old"
"""Suffix of a file or directory that is about to be removed."""
_NAME = re.compile(r"[0-9]{1,18}-[0-9]{1,18}(-[0-9]{1,18})?")
_NO_DIRECTORY = (errno.ELOOP, errno.ENOTDIR)


class Workspace(Struct, frozen=True):
    """The workspace of one incarnation of a session. Its methods block, and all may be called again."""

    directory: Path
    """Of all workspaces of the home."""
    agent_id: AgentId
    name: str

    @property
    def path(self) -> Path:
        return self.directory / self.agent_id / self.name

    @property
    def received(self) -> "Workspace":
        """The directory of what people sent to the incarnation: from its workspace, `../received/<name>`."""
        return Workspace(self.directory, self.agent_id, f"{RECEIVED_NAME}/{self.name}")

    @property
    def harness_home(self) -> "Workspace":
        """The directory that holds the HOME of the incarnation's harness within walls."""
        return Workspace(self.directory, self.agent_id, f"{HOMES_NAME}/{self.name}")

    def within(self, name: str) -> "Workspace":
        """A directory of it."""
        return Workspace(self.directory, self.agent_id, f"{self.name}/{name}")

    def find(self) -> Path | None:
        """Its path, if it exists and is ours: no link leads to another one."""
        try:
            with self.opened(makes=False):
                return self.path
        except (AntiphonError, FileNotFoundError):
            return None

    def open(self) -> Path:
        """Its path; the directory is created (0700) if it does not exist.

        Raises `Conflict` (`workspace_unsafe`) if a link or another's directory is in its place,
        `Unavailable` (`workspace_unusable`) if it cannot be created.
        """
        with self.opened():
            return self.path

    def write_attachments(self, rel_dir: str, attachments: Sequence[Attachment]) -> None:
        """Writes the files complete into `<workspace>/<rel_dir>`, beside their receipt; they survive a power cut.

        Keeps files of an earlier call if they are identical, else replaces them. Raises like `open`.
        """
        *parents, name = _parts(rel_dir)
        manifest = json.dumps(receipt(attachments, rel_dir), ensure_ascii=False, indent=1).encode()
        files = {**{file.name: file.data for file in attachments}, MANIFEST_NAME: manifest}
        with (
            self.opened() as workspace,
            walked(workspace, parents, self.path) as parent,
            _explained(self.path / rel_dir),
        ):
            unfinished, doomed = name + _UNFINISHED, name + _DOOMED
            remove_entry(parent, unfinished)
            remove_entry(parent, doomed)
            if _holds(parent, name, files):
                return
            _write_directory(parent, unfinished, files)
            with suppress(FileNotFoundError):
                os.rename(name, doomed, src_dir_fd=parent, dst_dir_fd=parent)
            os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)
            remove_entry(parent, doomed)

    def hash_listing(self) -> str | None:
        """The hash of what lies in it: names, kinds, rights, sizes and times of change. Reads no content.

        None if not all of it can be listed: it is too large or too deep, or a directory cannot be read.
        """
        try:
            with self.opened() as workspace:
                entries = list(islice(_listed(workspace), MAX_LISTED + 1))
        except (AntiphonError, OSError):
            return None
        return hash_of_listing(entries) if len(entries) <= MAX_LISTED else None

    def remove(self) -> None:
        """Removes the workspace and everything in it, but not the targets of its links."""
        *parents, name = self._parts
        home = self.directory.parent
        with (
            suppress(FileNotFoundError),
            _root(home) as root,
            walked(root, parents, home, makes=False) as parent,
            _explained(self.path),
        ):
            remove_entry(parent, name)

    @property
    def _parts(self) -> list[str]:
        """The names of the directories from the home down to it."""
        return [self.directory.name, self.agent_id, *self.name.split("/")]

    @contextmanager
    def opened(self, *, makes: bool = True) -> Generator[int]:
        """The descriptor of its directory. Raises like `open`, and `FileNotFoundError` if it makes none."""
        home = self.directory.parent
        if makes:
            with _explained(self.directory):
                home.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        with _root(home) as root, walked(root, self._parts, home, makes=makes) as workspace:
            yield workspace


class Workspaces:
    """The workspaces of one home."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def of(self, agent_id: AgentId, row: SessionRow, created_at: datetime, seq: int = 0) -> Workspace:
        """Different for each session, also for a new session with the same key, and after each reset.

        `seq` is `Session.workspace_seq`.
        """
        name = _name(row, created_at)
        return Workspace(self.directory, agent_id, f"{name}-{seq}" if seq else name)

    def of_session(self, session: Session) -> Workspace:
        """The workspace of its present incarnation."""
        return self.of(session.agent_id, session.row, session.created_at, session.workspace_seq)

    def list_of(self, agent_id: AgentId, row: SessionRow, created_at: datetime) -> list[Workspace]:
        """The existing directories of all its incarnations: workspaces, and what these received.

        Blocks, and raises like `list_all`.
        """
        name, agent = _name(row, created_at), self.directory / agent_id
        with _explained(self.directory):
            return [
                Workspace(self.directory, agent_id, str(path.relative_to(agent)))
                for path in _of_agent(agent)
                if path.name == name or path.name.startswith(f"{name}-")
            ]

    def free_bytes(self) -> int:
        """What is free on the disk on which they are. Blocks."""
        place = next(path for path in (self.directory, *self.directory.parents) if path.exists())
        return disk_usage(place).free

    def list_all(self) -> dict[Path, SessionRow]:
        """Every workspace, and what each received, with the number of its session; ignores all else in the directory.

        Blocks. Raises `Unavailable` (`workspace_unusable`) if the directory cannot be read.
        """
        found: dict[Path, SessionRow] = {}
        with _explained(self.directory):
            for agent in _directories(self.directory):
                found |= {
                    path: SessionRow(int(path.name.partition("-")[0]))
                    for path in _of_agent(agent)
                    if _NAME.fullmatch(path.name)
                }
        return found


def _name(row: SessionRow, created_at: datetime) -> str:
    return f"{row}-{int(created_at.timestamp() * 1000)}"


def _listed(directory: int) -> Iterator[ListedEntry]:
    """Everything in the directory; follows no link. Raises `OSError` for what cannot be read or is too deep."""
    walk = os.fwalk(".", follow_symlinks=False, dir_fd=directory, onerror=_raise)
    for path, directories, files, descriptor in walk:
        if path.count("/") > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "Too many directories below each other")
        for name in (*directories, *files):
            yield _listed_entry(f"{path}/{name}", name, descriptor)


def _raise(error: OSError) -> None:
    raise error


def _listed_entry(path: str, name: str, directory: int) -> ListedEntry:
    state = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(state.st_mode):
        return ListedEntry(path, state.st_mode)
    target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(state.st_mode) else ""
    return ListedEntry(path, state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns, target)


def _of_agent(directory: Path) -> list[Path]:
    """Directories of an agent's workspaces, of what these received, and of what their harnesses keep."""
    return [each for name in ("", RECEIVED_NAME, HOMES_NAME) for each in _directories(directory / name)]


def _directories(parent: Path) -> list[Path]:
    """Its directories, without links; none if it is itself a link, or does not exist."""
    if not stat.S_ISDIR(_mode_of(parent)):
        return []
    with os.scandir(parent) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _mode_of(path: Path) -> int:
    """0 for what does not exist."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _parts(rel_dir: str) -> tuple[str, ...]:
    parts = PurePosixPath(rel_dir).parts
    assert parts and not rel_dir.startswith("/") and ".." not in parts, "the caller makes the directory's name"
    return parts


@contextmanager
def _root(path: Path) -> Generator[int]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def walked(directory: int, names: Sequence[str], path: Path, *, makes: bool = True) -> Generator[int]:
    """The descriptor of the directory at the end of the path. Creates missing directories, and refuses links.

    If it makes none, it raises `FileNotFoundError` for a missing one.
    """
    current = os.dup(directory)
    try:
        for name in names:
            path = path / name
            if not makes:
                os.stat(name, dir_fd=current, follow_symlinks=False)
            with _explained(path):
                if makes:
                    _make(current, name)
                following = _open(current, name)
            os.close(current)
            current = following
            if os.fstat(current).st_uid != os.geteuid():
                raise Conflict(
                    f"Workspace is not safe: {_shown(path)!r} belongs to another user. Move it away, or give it to the "
                    "user of this process.",
                    code="workspace_unsafe",
                )
        yield current
    finally:
        os.close(current)


def _make(parent: int, name: str) -> None:
    try:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
        os.fsync(parent)
    except FileExistsError:
        pass


def _open(parent: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        # A command may have removed the rights to its own workspace.
        return open_own(parent, name)


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """Turns failures of the file system into errors that name the path and the remedy."""
    try:
        yield
    except OSError as error:
        raise _unsafe(path, error) from error


def _shown(path: Path) -> str:
    """The path below the directory of workspaces: agents read it, and do not need the host's paths."""
    *_, start = (index for index, name in enumerate(path.parts) if name == WORKSPACES_NAME or not index)
    return "/".join(path.parts[start:]) if start else path.name


def _unsafe(path: Path, error: OSError) -> Conflict | Unavailable:
    if error.errno in _NO_DIRECTORY:
        return Conflict(
            f"Workspace is not safe: {_shown(path)!r} is a link or no directory. Move it away; a directory is made in "
            "its place.",
            code="workspace_unsafe",
        )
    return Unavailable(
        f"Workspace cannot be used: {_shown(path)!r} ({error.strerror}). Give the directory to the user of this "
        "process, and check that its disk has space.",
        code="workspace_unusable",
    )


def _write_directory(parent: int, name: str, files: dict[str, bytes]) -> None:
    os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for each, data in files.items():
            _write_file(directory, each, data)
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_file(directory: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(name, flags, FILE_MODE, dir_fd=directory), "wb") as file:  # noqa: PTH123
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _holds(parent: int, name: str, files: dict[str, bytes]) -> bool:
    """Whether the directory has exactly these files."""
    try:
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return False
    try:
        return set(names_in(directory)) == files.keys() and all(
            _is_file(directory, each, data) for each, data in files.items()
        )
    finally:
        os.close(directory)


def _is_file(directory: int, name: str, data: bytes) -> bool:
    try:
        # Does not block: the path may be a pipe.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return False
    with open(descriptor, "rb") as file:  # noqa: PTH123
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size != len(data):
            return False
        return sha256(file.read(len(data) + 1)).digest() == sha256(data).digest()


def remove_entry(parent: int, name: str) -> None:
    """Removes the entry: a link without its target, a directory with everything in it.

    A tree is flattened from above while it is emptied, so that deep trees need no more stack or descriptors.
    """
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        pass
    top = open_own(parent, name)
    try:
        spare = count()
        while names := names_in(top):
            for each in names:
                _empty(top, each, spare)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(top: int, name: str, spare: Iterator[int]) -> None:
    """Removes one entry of the top directory; moves the directories in it up beside it."""
    if not _is_directory(top, name):
        os.unlink(name, dir_fd=top)
        return
    inner = open_own(top, name)
    try:
        for each in names_in(inner):
            if _is_directory(inner, each):
                os.close(open_own(inner, each))
                os.rename(each, _free_name(top, spare), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(each, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _free_name(directory: int, spare: Iterator[int]) -> str:
    """A free name in the directory. Creates nothing, because the disk being cleared may be full."""
    while True:
        name = f".{next(spare)}"
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return name


def names_in(directory: int) -> list[str]:
    """The names in the directory with this descriptor."""
    return os.listdir(directory)


def _is_directory(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def open_own(parent: int, name: str) -> int:
    """The descriptor of a directory of ours, made readable and writable for us; refuses a link.

    Keeps its other rights.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        directory = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{held}", _opened_mode(held))  # noqa: PTH101
        finally:
            os.close(held)
        directory = os.open(name, flags, dir_fd=parent)
    mode = _opened_mode(directory)
    if stat.S_IMODE(os.fstat(directory).st_mode) != mode:
        os.fchmod(directory, mode)
    return directory


def _opened_mode(directory: int) -> int:
    return stat.S_IMODE(os.fstat(directory).st_mode) | DIRECTORY_MODE
