"""What a new session's key may not contain: invisible and look-alike characters. Contract: keys 4.

Each segment is judged decoded, as its platform shows it, by Unicode TR 39 "highly restrictive": printable ASCII, and
letters, marks and digits of one script in use today, or of Latin with those of Chinese, Japanese or Korean.
Existing keys stay as they are.
"""

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from antiphon.domain.errors import Invalid
from antiphon.domain.keys import SessionKey

if TYPE_CHECKING:
    from regex import Pattern

_SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Thaana", "Devanagari", "Bengali", "Gurmukhi"),
    *("Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar"),
    *("Georgian", "Hangul", "Ethiopic", "Khmer", "Hiragana", "Katakana", "Bopomofo", "Han"),
)
"""Unicode's "recommended" scripts (UAX 31, table 5)."""
_TOGETHER = (
    ("Latin", "Han", "Hiragana", "Katakana"),
    ("Latin", "Han", "Bopomofo"),
    ("Latin", "Han", "Hangul"),
)

_SHARED = r"\x20-\x40\x5b-\x60\x7b-\x7e\p{scx=Inherited}"
"""Allowed with every script: ASCII without letters, and marks. Other signs of no script imitate those."""
_LATIN = (
    r"A-Za-z\u00c0-\u01bf\u01c4-\u024f\u1e00-\u1eff"
    r"\u0253\u0254\u0256\u0257\u0259\u025b\u0263\u0268\u0269\u0272\u0289\u028a\u028b"
)
"""The letters of languages. Other Latin letters are phonetic signs, many of which look like these."""


def check_new_key(key: SessionKey) -> None:
    """Raises `Invalid` (`invalid_key`) for a key with invisible or look-alike characters."""
    if key.value.isascii() and "%" not in key.value:
        return
    for segment in key.value.split(":"):
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError as error:
            raise _invalid("has an id that is not UTF-8", "Percent-encode the id as UTF-8") from error
        _check_segment(text)


def _check_segment(text: str) -> None:
    for character in text:
        if character.isascii() and not character.isprintable():
            raise _invalid(f"has a control character, U+{ord(character):04X}", "Leave it out")
        if unicodedata.category(character) == "Cn":  # its normal form is unknown
            raise _invalid(f"has a character from a newer Unicode version, U+{ord(character):04X}", "Leave it out")
    if text != text.strip():
        raise _invalid("has an id that begins or ends with a space", "Leave it out")
    if text.isascii():
        return
    if not unicodedata.is_normalized("NFKC", text):
        raise _invalid("has an id that is not in Unicode form NFKC", "Normalise the id first")
    if (found := _letters().search(text)) is not None:
        raise _invalid(f"has a character that is no letter, mark or digit, U+{ord(found[0]):04X}", "Leave it out")
    if not any(pattern.fullmatch(text) for pattern in _alphabets()):
        raise _invalid("mixes scripts in one id, or has one that is not in use today", "Write it in one script")
    if len({ord(each) - unicodedata.decimal(each) for each in text if each.isdecimal()}) > 1:
        raise _invalid("mixes digits of several scripts in one id", "Write them in one script")


@lru_cache(maxsize=1)
def _letters() -> "Pattern[str]":
    """Finds non-ASCII characters that are not part of words, are invisible, or are phonetic letters."""
    import regex  # only for keys that are not ASCII: it takes 30 ms

    words = rf"[\p{{XID_Continue}}--\p{{Default_Ignorable_Code_Point}}--[\p{{Latin}}--[{_LATIN}]]]"
    return regex.compile(rf"(?V1)[^\x20-\x7e{words}]")


@lru_cache(maxsize=1)
def _alphabets() -> "tuple[Pattern[str], ...]":
    import regex

    sets = (*_TOGETHER, *((script,) for script in _SCRIPTS))
    return tuple(regex.compile(f"[{_SHARED}{''.join(map(_script, names))}]+") for names in sets)


def _script(name: str) -> str:
    return rf"\p{{scx={name}}}"


def _invalid(what: str, advice: str) -> Invalid:
    return Invalid(f"Session key {what}. {advice}; existing sessions keep their keys.", code="invalid_key")
