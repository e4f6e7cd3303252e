"""The file of seals: a line for each, outside the home. Contract: flow 12."""

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from msgspec import DecodeError, Struct, ValidationError, convert
from msgspec.json import decode, encode

from antiphon.domain.audit import KeptSeal
from antiphon.domain.errors import Invalid
from antiphon.private_files import open_private

TAIL_BYTES = 512 * 1024
"""The end of the file that is read; some thousand seals."""


class SealLine(Struct, frozen=True, kw_only=True):
    """A line of the file."""

    home: str
    """Names the home; tells nothing about its key."""
    n: int
    at: str
    hash: str


def refuse_seal_place(home: Path, path: Path | None) -> None:
    """Raises `Invalid` for a file in the home, which whoever changes the home can change with it."""
    if path is not None and path.resolve().is_relative_to(home.resolve()):
        raise Invalid(
            f"Setting audit.seal_to names a file in the home: {str(path)!r}. Name one outside of it, best on another "
            "disk or machine.",
            code="seal_in_home",
        )


def seal_line(home: str, n: int, at: datetime, hash: bytes) -> bytes:
    """The line of a seal; `home` names the home."""
    return encode(SealLine(home=home, n=n, at=at.isoformat(), hash=hash.hex())) + b"\n"


def read_seals(lines: Iterable[bytes]) -> list[KeptSeal]:
    """The seals of the lines, without a line that was cut off when the machine lost power.

    Raises `Invalid` for lines of which none is a seal.
    """
    seals: list[KeptSeal] = []
    has_other = False
    for line in lines:
        try:
            read = convert(decode(line), SealLine)
            seals.append(KeptSeal(read.home, read.n, bytes.fromhex(read.hash)))
        except (DecodeError, ValidationError, ValueError):
            has_other = True
    if has_other and not seals:
        raise Invalid(
            "File is not one of seals: no line of it can be read. Name the file of audit.seal_to.",
            code="seals_unreadable",
        )
    return seals


def append_seals(path: Path, lines: bytes) -> bool:
    """Adds the lines to the file, ours alone; returns whether it was empty or did not exist.

    Raises `OSError`, and `NotPrivate` for a file that others can write.
    """
    file = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(file).st_size
        if lines and size and not _ends_line(path, size):
            lines = b"\n" + lines  # a line was cut off when the machine lost power
        os.write(file, lines)
        os.fsync(file)
    finally:
        os.close(file)
    return size == 0


def _ends_line(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def last_lines(path: Path) -> list[bytes]:
    """The last lines of the file; none of a file that does not exist. Raises `OSError`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return lines[1:] if size > TAIL_BYTES else lines
