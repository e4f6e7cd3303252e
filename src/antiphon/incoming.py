"""Input from outside: decoded into types within limits; errors are short and never repeat its values."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from pydantic import ValidationError

from antiphon.domain.errors import Invalid
from antiphon.domain.message import Attribution, AttributionKind
from antiphon.domain.text import bracketed_name

MAX_PROBLEMS = 10
"""Problems listed for one refused value."""
MAX_PROBLEM_LENGTH = 200
"""Characters of each problem."""
MAX_NAME_LENGTH = 60
"""Characters shown of a name from the input."""
MAX_VALUES = 20_000
"""Numbers, texts, lists, objects and names in one body. Each takes as long to read as 100 bytes of text."""

T = TypeVar("T")

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$", re.DOTALL)
_VALUE = re.compile(r"'.*'|\".*\"", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class GivenAttribution(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose words a message holds that are not its sender's, as its body says it."""

    kind: AttributionKind
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The author's name, as the platform shows it."""

    def read(self) -> Attribution:
        return Attribution(kind=self.kind, name=None if self.name is None else bracketed_name(self.name))


class NotJson(Invalid):
    """The input is not valid JSON, or is beyond the limits for JSON."""

    default_code = "not_json"


class Misfit(Invalid):
    """The input is readable but does not have the expected type."""

    default_code = "invalid_request"


def not_json(reason: str) -> NotJson:
    return NotJson(f"Body is not JSON that can be read: {reason}.")


def misfit(*problems: str) -> Misfit:
    return Misfit(bounded(problems))


def bounded(problems: Iterable[str]) -> str:
    """The problems as one line: at most 10, of at most 200 characters each."""
    listed = list(problems)
    shown = [shortened(problem) for problem in listed[:MAX_PROBLEMS]]
    if len(listed) > MAX_PROBLEMS:
        shown.append(f"and {len(listed) - MAX_PROBLEMS} more")
    return "; ".join(shown)


def shortened(text: str, length: int = MAX_PROBLEM_LENGTH) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def shown_place(place: Iterable[object]) -> str:
    """The place of a value, as `a.b.0`; names from the input are cut."""
    return ".".join(shortened(str(part), MAX_NAME_LENGTH) for part in place)


def problems_of(error: ValidationError) -> Iterator[tuple[str, str]]:
    """The place and text of each problem, at most eleven: the eleventh stands for the rest."""
    for item in error.errors(include_url=False, include_context=False, include_input=False)[: MAX_PROBLEMS + 1]:
        said = item["msg"].removeprefix("Value error, ")
        if item["type"] == "union_tag_invalid":
            said = "is of no known type"
        yield shown_place(item["loc"]), said


def check_values(body: bytes) -> None:
    """Raises `NotJson` for a body with so many values that reading it would block everything else."""
    if holds_more_than(MAX_VALUES, body):
        raise not_json(f"it holds more than {MAX_VALUES} values")


def holds_more_than(most: int, body: bytes) -> bool:
    """Whether the JSON has more than about `most` values. Ignores marks inside texts."""
    if not _has_more_marks(most, body):
        return False
    most_texts = 2 * (most + 1)  # a name and a value for each mark between them; finding each costs time
    if next(islice(_TEXT.finditer(body), most_texts, None), None) is not None:
        return True
    return _has_more_marks(most, _TEXT.sub(b"", body))


def _has_more_marks(most: int, body: bytes) -> bool:
    """Stops counting once there are more."""
    return any(found > most for found in accumulate(map(body.count, (b",", b"[", b"{"))))


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Raises `Misfit` for a tool's arguments with too many values, before each is checked."""
    left = MAX_VALUES
    pending: list[object] = [arguments]
    while pending:
        value = pending.pop()
        inner: Iterable[object] = ()
        if isinstance(value, Mapping):
            entries = cast(Mapping[str, object], value)
            left -= len(entries)
            inner = entries.values()
        elif isinstance(value, list | tuple):
            items = cast(Sequence[object], value)
            left -= len(items)
            inner = items
        if left < 0:
            raise misfit(f"arguments: hold more than {MAX_VALUES} values")
        pending += [each for each in inner if isinstance(each, Mapping | list | tuple)]


def decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """The body as the decoder's type. Raises `NotJson`, `Misfit`; neither repeats a value of the input."""
    check_values(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(_problem(str(error), decoder.type)) from None
    except UnicodeDecodeError:
        raise not_json(_not_utf8(body)) from None
    except msgspec.DecodeError as error:
        raise not_json(_reason(body, error)) from None
    except RecursionError:
        raise not_json("it is nested too deeply") from None


def convert(values: Mapping[str, object], kind: type[T]) -> T:
    """Texts, such as those of a query, as the type. Raises `Misfit`, which repeats no value of the input."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(_problem(str(error), kind)) from None


def _not_utf8(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8, byte {error.start + 1} is {body[error.start]:#04x}"
    return "it is not UTF-8"


def _reason(body: bytes, error: msgspec.DecodeError) -> str:
    if re.search(rb"\\u[dD][89a-fA-F]", body):
        return "a text may hold half of a surrogate pair, which is no character, or it does not come whole"
    return shortened(str(error).removeprefix("JSON is malformed: ").lower())


def _problem(said: str, wanted: Any) -> str:
    """The message of msgspec as place and problem, without values of the input."""
    found = _PLACE.search(said)
    place = [] if found is None else found[1].replace("[", ".").replace("]", "").split(".")
    said = said if found is None else said[: found.start()]
    if unknown := _UNKNOWN.search(said):
        known = "" if place else f". Known here: {', '.join(getattr(wanted, '__struct_encode_fields__', ()))}"
        return f"{shown_place([*place, unknown[1]])}: unknown field{known}"
    return f"{shown_place(place) or 'body'}: {_VALUE.sub('', said).strip().replace('  ', ' ').lower().replace('`', '')}"
