"""Tables of Markdown for channels that do not show them: columns in a block of code, or a list if they are too wide.

Pure; whatever is no table stays as it was written.
"""

import re
import unicodedata
from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.code_blocks import code_blocks

_DELIMITER = re.compile(r" {0,3}(?=[^\n]*\|)\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_BAR = re.compile(r"(?<!\\)\|")
_MARKS = re.compile(r"\*\*|`|~~")
_GAP = "  "


class _Table(Struct, frozen=True):
    header: list[str]
    is_right: list[bool]
    """Of each column: whether its numbers end in line."""
    rows: list[list[str]]


def with_tables_drawn(markdown: str, widest: int) -> str:
    """The text with its tables drawn, none of whose lines is wider than that; wider ones are lists of their rows."""
    if "|" not in markdown:
        return markdown
    drawn, end = list[str](), 0
    for block in code_blocks(markdown, len(markdown) + 2):
        drawn += [
            _drawn(markdown[end : block.opening_start], widest),
            markdown[block.opening_start : block.closing_end],
        ]
        end = block.closing_end
    return "".join([*drawn, _drawn(markdown[end:], widest)])


def _drawn(text: str, widest: int) -> str:
    lines, drawn, at = text.split("\n"), list[str](), 0
    while at < len(lines):
        header, delimiter = _cells(lines[at]), lines[at + 1] if at + 1 < len(lines) else ""
        if "|" not in lines[at] or not _DELIMITER.fullmatch(delimiter) or len(_cells(delimiter)) != len(header):
            drawn.append(lines[at])
            at += 1
            continue
        end = at + 2
        while end < len(lines) and "|" in lines[end] and lines[end].strip():
            end += 1
        is_right = [cell.endswith(":") and not cell.startswith(":") for cell in _cells(delimiter)]
        rows = [_cells(line) for line in lines[at + 2 : end]]
        drawn += _lines_of(_table(header, is_right, rows), widest)
        at = end
    return "\n".join(drawn)


def _table(header: list[str], is_right: list[bool], rows: list[list[str]]) -> _Table:
    """With as many cells in each row as the longest has, so that none is lost."""
    count = max(map(len, (header, *rows)))
    filled = [row + [""] * (count - len(row)) for row in (header, *rows)]
    return _Table(filled[0], is_right + [False] * (count - len(is_right)), filled[1:])


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|")
    if bare.endswith("|") and not bare.endswith("\\|"):
        bare = bare[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(bare)]


def _lines_of(table: _Table, widest: int) -> list[str]:
    plain = [[_MARKS.sub("", cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*plain, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > widest:
        return _listed(table)
    columns = list(zip(widths, table.is_right, strict=True))
    header, *rows = (_in_columns(row, columns) for row in plain)
    rule = _GAP.join("-" * width for width in widths)
    return ["```", header, rule, *rows, "```"]


def _in_columns(row: Sequence[str], columns: Sequence[tuple[int, bool]]) -> str:
    padded = list[str]()
    for cell, (width, is_right) in zip(row, columns, strict=True):
        blanks = " " * (width - _width(cell))
        padded.append(blanks + cell if is_right else cell + blanks)
    return _GAP.join(padded).rstrip()


def _listed(table: _Table) -> list[str]:
    """A point for each row, named by its first cell; below it, each further cell with the name of its column."""
    lines = list[str]()
    for first, *others in table.rows:
        lines.append(f"• **{first}**" if first and "*" not in first else f"• {first}")
        named = zip(table.header[1:], others, strict=True)
        lines += [f"  {name}: {cell}" if name else f"  {cell}" for name, cell in named if cell]
    return lines or [" – ".join(table.header)]


def _width(text: str) -> int:
    """In columns of a monospaced script: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
