"""What a session reads and writes in its workspace, besides by commands. Contract: foreign_agents 6, flow 8.

Agents and their commands control what lies there: nothing here follows a link, and only regular files are opened.
Every function blocks.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.attachments import MAX_SENT_BYTES, MAX_SENT_TOTAL_BYTES, Attachment, check_sent
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound, TooLarge, Unavailable
from antiphon.domain.listing import MAX_DEPTH as MAX_LISTED_DEPTH
from antiphon.domain.listing import MAX_LISTED
from antiphon.domain.session import Session
from antiphon.domain.snippet import snippet_at
from antiphon.engine.sessions.workspaces import FILE_MODE, Workspace, Workspaces, names_in, walked

MAX_READ = 48 * 1024
"""Bytes of a file that one answer shows."""
MAX_WRITTEN = 512 * 1024
"""Bytes of a file that a call may leave."""
MAX_ENTRIES = 400
MAX_MATCHES = 100
MAX_SEARCHED_FILE = 8 * 1024 * 1024
MAX_SEARCHED = 64 * 1024 * 1024
"""Bytes that a search reads; larger files, and those after so many bytes, are not searched, and counted."""
MAX_PATH = 1_000
MAX_NAME = 255
"""Bytes of a name, as file systems have it."""
MAX_DEPTH = 32
_UNFINISHED = ".unfinished-"
"""The beginning of the name of a file that is being written."""
_RECEIVED = ("..", "received")
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""Failures to use what was a regular file, or a directory, a moment ago."""


class FilePath(NamedTuple):
    """A path that a call names."""

    names: tuple[str, ...]
    """From the top of the workspace, or of what people sent."""
    is_received: bool = False
    """Whether it lies in what people sent to the session, which nobody changes."""

    @property
    def shown(self) -> str:
        return "/".join(self.names) or "."


class FoundEntry(Struct, frozen=True):
    name: str
    kind: str
    """`file`, `directory`, `link` or `other`."""
    size: int
    """Bytes of a file."""


class Page(Struct, frozen=True):
    """A part of a text file."""

    text: str
    size: int
    """Bytes of the whole file."""
    next_offset: int | None
    """Where the next part begins; None if this is the last."""


class FileMatch(Struct, frozen=True):
    path: str
    line: int | None = None
    """From 1; None if the name of the file matches."""
    text: str = ""


class Matches(Struct, frozen=True):
    found: Sequence[FileMatch]
    skipped: int
    """Files that were not searched: too large, no text, or beyond what a search reads."""
    has_more: bool


def read_path(text: str, workspace: Workspace) -> FilePath:
    """The path that a call names. Raises `Invalid` (`invalid_path`) and `NotFound`."""
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if text.startswith(("/", "~")):
        raise _invalid(text, "begin at the workspace, without '/'")
    if any(not character.isprintable() for character in text):
        raise _invalid(text, "no control characters")
    if len(text) > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in parts):
        raise _invalid(text, f"a name has at most {MAX_NAME} bytes, a path {MAX_PATH} characters")
    is_received = parts[:2] == _RECEIVED
    if is_received:
        if parts[2:3] != (workspace.received.path.name,):
            raise _missing(text)
        parts = parts[3:]
    if ".." in parts:
        raise _invalid(text, "no '..'")
    if len(parts) > MAX_DEPTH:
        raise _invalid(text, f"at most {MAX_DEPTH} directories below each other")
    return FilePath(parts, is_received)


def list_directory(workspace: Workspace, path: FilePath, offset: int) -> tuple[list[FoundEntry], int | None]:
    """The entries from `offset` on, by name, and where the next ones begin. Raises `NotFound`, `Conflict`."""
    with _explained(path), _directory(workspace, path.names, path) as directory:
        names = sorted(name for name in names_in(directory) if not name.startswith(_UNFINISHED))
        shown = [_entry(directory, name) for name in names[offset : offset + MAX_ENTRIES]]
    end = offset + MAX_ENTRIES
    return [entry for entry in shown if entry is not None], end if len(names) > end else None


def read_file(workspace: Workspace, path: FilePath, offset: int, most_bytes: int = MAX_READ) -> Page:
    """At most so many bytes of it.

    Raises `NotFound`, `Conflict` (`no_file`) for what is no regular file, `Invalid` (`not_text`).
    """
    with (
        _explained(path),
        _parent(workspace, path) as (directory, name),
        _regular(directory, name, path) as descriptor,
    ):
        size = os.fstat(descriptor).st_size
        if offset > size:
            raise Invalid(f"File ends before that offset: {size} bytes.", code="invalid_arguments")
        data = os.pread(descriptor, most_bytes + 4, offset)
    text, used = _decoded(data, path, most_bytes, is_rest=offset > 0)
    end = offset + used
    return Page(text, size, end if end < size else None)


