"""Short forms of texts, for lists."""

PREVIEW_LENGTH = 160
DESCRIPTION_LENGTH = 80


def one_line(text: str, length: int) -> str:
    """The text on one line, cut to `length` characters, the last three of them `...` where it was cut."""
    if len(text) <= length and text.isprintable():
        return text.strip()
    line = " ".join(text[: 8 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."
