"""Standard input and output: Unicode text in; text out in any encoding, as far as it has the characters."""

import io
import json
import re
import sys
from collections.abc import Mapping

from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonValue

NOT_UNICODE = "not_unicode"


def prepare_output() -> None:
    """Makes output replace characters that the encoding lacks, instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")


def json_text(value: Mapping[str, JsonValue], *, indent: int | None = None) -> str:
    """A document for standard output, in ASCII unless the encoding is UTF-8.

    Characters that control a terminal or change the direction of words are escaped; parsed values stay the same.
    """
    encoding = (sys.stdout.encoding or "utf-8").lower().replace("-", "").replace("_", "")
    text = json.dumps(
        value, ensure_ascii=encoding != "utf8", indent=indent, separators=(",", ":") if indent is None else None
    )
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_STEERING = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Beside the controls below U+0020, which JSON escapes anyway."""


def read_input() -> str:
    """All of standard input, with the line ends of this system and without those at its ends.

    Raises `Invalid` for what is not text.
    """
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"Standard input is not valid {error.encoding}: byte {error.object[error.start]:#04x}.", code=NOT_UNICODE
        ) from error
    check_unicode("Standard input", text)
    return text.removeprefix("\ufeff").replace("\r\n", "\n").strip("\r\n")


def check_unicode(noun: str, text: str) -> None:
    """Raises `Invalid` for a text with bytes of another encoding, or halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise not_unicode(noun, error) from error


def not_unicode(noun: str, error: UnicodeEncodeError) -> Invalid:
    """Says which character it is, and nothing else of the text."""
    found = ord(error.object[error.start])
    what = f"byte {found - 0xDC00:#04x}" if 0xDC80 <= found <= 0xDCFF else f"U+{found:04X}, half of a character"
    return Invalid(f"{noun} is not valid Unicode: character {error.start + 1} is {what}.", code=NOT_UNICODE)
