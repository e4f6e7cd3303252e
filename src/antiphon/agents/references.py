"""References to values that children in quarantine read: tools take what they stand for, models do not see it.

Contract: flow 10.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from msgspec.structs import replace

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.domain.classification import join_all
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.quarantine import REFERENCE, QuarantinedValue
from antiphon.domain.transcript import OpenCall
from antiphon.engine.runs.context import RunContext

MAX_PUT_IN: Final = 1024 * 1024
"""Characters of all values in one call: a name in a list costs a model little, and what it stands for much."""
MAX_NAMED: Final = 1_000
"""References in one call, also in its texts: each is looked up."""
_NAME: Final = re.compile(r"val_[0-9a-f]{31}(?![0-9a-f])")


async def with_values(context: RunContext, call: OpenCall) -> OpenCall:
    """The call with the values that its references stand for.

    Raises `Invalid` for arguments that cannot be read, for a reference that this run may not use
    (`unknown_reference`), for one inside a text (`reference_in_text`), which no tool would understand, and for values
    that are too long together or too many (`arguments_too_large`).
    """
    try:
        return await _with_values(context, call)
    except RecursionError:
        raise Invalid("The arguments are nested too deep.", code="invalid_arguments") from None


async def _with_values(context: RunContext, call: OpenCall) -> OpenCall:
    arguments = read_call_arguments(call.part.arguments).values
    if not _NAME.search(call.part.arguments):
        return call
    references = {name: set(_references(value)) for name, value in arguments.items()}
    quoted = set(_quoted(arguments))
    wanted = {name for found in references.values() for name in found}
    if len(quoted | wanted) > MAX_NAMED:
        raise Invalid(
            f"Call names too many references: {len(quoted | wanted)}, the most is {MAX_NAMED}. Call several times.",
            code="arguments_too_large",
        )
    known = await context.find_values(quoted | wanted)
    for name in sorted(wanted - known.keys()):
        raise Invalid(
            f"Reference stands for nothing in this run: {name!r}. Only the run that spawned the sub-agent, and runs "
            "that follow from it, can use what it returned. Spawn again.",
            code="unknown_reference",
        )
    if inside := sorted(quoted & known.keys()):
        raise Invalid(
            f'Reference stands inside a text: {inside[0]!r}. Give {{"{REFERENCE}": "{inside[0]}"}} as the whole value '
            "of an argument, with nothing beside it.",
            code="reference_in_text",
        )
    referring = frozenset(name for name, found in references.items() if found)
    if not referring:
        return call
    size = sum(len(known[name].value) for value in arguments.values() for name in _references(value))
    if size > MAX_PUT_IN:
        raise Invalid(
            f"References stand for too much: {size} characters, the most in a call is {MAX_PUT_IN}. Give each once.",
            code="arguments_too_large",
        )
    values = {name: _put_in(value, known) for name, value in arguments.items()}
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    carried = join_all(known[name].made_of for found in references.values() for name in found)
    return replace(call, part=replace(call.part, arguments=text), carried=carried, referring=referring)


def _reference(value: JsonValue) -> str | None:
    """What the value refers to, if it is a reference."""
    match value:
        case {"$ref": str(name)} if len(value) == 1 and _NAME.fullmatch(name):
            return name
        case _:
            return None


def _references(value: JsonValue) -> Iterator[str]:
    if (name := _reference(value)) is not None:
        yield name
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _references(each)


def _quoted(value: JsonValue) -> Iterator[str]:
    """Names that stand in texts, also in names of members."""
    if isinstance(value, str):
        yield from _NAME.findall(value)
    elif isinstance(value, list):
        for each in value:
            yield from _quoted(each)
    elif isinstance(value, dict) and _reference(value) is None:
        for name, each in value.items():
            yield from _NAME.findall(name)
            yield from _quoted(each)


def _put_in(value: JsonValue, known: Mapping[str, QuarantinedValue]) -> JsonValue:
    if (name := _reference(value)) is not None:
        return cast("JsonValue", json.loads(known[name].value))
    if isinstance(value, list):
        return [_put_in(each, known) for each in value]
    if isinstance(value, dict):
        found: JsonObject = {name: _put_in(each, known) for name, each in value.items()}
        return found
    return value
