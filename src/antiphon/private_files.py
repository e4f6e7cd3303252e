"""Files for one user alone: created private, repaired if they are not, rejected if they belong to another user."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from antiphon.domain.errors import Denied

OTHERS = 0o077
"""Permission bits of the group and of others."""
OTHERS_WRITE = 0o022
PRIVATE_UMASK = 0o077

_starting_umask: int | None = None


class NotPrivate(Denied):
    """Another user can change the file or directory."""

    default_code = "not_private"


def restrict_umask() -> None:
    """From now on this process creates files for its own user alone; `starting_umask` returns the earlier umask."""
    global _starting_umask
    before = os.umask(PRIVATE_UMASK)
    if _starting_umask is None:
        _starting_umask = before


def starting_umask() -> int:
    """The umask for agents' commands: the one that the process started with; -1 if it was not changed."""
    return -1 if _starting_umask is None else _starting_umask


def make_private_directory(path: Path) -> None:
    """Creates the directory, or makes it ours alone (0700). Raises `NotPrivate`, `OSError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotPrivate(f"Directory is a symbolic link: {str(path)!r}. Name the directory itself.") from error
        raise
    try:
        status = os.fstat(file)
        _check_owner(path, status)
        if stat.S_IMODE(status.st_mode) & OTHERS:
            _mend(path, file, 0o700)
    finally:
        os.close(file)


def mend_files(directory: Path, *patterns: str) -> None:
    """Makes the matching files ours alone (0600). Raises `NotPrivate` for links and for another user's files."""
    for pattern in patterns:
        for path in directory.glob(pattern):
            with suppress(FileNotFoundError):
                _mend_file(path)


def _mend_file(path: Path) -> None:
    if stat.S_ISSOCK(path.lstat().st_mode):
        _check_owner(path, path.lstat())
        path.chmod(0o600)
        return
    file = _open(path, os.O_RDONLY)
    try:
        if stat.S_IMODE(os.fstat(file).st_mode) & OTHERS:
            _mend(path, file, 0o600)
    finally:
        os.close(file)


def create_private_file(path: Path) -> None:
    """Creates an empty file (0600) if none exists; files that a database creates beside it get the same permissions."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a regular file without following a link and returns its descriptor.

    Raises `OSError`, and `NotPrivate` unless the file is ours and no other user can have written it.
    """
    file = _open(path, flags)
    if stat.S_IMODE(os.fstat(file).st_mode) & OTHERS_WRITE:
        os.close(file)
        raise _writable(path)
    return file


def check_files(directory: Path, *patterns: str) -> None:
    """Raises `NotPrivate` for matching files that another user owns or can have written."""
    for pattern in patterns:
        for path in directory.glob(pattern):
            with suppress(FileNotFoundError):
                os.close(open_private(path))


def _open(path: Path, flags: int) -> int:
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if path.is_symlink():
            raise NotPrivate(
                f"File is a symbolic link: {str(path)!r}. Remove it, and start the gateway again."
            ) from error
        raise
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"File is not a regular one: {str(path)!r}. Remove it, and start the gateway again.")
        _check_owner(path, status)
    except BaseException:
        os.close(file)
        raise
    return file


def check_private_directory(path: Path) -> None:
    """Raises `NotPrivate` for a directory in which another user may create files; does nothing if it does not exist."""
    try:
        status = path.lstat()
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise NotPrivate(f"Directory is a symbolic link: {str(path)!r}. Name the directory itself.")
    _check_owner(path, status)
    if stat.S_IMODE(status.st_mode) & OTHERS_WRITE:
        raise _writable(path)


def _mend(path: Path, file: int, mode: int) -> None:
    try:
        os.fchmod(file, mode)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise
        raise NotPrivate(
            f"Rights cannot be mended: {str(path)!r} ({error.strerror}). Use another directory."
        ) from error
    if stat.S_IMODE(os.fstat(file).st_mode) & OTHERS:
        raise NotPrivate(f"File system keeps no rights: {str(path)!r} stays open to others. Use another directory.")


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)


def _foreign(path: Path, status: os.stat_result) -> NotPrivate:
    return NotPrivate(
        f"File belongs to another user: {str(path)!r} (uid {status.st_uid}, not {os.geteuid()}). "
        "Run as that user, or remove it."
    )


def _writable(path: Path) -> NotPrivate:
    return NotPrivate(
        f"File may be written by other users: {str(path)!r}. Look at what it holds, then `chmod go-w` it or remove it."
    )
