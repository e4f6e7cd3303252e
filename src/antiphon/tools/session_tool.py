"""Antiphon's own tools: each checks its arguments, calls one use case, and answers with an object.

Contract: answers 1, 3.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, cast

from msgspec import Struct
from msgspec.json import Encoder
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from antiphon.agents.model import ToolSchema
from antiphon.agents.null_arguments import without_nulls
from antiphon.agents.toolset import Foreign, ToolContext, ToolOutput
from antiphon.annotations import types_in
from antiphon.domain.agent import Effect
from antiphon.domain.approval import DerivedField
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import REFUSALS, AntiphonError, Denied, Invalid
from antiphon.domain.message import NO_USAGE, JsonObject, Usage
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.incoming import MAX_NAME_LENGTH, MAX_PROBLEMS, Misfit, bounded, check_arguments, shortened, shown_place
from antiphon.policy.decision import Deny
from antiphon.policy.session_tools import SHOW_OTHERS
from antiphon.wire.errors import tool_status_of

_encode = Encoder().encode

_IDENTITY = frozenset(
    {"caller", "requester", "from", "callersession", "classification", "taint", "scopes", "principal"}
)
"""Arguments by which a call may claim an identity; the caller comes from the run."""


class Arguments(BaseModel):
    """The arguments of one tool, camelCase on the wire; any other argument is rejected."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names that are accepted, with the names that they stand for."""
    routes: ClassVar[tuple[str, ...] | None] = None
    """The parameters that say where to or how much; None if each may."""
    self_checked: ClassVar[frozenset[str]] = frozenset()
    """Parameters whose text the tool checks itself, as `list.name` without a number."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    def derived(self) -> tuple[DerivedField, ...]:
        """What an owner may allow always in place of exact arguments."""
        return ()

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_other_types(cls, value: object, info: ValidationInfo) -> object:
        """Rejects texts and the like, which pydantic would convert to numbers and truth values."""
        assert info.field_name is not None
        types = types_in(cls.model_fields[info.field_name].annotation)
        if isinstance(value, bool | str) and not types.isdisjoint((int, float)):
            raise ValueError("must be a number")
        if isinstance(value, int | float | str) and not isinstance(value, bool) and types in ({bool}, {bool, NoneType}):
            raise ValueError("must be true or false")
        return value


A = TypeVar("A", bound=Arguments)


class ClassifiedAnswer(Struct, frozen=True):
    """An answer that holds more than the caller's session did, or that a model was asked for."""

    shown: Mapping[str, Any]
    made_of: Classification
    usage: Usage = NO_USAGE
    """What a model used for it."""


