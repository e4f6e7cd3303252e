"""The base of every section of the configuration."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from antiphon.annotations import types_in
from antiphon.domain.agent import LONGEST

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


class Variable(str):
    """The value of an environment variable: text, which may be converted to a number or truth value."""


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
        """Rejects texts for numbers, and numbers for truth values, unless they come from a variable."""
        if isinstance(value, Variable):
            return str(value)
        assert info.field_name is not None
        kinds = types_in(cls.model_fields[info.field_name].annotation)
        if kinds & {int, float} and isinstance(value, bool | str):
            raise ValueError(NEEDED["int_type" if int in kinds else "float_type"])
        if bool in kinds and isinstance(value, int | float | str) and not isinstance(value, bool):
            raise ValueError(NEEDED["bool_type"])
        return value
