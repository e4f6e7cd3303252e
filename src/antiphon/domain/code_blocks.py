"""The blocks of code in a Markdown text."""

import re
from collections.abc import Iterator

from msgspec import Struct

_LINE = re.compile(r"[^\n]*\n?")
_OPENING = re.compile(r" {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)\n?$")


class CodeBlock(Struct, frozen=True):
    """A block of code: where its lines begin and end."""

    opening_start: int
    start: int
    """Of its content."""
    end: int
    closing_end: int
    opening: str
    closing: str


def code_blocks(text: str, longest_line: int) -> Iterator[CodeBlock]:
    """In order. One that is not closed lasts to the end; a line of so many characters opens none."""
    opened: tuple[int, int, str, str] | None = None
    for match in _LINE.finditer(text):
        line = match.group()
        if not line:
            break
        if opened is None:
            found = _OPENING.match(line)
            if found and len(line) < longest_line:
                opened = (match.start(), match.end(), line if line.endswith("\n") else f"{line}\n", found.group(1))
            continue
        opening_start, start, opening, marker = opened
        bare = line.strip()
        if len(bare) >= len(marker) and not bare.strip(marker[0]) and len(line) - len(line.lstrip(" ")) <= 3:
            yield CodeBlock(opening_start, start, match.start(), match.end(), opening, marker)
            opened = None
    if opened is not None:
        opening_start, start, opening, marker = opened
        yield CodeBlock(opening_start, start, len(text), len(text), opening, marker)
