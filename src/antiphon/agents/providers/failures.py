"""What a provider's refusal means: its kind, its words, and what to leave out so that the next request is taken.

Providers say the same in many ways: by status, by a type or code, in words, or in an event of a stream that began
well. What each of them documents or was seen to answer is in the table of `tests/world`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Final, cast

from msgspec import Struct

from antiphon.agents.model import ModelErrorKind as Kind
from antiphon.agents.model import RefusedEntry
from antiphon.agents.providers.refusal_words import (
    AGAIN_CODES,
    ENTRIES,
    FILTER_CODES,
    FILTERED,
    FORMAT,
    IMAGE,
    IMAGE_CODES,
    KEY,
    KEY_CODES,
    LATER,
    LIMIT_AND_REQUESTED,
    LONG_TEXT,
    MODEL_CODES,
    NO_MODEL,
    OUT_OF_TIME,
    QUOTA,
    QUOTA_CODES,
    RATE,
    RATE_CODES,
    STATUS_OF_TYPE,
    TEMPLATE,
    TOO_LONG,
    TOO_LONG_CODES,
    TOO_MANY,
    UNSUPPORTED,
)

MAX_RETRY_AFTER_SECONDS: Final = 365 * 24 * 3600.0
"""A provider that asks for more time gets this; calendars end."""
MAX_WORDS: Final = 16_000
"""How many characters of a refusal are read."""
MAX_DEPTH: Final = 6


class ErrorAnswerOfModel(Struct, frozen=True, kw_only=True):
    """An answer that is no answer of a model."""

    status: int
    """200 for an event inside a stream."""
    headers: Mapping[str, str] = {}
    """With names in lower case."""
    body: bytes = b""
    sent_bytes: int = 0
    """The size of the request's conversation."""
    accepted_bytes: int | None = None
    """The size of the last conversation of this session that the provider took; None if none is known."""
    has_images: bool = False


class ModelFailure(Struct, frozen=True, kw_only=True):
    """What the refusal means."""

    kind: Kind
    said: str = ""
    """The provider's own words, not bounded."""
    entry: RefusedEntry | None = None
    is_larger: bool = False
    """Whether it may be too long: it says nothing else, and is larger than the last one that was taken."""
    retry_after_seconds: float | None = None
    is_passing: bool = False
    """Whether the same request may succeed later."""


def classify(refusal: ErrorAnswerOfModel, now: datetime) -> ModelFailure:
    """The kind of the refusal. Pure, and bounded in time whatever the body is."""
    report = _ErrorReport.read(refusal.body)
    status = _status(refusal.status, report)
    kind, entry = _kind(refusal, status, report)
    is_larger = (
        kind is Kind.REFUSED
        and entry is RefusedEntry.UNKNOWN
        and refusal.accepted_bytes is not None
        and refusal.sent_bytes > refusal.accepted_bytes
    )
    return ModelFailure(
        kind=kind,
        said=report.said or _without_words(refusal.status),
        entry=entry,
        is_larger=is_larger,
        retry_after_seconds=retry_after(refusal.headers, now),
        is_passing=kind in (Kind.RATE_LIMITED, Kind.SERVER),
    )


def _kind(refusal: ErrorAnswerOfModel, status: int, report: "_ErrorReport") -> tuple[Kind, RefusedEntry | None]:
    words, is_in_stream = report.words, refusal.status < 300
    if _has_too_long_code(report) or _asks_more_than_the_limit(words):
        # A request that is too large for all images together is said in the same way.
        return Kind.CONTEXT_TOO_LONG, None
    if (refusal.has_images or status == 404) and (entry := _refused_images(status, report)):
        return Kind.REFUSED, entry
    if report.names & QUOTA_CODES or status == 402 or (status < 500 and QUOTA.search(words)):
        is_passing = status == 429 and LATER.search(words) is not None
        return (Kind.RATE_LIMITED if is_passing else Kind.QUOTA), None
    if status != 413 and (status == 429 or report.names & RATE_CODES):
        return Kind.RATE_LIMITED, None
    if status == 413 or (not RATE.search(words) and _is_too_long(words)):
        return Kind.CONTEXT_TOO_LONG, None
    if report.names & FILTER_CODES or FILTERED.search(words):
        return Kind.FILTERED, RefusedEntry.UNKNOWN
    if status in (401, 403) or report.names & KEY_CODES or (status == 400 and KEY.search(words)):
        return Kind.AUTHENTICATION, None
    if status == 404 or report.names & MODEL_CODES or (status in (400, 422) and NO_MODEL.search(words)):
        return Kind.NOT_FOUND, None
    if report.names & AGAIN_CODES:
        return Kind.SERVER, None
    if TEMPLATE.search(words):
        return Kind.REFUSED, RefusedEntry.UNKNOWN
    if status >= 500 or status in (408, 409, 425) or (is_in_stream and status < 400):
        return Kind.SERVER, None
    if report.parameter and not ENTRIES.search(report.parameter):
        return Kind.REFUSED, None  # a setting of the request, whatever its entries are
    return Kind.REFUSED, RefusedEntry.UNKNOWN


def _status(status: int, report: "_ErrorReport") -> int:
    """The status, or that which a report inside a stream, or inside an answer of a relay, names."""
    if status >= 300:
        return status
    if report.status is not None:
        return report.status
    return next((STATUS_OF_TYPE[name] for name in report.names if name in STATUS_OF_TYPE), status)


