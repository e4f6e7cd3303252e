"""`null` for an optional argument is as left out."""

from typing import Any

import pytest

from antiphon.agents.null_arguments import without_nulls

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "is_kept"),
    [
        (STRING, False),
        ({"type": "integer"}, False),
        ({"type": "array", "items": {}}, False),
        ({"enum": ["a", "b"]}, False),
        ({"enum": ["a", None]}, True),
        ({"$ref": "#/$defs/X"}, False),
        ({"anyOf": [STRING, {"type": "integer"}]}, False),
        ({"anyOf": [STRING, {"type": "null"}]}, True),
        ({"type": ["string", "null"]}, True),
        ({"type": "null"}, True),
        ({}, True),
        (True, True),
    ],
)
def test_null_is_left_out_where_the_schema_takes_none(schema: Any, is_kept: bool) -> None:
    found = without_nulls({"a": None, "b": 1}, {"properties": {"a": schema, "b": {}}})
    assert found == ({"a": None, "b": 1} if is_kept else {"b": 1})


def test_null_stays_where_an_argument_is_required_or_unknown() -> None:
    schema: Any = {"properties": {"a": STRING}, "required": ["a"]}
    assert without_nulls({"a": None, "x": None}, schema) == {"a": None, "x": None}