class SessionTool(Generic[A]):
    """One tool: its schema, its effects, and the function that carries it out."""

    def __init__(
        self,
        name: str,
        description: str,
        arguments: type[A],
        carry_out: Callable[[Caller, A], Awaitable[Mapping[str, Any] | ClassifiedAnswer]],
        *,
        codes: tuple[str, ...] = (),
        effects: frozenset[Effect] = frozenset({Effect.READS}),
        is_idempotent: bool = True,
    ) -> None:
        self._arguments = arguments
        self._carry_out = carry_out
        self._foresee: Callable[[Caller, A], Awaitable[ForeseenCall | None]] | None = None
        self._check: Callable[[A], Deny | None] | None = None
        self.codes = ("invalid_arguments", *codes)
        """Codes of failures that the tool answers itself."""
        self._effects = effects
        self._is_idempotent = is_idempotent
        self.classification: Classification = PUBLIC
        """The classification that its results add to what the caller's session holds already."""
        self.clearance: Classification | None = None
        """None: the tool itself decides what may go to its target."""
        self.foreign: Foreign | None = None
        routes, aliases = arguments.routes, arguments.aliases.items()
        self.routes = routes and (*routes, *(alias for alias, name in aliases if name in routes))
        """With the aliases, by which a call may give them too."""
        self._schema = ToolSchema(name=name, description=description, parameters=_parameters(arguments))

    def foreseen_by(self, foresee: Callable[[Caller, A], Awaitable[ForeseenCall | None]]) -> "SessionTool[A]":
        """The same tool, which sends words on; `foresee` finds what its unit will decide, by the same read."""
        self._foresee = foresee
        return self

    def checked_by(self, check: Callable[[A], Deny | None]) -> "SessionTool[A]":
        """The same tool, of whose calls `check` refuses some before anybody is asked about them."""
        self._check = check
        return self

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names of its arguments that it accepts, with the names that they stand for."""
        return self._arguments.aliases

    @property
    def foresees(self) -> bool:
        return self._foresee is not None

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    @property
    def effects(self) -> frozenset[Effect]:
        return self._effects

    @property
    def is_idempotent(self) -> bool:
        """Whether a repeated call rejoins what the first one began. Contract: runs 8."""
        return self._is_idempotent

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        try:
            parsed = self._parse(arguments)
        except Invalid as error:
            return ToolOutput(failure_text(error), is_error=True)
        try:
            answer = await self._carry_out(context.caller, parsed)
        except AntiphonError as error:
            return ToolOutput(failure_text(error), is_error=True, classification=self.classification)
        if not isinstance(answer, ClassifiedAnswer):
            made_of = self.classification
            if self._schema.name in SHOW_OTHERS:  # and it does not say how trusted that is
                made_of = made_of.distrusted()
            answer = ClassifiedAnswer(answer, made_of)
        is_error = answer.shown.get("status") == "error"
        return ToolOutput(
            _encode(answer.shown).decode(), is_error=is_error, classification=answer.made_of, usage=answer.usage
        )

    def derived(self, arguments: JsonObject) -> tuple[DerivedField, ...]:
        """Implements `Deriving`."""
        if self._arguments.derived is Arguments.derived:
            return ()
        try:
            return self._parse(arguments).derived()
        except Invalid:
            return ()

    def refuse_asking(self, arguments: JsonObject) -> AntiphonError | None:
        """Implements `Deriving`."""
        if self._check is None:
            return None
        try:
            denied = self._check(self._parse(arguments))
        except Invalid as error:
            return error
        return None if denied is None else Denied(denied.reason, code=denied.rule)

    async def foresee(self, context: ToolContext, arguments: JsonObject) -> ForeseenCall | None:
        """Implements `Foreseeing`."""
        if self._foresee is None:
            return None
        try:
            return await self._foresee(context.caller, self._parse(arguments))
        except REFUSALS:
            return None

    async def refusal_of(self, context: ToolContext, arguments: JsonObject) -> Deny | None:
        """Implements `RefusingByTarget`."""
        try:
            parsed = self._parse(arguments)
            foreseen = None if self._foresee is None else await self._foresee(context.caller, parsed)
        except REFUSALS as error:
            return Deny(error.code, error.message)
        return None if foreseen is None or not isinstance(foreseen.decision, Deny) else foreseen.decision

    def _parse(self, arguments: JsonObject) -> A:
        """Raises `Invalid`, which names the parameter and the accepted values."""
        try:
            check_arguments(arguments)
        except Misfit as error:
            raise self._misfit(str(error)) from None
        aliases = self._arguments.aliases
        named = {name: value for name, value in arguments.items() if value is not None or name not in aliases}
        for alias, name in aliases.items():
            if alias in named and name in named:
                raise Invalid(
                    f"Arguments of {self._schema.name} do not fit: {alias} and {name} mean the same; give only one",
                    code="invalid_arguments",
                )
            if alias in named:
                named[name] = named.pop(alias)
        named = without_nulls(named, self._schema.parameters)
        self._check_text(named)
        try:
            return self._arguments.model_validate(named)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            # One more than is shown, so that the message says that there are more.
            raise self._misfit(bounded(map(self._problem, found[: MAX_PROBLEMS + 1]))) from error

    def _misfit(self, problems: str) -> Invalid:
        return Invalid(f"Arguments of {self._schema.name} do not fit: {problems}", code="invalid_arguments")

    def _check_text(self, arguments: JsonObject) -> None:
        """Rejects halves of surrogate pairs: they can be neither stored nor sent."""
        for place, text in _texts_in(arguments):
            general = ".".join(part for part in place.split(".") if not part.isdigit())
            if general not in self._arguments.self_checked and not _is_whole(text):
                raise Invalid(
                    f"Arguments of {self._schema.name} do not fit: {ascii(place)[1:-1][:80]}: holds half a surrogate "
                    "pair; send valid Unicode",
                    code="invalid_arguments",
                )

    def _problem(self, item: Any) -> str:
        place = shown_place(item["loc"])
        if item["type"] != "extra_forbidden":
            return f"{place or 'arguments'}: {item['msg'].removeprefix('Value error, ')}"
        name = shortened(str(item["loc"][-1]), MAX_NAME_LENGTH)
        known = [field.alias or own for own, field in _model_at(self._arguments, item["loc"][:-1]).model_fields.items()]
        if place.lower().replace("_", "") in _IDENTITY:
            return f"unknown parameter {place!r}: the caller is already known; leave it out"
        near = get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f", did you mean {near[0]!r}?" if near else f"; valid names are: {', '.join(known) or 'none'}"
        return f"unknown parameter {place[:60]!r}{hint}"


def _model_at(model: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The model of the object at that place in the arguments."""
    for step in place:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        found = fields.get(str(step))
        if found is not None:
            model = next((each for each in types_in(found.annotation) if issubclass(each, BaseModel)), model)
    return model


def _texts_in(arguments: object) -> Iterator[tuple[str, str]]:
    """Every text in the arguments with its place, including names of entries, at any depth."""
    pending = deque([("", arguments)])
    while pending:
        place, value = pending.popleft()
        if isinstance(value, str):
            yield place, value
        elif isinstance(value, Mapping):
            for name, entry in cast(Mapping[str, object], value).items():
                inner = f"{place}.{name}" if place else name
                pending += ((inner, name), (inner, entry))
        elif isinstance(value, list | tuple):
            pending += [(f"{place}.{number}", item) for number, item in enumerate(cast(list[object], value))]


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def failure_text(error: AntiphonError) -> str:
    """Contract: answers 1."""
    return json.dumps({"status": tool_status_of(error), "code": error.code, "error": error.message}, ensure_ascii=False)


@cache
def _parameters(arguments: type[Arguments]) -> JsonObject:
    """Kept, because making the schemas of all tools is nearly all that building the parts of a home costs."""
    schema: Any = arguments.model_json_schema()
    return _without_titles(schema)


def _without_titles(schema: Any) -> Any:
    """JSON Schema with less for a model to read: without titles, and without `null` as a type of optional values."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    entries = cast(dict[str, Any], schema).items()
    plain: dict[str, Any] = {
        name: _without_titles(value) for name, value in entries if name != "title" or isinstance(value, dict)
    }
    choices = plain.get("anyOf")
    if isinstance(choices, list) and cast(list[Any], choices)[1:] == [{"type": "null"}]:
        del plain["anyOf"]
        plain.pop("default", None)
        plain |= {**cast(dict[str, Any], choices[0]), **plain}
    return plain
