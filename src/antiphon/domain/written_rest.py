"""What stands right after a time and looks like more of it. Contract: tasks 1.

It is never taken for the prompt: the sentence is refused, with what was understood.
"""

from difflib import get_close_matches

from antiphon.domain.durations import NUMBERS, UNITS, duration_at, is_days
from antiphon.domain.errors import Invalid
from antiphon.domain.written_clocks import COUNTED, PARTS, clock_at
from antiphon.domain.written_dates import MONTHS
from antiphon.domain.written_days import WEEKDAYS
from antiphon.domain.written_times import Phrase, phrase_at, time_from
from antiphon.domain.written_words import SEARCHED, Sentence, digits
from antiphon.domain.written_zones import zone_at

APART = "or put -- between the time and the prompt."
_ALWAYS = frozenset(
    (
        *("or", "until", "till", "except", "excluding", "but", "during", "throughout", "ish", "onward"),
        *("onwards", "uhr", "am", "pm", "twice", "thrice", "evry"),
    )
)
"""After a time these say more about it."""
_IF_OPEN = frozenset(
    (
        *("after", "before", "by", "around", "between", "early", "late", "later", "sometime", "lunch"),
        *("lunchtime", "dinner", "breakfast", "approximately", "roughly", "circa", "noonish"),
    )
)
"""After a day without a time of day these say when."""
_JOINING = frozenset(
    (
        *("and", "&", "+", "plus", "then", "again", "also", "/", "-", "–", "to", "from", "starting"),
        *("beginning", "as", "of", "between", "through", "thru", "up", "ending", "ends", "minus", "without"),
        *("skip", "skipping", "max", "approx", "for", "only", "just", "on", "in", "at", "@", "by", "before"),
        *("after", "around", "about", "circa", "approximately", "roughly", "nearly", "almost", "past", "not"),
        *("no", "the", ",", ";", "(", "within", "since", "until", "till", "during", "except", "or", "~", "'"),
    )
)
"""After these a time says more about the time before them; none of them begins one."""
_LENGTHS = frozenset(("for", "in", "within", "the", "on", "as", "of", "just", "only"))
"""After these a bare number is no time of day."""
_ADVERBS = frozenset(
    (*("daily", "weekly", "monthly", "yearly", "annually", "hourly", "nightly", "fortnightly", "everyday"),)
)
LONG = frozenset(("month", "months", "quarter", "quarters", "year", "years"))
_EVENTS = frozenset(
    (
        *("half", "quarter", "lunch", "lunchtime", "dinner", "breakfast", "christmas", "easter", "sunrise"),
        *("sunset", "dawn", "dusk", "bedtime"),
    )
)
_SOME = frozenset((*NUMBERS, "a", "an", "some", "several", "few", "many"))
_SEASONS = frozenset(("spring", "summer", "autumn", "fall", "winter", "mornings", "evenings", "afternoons", "nights"))
KNOWN = frozenset((*WEEKDAYS, *MONTHS))
_SPELLED = sorted(
    {name for name in KNOWN if len(name) > 4 and name != "august"}
    | {"tomorrow", "today", "tonight", "every", "weekday", "weekdays", "morning", "evening", "afternoon"}
)
_LONGEST_SHOWN = 60


def check_rest(sentence: Sentence, phrase: Phrase) -> None:
    """Raises `Invalid` if what follows the time looks like more of it."""
    time_from(phrase.parts)
    if phrase.end == len(sentence.words) and sentence.words[-1].end < len(sentence.text.rstrip()):
        raise Invalid(f"Time is longer than {SEARCHED} characters. Write one time.", code="invalid_time")
    start = phrase.end + (sentence.at(phrase.end) == ",")
    word = sentence.at(start)
    is_first_thing = sentence.has(start, "first", "thing")
    if word in _ALWAYS or ((word in _IF_OPEN or is_first_thing) and phrase.parts.takes_clock):
        raise unread(sentence, phrase, start, start + 3)
    place = joined_end(sentence, start)
    if sentence.at(place - 1) == "the" and sentence.at(place) in _ADVERBS:
        end = None  # "the weekly report"
    elif place > start or start > phrase.end:
        end = more_at(sentence, place, sentence.at(place - 1), phrase)
        end = _more_named(sentence, start) if end is None else end
    else:
        end = _next_to(sentence, start, phrase)
    if end is None and not phrase.parts.has_day and is_misspelt(sentence.at(place)):
        end = place + 1
    if end is not None:
        raise unread(sentence, phrase, start, end)


