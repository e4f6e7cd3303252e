"""On which lines of a configuration file its settings stand. Contract: config 1."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyjson5
from pydantic.alias_generators import to_camel

_JSON_SUFFIXES = (".json5", ".json")
_TABLE = re.compile(r"\[(\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=")
_Names: TypeAlias = tuple[str, ...]


def is_json5(path: Path) -> bool:
    """Whether the file is JSON5, by its name; else it is TOML."""
    return path.suffix.lower() in _JSON_SUFFIXES


_JSON5_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[{}\[\],:])"""
    r"""|(?P<word>[^\s{}\[\],:"'/]+)""",
    re.DOTALL,
)


def places_in_json5(text: str) -> list[tuple[tuple[str, ...], int]]:
    """The place and line of every setting, and of every object in a list, in their order. The text is valid JSON5."""
    found: list[tuple[tuple[str, ...], int]] = []
    stack: list[str | int] = []
    last: tuple[str, int] | None = None
    line, counted = 1, 0
    for match in _JSON5_TOKEN.finditer(text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        token = match["mark"]
        if match["string"] is not None or match["word"] is not None:
            last = (match["word"] or str(pyjson5.decode(match["string"])), line)
        elif token == "{":
            if stack and isinstance(stack[-1], int):
                found.append((tuple(map(str, stack)), line))
            stack.append("")
        elif token == "[":
            stack.append(0)
        elif token == ":" and last is not None and stack and isinstance(stack[-1], str):
            stack[-1] = last[0]
            found.append((tuple(map(str, stack)), last[1]))
        elif token == "," and stack and isinstance(stack[-1], int):
            stack[-1] += 1
        elif token in ("}", "]") and stack:
            stack.pop()
    return found


class Lines:
    """The lines of one text. It is gone through once, when the first line is asked for."""

    def __init__(self, path: Path | None, text: str) -> None:
        self._is_json5 = path is not None and is_json5(path)
        self._text = text
        self._index: Mapping[_Names, int] | None = None

    def find(self, place: Sequence[str]) -> int | None:
        """The line where the setting stands, or else the nearest section around it."""
        if self._index is None:
            self._index = _index_json5(self._text) if self._is_json5 else _index_toml(self._text)
        wanted = tuple(map(_bare, place)) if self._is_json5 else tuple(place)
        found = (self._index.get(wanted[:length]) for length in range(len(wanted), 0, -1))
        return next((line for line in found if line is not None), None)


def _index_json5(text: str) -> Mapping[_Names, int]:
    index: dict[_Names, int] = {}
    try:
        places = places_in_json5(text)
    except pyjson5.Json5Exception:
        return index
    for place, line in places:
        index.setdefault(tuple(map(_bare, place)), line)
    return index


def _bare(name: str) -> str:
    """Both spellings of a setting's name as one."""
    return to_camel(name) if "_" in name else name


def _index_toml(text: str) -> Mapping[_Names, int]:
    index: dict[_Names, int] = {}
    table: _Names = ()
    numbers: dict[_Names, int] = {}
    """Of the last table of each list of tables."""
    for line, written in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(written.strip()):
            *before, last = _split_key(match[2])
            table = (*_resolved(before, numbers), last)
            if match[1]:
                index.setdefault(table, line)
                numbers[table] = number = numbers.get(table, -1) + 1
                table = (*table, str(number))
            index.setdefault(table, line)
        elif match := _KEY.match(written.strip()):
            index.setdefault((*table, *_split_key(match[1])), line)
    return index


def _resolved(names: Sequence[str], numbers: Mapping[_Names, int]) -> _Names:
    """The names of tables with the numbers of those that stand in lists: always the last one so far."""
    found: _Names = ()
    for name in names:
        found = (*found, name)
        if (number := numbers.get(found)) is not None:
            found = (*found, str(number))
    return found


def _split_key(text: str) -> _Names:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
