"""Adds the section of a channel to a configuration file and removes it; all else in the file stays as it is written."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from antiphon.domain.errors import Conflict, NotFound
from antiphon.settings.lines import is_json5

Value = str | bool | int
_HEADER: Final = re.compile(r"\s*\[\[?\s*(?P<names>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def section_text(place: Sequence[str], settings: Mapping[str, Value]) -> str:
    """The section as TOML."""
    header = ".".join(name if _BARE.fullmatch(name) else _quoted(name) for name in place)
    return "".join((f"[{header}]\n", *(f"{name} = {_written(value)}\n" for name, value in settings.items())))


def with_section(text: str, file: Path, place: Sequence[str], settings: Mapping[str, Value]) -> str:
    """The file's text with the section at its end. Raises `Conflict` where it must be written by hand."""
    section = section_text(place, settings)
    _refuse_json5(file, "Write this into it, as JSON5", section)
    made = f"{text.rstrip()}\n\n{section}" if text.strip() else section
    wanted = _tree(text)
    inner = wanted
    for name in place:
        inner = _table(inner.setdefault(name, {}))
    inner.update(settings)
    if _tree_or_none(made) != wanted:
        raise Conflict(
            f"Section cannot be added at the end of {str(file)!r}, because the file names it already in another form. "
            f"Write it there yourself:\n{section}",
            code="config_by_hand",
        )
    return made


def without_section(text: str, file: Path, place: Sequence[str]) -> str:
    """The file's text without the section and all below it. Raises `Conflict`, `NotFound`."""
    named = ".".join(place)
    _refuse_json5(file, f"Remove {named} there", "")
    wanted = _tree(text)
    inner = wanted
    for name in place[:-1]:
        inner = _table(inner.get(name))
    if place[-1] not in inner:
        raise NotFound(f"Section not found: {named!r} is not in {str(file)!r}. A variable may set it.")
    del inner[place[-1]]
    made = _cut(text, place)
    if _without_empty(_tree_or_none(made)) != _without_empty(wanted):
        raise Conflict(
            f"Section cannot be removed from {str(file)!r} as a whole, because its settings stand apart. "
            f"Remove all lines of {named} there yourself.",
            code="config_by_hand",
        )
    return made


def _cut(text: str, place: Sequence[str]) -> str:
    """Without the tables at the place and below, and the comments right above each."""
    kept: list[str] = []
    is_cut = False
    for line in text.splitlines(keepends=True):
        if match := _HEADER.match(line):
            was_cut, is_cut = is_cut, _names(match["names"])[: len(place)] == [*place]
            if is_cut and not was_cut:
                while kept and kept[-1].lstrip().startswith("#"):
                    kept.pop()
        elif is_cut and line.startswith("#"):
            is_cut = False  # a comment at the margin, which belongs to what follows
        if not is_cut:
            kept.append(line)
    return "".join(kept).rstrip() + "\n" if "".join(kept).strip() else ""


def _names(header: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", header)]


def _refuse_json5(file: Path, what: str, section: str) -> None:
    if is_json5(file):
        said = f"Configuration is JSON5, which only people change: {str(file)!r}. {what}"
        raise Conflict(f"{said}:\n{section}" if section else f"{said}.", code="config_by_hand")


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _tree(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def _tree_or_none(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _without_empty(tree: Any) -> Any:
    """Without tables that hold nothing, which a table's header can leave behind."""
    if not isinstance(tree, dict):
        return tree
    inner = {name: _without_empty(value) for name, value in cast("dict[str, Any]", tree).items()}
    return {name: value for name, value in inner.items() if value != {}}


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _quoted(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(f"\\u{ord(each):04x}" if ord(each) < 32 or ord(each) == 127 else each for each in escaped) + '"'
    )
