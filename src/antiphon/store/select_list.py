"""Select lists, and what makes a noun of each of their rows.

A row of more than a few columns is decoded by the names in its select list, so a new column is named once and shifts
no other value. The decoder is generated from these constants, as dataclasses generate theirs, so it is as fast as one
written by hand. Rows of a few columns, and events, whose payload holds two fields, are unpacked into names.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Combined:
    """A field that `make` makes of columns, which may be NULL. `columns` names that of each argument."""

    __slots__ = ("columns", "make")

    def __init__(self, make: Callable[..., object], **columns: str) -> None:
        self.make = make
        self.columns = columns


class SelectList(Generic[T]):
    """The columns of a query, and the noun that `make` makes of them.

    A column is the field of its own name or alias, converted unless it is NULL; `Combined` columns are one field.
    """

    __slots__ = ("columns", "names", "read", "text")

    def __init__(self, make: Callable[..., T], text: str, **fields: Combined | Callable[[Any], object]) -> None:
        self.text = text
        self.columns = tuple(column.strip() for column in re.split(r",(?![^(]*\))", text))
        self.names = tuple(re.split(r"\W", column)[-1] for column in self.columns)
        self.read: Callable[[Sequence[Any]], T] = _decoder(make, self.names, fields)


def _decoder(
    make: Callable[..., T], names: Sequence[str], fields: dict[str, Combined | Callable[[Any], object]]
) -> Callable[[Sequence[Any]], T]:
    values = {name: name for name in names}
    known: dict[str, Any] = {"make": make}
    for name, field in fields.items():
        if not isinstance(field, Combined):
            known[f"make_{name}"] = field
            values[name] = f"None if {values[name]} is None else make_{name}({name})"
    for name, field in fields.items():
        if isinstance(field, Combined):
            known[f"make_{name}"] = field.make
            arguments = {argument: values.pop(column) for argument, column in field.columns.items()}
            values[name] = f"make_{name}({_arguments(field.make, arguments)})"
    exec(f"def decode(row):\n    ({', '.join(names)},) = row\n    return make({_arguments(make, values)})", known)
    return known["decode"]


def _arguments(make: Callable[..., object], values: Mapping[str, str]) -> str:
    """The arguments of the call: by position as far as `make` takes them, because names cost time."""
    rest = dict(values)
    by_position: list[str] = []
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is not Parameter.POSITIONAL_OR_KEYWORD or name not in rest:
            break
        by_position.append(rest.pop(name))
    return ", ".join((*by_position, *(f"{name}={value}" for name, value in rest.items())))
