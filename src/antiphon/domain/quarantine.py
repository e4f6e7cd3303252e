"""What a child in quarantine may return: a form of typed values, and what of them counts as trusted.

Others may have steered the child, so its requester sees none of its words. A value of a small range can carry little
of what they want: such values come back as they are, as long as all of them together fit into a few bits. Texts, and
what does not fit, come back as references, which tools take and models do not see. Contract: flow 10.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.message import JsonObject, JsonValue

MAX_SCHEMA_BYTES: Final = 16 * 1024
MAX_SCHEMA_DEPTH: Final = 8
MAX_FIELDS: Final = 100
"""Values that a schema describes, in lists those of one item."""
MAX_CHOICES: Final = 32
MAX_ITEMS: Final = 100
MAX_VALUES: Final = 1_000
"""Values in one result."""
MAX_RESULT_BYTES: Final = 64 * 1024
"""UTF-8 bytes of a result, and so of what a reference stands for."""
MAX_MILLIBITS: Final = 64_000
"""What the children of a run and of all that follows from it may say in trusted values, in thousandths of a bit."""
ENDED_MILLIBITS: Final = math.ceil(1000 * math.log2(5))
"""What it says by itself how a child ended: with a result, with one of another form, failed, out of time, cancelled."""
SCHEMA_MISMATCH: Final = "schema_mismatch"
"""The code of a child whose result did not have its form, twice."""
REFERENCE: Final = "$ref"
"""The only name in the object that stands for a value."""
_SAFE_INTEGER: Final = 2**53
_DAYS: Final = date.max.toordinal()
_EPOCH: Final = datetime(1, 1, 1)
_LEAST_STEP: Final = Decimal("1e-9")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:00)?(Z|[+-]\d{2}:\d{2})?", re.ASCII)
_DESCRIBES: Final = frozenset({"title", "description"})


class Kind(StrEnum):
    """The kind of a value."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    DATE = "date"
    DATE_TIME = "date-time"
    TEXT = "text"
    LIST = "array"
    OBJECT = "object"


class ReturnForm(Struct, frozen=True, kw_only=True):
    """A value that may be returned, as a schema describes it."""

    kind: Kind
    may_be_null: bool = False
    low: Decimal = Decimal(0)
    """The least number, text length in characters, number of items, day or minute."""
    high: Decimal = Decimal(0)
    """The greatest."""
    has_zone: bool | None = None
    """Whether a moment has a time zone; None if it may."""
    step: Decimal | None = None
    """What a number is a multiple of."""
    choices: tuple[JsonValue, ...] = ()
    item: "ReturnForm | None" = None
    """Of a list."""
    members: Mapping[str, "ReturnForm"] = {}
    """Of an object."""
    required: frozenset[str] = frozenset()
    """The names of those that may not be left out."""

    @property
    def millibits(self) -> int:
        """What one such value says, without what stands in it: the logarithm of how many there are, in 1/1000 bit."""
        count = _COUNTS[self.kind](self) + self.may_be_null
        return math.ceil(1000 * math.log2(count))

    @property
    def is_words(self) -> bool:
        """Whether no range bounds it."""
        return self.kind is Kind.TEXT


class Value(Struct, frozen=True, kw_only=True):
    """A value that has its form."""

    form: ReturnForm
    plain: JsonValue
    """The value, in the one spelling that it has."""
    items: tuple["Value", ...] = ()
    """Of a list."""
    members: Mapping[str, "Value"] = {}
    """Of an object, in the order of its form; what was left out is missing."""


class Disclosed(Struct, frozen=True):
    """What a requester gets of a value."""

    shown: JsonValue
    millibits: int
    """What of it is told in trusted values."""


# Reading a schema


def parse_returns(schema: JsonValue) -> ReturnForm:
    """The form that a JSON Schema describes, of the part of it that can be counted.

    Raises `Invalid` (`invalid_schema`), which names the place.
    """
    return _SchemaReader().read(schema, "", 1)