def read_whole(workspace: Workspace, path: FilePath, most_bytes: int) -> bytes:
    """All of its bytes, whatever they are.

    Raises `NotFound`, `Conflict` (`no_file`), `TooLarge` (`attachment_too_large`) for more than so many.
    """
    with (
        _explained(path),
        _parent(workspace, path) as (directory, name),
        _regular(directory, name, path) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            size = max(os.fstat(descriptor).st_size, len(data))
            raise TooLarge(
                f"File is too large: {path.shown[:200]!r} has {size} bytes, at most {most_bytes}. Send a part of it.",
                code="attachment_too_large",
            )
    return data


def read_sent(workspaces: Workspaces, session: Session, paths: Sequence[str]) -> tuple[Attachment, ...]:
    """The files that a call sends out of the session, checked.

    Raises as `read_path`, `read_whole` and `check_sent` do.
    """
    workspace, left = workspaces.of_session(session), MAX_SENT_TOTAL_BYTES
    found: list[tuple[str, bytes]] = []
    for text in paths:
        path = read_path(text, workspace)
        found.append((path.names[-1] if path.names else "", read_whole(workspace, path, MAX_SENT_BYTES)))
        left -= len(found[-1][1])
        if left < 0:
            break
    return check_sent(found)


def write_file(workspace: Workspace, path: FilePath, text: str, most_bytes: int) -> int:
    """Writes the whole file, or nothing: others see the old one or the new one. Answers its bytes.

    Missing directories are made. A script stays executable. `most_bytes` is what the workspace may hold.
    """
    if path.is_received:
        raise Denied("Files that people sent are not changed. Write a copy into the workspace.", code="read_only")
    if not path.names:
        raise _invalid("", "name a file")
    data = text.encode()
    if len(data) > MAX_WRITTEN:
        raise TooLarge(f"File may have {MAX_WRITTEN // 1024} KiB at most; write several.", code="file_too_large")
    with _explained(path), workspace.opened() as top:
        _refuse_full(top, len(data), most_bytes)
        try:
            with walked(top, path.names[:-1], workspace.path) as parent:
                _replace(parent, path.names[-1], data, path)
        except Conflict as error:
            raise (_not_walked(path) if error.code == "workspace_unsafe" else error) from None
    return len(data)


def search(workspace: Workspace, path: FilePath, query: str) -> Matches:
    """Lines that hold the words, ignoring case, and files whose name does. Raises `NotFound`."""
    found: list[FileMatch] = []
    skipped, left, words = 0, MAX_SEARCHED, query.casefold()
    with _explained(path), _directory(workspace, path.names, path) as top:
        for shown, directory, name in _files(top):
            whole = "/".join((*path.names, shown))
            if words in name.casefold():
                found.append(FileMatch(whole))
            text = _searched(directory, name, left)
            if text is None:
                skipped += 1
                continue
            left -= len(text)
            found += islice(_lines(whole, text, words), MAX_MATCHES + 1)
            if len(found) > MAX_MATCHES:
                return Matches(found[:MAX_MATCHES], skipped, has_more=True)
    return Matches(found, skipped, has_more=False)


def _lines(path: str, text: str, words: str) -> Iterator[FileMatch]:
    for number, line in enumerate(text.split("\n"), 1):
        at = line.casefold().find(words)
        if at >= 0:
            yield FileMatch(path, number, snippet_at(line, at))


def _searched(directory: int, name: str, left: int) -> str | None:
    """The text of the file; None if it is not searched."""
    try:
        with _regular(directory, name, FilePath((name,))) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > min(MAX_SEARCHED_FILE, left):
                return None
            data = os.pread(descriptor, size, 0)
    except (Conflict, NotFound, OSError):
        return None
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _files(top: int) -> Iterator[tuple[str, int, str]]:
    """The files below the directory, by path: the path, the descriptor of the directory that holds it, its name."""
    walk = os.fwalk(".", follow_symlinks=False, dir_fd=top)
    seen = 0
    for path, directories, files, descriptor in walk:
        directories.sort()
        if path.count("/") > MAX_DEPTH:
            directories.clear()
        for name in sorted(files):
            seen += 1
            if seen > MAX_LISTED:
                return
            if not name.startswith(_UNFINISHED) and _kind_of(descriptor, name) == "file":
                yield shown_name(f"{path}/{name}".removeprefix("./")), descriptor, name


def shown_name(name: str) -> str:
    """With `?` for bytes that are no text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\ufffd", "?")


def _kind_of(directory: int, name: str) -> str:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        return "other"
    return _kind(mode)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _entry(directory: int, name: str) -> FoundEntry | None:
    """None for what has just gone."""
    try:
        state = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    kind = _kind(state.st_mode)
    return FoundEntry(shown_name(name), kind, state.st_size if kind == "file" else 0)


@contextmanager
def _directory(workspace: Workspace, names: Sequence[str], path: FilePath) -> Generator[int]:
    """The descriptor of an existing directory. Raises `NotFound`, `Conflict` for a link and for what is none."""
    top = workspace.received if path.is_received else workspace
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(top.opened(makes=not path.is_received))
            directory = stack.enter_context(walked(opened, names, top.path, makes=False))
        except FileNotFoundError:
            raise _missing(path.shown) from None
        except Conflict as error:
            raise (_not_walked(path) if error.code == "workspace_unsafe" else error) from None
        yield directory


@contextmanager
def _explained(path: FilePath) -> Generator[None]:
    """Turns failures of the file system, such as of what a command changes meanwhile, into errors with a remedy."""
    try:
        yield
    except FileNotFoundError:
        raise _missing(path.shown) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_walked(path) from None
        raise Unavailable(
            f"File cannot be used: {path.shown[:200]!r} ({error.strerror}). Check its rights, and that its disk has "
            "space.",
            code="workspace_unusable",
        ) from error


@contextmanager
def _parent(workspace: Workspace, path: FilePath) -> Generator[tuple[int, str]]:
    if not path.names:
        raise _no_file(path, "directory")
    with _directory(workspace, path.names[:-1], path) as directory:
        yield directory, path.names[-1]


@contextmanager
def _regular(directory: int, name: str, path: FilePath) -> Generator[int]:
    """The descriptor of a regular file. A pipe or a device is not even opened."""
    try:
        kind = _kind(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        if kind != "file":
            raise _no_file(path, kind)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        raise _missing(path.shown) from None
    except PermissionError:
        raise Conflict(
            f"File cannot be read: {path.shown[:200]!r}. Its rights do not allow it.", code="no_file"
        ) from None
    try:
        if _kind(os.fstat(descriptor).st_mode) != "file":
            raise _no_file(path, "other")
        yield descriptor
    finally:
        os.close(descriptor)


def _decoded(data: bytes, path: FilePath, most_bytes: int, *, is_rest: bool) -> tuple[str, int]:
    """The text of the first bytes, cut between characters, and how many bytes it is."""
    # An offset within a character begins with the next one.
    start = next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0) if is_rest else 0
    cut = data[start:most_bytes]
    for less in range(4):
        end = len(cut) - less
        try:
            text = cut[:end].decode()
        except UnicodeDecodeError:
            if len(data) <= most_bytes:
                break
            continue
        if "\0" in text:
            break
        return text, start + end
    raise Invalid(f"File is no text: {path.shown[:200]!r}. Only UTF-8 can be read.", code="not_text")


def _refuse_full(top: int, more: int, most_bytes: int) -> None:
    """Commands may change what is there meanwhile: what has just gone takes no room."""
    count, size = 0, more
    for path, directories, files, descriptor in os.fwalk(".", follow_symlinks=False, dir_fd=top):
        count += len(directories) + len(files)
        if count > MAX_LISTED or path.count("/") > MAX_LISTED_DEPTH:
            raise _full(most_bytes)
        for name in files:
            with suppress(OSError):
                size += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        if size > most_bytes:
            raise _full(most_bytes)


def _full(most_bytes: int) -> Conflict:
    return Conflict(
        f"Workspace is full: it may hold {most_bytes // 2**20} MiB and {MAX_LISTED} files, and directories "
        f"{MAX_LISTED_DEPTH} below each other. Remove some with a command, or begin a new session.",
        code="workspace_full",
    )


def _replace(parent: int, name: str, data: bytes, path: FilePath) -> None:
    mode = FILE_MODE
    with suppress(FileNotFoundError):
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode):
            raise _no_file(path, _kind(state.st_mode))
        mode = stat.S_IMODE(state.st_mode) & 0o777 | FILE_MODE
    unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(unfinished, flags, mode, dir_fd=parent), "wb") as file:  # noqa: PTH123
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        raise _no_file(path, "directory") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=parent)
    os.fsync(parent)


def _invalid(path: str, rule: str) -> Invalid:
    return Invalid(f"Path cannot be used: {path[:200]!r}; {rule}.", code="invalid_path")


def _missing(path: str) -> NotFound:
    return NotFound(f"File not found: {path[:200]!r}. The action 'list' of `files` shows what is there.")


def _not_walked(path: FilePath) -> Conflict:
    return Conflict(
        f"File cannot be used: a part of {path.shown[:200]!r} is a link, or no directory of this session.",
        code="no_file",
    )


def _no_file(path: FilePath, kind: str) -> Conflict:
    said = {"link": "is a link, which is not followed", "directory": "is a directory; 'list' shows what is in it"}
    return Conflict(
        f"File cannot be used: {path.shown[:200]!r} {said.get(kind, 'is no regular file')}.", code="no_file"
    )
