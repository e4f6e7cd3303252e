"""Reads configuration files, TOML or JSON5, and finds the line of a setting in them. Contract: config 1."""

import codecs
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyjson5
from pydantic.alias_generators import to_camel

from antiphon.domain.errors import Invalid

TOML_NAME = "antiphon.toml"
JSON5_NAME = "antiphon.json5"
_JSON_SUFFIXES = (".json5", ".json")
_BYTE_ORDER_MARK = "\ufeff"


def file_in(home: Path) -> Path | None:
    """The home's own configuration file, if there is one. Raises `Invalid` for two."""
    found = [path for name in (TOML_NAME, JSON5_NAME) if (path := home / name).is_file()]
    if len(found) > 1:
        raise Invalid(
            f"Configuration exists twice: {str(found[0])!r} and {str(found[1])!r}. Remove one of them.",
            code="invalid_config",
        )
    return found[0] if found else None


def read_file(path: Path) -> tuple[dict[str, Any], str]:
    """The settings as a tree, and the text they were read from. Raises `Invalid` that names the line."""
    text = _text_of(path)
    return (_read_json5(path, text) if is_json5(path) else _read_toml(path, text)), text


def _text_of(path: Path) -> str:
    """The file's text; the mark that Windows' editors put before UTF-8 is no part of it."""
    data = path.read_bytes()
    where = f"Configuration is not UTF-8: {str(path)!r}"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data:
        raise Invalid(f"{where} looks like UTF-16. Save it as UTF-8.", code="invalid_config")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        said = f"{where}, line {line}: byte 0x{error.object[error.start]:02X} belongs to another encoding."
        raise Invalid(f"{said} Save the whole file as UTF-8.", code="invalid_config") from error
    if _BYTE_ORDER_MARK in text:
        line = text.count("\n", 0, text.index(_BYTE_ORDER_MARK)) + 1
        raise Invalid(
            f"Configuration {str(path)!r}, line {line}: an invisible byte order mark (U+FEFF) stands there, as between "
            "two files that were joined. Remove it.",
            code="invalid_config",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def line_in(path: Path | None, text: str, place: Sequence[str]) -> int | None:
    """The line where the setting stands, or else the nearest section around it."""
    if path is not None and is_json5(path):
        return _json5_line(text, place)
    return toml_line(text, place)


def is_json5(path: Path) -> bool:
    """Whether the file is JSON5, by its name; else it is TOML."""
    return path.suffix.lower() in _JSON_SUFFIXES


def _read_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = f"Configuration is not TOML: {str(path)!r}: {error}."
        raise Invalid(f"{said}{_remedy_of_repeated(str(error))}", code="invalid_config") from error


def _remedy_of_repeated(problem: str) -> str:
    """For a table that is declared twice; tomllib tells its names as a tuple."""
    match = re.match(r"Cannot declare \((.+?),?\) twice", problem)
    if match is None:
        return ""
    header = ".".join(name[1:-1] for name in match[1].split(", "))
    return f" Keep only one [{header}], and put all its settings there."


def _read_json5(path: Path, text: str) -> dict[str, Any]:
    try:
        tree: object = pyjson5.decode(text)
    except pyjson5.Json5Exception as error:
        # Its other arguments hold what was read so far, secrets among it.
        said = str(error.args[0]).replace("b'", "'") if error.args else "it cannot be read"
        position = re.search(r"near (\d+)", said)
        line = f", line {text.count(chr(10), 0, int(position[1])) + 1}" if position else ""
        raise Invalid(f"Configuration is not JSON5: {str(path)!r}{line}: {said}.", code="invalid_config") from error
    if not isinstance(tree, dict):
        raise Invalid(f"Configuration is not an object: {str(path)!r}. Begin it with '{{'.", code="invalid_config")
    seen: set[tuple[str, ...]] = set()
    for place, line in _json5_places(text):
        if place in seen:
            raise Invalid(
                f"Configuration {str(path)!r}, line {line}: setting {'.'.join(place)!r} is given twice.",
                code="invalid_config",
            )
        seen.add(place)
    return cast(dict[str, Any], tree)


_JSON5_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[{}\[\],:])"""
    r"""|(?P<word>[^\s{}\[\],:"'/]+)""",
    re.DOTALL,
)


def _json5_places(text: str) -> list[tuple[tuple[str, ...], int]]:
    """The place and line of every setting, in the order of the text. The text is valid JSON5."""
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


def _json5_line(text: str, place: Sequence[str]) -> int | None:
    wanted = [_bare(name) for name in place]
    best: tuple[int, int] | None = None
    try:
        places = _json5_places(text)
    except pyjson5.Json5Exception:
        return None
    for found, line in places:
        names = [_bare(name) for name in found]
        if names == wanted[: len(names)] and (best is None or len(names) > best[0]):
            best = (len(names), line)
    return best[1] if best else None


def _bare(name: str) -> str:
    """Both spellings of a setting's name as one."""
    return to_camel(name) if "_" in name else name


def toml_line(text: str, place: Sequence[str]) -> int | None:
    """The line of a TOML text where the setting stands, or else the nearest section around it."""
    names = [part for part in place if not part.isdigit()]
    indexes = [int(part) for part in place if part.isdigit()]
    table: list[str] = []
    repeats: dict[tuple[str, ...], int] = {}
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if match := re.match(r"\[(\[?)\s*([^\]]+?)\s*\]", stripped):
            table = _split_key(match[2])
            if match[1]:
                repeats[tuple(table)] = repeats.get(tuple(table), -1) + 1
            found = table
        elif match := re.match(r"((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=", stripped):
            found = [*table, *_split_key(match[1])]
        else:
            continue
        if found == names[: len(found)] and (not indexes or repeats.get(tuple(table), indexes[0]) == indexes[0]):
            depth = len(found)
            if best is None or depth > best[0]:
                best = (depth, number)
    return best[1] if best else None


def _split_key(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]