def more_at(sentence: Sentence, at: int, before: str, phrase: Phrase | None) -> int | None:
    """The place after a time that stands there, behind a word that joins it; None if none does."""
    if sentence.at(at) == "":
        return None
    if sentence.has(at, "a", "half") or (sentence.at(at) == "half" and before == "and"):
        return at + 2
    length = duration_at(sentence, at)
    if length is not None and length[1] > at + 1:
        return length[1]
    if sentence.at(at).isdigit() and sentence.at(at + 1) == "times":
        return at + 2
    if before in ("in", "during") and (sentence.at(at) in KNOWN or sentence.at(at) in _SEASONS):
        return at + 1
    if before == "in" and digits(sentence.at(at), 4) is not None and len(sentence.at(at)) == 4:
        return at + 1
    if sentence.at(at) in PARTS | {"hour": 0} and before in ("the", "and", "&"):
        return at + 1
    if before in ("at", "@") and sentence.at(at) in _EVENTS:
        return at + 1
    clock = clock_at(sentence, at)
    if clock is not None:
        return clock[1] if clock[0].is_shaped or _takes_number(sentence, at, before, phrase) else None
    if before in ("at", "@", "around", "by", "-", "–", "~") and sentence.at(at)[:1].isdigit() and _is_odd(sentence, at):
        return at + 1
    return phrase_end(sentence, at)


def _is_odd(sentence: Sentence, at: int) -> bool:
    """Whether a number that is no time of day cannot be a number of things either: `25:00`, `8ish`, `25`."""
    return bool(sentence.joined(at + 1)) or clock_at(Sentence("", (sentence.words[at],)), 0) is None


def _takes_number(sentence: Sentence, at: int, before: str, phrase: Phrase | None) -> bool:
    """Whether a bare number there would be a time of day."""
    if before in _LENGTHS or sentence.at(at) == "one":
        return False
    if before in ("from", "between") and (phrase is None or not phrase.parts.takes_clock):
        return sentence.at(at + 1) in ("and", "to", "-", "–", "until", "till", "")
    if phrase is None or before in ("at", "@"):
        return True
    if phrase.parts.takes_clock:
        return phrase.parts.has_day
    return bool(phrase.parts.clocks) and before != "about"


def _more_named(sentence: Sentence, start: int) -> int | None:
    """`for a while`, `from monday`, `starting tomorrow`: spans of days."""
    word = sentence.at(start)
    place = start + 1 + (sentence.at(start + 1) in ("on", "from"))
    if sentence.has(start, "at", "the") and sentence.at(start + 2) in ("latest", "earliest"):
        return start + 3
    if word == "for" and sentence.at(start + 1) == "the" and sentence.at(start + 2) in ("next", "rest"):
        return start + 3
    if word == "for" and (sentence.at(start + 1).isdigit() or sentence.at(start + 1) in _SOME):
        return next((i + 1 for i in range(start + 2, start + 5) if sentence.at(i) in UNITS), None)
    if word in ("from", "starting", "beginning", "until", "till"):
        return phrase_end(sentence, place)
    return None


def phrase_end(sentence: Sentence, at: int, *, is_first: bool = True) -> int | None:
    """The place after the time that stands there, one that cannot be or is not clear included."""
    try:
        phrase = phrase_at(sentence, at, is_first=is_first)
    except Invalid:
        return at + 1
    return None if phrase is None else phrase.end


