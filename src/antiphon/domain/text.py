"""Forms of texts for lists and sentences: short, on one line, and without what steers how others are shown."""

import re
from unicodedata import category, normalize

PREVIEW_LENGTH = 160
DESCRIPTION_LENGTH = 80
_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""What steers a terminal, or turns the direction of what follows."""
_CONTROLS = re.compile(f"[{_STEERING}]")
_CONTROLS_AND_BREAKS = re.compile(f"[{_STEERING}\t\n\u2028\u2029]")
LONGEST_NAME = 80
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f")
"""Characters that look like nothing, and are letters or marks."""
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def plain(text: str) -> str:
    """The text without what would steer a terminal or turn the direction of words; models and other people write it."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def isolated(text: str) -> str:
    """The text as a part of a sentence whose other words keep their order, whichever way it is read."""
    return f"\N{FIRST STRONG ISOLATE}{plain(text)}\N{POP DIRECTIONAL ISOLATE}"


def one_line(text: str, length: int) -> str:
    """The text on one line, cut to `length` characters, the last three of them `...` where it was cut."""
    if len(text) <= length and text.isprintable():
        return text.strip()
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."


def has_controls(text: str) -> bool:
    """Whether something in it breaks lines, steers a terminal or turns the direction of what follows."""
    return _CONTROLS_AND_BREAKS.search(text) is not None


def flat(text: str) -> str:
    """The whole text on one line: control characters and runs of blanks are one blank."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROLS_AND_BREAKS.sub(" ", text).split())


def bracketed_name(name: str) -> str:
    """A person's name as it stands in brackets before what they say: one line, no brackets, nothing invisible."""
    seen = "".join(map(_seen, normalize("NFC", name[: 8 * LONGEST_NAME])))
    return " ".join(seen.split())[:LONGEST_NAME].strip() or "somebody"


def _seen(character: str) -> str:
    kind = category(character)
    if character in _BLANK_LETTERS or "\ufe00" <= character <= "\ufe0f":
        return ""
    match kind:
        case "Ps":
            return "("
        case "Pe":
            return ")"
        case "Zl" | "Zp" | "Zs" | "Cc":
            return " " if character.isspace() else ""
        case "Cf" | "Cs" | "Co" | "Cn":
            return ""
        case _:
            return character


def compact(count: int) -> str:
    """The number in at most five letters: 950, 1.2k, 34k, 5.6M."""
    value = float(count)
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.1f}G"


def short_age(seconds: float) -> str:
    """A length of time in a few letters: 12 s, 3 min, 2 h, 5 d."""
    whole = max(0, int(seconds))
    for unit, size in _UNITS:
        if count := whole // size:
            return f"{count} {unit}"
    return f"{whole} s"
