"""`gateway.json` in the home: where its gateway listens, for as long as it does.

The gateway holds a lock on the file, so that one which a crash left behind is told from a living one's.
"""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.private_files import check_private_directory, open_private
from antiphon.settings.origins import Origins

NAME = "gateway.json"


class RunningGateway(Struct, frozen=True, kw_only=True):
    url: str
    pid: int
    is_temporary: bool = False
    """It lives only as long as a command that found no other."""
    config_file: str | None = None
    """The configuration file that it read at its start."""
    config_digest: str | None = None
    """The digest of what that file said, empty without a file; None if unknown."""


@contextmanager
def published(home: Path, gateway: RunningGateway) -> Generator[bool]:
    """Tells other commands of the gateway until left; False where another one is told of already.

    With an embedded database there can be no other, since the caller has the home's lock.
    """
    path = home / NAME
    file = _take(path)
    if file is None:
        yield False
        return
    try:
        os.fchmod(file, 0o600)
        os.ftruncate(file, 0)
        os.write(file, json.dumps(asdict(gateway)).encode())
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _take(path: Path) -> int | None:
    """The file, locked; None if a living gateway has it."""
    while True:
        file = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if find_gateway(path.parent) is not None:
                return None
            continue  # somebody only looked whether it is locked
        if _is_at(path, file):
            return file
        os.close(file)  # its last owner removed it meanwhile


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def find_gateway(home: Path) -> RunningGateway | None:
    """The home's living gateway, if its file says where it is. Raises `NotPrivate` where that may be a lie."""
    try:
        file = open_private(home / NAME)
    except OSError:
        return None
    try:
        check_private_directory(home)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse(os.read(file, 4096))
    finally:
        os.close(file)
    return None


def place_of(origins: Origins) -> str | None:
    """The configuration file's full path, the same for every directory that it is named from."""
    return None if origins.file is None else str(origins.file.resolve())


def _parse(content: bytes) -> RunningGateway | None:
    try:
        return RunningGateway(**json.loads(content))
    except (ValueError, TypeError):
        return None
