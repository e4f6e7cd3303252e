"""The form of rules as JSON Schema, for editors and for programs that write rules. Contract: flow 9."""

from typing import Any, cast

from antiphon.domain.message import JsonObject
from antiphon.policy.written.fields import (
    ANY_ARGUMENT,
    ASKING,
    FIELDS,
    OF_CALLS,
    OPERATORS,
    REDACTING,
    Action,
    Field,
    Hook,
    Operator,
    ValueKind,
)
from antiphon.policy.written.reading import MAX_CONDITIONS, MAX_TEXT, MAX_VALUES


def schema() -> JsonObject:
    """JSON Schema of a rule: each hook with its fields, and each field with its operators and words."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A rule of Antiphon",
        "oneOf": [_schema_of(hook) for hook in Hook],
    }


def _schema_of(hook: Hook) -> JsonObject:
    actions = [
        action.name
        for action in Action
        if (action is not Action.APPROVE or hook in ASKING) and (action is not Action.REDACT or hook in REDACTING)
    ]
    fields = {name: field for name, field in FIELDS.items() if hook in field.hooks}
    conditions = [_condition_schema({"const": name}, field) for name, field in fields.items()]
    if hook in OF_CALLS:
        conditions.append(_condition_schema({"type": "string", "pattern": r"^arguments\..+"}, ANY_ARGUMENT))
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "hook", "action"],
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,100}$"},
            "hook": {"const": hook.value},
            "action": {"enum": cast(Any, actions)},
            "message": {"type": "string", "maxLength": MAX_TEXT},
            "when": {"type": "array", "maxItems": MAX_CONDITIONS, "items": {"oneOf": cast(Any, conditions)}},
        },
    }


def _condition_schema(name: JsonObject, field: Field) -> JsonObject:
    of_value: JsonObject = {"type": "number"} if field.kind is ValueKind.NUMBER else {"type": "string"}
    if field.kind is ValueKind.ANY:
        of_value = {"type": ["string", "number", "boolean"]}
    if field.words:
        of_value = {"enum": list(field.words)}
    single = [op.value for op in OPERATORS[field.kind] if op is not Operator.IN]
    forms: list[Any] = [{"properties": {"op": {"enum": single}, "value": of_value}}]
    if Operator.IN in OPERATORS[field.kind]:
        several = {"type": "array", "minItems": 1, "maxItems": MAX_VALUES, "items": of_value}
        forms.append({"properties": {"op": {"const": Operator.IN.value}, "value": several}})
    return {
        "type": "object",
        "description": field.says,
        "required": ["field", "op", "value"],
        "properties": {"field": name, "op": {}, "value": {}},
        "additionalProperties": False,
        "anyOf": forms,
    }