def _refused_images(status: int, report: "_ErrorReport") -> RefusedEntry | None:
    words = report.words
    if status not in (400, 404, 413, 415, 422, 500) and status >= 300:
        return None
    if report.names & IMAGE_CODES:
        return RefusedEntry.IMAGE
    if not IMAGE.search(words):
        return None
    if UNSUPPORTED.search(words) and not FORMAT.search(words):
        return RefusedEntry.ALL_IMAGES
    if TOO_MANY.search(words):
        return RefusedEntry.IMAGES
    return None if status == 404 else RefusedEntry.IMAGE


def _has_too_long_code(report: "_ErrorReport") -> bool:
    """Whether a code says that the conversation is too long, and not an id or a description of a tool in it."""
    found = report.names & TOO_LONG_CODES
    if report.parameter and not LONG_TEXT.search(report.parameter):
        found -= {"string_above_max_length"}
    return bool(found)


def _is_too_long(words: str) -> bool:
    words = OUT_OF_TIME.sub("", words)
    return any(pattern.search(words) for pattern in TOO_LONG)


def _asks_more_than_the_limit(words: str) -> bool:
    """Whether one request is larger than all that may be sent in a minute: waiting does not help."""
    found = LIMIT_AND_REQUESTED.search(words)
    return found is not None and _number(found[2]) > _number(found[1])


def _number(text: str) -> int:
    return int(text.replace(",", "").replace("_", "")[:18])


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """How many seconds the provider asks to wait; None if it does not, or not in a way that can be kept."""
    if (text := headers.get("retry-after-ms")) is not None and (found := _seconds(text)) is not None:
        return _bounded(found / 1000)
    text = headers.get("retry-after")
    if text is None:
        return None
    if (found := _seconds(text)) is not None:
        return _bounded(found)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return _bounded((at - (now if at.tzinfo is not None else now.replace(tzinfo=None))).total_seconds())


def _seconds(text: str) -> float | None:
    try:
        found = float(text.strip().removesuffix("s"))
    except ValueError:
        return None
    return found if isfinite(found) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _without_words(status: int) -> str:
    return f"HTTP {status} without an explanation" if status >= 300 else "an error without an explanation"


class _ErrorReport(Struct, frozen=True, kw_only=True):
    """What stands in the body of a refusal, whatever its form."""

    said: str = ""
    """The sentence for people."""
    words: str = ""
    """All texts of it, in lower case."""
    names: frozenset[str] = frozenset()
    """Its types and codes, in lower case."""
    status: int | None = None
    """The HTTP status that it names."""
    parameter: str = ""
    """The part of the request that it names."""

    @staticmethod
    def read(body: bytes) -> "_ErrorReport":
        text = body.decode("utf-8", "replace").strip().removeprefix("data:").strip()
        try:
            value = cast("object", json.loads(text)) if text[:1] in ("{", "[", '"') else None
        except (ValueError, RecursionError):
            value = None
        if value is None:
            plain = _plain(text)
            return _ErrorReport(said=plain, words=plain[:MAX_WORDS].lower())
        fields = list(_fields(value, MAX_DEPTH))
        said = _first(fields, ("message", "detail", "msg", "error", "reason", "title", "")) or ""
        if raw := _first(fields, ("raw",)):
            inner = _ErrorReport.read(raw[:MAX_WORDS].encode())
            # What a relay says is that it was refused; why stands in what it passes on.
            fields += [("message", inner.said), *(("code", name) for name in inner.names)]
            said = f"{said}: {inner.said}" if inner.said and inner.said != said else said
        names = {text.lower() for name, text in fields if name in ("type", "code", "status", "reason", "error_code")}
        numbers = (int(name) for name in names if name.isascii() and name.isdigit() and len(name) == 3)
        return _ErrorReport(
            said=said,
            words=" ".join(text for _, text in fields)[:MAX_WORDS].lower(),
            names=frozenset(names),
            status=next((number for number in numbers if 400 <= number < 600), None),
            parameter=(_first(fields, ("param", "loc")) or "").lower(),
        )


def _fields(value: object, depth: int, name: str = "") -> Iterator[tuple[str, str]]:
    """All texts and numbers of a JSON value, each with the name of its field, the outer ones first."""
    if depth < 0:
        return
    match value:
        case str():
            yield name, value
        case bool() | None:
            pass
        case int() | float():
            yield name, str(value)
        case dict():
            members = cast("dict[str, object]", value).items()
            for key, each in sorted(members, key=lambda member: isinstance(member[1], dict | list)):
                yield from _fields(each, depth - 1, key.lower())
        case list():
            for each in cast("list[object]", value)[:20]:
                yield from _fields(each, depth - 1, name)
        case _:
            pass


def _first(fields: Iterable[tuple[str, str]], names: tuple[str, ...]) -> str | None:
    """The first text with one of the names; of two names the first counts."""
    found = list(fields)
    return next((text for name in names for given, text in found if given == name and text.strip()), None)


def _plain(text: str) -> str:
    """The text of a page, or the text itself."""
    if text[:1] != "<":
        return text[:MAX_WORDS]
    return " ".join(re.sub(r"<(script|style)\b.*?</\1>|<[^<>]{0,1000}>", " ", text[:MAX_WORDS], flags=re.S).split())
