"""Codes that people read aloud and type: 8 characters without those that look alike. Contract: access 3."""

import re

LENGTH = 8
RANDOM_DIGITS = 10
"""Hexadecimal digits from which a code is made."""
_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""32 characters: digits and letters without 0, O, 1 and I."""
_CODE = re.compile(f"[{_ALPHABET}]{{{LENGTH}}}")
_CODE_IN_TEXT = re.compile(rf"\b{_CODE.pattern}\b")
_HIDDEN = "*" * LENGTH


def code_from_hex(random: str) -> str:
    """The code of these random digits; different digits give different codes."""
    number = int(random[:RANDOM_DIGITS], 16)
    return "".join(_ALPHABET[number >> (5 * place) & 31] for place in reversed(range(LENGTH)))


def parse_code(text: str) -> str | None:
    """The code as somebody typed it, in any case and with blanks or dashes; None for anything else."""
    code = re.sub(r"[\s-]", "", text[:64]).upper()
    return code if _CODE.fullmatch(code) else None


def without_codes(text: str) -> str:
    """The text with stars for all that could be a code: whoever has one may use it."""
    return _CODE_IN_TEXT.sub(_HIDDEN, text)
