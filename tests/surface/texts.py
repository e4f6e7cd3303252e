"""What users see of the program, as texts: the OpenAPI document, help, the library, answers of commands."""

import inspect
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

import antiphon
from antiphon.gateway.openapi import describe
from antiphon.gateway.operations.table import TABLE
from antiphon.version import VERSION
from tests.surface.answers import PROGRAM, answers_text, app, commands_of, plain_environment

STORED = Path(__file__).with_name("stored")
WIDTH = 110
"""Of a line of JSON; a value that has no room gets a line for each part."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def openapi_text() -> str:
    document = describe(TABLE.values())
    document["info"]["version"] = document["info"]["version"].replace(VERSION, "*")
    return "\n".join(_lines(document, "")) + "\n"


def _lines(value: Any, before: str, indent: str = "") -> Iterator[str]:
    """The value as JSON with sorted names, on as few lines as have room for it."""
    whole = f"{indent}{before}{json.dumps(value, ensure_ascii=False, sort_keys=True)}"
    if len(whole) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield whole
    elif isinstance(value, dict):
        yield f"{indent}{before}{{"
        named = cast(dict[str, Any], value)
        for name in sorted(named):
            yield from _lines(named[name], f"{json.dumps(name)}: ", indent + " ")
        yield f"{indent}}}"
    else:
        yield f"{indent}{before}["
        for each in cast(list[Any], value):
            yield from _lines(each, "", indent + " ")
        yield f"{indent}]"


def help_text() -> str:
    """The help of the program, of its groups and of its commands."""
    groups = [str(each.name) for each in app.registered_groups]
    names = ["", *groups, *(name for name, _ in commands_of(app))]
    return "\n".join(f"$ antiphon {name} --help\n{_help_of(name)}" for name in names)


def _help_of(name: str) -> str:
    out = io.StringIO()
    with plain_environment(), redirect_stdout(out), redirect_stderr(out):
        PROGRAM([*name.split(), "--help"], prog_name="antiphon", standalone_mode=False)
    return "".join(f"{line.rstrip()}\n" for line in _COLOUR.sub("", out.getvalue()).splitlines())


def library_text() -> str:
    """The names of the library, each with its signature, and those of its methods and fields."""
    return "".join(f"{line}\n" for name in antiphon.__all__ for line in _declared(name, getattr(antiphon, name)))


def _declared(name: str, value: object) -> Iterator[str]:
    if isinstance(value, type) and issubclass(value, Enum):
        yield f"{name}: {', '.join(f'{each.name} = {each.value!r}' for each in value)}"
    elif isinstance(value, type):
        bases = ", ".join(each.__name__ for each in value.__bases__ if each is not object)
        # That of a section of the settings is other once it was used: pydantic builds it then.
        yield f"{name}({bases})" + ("" if BaseModel in value.__mro__ else _signature(value))
        for member, each in sorted(_members(value)):
            kind = "property " if isinstance(each, property) else ""
            yield f"    {kind}{member}" + _signature(each.fget if isinstance(each, property) else each)
        for member, hint in sorted(inspect.get_annotations(value).items()):
            if not member.startswith("_"):
                yield f"    {member}: {_shown(hint)}"
    else:
        yield f"{name}{_signature(value)}"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        is_ours = any(name in vars(each) and each.__module__.startswith("antiphon") for each in kind.__mro__)
        if (
            is_ours
            and not name.startswith("_")
            and isinstance(found, property | staticmethod | classmethod | type(_members))
        ):
            yield name, getattr(kind, name) if isinstance(found, staticmethod | classmethod) else found


def _signature(value: Any) -> str:
    try:
        return _shown(inspect.signature(value))
    except (TypeError, ValueError):
        return ""


def _shown(value: object) -> str:
    """Without the modules of types, which are no part of what is public, and the addresses of objects."""
    text = str(value) if isinstance(value, inspect.Signature) else inspect.formatannotation(value)
    return re.sub(r"\b([a-z_]+\.)+(?=[A-Za-z])| at 0x[0-9a-f]+", "", text)


TEXTS: Mapping[str, Callable[[], str]] = {
    "openapi.txt": openapi_text,
    "help.txt": help_text,
    "library.txt": library_text,
    "answers.txt": answers_text,
}
"""What makes each stored text, by its file."""
