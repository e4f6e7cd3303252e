"""Reads configuration files, TOML or JSON5. Contract: config 1."""

import codecs
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import pyjson5

from antiphon.domain.errors import Invalid
from antiphon.settings.lines import is_json5, places_in_json5

TOML_NAME = "antiphon.toml"
JSON5_NAME = "antiphon.json5"
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


def _read_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = f"Configuration is not TOML: {str(path)!r}: {error}."
        raise Invalid(f"{said}{_remedy_of_repeated(str(error))}", code="invalid_config") from error
    except RecursionError as error:
        said = f"Configuration is nested too deep: {str(path)!r}. Lists and tables stand within few others."
        raise Invalid(said, code="invalid_config") from error


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
    for place, line in places_in_json5(text):
        if place in seen:
            raise Invalid(
                f"Configuration {str(path)!r}, line {line}: setting {'.'.join(place)!r} is given twice.",
                code="invalid_config",
            )
        seen.add(place)
    return cast(dict[str, Any], tree)
