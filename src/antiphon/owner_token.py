"""The owner's token: a file in the home (0600), created at the first start. Contract: first_start 1.

The database holds its hash and decides (`engine/access/ownership`); programs of the home present the file's content.
"""

import fcntl
import hashlib
import hmac
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from antiphon.domain.errors import Denied
from antiphon.domain.ids import Ids
from antiphon.domain.tokens import OWNER_PREFIX
from antiphon.private_files import open_private

OWNER_TOKEN_NAME = "owner.token"


def find_token(home: Path) -> str | None:
    """The home's token; None if the file does not exist or is blank.

    Raises `Denied` if the file cannot be read or is not ours.
    """
    path = home / OWNER_TOKEN_NAME
    try:
        with open(open_private(path), encoding="ascii") as file:  # noqa: PTH123
            return file.read(1000).strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"Owner's token cannot be read: {str(path)!r} ({error.strerror})", code="token_missing") from error
    except UnicodeDecodeError as error:
        raise Denied(
            f"Owner's token is not text: {str(path)!r}. Remove the file; the next start makes a new one.",
            code="token_missing",
        ) from error


def token_hash(token: str) -> bytes:
    """The hash that replaces the token where the token itself is not needed."""
    return hashlib.sha256(token.encode()).digest()


def identity_proof(token_hash: bytes, nonce: str, host: str, port: int) -> str:
    """A proof about the nonce that only a gateway of this home can give; valid for the dialled address alone."""
    said = f"antiphon gateway\n{nonce}\n{host}\n{port}"
    return hmac.new(token_hash, said.encode(), hashlib.sha256).hexdigest()


def owner_token(home: Path, ids: Ids) -> str:
    """The home's token, created if it does not exist: the same for all processes that start at the same time."""
    token = find_token(home)
    if token is not None:
        return token
    with _locked(home) as file:
        # Another process may have created it while we waited; then our file is that token, or nobody needs ours.
        token = find_token(home)
        if token is not None:
            _new_path(home).unlink(missing_ok=True)
            return token
        token = _new_token(ids)
        _write(file, token)
        _new_path(home).replace(home / OWNER_TOKEN_NAME)
        return token


class NextToken:
    """A token that will replace the home's."""

    def __init__(self, home: Path, token: str) -> None:
        self._home = home
        self.token = token

    def keep(self) -> Path:
        """Moves it into place atomically; returns its path."""
        path = self._home / OWNER_TOKEN_NAME
        _new_path(self._home).replace(path)
        return path


@contextmanager
def next_token(home: Path, ids: Ids) -> Generator[NextToken]:
    """A new token, stored beside the home's; meanwhile other processes that want to create one wait.

    If a process dies before `keep` and the database has the new token, `finish_replacing` completes the change.
    """
    with _locked(home) as file:
        token = _new_token(ids)
        _write(file, token)
        yield NextToken(home, token)


def finish_replacing(home: Path, is_known: Callable[[str], bool]) -> str | None:
    """Moves a new token that a crash left behind into place if it `is_known` as the owner's, and returns it."""
    path = _new_path(home)
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not token or not is_known(token):
        return None
    path.replace(home / OWNER_TOKEN_NAME)
    return token


@contextmanager
def _locked(home: Path) -> Generator[IO[str]]:
    """Opens the file in which a token is prepared; one process has it at a time."""
    path = _new_path(home)
    while True:
        with open(open_private(path, os.O_RDWR | os.O_CREAT), "w", encoding="ascii") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(path, file):
                continue  # the previous holder moved it into place
            yield file
            return


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _new_path(home: Path) -> Path:
    return (home / OWNER_TOKEN_NAME).with_suffix(".new")


def _new_token(ids: Ids) -> str:
    return f"{OWNER_PREFIX}_{ids.random_hex(48)}"


def _write(file: IO[str], token: str) -> None:
    os.fchmod(file.fileno(), 0o600)
    file.truncate(0)
    file.write(token + "\n")
    file.flush()
    os.fsync(file.fileno())