class _SchemaReader:
    def __init__(self) -> None:
        self._fields = 0

    def read(self, schema: JsonValue, place: str, depth: int) -> ReturnForm:
        if not isinstance(schema, dict):
            raise _wrong(place, "must be an object")
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise _wrong(place, f"is one value too many; {MAX_FIELDS} is the most")
        if depth > MAX_SCHEMA_DEPTH:
            raise _wrong(place, f"is nested too deep; {MAX_SCHEMA_DEPTH} is the most")
        given = {name: value for name, value in schema.items() if name not in _DESCRIBES}
        if foreign := [name for name in given if name.startswith("$")]:
            raise _wrong(place, f"has {foreign[0][:60]!r}; write out what it refers to")
        if "enum" in given or "const" in given:
            return _choice(given, place)
        kind, may_be_null = _type_of(given, place)
        match kind:
            case "object":
                return self._object(given, place, depth, may_be_null=may_be_null)
            case "array":
                return self._list(given, place, depth, may_be_null=may_be_null)
            case "string":
                return _string(given, place, may_be_null=may_be_null)
            case "integer" | "number":
                return _number(given, place, kind, may_be_null=may_be_null)
            case "boolean":
                _only(given, place, ())
                return ReturnForm(kind=Kind.BOOLEAN, may_be_null=may_be_null)
            case _:
                raise _wrong(place, "has no type; use boolean, integer, number, string, array or object")

    def _object(self, given: JsonObject, place: str, depth: int, *, may_be_null: bool) -> ReturnForm:
        _only(given, place, ("properties", "required", "additionalProperties"))
        if given.get("additionalProperties", False) is not False:
            raise _wrong(place, "may have no other properties than those in properties")
        properties, required = given.get("properties"), given.get("required", [])
        if not isinstance(properties, dict) or not properties:
            raise _wrong(place, "needs properties")
        if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
            raise _wrong(place, "requires a property that is not in properties")
        members = {
            name: self.read(each, f"{place}.properties.{name[:60]}", depth + 1) for name, each in properties.items()
        }
        names = frozenset(str(name) for name in required)
        return ReturnForm(kind=Kind.OBJECT, may_be_null=may_be_null, members=members, required=names)

    def _list(self, given: JsonObject, place: str, depth: int, *, may_be_null: bool) -> ReturnForm:
        _only(given, place, ("items", "minItems", "maxItems"))
        low, high = _whole(given, place, "minItems", 0), _whole(given, place, "maxItems", -1)
        if not low <= high <= MAX_ITEMS:
            raise _wrong(place, f"needs maxItems, at most {MAX_ITEMS}")
        item = self.read(given.get("items"), f"{place}.items", depth + 1)
        return ReturnForm(kind=Kind.LIST, may_be_null=may_be_null, low=Decimal(low), high=Decimal(high), item=item)


def _type_of(given: JsonObject, place: str) -> tuple[str, bool]:
    match given.get("type"):
        case str() as kind:
            return kind, False
        case [str() as kind, "null"] | ["null", str() as kind]:
            return kind, True
        case _:
            if "properties" in given:
                return "object", False
            raise _wrong(place, "has no type; use boolean, integer, number, string, array or object")


def _choice(given: JsonObject, place: str) -> ReturnForm:
    _only(given, place, ("enum", "const"), beside=("type",))
    choices = given["enum"] if "enum" in given else [given["const"]]
    is_plain = isinstance(choices, list) and all(not isinstance(each, dict | list | float) for each in choices)
    if not is_plain or not isinstance(choices, list) or not 1 <= len(choices) <= MAX_CHOICES:
        raise _wrong(place, f"needs 1 to {MAX_CHOICES} texts, whole numbers, truth values or null in enum")
    if len({(type(each), each) for each in choices}) < len(choices):
        raise _wrong(place, "has a choice twice")
    return ReturnForm(kind=Kind.CHOICE, choices=tuple(choices))


