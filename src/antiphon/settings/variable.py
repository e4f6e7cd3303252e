"""Environment variables as values of settings: texts that stand for numbers, lists or tables. Contract: config 1."""

import json
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin

from pydantic import BaseModel

NO_LIST = 'needs a list, such as a,b or ["a", "b"]; [] is the empty list'
NO_TABLE = 'needs a table in JSON, such as {"name": "value"}'


class Variable(str):
    """The value of an environment variable: text, which may be converted to a number or truth value."""


def without_variables(value: object, annotation: object) -> object:
    """The value of a setting of that type, with lists and tables in place of the variables that hold them as text.

    The same value if there is nothing to convert. Raises `ValueError` for a text that is neither.
    """
    if isinstance(value, Variable):
        return _from_text(value, annotation)
    inner = _type_of_entries(annotation)
    if inner is None or not isinstance(value, dict):
        return value
    entries = cast(dict[str, object], value)
    read = {name: without_variables(each, inner) for name, each in entries.items()}
    return read if any(read[name] is not each for name, each in entries.items()) else entries


def table_in(text: str) -> dict[str, object]:
    """The table that a variable holds as JSON. Raises `ValueError` if it holds something else."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(NO_TABLE) from None
    if not isinstance(found, dict):
        raise ValueError(NO_TABLE)
    return cast(dict[str, object], found)


def _from_text(text: Variable, annotation: object) -> object:
    shapes, given = _shapes_of(annotation), text.strip()
    if dict in shapes and (given.startswith("{") or tuple not in shapes):
        return table_in(given)
    if tuple in shapes:
        return _list_in(given)
    return given


def _list_in(text: str) -> list[object]:
    """The list, in JSON or with commas. An empty text is none: it more likely is a variable without a value."""
    if not text.startswith(("[", "{")):
        found = [each.strip() for each in text.split(",") if each.strip()]
        if not found:
            raise ValueError(NO_LIST)
        return list(found)
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(NO_LIST) from None
    if not isinstance(given, list):
        raise ValueError(NO_LIST)
    return cast(list[object], given)


def _shapes_of(annotation: object) -> set[type]:
    """`tuple` if it may be a list, `dict` if it may be a table or a section."""
    return {dict if issubclass(each, BaseModel) else each for each in map(_class_of, _choices(annotation))}


def _class_of(annotation: object) -> type:
    origin = get_origin(annotation) or annotation
    return origin if isinstance(origin, type) else object


def _choices(annotation: object) -> list[object]:
    """The types of a union, without what `Annotated` adds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _choices(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [choice for each in get_args(annotation) for choice in _choices(each)]
    return [annotation]


def _type_of_entries(annotation: object) -> object | None:
    """Of the values of a table with free names; None for anything else."""
    return next((get_args(each)[1] for each in _choices(annotation) if get_origin(each) is dict), None)
