"""What the documents say is what the program does.

`python -m tests.test_docs` brings the table of settings up to date.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from antiphon.cli.exits import ExitCode
from antiphon.cli.main import app
from antiphon.config import Config
from tests.claims import requirement

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"


def settings(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, values, default and meaning of every setting."""
    for name, field in section.model_fields.items():
        place = prefix + name
        nested = list(sections_of(field.annotation, place))
        if nested:
            for inner, inner_place in nested:
                yield from settings(inner, f"{inner_place}.")
            if field.description and is_whole(field):
                yield place, "a section", "unset", field.description
        else:
            yield place, values_of(field.annotation), default_of(field), field.description or ""


def is_whole(field: FieldInfo) -> bool:
    """Whether the section as a whole may be absent."""
    return type(None) in get_args(field.annotation)


def sections_of(annotation: Any, place: str) -> Iterator[tuple[type[BaseModel], str]]:
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, place
    elif origin is tuple:
        yield from sections_of(arguments[0], f"{place}[]")
    elif origin is dict:
        keys = get_args(arguments[0])
        yield from sections_of(arguments[1], f"{place}.<{'|'.join(keys) or 'name'}>")
    elif origin in (Union, UnionType, Annotated):
        for argument in arguments:
            yield from sections_of(argument, place)


def values_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return values_of(next(argument for argument in arguments if argument is not type(None)))
    if origin is Annotated:
        return values_of(arguments[0])
    if origin is Literal:
        return " ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return "list of texts"
    if origin is dict:
        return "table of texts"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " ".join(f"`{value}`" for value in annotation)
    return {int: "whole number", float: "number", str: "text", bool: "`true` `false`", SecretStr: "text"}[annotation]


def default_of(field: FieldInfo) -> str:
    default: object = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "unset"
    return f"`{toml(default)}`"


def toml(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case int() | float():
            return f"{value:_}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
        case _:
            return "[]" if isinstance(value, tuple) else "{}"


def table() -> str:
    rows = [f"| `{name}` | {values} | {default} | {meaning} |" for name, values, default, meaning in settings(Config)]
    return "\n".join(["| Setting | Values | Default | Meaning |", "|---|---|---|---|", *rows]) + "\n"


def with_table(text: str) -> str:
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + table() + text[end:]


@requirement("config:1")
def test_every_setting_is_documented_with_its_default() -> None:
    text = (DOCS / "CONFIGURATION.md").read_text("utf-8")
    assert text == with_table(text), "python -m tests.test_docs brings it up to date"
    assert [name for name, _, _, meaning in settings(Config) if not meaning] == []


@requirement("cli:1")
def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "CLI.md").read_text("utf-8")
    missing = [
        name for name, options in commands() for name in (f"antiphon {name}", *options) if f"`{name}" not in text
    ]
    assert missing == []


@requirement("cli:1")
def test_every_exit_code_is_documented() -> None:
    text = (DOCS / "CLI.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert documented == {int(code) for code in ExitCode}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command's name, and its long options."""

    def walk(command: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                yield from walk(inner, f"{prefix} {name}".strip())
        else:
            yield prefix, [option for each in command.params for option in each.opts if option.startswith("--")]

    yield from walk(typer.main.get_command(app), "")


if __name__ == "__main__":
    path = DOCS / "CONFIGURATION.md"
    path.write_text(with_table(path.read_text("utf-8")), "utf-8")