def _string(given: JsonObject, place: str, *, may_be_null: bool) -> ReturnForm:
    form = given.get("format")
    if form in (Kind.DATE, Kind.DATE_TIME):
        return _moments(given, place, Kind(str(form)), may_be_null=may_be_null)
    # Another format says what a text should look like; nobody relies on that.
    _only(given, place, ("format", "minLength", "maxLength"))
    low, high = _whole(given, place, "minLength", 0), _whole(given, place, "maxLength", MAX_RESULT_BYTES)
    if low > high:
        raise _wrong(place, "has lengths that no text can have")
    return ReturnForm(kind=Kind.TEXT, may_be_null=may_be_null, low=Decimal(low), high=Decimal(high))


def _moments(given: JsonObject, place: str, kind: Kind, *, may_be_null: bool) -> ReturnForm:
    _only(given, place, ("format", "formatMinimum", "formatMaximum"))
    form = ReturnForm(
        kind=kind,
        may_be_null=may_be_null,
        low=Decimal(0),
        high=Decimal(_DAYS if kind is Kind.DATE else _DAYS * 24 * 60) - 1,
    )
    if "formatMinimum" not in given and "formatMaximum" not in given:
        return form
    try:
        first, last = (_read_moment(form, given.get(name), place) for name in ("formatMinimum", "formatMaximum"))
    except ResultMisfit:
        raise _wrong(place, f"needs both formatMinimum and formatMaximum, each a {kind}") from None
    if first.has_zone != last.has_zone or first.number > last.number:
        raise _wrong(place, "has bounds between which no moment lies")
    return replace(form, low=Decimal(first.number), high=Decimal(last.number), has_zone=first.has_zone)


def _number(given: JsonObject, place: str, kind: str, *, may_be_null: bool) -> ReturnForm:
    _only(given, place, ("minimum", "maximum", "multipleOf"))
    low, high = _decimal(given.get("minimum")), _decimal(given.get("maximum"))
    step = _decimal(given.get("multipleOf")) if "multipleOf" in given else None
    if low is None or high is None:
        raise _wrong(place, "needs minimum and maximum: a number without bounds can carry any message")
    if low > high or max(abs(low), abs(high)) > _SAFE_INTEGER:
        raise _wrong(place, "has bounds between which no number lies, or that are too large")
    if kind == "integer" and any(bound != bound.to_integral_value() for bound in (low, high, step or low)):
        raise _wrong(place, "is an integer with bounds that are none")
    if "multipleOf" in given and (step is None or step < _LEAST_STEP):
        raise _wrong(place, f"needs a multipleOf of {_LEAST_STEP} or more")
    form = ReturnForm(kind=Kind(kind), may_be_null=may_be_null, low=low, high=high, step=step)
    if _COUNTS[form.kind](form) < 1:
        raise _wrong(place, "has bounds between which no number lies")
    return form


def _only(given: JsonObject, place: str, known: tuple[str, ...], *, beside: tuple[str, ...] = ("type",)) -> None:
    for name in given:
        if name not in known and name not in beside:
            raise _wrong(place, f"has {name[:60]!r}, which is not supported; such values could not be counted")


