"""Texts for lists and sentences: short, on one line, without characters that affect how other text is shown."""

import re
from unicodedata import category, normalize

from antiphon.domain.invisible import is_invisible

PREVIEW_LENGTH = 160
DESCRIPTION_LENGTH = 80
_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""Characters that control a terminal or change the direction of the following text."""
_CONTROLS = re.compile(f"[{_STEERING}]")
_CONTROLS_AND_BREAKS = re.compile(f"[{_STEERING}\t\n\u2028\u2029]")
LONGEST_NAME = 80
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def plain(text: str) -> str:
    """Removes characters that control a terminal or change text direction; models and other people write the text."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def exact(text: str) -> str:
    """The text with each character that is invisible, or that affects how others are shown, as its JSON escape.

    For texts on which people decide: nothing in them hides, and no two of them look alike by such characters.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_exact(character) for character in text)


def _exact(character: str) -> str:
    if character == "\n" or not is_invisible(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def cut_in_middle(text: str, length: int) -> str:
    """At most `length` characters, from beginning and end: nothing hides behind a long beginning."""
    if len(text) <= length:
        return text
    last = (length - 1) // 2
    return f"{text[: length - 1 - last]}…{text[len(text) - last :]}"


def shown_name(name: str) -> str:
    """A name that others chose, in a text on which people decide: on one line, nothing in it invisible."""
    return cut_in_middle(exact(flat(name[: 8 * LONGEST_NAME])), 2 * LONGEST_NAME)


def isolated(text: str) -> str:
    """The text as part of a sentence, isolated so that the other words keep their order in either direction."""
    return f"\N{FIRST STRONG ISOLATE}{plain(text)}\N{POP DIRECTIONAL ISOLATE}"


def one_line(text: str, length: int) -> str:
    """The text on one line, cut to `length` characters; a cut text ends with `...`."""
    if len(text) <= length and text.isprintable():
        return text.strip()
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."


def has_controls(text: str) -> bool:
    """Whether the text breaks lines, controls a terminal or changes text direction."""
    return _CONTROLS_AND_BREAKS.search(text) is not None


def flat(text: str) -> str:
    """The whole text on one line: each run of control characters and blanks becomes one blank."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROLS_AND_BREAKS.sub(" ", text).split())


def bracketed_name(name: str) -> str:
    """A person's name for the brackets before their words: one line, no brackets, nothing invisible."""
    seen = "".join(map(_seen, normalize("NFC", name[: 8 * LONGEST_NAME])))
    return " ".join(seen.split())[:LONGEST_NAME].strip() or "somebody"


def _seen(character: str) -> str:
    kind = category(character)
    match kind:
        case "Ps":
            return "("
        case "Pe":
            return ")"
        case "Zl" | "Zp" | "Zs" | "Cc":
            return " " if character.isspace() else ""
        case _:
            return "" if is_invisible(character) else character


def compact(count: int) -> str:
    """The number in at most five letters: 950, 1.2k, 34k, 5.6M."""
    value = float(count)
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.1f}G"


def short_age(seconds: float) -> str:
    """A duration in a few letters: 12 s, 3 min, 2 h, 5 d."""
    whole = max(0, int(seconds))
    for unit, size in _UNITS:
        if count := whole // size:
            return f"{count} {unit}"
    return f"{whole} s"
