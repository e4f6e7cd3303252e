"""The owner's token: a file in the home (0600), made at the first start. Contract: first_start 1."""

import fcntl
import hashlib
import hmac
import os
from pathlib import Path

from antiphon.domain.errors import Denied
from antiphon.domain.ids import Ids
from antiphon.private_files import open_private

OWNER_TOKEN_NAME = "owner.token"


def find_token(home: Path) -> str | None:
    """The home's token; None where it has none yet, or a blank file.

    Raises `Denied` where it cannot be read or is not ours.
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
    """What stands for the token where it need not be known itself."""
    return hashlib.sha256(token.encode()).digest()


def identity_proof(token_hash: bytes, nonce: str, host: str, port: int) -> str:
    """What only a gateway of this home can say about the nonce, good for the address that was dialled alone."""
    said = f"antiphon gateway\n{nonce}\n{host}\n{port}"
    return hmac.new(token_hash, said.encode(), hashlib.sha256).hexdigest()


def owner_token(home: Path, ids: Ids) -> str:
    """The home's token, made where there is none yet: the same one for all processes that start at the same time."""
    token = find_token(home)
    if token is not None:
        return token
    path = home / OWNER_TOKEN_NAME
    temporary = path.with_suffix(".new")
    with open(open_private(temporary, os.O_RDWR | os.O_CREAT), "w", encoding="ascii") as file:  # noqa: PTH123
        fcntl.flock(file, fcntl.LOCK_EX)
        # While we waited, another process may have made it; then our file is that very one, or one that nobody needs.
        token = find_token(home)
        if token is not None:
            temporary.unlink(missing_ok=True)
            return token
        token = f"ant_{ids.random_hex(48)}"
        os.fchmod(file.fileno(), 0o600)
        file.truncate(0)
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(path)
        return token
