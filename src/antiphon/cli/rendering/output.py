"""What people see, in colour where the terminal has it, and JSON for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache

from rich.console import Console
from rich.text import Text

from antiphon.cli.streams import json_text
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import plain, short_age, shown_name
from antiphon.program import with_path

MIN_LAST_COLUMN = 20
MIN_COLUMN = 12


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the command, which ends well when its reader has left."""
        raise BrokenPipeError


@cache
def console() -> Console:
    return _Terminal(highlight=False, markup=False, emoji=False)


@cache
def error_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def styled(text: str, style: str = "") -> Text:
    return Text(plain(text), style)


def show(text: str = "", style: str = "") -> None:
    """A line, which is not cut or wrapped where the output is not a terminal."""
    console().print(styled(text, style), soft_wrap=True)


def tell(text: str) -> None:
    """A line for people beside what a command writes."""
    error_console().print(styled(with_path(text), "yellow"), soft_wrap=True)


def hint(text: str) -> None:
    """A line that says what to do next; its commands are the ones that work here."""
    show(with_path(text), "dim")


def show_json(value: Mapping[str, JsonValue]) -> None:
    """One compact document on a line."""
    print(json_text(value), flush=True)


def show_pretty(value: Mapping[str, JsonValue]) -> None:
    """A document for people: indented, in colour where the terminal has it."""
    text = json_text(value, indent=2)
    if console().is_terminal:
        from rich.json import JSON

        console().print(JSON(plain(text)), soft_wrap=True)
    else:
        show(text)


def show_table(columns: list[str], lines: list[list[str]], *, is_last_cut_within: bool = False) -> None:
    """Rows under headings; on a terminal, the widest columns show the ends of their cells where there is no room.

    `is_last_cut_within`: the last cell, on which people decide, shows its beginning and its end, not its beginning.
    """
    heading = [styled(name, "bold") for name in columns]
    cells = [heading, *([styled(cell) for cell in line] for line in lines)]
    show_lines(aligned(cells, cut=_middle_of if is_last_cut_within else None))


def aligned(
    rows: Sequence[Sequence[Text]],
    *,
    column: int = 0,
    room: int | None = None,
    cut: Callable[[Text, int], Text] | None = None,
) -> list[Text]:
    """A line for each row, its cells under one another; the last is cut to what the terminal has room for.

    With a room the column is no wider than that: a longer cell there moves the rest of its own row only.
    """
    cells = [[_on_one_line(cell) for cell in row] for row in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    widths[column] = widths[column] if room is None else min(widths[column], room)
    if room is None and console().is_terminal:
        for column in _narrowed(widths, console().width):
            for row in cells:
                row[column] = _end_of(row[column], widths[column])
    least = MIN_LAST_COLUMN if room is not None else MIN_LAST_COLUMN // 2
    widths[-1] = max(least, console().width - sum(widths[:-1]) - 2 * (len(widths) - 1))
    lines: list[Text] = []
    for row in cells:
        *first, last = row
        if console().is_terminal:
            last = (cut or _beginning_of)(last, widths[-1])
        for cell, width in zip(first, widths, strict=False):
            cell.pad_right(width - cell.cell_len)
        lines.append(Text("  ").join([*first, last]))
    return lines


def _narrowed(widths: list[int], room: int) -> set[int]:
    """Takes from the widest columns before the last until the room is enough; returns which became narrower."""
    found: set[int] = set()
    while sum(widths[:-1]) + 2 * (len(widths) - 1) + MIN_LAST_COLUMN > room:
        widest = max(range(len(widths) - 1), key=lambda column: (widths[column], -column))
        if widths[widest] <= MIN_COLUMN:
            break
        widths[widest] -= 1
        found.add(widest)
    return found


def _beginning_of(cell: Text, room: int) -> Text:
    cell.truncate(room, overflow="ellipsis")
    return cell


def _middle_of(cell: Text, room: int) -> Text:
    """The beginning and the end of a cell that is too long."""
    if cell.cell_len <= room:
        return cell
    end = _end_of(cell, room - room // 2)
    beginning = cell.copy()
    beginning.truncate(room // 2)
    return beginning.append_text(end)


def _end_of(cell: Text, room: int) -> Text:
    """The end of a cell that is too long; keys differ there."""
    if cell.cell_len <= room:
        return cell
    kept = len(cell)
    while cell[-kept:].cell_len > room - 1:
        kept -= 1
    return Text("…").append_text(cell[-kept:])


def show_lines(lines: Sequence[Text]) -> None:
    """Lines that are neither wrapped nor cut."""
    for line in lines:
        console().print(line, soft_wrap=True)


def _on_one_line(cell: Text) -> Text:
    return Text("", end="").join(cell.copy().split("\n")) if "\n" in cell.plain else cell.copy()


def show_fields(fields: Mapping[str, str | None]) -> None:
    """Names and values under one another; absent values are left out."""
    present = {name: value for name, value in fields.items() if value}
    width = max(map(len, present), default=0)
    for name, value in present.items():
        console().print(styled(f"{name:<{width}}  ", "dim"), styled(value), sep="", soft_wrap=True)


def ago(moment_ms: JsonValue) -> str:
    """How long ago, roughly."""
    if not isinstance(moment_ms, int):
        return ""
    seconds = datetime.now(UTC).timestamp() - moment_ms / 1000
    return "now" if seconds < 10 else f"{short_age(seconds)} ago"


def age(moment_ms: JsonValue) -> str:
    """How long ago, in a few letters."""
    if not isinstance(moment_ms, int):
        return ""
    return short_age(datetime.now(UTC).timestamp() - moment_ms / 1000)


def clock_time(moment_ms: JsonValue) -> str:
    """The local time, with the date."""
    if not isinstance(moment_ms, int):
        return ""
    return f"{datetime.fromtimestamp(moment_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def _lines(texts: list[str]) -> str:
    """The texts one under the other, no empty line between those that bring their own break."""
    shown = ""
    for text in texts:
        has_break = not shown or shown.endswith("\n") or text.startswith("\n")
        shown += text if has_break else f"\n{text}"
    return shown


def text_of(message: JsonObject) -> str:
    """The text of a transcript message, with placeholders for images."""
    shown: list[str] = []
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        match part:
            case {"type": "text", "text": str(text)}:
                shown.append(text)
            case {"type": "image"}:
                shown.append(f"[image, {part.get('mimeType')}, {part.get('bytes')} bytes]")
            case _:
                pass
    return _lines(shown)


def calls_of(message: JsonObject) -> list[str]:
    """The tool calls of a transcript message, a line each."""
    content = message.get("content")
    return [
        f"{shown_name(str(part.get('name')))} {json.dumps(part.get('arguments'), ensure_ascii=False)}"
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, dict) and part.get("type") == "toolCall"
    ]