def _whole(given: JsonObject, place: str, name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or (name in given and value < 0):
        raise _wrong(place, f"needs a whole number as {name}")
    return value


def _decimal(value: JsonValue) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return Decimal(value)  # it may be larger than any float
    return Decimal(str(value)) if math.isfinite(value) else None


def _wrong(place: str, problem: str) -> Invalid:
    return Invalid(f"Schema does not fit: returns{place} {problem}.", code="invalid_schema")


# How many values there are


def _count_numbers(form: ReturnForm) -> int:
    step = form.step or (Decimal(1) if form.kind is Kind.INTEGER else None)
    if step is not None:
        return math.floor(Fraction(form.high) / Fraction(step)) - math.ceil(Fraction(form.low) / Fraction(step)) + 1
    return _place_of_double(float(form.high)) - _place_of_double(float(form.low)) + 1


def _place_of_double(number: float) -> int:
    """Its place among all numbers that a computer can tell apart, in their order."""
    bits: int = struct.unpack("<q", struct.pack("<d", number + 0.0))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


_COUNTS: Final[Mapping[Kind, Callable[[ReturnForm], int]]] = {
    Kind.BOOLEAN: lambda form: 2,
    Kind.INTEGER: _count_numbers,
    Kind.NUMBER: _count_numbers,
    Kind.CHOICE: lambda form: len(form.choices),
    Kind.DATE: lambda form: int(form.high - form.low) + 1,
    Kind.DATE_TIME: lambda form: (int(form.high - form.low) + 1) * (2 if form.has_zone is None else 1),
    Kind.TEXT: lambda form: 1,  # a text is never told
    Kind.LIST: lambda form: int(form.high - form.low) + 1,
    Kind.OBJECT: lambda form: 2 ** (len(form.members) - len(form.required)),
}


# Reading a result


class ResultMisfit(ValueError):
    """A result does not have the form; says where and why, to the child alone."""


def read_value(form: ReturnForm, plain: JsonValue) -> Value:
    """Raises `ResultMisfit`."""
    return _read(form, plain, "the result", [0])


def _read(form: ReturnForm, plain: JsonValue, place: str, counted: list[int]) -> Value:
    counted[0] += 1
    if counted[0] > MAX_VALUES:
        raise ResultMisfit(f"the result has more than {MAX_VALUES} values")
    if plain is None and form.may_be_null:
        return Value(form=form, plain=None)
    match form.kind:
        case Kind.OBJECT:
            return _read_object(form, plain, place, counted)
        case Kind.LIST:
            return _read_list(form, plain, place, counted)
        case Kind.BOOLEAN:
            if not isinstance(plain, bool):
                raise ResultMisfit(f"{place} must be true or false")
            return Value(form=form, plain=plain)
        case Kind.INTEGER | Kind.NUMBER:
            return Value(form=form, plain=_read_number(form, plain, place))
        case Kind.CHOICE:
            for choice in form.choices:
                if type(choice) is type(plain) and choice == plain:
                    return Value(form=form, plain=choice)
            raise ResultMisfit(f"{place} must be one of: {', '.join(map(repr, form.choices))[:500]}")
        case Kind.DATE | Kind.DATE_TIME:
            return Value(form=form, plain=_read_moment(form, plain, place).text)
        case Kind.TEXT:
            return Value(form=form, plain=_read_text(form, plain, place))


def _read_object(form: ReturnForm, plain: JsonValue, place: str, counted: list[int]) -> Value:
    if not isinstance(plain, dict):
        raise ResultMisfit(f"{place} must be an object")
    if unknown := [name for name in plain if name not in form.members]:
        raise ResultMisfit(f"{place} has a member that the schema does not name: {unknown[0][:60]!r}")
    if missing := sorted(form.required - plain.keys()):
        raise ResultMisfit(f"{place} lacks {missing[0]!r}")
    members = {
        name: _read(each, plain[name], f"{place}.{name}", counted)
        for name, each in form.members.items()
        if name in plain
    }
    return Value(form=form, plain={name: each.plain for name, each in members.items()}, members=members)


def _read_list(form: ReturnForm, plain: JsonValue, place: str, counted: list[int]) -> Value:
    if not isinstance(plain, list) or not form.low <= len(plain) <= form.high:
        raise ResultMisfit(f"{place} must be a list of {form.low} to {form.high} items")
    assert form.item is not None
    items = tuple(_read(form.item, each, f"{place}[{number}]", counted) for number, each in enumerate(plain))
    return Value(form=form, plain=[each.plain for each in items], items=items)


def _read_number(form: ReturnForm, plain: JsonValue, place: str) -> int | float:
    number = _decimal(plain)
    if number is None or not form.low <= number <= form.high:
        raise ResultMisfit(f"{place} must be a number from {form.low} to {form.high}")
    if form.kind is Kind.INTEGER and number != number.to_integral_value():
        raise ResultMisfit(f"{place} must be a whole number")
    if form.step is not None and number % form.step:
        raise ResultMisfit(f"{place} must be a multiple of {form.step}")
    return int(number) if number == number.to_integral_value() else float(number)


class _ReadMoment(NamedTuple):
    text: str
    """In the one spelling that it has: with a zone, of UTC."""
    number: int
    """Of days or minutes since the first there is."""
    has_zone: bool


def _read_moment(form: ReturnForm, plain: JsonValue, place: str) -> _ReadMoment:
    moment: _ReadMoment | None = None
    try:
        if form.kind is Kind.DATE and isinstance(plain, str) and _DATE.fullmatch(plain):
            day = date.fromisoformat(plain)
            moment = _ReadMoment(day.isoformat(), day.toordinal() - 1, has_zone=False)
        elif isinstance(plain, str) and _DATE_TIME.fullmatch(plain):
            at = datetime.fromisoformat(plain)
            has_zone = at.tzinfo is not None
            at = at.astimezone(UTC).replace(tzinfo=None) if has_zone else at
            text = at.isoformat() + ("Z" if has_zone else "")
            moment = _ReadMoment(text, int((at - _EPOCH).total_seconds()) // 60, has_zone)
    except (ValueError, OverflowError):
        pass
    is_fit = moment is not None and form.low <= moment.number <= form.high
    if moment is None or not is_fit or form.has_zone not in (None, moment.has_zone):
        shown = "2026-05-31" if form.kind is Kind.DATE else "2026-05-31T09:30:00"
        raise ResultMisfit(f"{place} must be a {form.kind} within its bounds, such as {shown}, to the minute")
    return moment


def _read_text(form: ReturnForm, plain: JsonValue, place: str) -> str:
    if not isinstance(plain, str) or not form.low <= len(plain) <= form.high:
        raise ResultMisfit(f"{place} must be a text of {form.low} to {form.high} characters")
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise ResultMisfit(f"{place} holds half a surrogate pair") from None
    return plain


# What the requester gets


def give(value: Value, left: int, refer: Callable[[JsonValue], str]) -> Disclosed:
    """What a requester gets that has so many thousandths of a bit left; `refer` makes a reference to a value.

    What stands first comes first. A value that says more than is left is a reference, as texts are.
    """
    own = value.form.millibits
    if own > left:
        return Disclosed({REFERENCE: refer(value.plain)}, 0)
    if value.form.is_words and value.plain is not None:
        return Disclosed({REFERENCE: refer(value.plain)}, own)
    used = own
    if value.plain is not None and value.form.kind is Kind.OBJECT:
        shown: JsonObject = {}
        for name, each in value.members.items():
            given = give(each, left - used, refer)
            shown[name], used = given.shown, used + given.millibits
        return Disclosed(shown, used)
    if value.plain is not None and value.form.kind is Kind.LIST:
        items: list[JsonValue] = []
        for each in value.items:
            given = give(each, left - used, refer)
            items.append(given.shown)
            used += given.millibits
        return Disclosed(items, used)
    return Disclosed(value.plain, used)


def told_bits(millibits: int) -> str:
    """For people and models: such as `12.6`."""
    return f"{math.ceil(millibits / 100) / 10:g}"


class ValueScope(NamedTuple):
    """Who may use what a child read: in one incarnation of the requester, the runs of one chain."""

    session: SessionRow
    incarnation: SessionId
    chain: str
    """Names the first run of those that follow from one another."""


class QuarantinedValue(Struct, frozen=True, kw_only=True):
    """A value that a child read, for runs of its requester: no prompt of theirs holds it."""

    id: str
    scope: ValueScope
    value: str
    """JSON."""
    made_of: Classification


class QuarantinedResult(Struct, frozen=True, kw_only=True):
    """What a child in quarantine told its requester."""

    report: str
    requester: SessionRow
    chain: str
    millibits: int
    returned: str | None
    """JSON; None if there is no result."""

    @property
    def is_trusted(self) -> bool:
        """False for what came after all that may be told was told: even how the child ended says too much."""
        return self.millibits > 0
