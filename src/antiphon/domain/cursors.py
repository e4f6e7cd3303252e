"""Cursors as clients carry them: opaque texts that name the last row they saw. Contract: list 5, history 2."""

import base64

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import SessionRow


def list_cursor(updated_at_ms: int, row: SessionRow) -> str:
    return base64.urlsafe_b64encode(f"{updated_at_ms}.{row}".encode()).decode()


def read_list_cursor(text: str) -> tuple[int, SessionRow]:
    """The `updatedAt` and row of the last session seen. Raises `Invalid`, code `invalid_cursor`."""
    try:
        updated_at_ms, row = base64.urlsafe_b64decode(text.encode()).decode().split(".")
    except ValueError as error:
        raise _bad_cursor(text) from error
    return _number(updated_at_ms, text), SessionRow(_number(row, text))


def read_seq_cursor(text: str) -> int:
    """The `seq` before which a page of history begins. Raises `Invalid`, code `invalid_cursor`."""
    return _number(text.removeprefix("seq:"), text)


def _number(digits: str, cursor: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise _bad_cursor(cursor)
    return int(digits)


def _bad_cursor(text: str) -> Invalid:
    return Invalid(f"Cursor is not valid: {text[:40]!r}. Take it from an answer, as it is.", code="invalid_cursor")
