"""Time zones as people write them after a time: `Europe/Berlin`, `UTC`, `Berlin time`. Contract: tasks 1."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from zoneinfo import available_timezones

from antiphon.domain.errors import Invalid
from antiphon.domain.written_words import Sentence

_NAMED = {"utc": "UTC", "gmt": "UTC", "cet": "CET"}
_MANY = frozenset(
    (
        *("EST", "EDT", "ET", "CST", "CDT", "CT", "MST", "MDT", "MT", "PST", "PDT", "PT", "IST", "BST"),
        *("AST", "CEST", "EET", "EEST", "WEST", "MSK", "JST", "KST", "SGT", "HKT", "AEST", "AEDT", "ACST"),
        *("AWST", "NZST", "NZDT", "SAST", "BRT", "PKT"),
    )
)
"""Abbreviations that several zones share, or that hold for a part of the year."""
_CAPITALS = frozenset(("ET", "CT", "MT", "PT", "WEST"))
"""Of these, those that are ordinary words in small letters."""
_REGIONS = frozenset(("eastern", "pacific", "central", "mountain"))
_AREAS = frozenset(
    (
        *("africa", "america", "antarctica", "arctic", "asia", "atlantic", "australia", "brazil", "canada"),
        *("chile", "etc", "europe", "indian", "mexico", "pacific", "us"),
    )
)
_CONTINENTS = frozenset(("africa", "america", "antarctica", "asia", "australia", "europe"))
_SLASHED = re.compile(r"[A-Za-z]+(?:/[A-Za-z0-9_+-]+){1,2}")
_LONGEST_CITY = 3
"""Words."""

Zone = tuple[str | None, int]
"""A zone, None for that of the settings, and the place of the word after it."""


def zone_at(sentence: Sentence, at: int) -> Zone | None:
    """The zone that is named there, also in brackets. Raises `Invalid` (`invalid_zone`) if it is none or many."""
    if sentence.at(at) == "(":
        found = zone_at(sentence, at + 1)
        return (found[0], found[1] + 1) if found is not None and sentence.at(found[1]) == ")" else None
    word = sentence.at(at)
    written = sentence.written(at, at + 1)
    if word in _NAMED and (sentence.is_over(at + 1) or sentence.at(at + 1) in ("+", "-")):
        if sentence.joined(at + 1) in ("+", "-"):
            raise _many(sentence.written(at, at + 3))
        return _NAMED[word], at + 1 + (sentence.at(at + 1) == "time")
    if written.upper() in _MANY and (written.isupper() or word.upper() not in _CAPITALS) and sentence.is_over(at + 1):
        raise _many(written)
    at += 2 * sentence.has(at, "time", "zone") or sentence.at(at) in ("in", "timezone")
    word = sentence.at(at)
    if sentence.joined(at + 1) == "/" and word in _AREAS:
        return _slashed(sentence, at)
    return _said(sentence, at)


def _slashed(sentence: Sentence, at: int) -> Zone | None:
    match = _SLASHED.match(sentence.text, sentence.words[at].start)
    if match is None:
        return None
    end = next((i for i in range(at, len(sentence.words)) if sentence.words[i].start >= match.end()), None)
    name = _names().get(match[0].lower())
    if name is not None:
        return name, len(sentence.words) if end is None else end
    if sentence.at(at) not in _CONTINENTS or sentence.at(at + 2) in _AREAS:
        return None  # "US/China", "Asia/Pacific"
    raise Invalid(
        f"Time zone is not known: {match[0][:60]!r}. Write it as 'Europe/Berlin' or 'UTC'.", code="invalid_zone"
    )


def _said(sentence: Sentence, at: int) -> Zone | None:
    """`Berlin time`, `local time`."""
    length = next((count for count in range(1, _LONGEST_CITY + 1) if sentence.at(at + count) == "time"), None)
    if length is None:
        return None
    name, end = " ".join(sentence.at(at + count) for count in range(length)), at + length + 1
    if name in ("local", "my"):
        return None, end
    if name in _REGIONS:
        raise _many(sentence.written(at, end))
    zones = _cities().get(name, ())
    if len(zones) > 1:
        raise Invalid(f"Time zone can be {' or '.join(zones)}. Write one of them.", code="invalid_zone")
    return (zones[0], end) if zones else None


@cache
def _names() -> Mapping[str, str]:
    """The names of the zones of this machine, by their lower case."""
    return {name.lower(): name for name in available_timezones()}


@cache
def _cities() -> Mapping[str, Sequence[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(_names().values()):
        area, _, city = name.rpartition("/")
        if area.lower() in _CONTINENTS | {"atlantic", "indian", "pacific"}:
            found[city.replace("_", " ").lower()].append(name)
    return found


def _many(written: str) -> Invalid:
    return Invalid(
        f"Time zone is not one place: {written!r}. Write it as 'Europe/Berlin', 'America/New_York' or 'UTC'.",
        code="invalid_zone",
    )
