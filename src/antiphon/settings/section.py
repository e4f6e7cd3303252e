"""The base of every section of the configuration."""

import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import cast

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from antiphon.annotations import types_in
from antiphon.domain.agent import LONGEST
from antiphon.settings.variable import without_variables

MOST_SECONDS = LONGEST // timedelta(seconds=1)

MOST_MINUTES = LONGEST // timedelta(minutes=1)

MOST_DAYS = 36_500
"""The longest time to keep something."""

MOST_MEBIBYTES = 1024 * 1024

NEEDED = {
    "tuple_type": 'needs a list, such as ["a", "b"]',
    **dict.fromkeys(("dict_type", "model_type"), "needs a table"),
    "string_type": "needs text, in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "needs a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "needs a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "needs true or false"),
    "missing": "is required",
}
"""The message for a value of the wrong kind, by the kind of error."""


class Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _take_as_written(cls, value: object, info: ValidationInfo) -> object:
        """Rejects texts for numbers, and numbers for truth values, unless they come from a variable.

        A variable holds a list or a table as text; secrets lose the blanks at their ends.
        """
        assert info.field_name is not None
        annotation = cls.model_fields[info.field_name].annotation
        kinds = types_in(annotation)
        read = without_variables(value, annotation)
        if SecretStr in kinds:
            return _stripped(read)
        if read is not value:
            return read
        if kinds & {int, float} and isinstance(value, bool | str):
            raise ValueError(NEEDED["int_type" if int in kinds else "float_type"])
        if bool in kinds and isinstance(value, int | float | str) and not isinstance(value, bool):
            raise ValueError(NEEDED["bool_type"])
        return value


def secret_from(setting: SecretStr | None, variable: str | None) -> str | None:
    """The secret that is set, or else that of the environment variable, without blanks at its ends."""
    if setting is not None:
        return setting.get_secret_value()
    return (os.environ.get(variable, "").strip() or None) if variable else None


def sections_in(value: object) -> Iterator[Section]:
    """Every section in it, however deep, itself among them."""
    match value:
        case Section():
            yield value
            inner: Iterable[object] = vars(value).values()
        case dict():
            inner = cast("dict[object, object]", value).values()
        case tuple():
            inner = cast("tuple[object, ...]", value)
        case _:
            return
    for each in inner:
        yield from sections_in(each)


def variables_of(section: Section) -> list[str]:
    """The environment variables that the section names for its secrets."""
    named = [getattr(section, name) for name in type(section).model_fields if name.endswith("_env")]
    return [name for name in named if name]


def secrets_of(section: Section) -> list[str]:
    """What the section sets or names as a secret."""
    given = [value.get_secret_value() for value in vars(section).values() if isinstance(value, SecretStr)]
    return [*given, *(os.environ.get(name, "").strip() for name in variables_of(section))]


def _stripped(value: object) -> object:
    """Without the blanks and newlines that files and shells leave at the ends of secrets."""
    if isinstance(value, dict):
        return {name: _stripped(each) for name, each in cast(dict[str, object], value).items()}
    return value.strip() if isinstance(value, str) else value
