"""Durations as people write them: `1h30m`, `half an hour`, `an hour and a half`. Contract: tasks 1."""

from datetime import timedelta

from antiphon.domain.errors import Invalid
from antiphon.domain.written_words import Sentence, digits, sentence_of

LONGEST = timedelta(days=365)
LONGEST_TEXT = 60
"""Characters."""
NUMBERS = {
    word: number
    for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
} | {"eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "sixty": 60, "ninety": 90}
_UNITS = {
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
    **dict.fromkeys(("fortnight", "fortnights"), timedelta(weeks=2)),
}
_SMALL_UNITS = frozenset(("s", "sec", "secs", "second", "seconds", "ms"))
UNITS = frozenset(_UNITS) | _SMALL_UNITS | {"month", "months", "year", "years"}
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_MOST = timedelta(days=10**6)
"""What longer sums count as, so that none is too large."""
_MOST_PIECES = 8
"""Pieces of a duration after the first; a text of thousands would be read anew from each of them."""
_HALF = ("and", "a", "half")

Length = tuple[timedelta, int]
"""A duration, and the place of the word after it."""


def parse_duration(text: str) -> timedelta:
    """`1h30m`, `10 minutes`, `hour`: from 1 minute to 365 days. Raises `Invalid` (`invalid_duration`)."""
    sentence = sentence_of(text.strip()[: LONGEST_TEXT + 1])
    found = None if len(text.strip()) > LONGEST_TEXT else duration_at(sentence, 0)
    if found is None or found[1] != len(sentence.words):
        if sentence.at(len(sentence.words) - 1) in _SMALL_UNITS and sentence.at(0).isalnum():
            raise Invalid("Duration is too short. Tasks run once a minute at most.", code="invalid_duration")
        raise Invalid(
            f'Invalid duration "{text.strip()[:40]}". Write it as 30m, 1h30m or "2 days".', code="invalid_duration"
        )
    total = found[0]
    if not total:
        raise Invalid("Duration must be greater than 0.", code="invalid_duration")
    if total < _MINUTE:
        raise Invalid("Duration is too short. Tasks run once a minute at most.", code="invalid_duration")
    if total > LONGEST:
        raise Invalid(f"Duration is longer than {LONGEST.days} days.", code="invalid_duration")
    return total


def duration_at(sentence: Sentence, at: int) -> Length | None:
    """The longest duration that begins there, of any size; None if none does."""
    if sentence.at(at) in _UNITS:
        return _UNITS[sentence.at(at)], at + 1
    first = _counted(sentence, at)
    if first is None:
        return None
    total, end = first
    for _ in range(_MOST_PIECES):
        following = end + (sentence.at(end) == ",")
        following += sentence.at(following) == "and"
        more = _counted(sentence, following)
        if more is None:
            break
        total, end = min(total + more[0], _MOST), more[1]
    return total, end


def duration_text(duration: timedelta) -> str:
    """`hour`, `2 days`, `1 hour 30 minutes`: what `parse_duration` reads."""
    days, rest = divmod(duration // _MINUTE, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute")]
    named = [f"{count} {unit}{'s' if count != 1 else ''}" for count, unit in parts if count]
    if len(named) == 1 and named[0].startswith("1 "):
        return named[0][2:]
    return " ".join(named)


def is_days(duration: timedelta) -> bool:
    """Whether it is whole days, so that a time of day can go with it."""
    return duration >= _DAY and not duration % _DAY


def _counted(sentence: Sentence, at: int) -> Length | None:
    """A number with its unit: `2 days`, `an hour`, `1.5h`, `half an hour`, `an hour and a half`."""
    start = at + (sentence.at(at) == "a" and sentence.at(at + 1) in ("quarter", "half"))
    if sentence.at(start) == "quarter":
        skipped = start + 1 + (sentence.at(start + 1) == "of")
        skipped += sentence.at(skipped) in ("a", "an")
        return (_HOUR / 4, skipped + 1) if sentence.at(skipped) == "hour" else None
    if sentence.at(start) == "half":
        unit = start + 1 + (sentence.at(start + 1) in ("a", "an"))
        return (_UNITS[sentence.at(unit)] / 2, unit + 1) if sentence.at(unit) in ("hour", "day") else None
    found = _number(sentence, at)
    unit = None if found is None else _UNITS.get(sentence.at(found[1]))
    if found is None or unit is None:
        return None
    total, end = timedelta(minutes=round(found[0] * (unit / _MINUTE))), found[1] + 1
    if sentence.has(end, *_HALF) and sentence.at(end + 3) not in _UNITS:
        return total + unit / 2, end + 3
    return total, end


def _number(sentence: Sentence, at: int) -> tuple[float, int] | None:
    word = sentence.at(at)
    number = 1 if word in ("a", "an") else NUMBERS.get(word, digits(word, 6))
    if number is None:
        return None
    if sentence.has(at + 1, *_HALF):
        return number + 0.5, at + 4
    decimals = digits(sentence.joined(at + 2), 2)
    if sentence.joined(at + 1) in (".", ",") and decimals is not None:
        return float(f"{number}.{sentence.at(at + 2)}"), at + 3
    return number, at + 1