def _next_to(sentence: Sentence, at: int, phrase: Phrase) -> int | None:
    """The place after a time that follows the phrase directly, if it can be more of it; else None."""
    word, parts = sentence.at(at), phrase.parts
    if sentence.has(at + 1, "-", "ish"):
        return at + 3
    if word == "this" and sentence.at(at + 1) in ("week", *LONG) and sentence.at(at + 2) != "in":
        return at + 2  # "this week in numbers" is a title
    if word.isdigit() or word in NUMBERS:
        return at + 1 if _is_counted_on(sentence, at, phrase) else None
    try:
        if parts.has_zone and (zone := zone_at(sentence, at)) is not None:
            return zone[1]
        found = phrase_at(sentence, at, is_first=False)
    except Invalid:
        return at + 1
    if found is None:
        return None
    if word in _ADVERBS:
        return found.end if parts.is_once else None
    is_day = found.parts.day is not None and word not in ("on", "next", "this", "at")
    if is_day and not found.parts.clocks and sentence.at(found.end) not in ("", ",", "and", "&", "or"):
        return None  # "every monday at 9 friday report"
    return found.end


def _is_counted_on(sentence: Sentence, at: int, phrase: Phrase) -> bool:
    """Whether a number right after the time may belong to it."""
    parts, clock = phrase.parts, clock_at(sentence, at)
    if sentence.at(at + 1) in ("times", "x") or (clock is not None and clock[0].is_shaped):
        return True
    number = NUMBERS.get(sentence.at(at), digits(sentence.at(at), 2))
    is_word = sentence.joined(at + 1) in ("-", "/") and (sentence.joined(at + 2) or "-") not in ("ish", "-")
    is_word &= bool(parts.clocks)  # "5-minute summary", "24/7 hotline"
    is_minute = number is not None and number < 60 and sentence.at(at + 1) not in COUNTED and not is_word
    if not sentence.at(at).isdigit():
        return bool(parts.clocks) and is_minute and (number or 0) >= 15 and not parts.clocks[-1].is_shaped
    if parts.takes_clock:
        return (clock is not None or sentence.joined(at + 1) in ("-", "–", ":", "h", "ish")) and parts.has_day
    if parts.clocks:
        return is_minute and not parts.clocks[-1].is_shaped
    length = parts.delay if parts.interval is None else parts.interval
    has_unit = sentence.at(at + 1) in UNITS
    is_minutes = len(sentence.at(at)) == 2 and is_minute
    ends_in_hours = sentence.at(phrase.end - 1)[:1] == "h"
    return length is not None and not is_days(length) and (has_unit or (is_minutes and ends_in_hours))


def joined_end(sentence: Sentence, at: int) -> int:
    """The place of the first word there that joins nothing."""
    end = at
    while sentence.at(end) in _JOINING and end < at + 4:
        end += 1 + sentence.has(end, "approx", ".")
    return end


def is_misspelt(word: str) -> bool:
    """Whether the word is nearly the name of a day or month."""
    if word == "evry":
        return True
    is_word = 4 < len(word) < 12 and word.isalpha() and word not in _SPELLED
    return is_word and bool(get_close_matches(word, _SPELLED, 1, 0.81))


def shown_phrase(sentence: Sentence, phrase: Phrase) -> str:
    return sentence.written(phrase.start, phrase.end)[:_LONGEST_SHOWN]


def unread(sentence: Sentence, phrase: Phrase, start: int, end: int) -> Invalid:
    while sentence.joined(end).isalnum() or sentence.joined(end + 1).isdigit():
        end += 1
    rest = sentence.written(start, end)[:40]
    if rest[:3].lower() == "at ":
        return Invalid(
            f"Time of day is not valid: {rest!r} after {shown_phrase(sentence, phrase)!r}. "
            f"Write 'every day at 8:00', {APART}",
            code="invalid_time",
        )
    return Invalid(
        f"Time is not read whole: {shown_phrase(sentence, phrase)!r} is understood, {rest!r} is not. "
        f"Write one time, such as 'friday at 10', {APART}",
        code="invalid_time",
    )
