"""Short forms of texts, for lists."""

PREVIEW_LENGTH = 160
DESCRIPTION_LENGTH = 80
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def one_line(text: str, length: int) -> str:
    """The text on one line, cut to `length` characters, the last three of them `...` where it was cut."""
    if len(text) <= length and text.isprintable():
        return text.strip()
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."


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
