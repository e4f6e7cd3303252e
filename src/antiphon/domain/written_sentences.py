"""The one time that a sentence says, or why it is not clear which. Contract: tasks 1, channels 3.

What stands next to a time and looks like more of it is never taken for the prompt: the sentence is refused, with what
was understood. A time at the beginning of the sentence is its time. Others may then stand in the prompt.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.durations import NUMBERS, UNITS, duration_at, is_days, parse_duration
from antiphon.domain.errors import Invalid
from antiphon.domain.written_clocks import COUNTED, PARTS, clock_at
from antiphon.domain.written_days import MONTHS, WEEKDAYS
from antiphon.domain.written_times import Phrase, WrittenKind, WrittenTime, phrase_at, time_from
from antiphon.domain.written_words import SEARCHED, Sentence, digits, sentence_of
from antiphon.domain.written_zones import zone_at

WHEN = "Write when, such as 'every weekday at 8', 'tomorrow at 9', 'in 20 minutes' or 'every 2h'."
APART = "or put -- between the time and the prompt."
_COURTESY = frozenset(
    (
        *("please", "can", "could", "will", "would", "you", "remind", "me", "us", "tell", "let", "know"),
        *("to", "wake", "up", "send", "ping", "notify", "ask", "give", "hey", "hi", "hello", "ok"),
        *("kindly", ",", "!"),
    )
)
_NAME = re.compile(r"[^\s:][^:\n]{0,59}:\s+")
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
        *("lunchtime", "dinner", "breakfast", "approximately", "roughly", "circa"),
    )
)
"""After a day without a time of day these say when."""
_JOINING = frozenset(
    (
        *("and", "&", "+", "plus", "then", "again", "also", "/", "-", "–", "to", "from", "starting"),
        *(
            "beginning",
            "as",
            "of",
            "between",
            "through",
            "thru",
            "up",
            "ending",
            "ends",
            "minus",
            "without",
            "skip",
            "skipping",
            "max",
            "approx",
            "for",
            "only",
            "just",
            "on",
            "in",
            "at",
            "@",
        ),
        *("by", "before", "after", "around", "about", "circa", "approximately", "roughly", "nearly"),
        *("almost", "past", "not", "no", "the", ",", ";", "(", "within", "since", "until", "till", "during"),
        *("except", "or", "~", "'"),
    )
)
"""After these a time says more about the time before them; none of them begins one."""
_LENGTHS = frozenset(("for", "in", "within", "the", "on", "as", "of", "just", "only"))
"""After these a bare number is no time of day."""
_VAGUE = frozenset(
    (
        *("around", "about", "circa", "approximately", "roughly", "nearly", "almost", "by", "before"),
        *("after", "between", "from", "starting", "beginning", "until", "till", "for", "during"),
        *("since", "within", "except", "not", "~"),
    )
)
"""Before a time, these make something else of it."""
_NOUNS = _VAGUE | frozenset(
    (
        *("of", "than", "last", "past", "the", "a", "my", "our", "your", "his", "her", "their", "its"),
        *("this", "look", "looks", "looking"),
    )
)
"""After these a time within a sentence belongs to a noun."""
_OPENING = frozenset("([{\"'\u201c\u201e\u2018")
_ADVERBS = frozenset(
    (
        *("daily", "weekly", "monthly", "yearly", "annually", "hourly", "nightly", "fortnightly"),
        *("everyday",),
    )
)
_LONG = frozenset(("month", "months", "quarter", "quarters", "year", "years"))
_OFTEN = frozenset(("twice", "thrice", "times", "biweekly", "bimonthly"))
_EVENTS = frozenset(
    (
        *(
            "half",
            "quarter",
            "lunch",
            "lunchtime",
            "noonish",
            "dinner",
            "breakfast",
            "christmas",
            "easter",
            "sunrise",
            "sunset",
        ),
        *("dawn", "dusk", "bedtime"),
    )
)
_SOME = frozenset((*NUMBERS, "a", "an", "some", "several", "few", "many"))
_SEASONS = frozenset(("spring", "summer", "autumn", "fall", "winter", "mornings", "evenings", "afternoons", "nights"))
_STARTS = frozenset(("on", "at", "@", "in", "every", "each", "next", "today", "tomorrow", "tonight"))
_UNCLEAR = frozenset(("on", "next", "this", "the", "coming", "at"))
_KNOWN = frozenset((*WEEKDAYS, *MONTHS))
_DAYS = frozenset(("mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "days", "weeks", "months", "years"))
_SPELLED = sorted(
    {name for name in _KNOWN if len(name) > 4 and name != "august"}
    | {"tomorrow", "today", "tonight", "every", "weekday", "weekdays", "morning", "evening", "afternoon"}
)
_LONGEST_SHOWN = 60


class FoundTime(Struct, frozen=True):
    """A time within a text, from the character `start` to before `end`."""

    time: WrittenTime
    start: int
    end: int


def whole_time(text: str) -> WrittenTime | None:
    """The time that the whole text is; None if it is something else, or more. Raises `Invalid` as `phrase_at`."""
    sentence = sentence_of(text)
    phrase = phrase_at(sentence, 0) if sentence.words else None
    if phrase is None or phrase.end != len(sentence.words) or sentence.words[-1].end != len(text.rstrip()):
        return None
    return time_from(phrase.parts)


def find_time(text: str) -> FoundTime:
    """The time of the sentence. Raises `Invalid`: `invalid_task` if it says none, else the code of what is wrong."""
    sentence = sentence_of(text)
    begin = next((i for i, word in enumerate(sentence.words) if word.text not in _COURTESY), len(sentence.words))
    for start in (begin, _after_name(sentence)):
        if start is None:
            continue
        phrase = phrase_at(sentence, start)
        if phrase is not None:
            _check_rest(sentence, phrase)
            _check_apart(sentence, phrase)
            return _found(sentence, phrase)
        _check_beginning(sentence, start)
    phrase = _within(sentence, begin)
    _check_rest(sentence, phrase)
    return _found(sentence, phrase)


def time_of(
    *, every: str | None = None, at: str | None = None, cron: str | None = None, zone: str | None = None
) -> WrittenTime:
    """The one time that is given, as a program or a form gives it. Raises `Invalid`, with the code of what is wrong."""
    given = {WrittenKind.EVERY: every, WrittenKind.AT: at, WrittenKind.CRON: cron}
    match [(kind, text.strip()) for kind, text in given.items() if text is not None]:
        case [(kind, text)]:
            pass
        case _:
            raise Invalid("Task needs exactly one of 'every', 'at' and 'cron'.", code="invalid_task")
    if kind is WrittenKind.CRON:
        return WrittenTime(kind=kind, text=text, zone=zone)
    spoken = [f"every {text}", text] if kind is WrittenKind.EVERY else [text, f"at {text}"]
    for each in spoken:
        found = whole_time(each)
        if found is None:
            continue
        if (found.kind in (WrittenKind.EVERY, WrittenKind.CRON)) != (kind is WrittenKind.EVERY):
            raise Invalid(
                f"Time is not for {kind.value!r}: {text[:60]!r}. 'every' is for what comes again, 'at' for one time.",
                code="invalid_time",
            )
        return in_zone(found, zone)
    for each in spoken:
        sentence = sentence_of(each)
        phrase = phrase_at(sentence, 0) if sentence.words else None
        if phrase is not None:
            raise _unread(sentence, phrase, phrase.end, len(sentence.words))
    return WrittenTime(kind=kind, text=text, zone=zone)


def in_zone(time: WrittenTime, zone: str | None) -> WrittenTime:
    """The time in that zone. Raises `Invalid` (`invalid_zone`) if it names another one itself."""
    if zone is None:
        return time
    if time.zone not in (None, zone):
        raise Invalid(f"Task names two time zones: {time.zone!r} and {zone[:60]!r}. Name one.", code="invalid_zone")
    return replace(time, zone=zone)


def _after_name(sentence: Sentence) -> int | None:
    match = _NAME.match(sentence.text)
    if match is None:
        return None
    return next((i for i, word in enumerate(sentence.words) if word.start >= match.end()), None)


def _found(sentence: Sentence, phrase: Phrase) -> FoundTime:
    words = sentence.words
    return FoundTime(time_from(phrase.parts), words[phrase.start].start, words[phrase.end - 1].end)


def _check_beginning(sentence: Sentence, start: int) -> None:
    """Raises `Invalid` if the sentence begins like a time that is none."""
    word, following = sentence.at(start), sentence.at(start + 1)
    if word in ("every", "each"):
        raise _no_interval(sentence, start)
    if word in _OFTEN or following == "times":
        shown = sentence.written(start, start + 3)
        raise Invalid(
            f"Task does not say at which times: {shown!r}. Write 'every day at 8 and 20' or 'every 12h'.",
            code="invalid_time",
        )
    is_vague = word in _VAGUE and _more(sentence, start + 1, word, None) is not None
    is_time = word in ("on", "by") and following[:1].isdigit()
    is_time |= word in ("at", "@") and (following in _VAGUE | {"soon", "half"} or not following.isalpha())
    is_time |= word == "in" and sentence.at(start + 2) in UNITS
    if is_vague or is_time or (word.isdigit() and not sentence.is_over(start + 1) and _is_clocklike(sentence, start)):
        shown = sentence.written(start + (word == "at"), min(start + 6, len(sentence.words)))[:40]
        raise Invalid(
            f"Time is not valid: {shown!r}. Write it as '2027-01-31 08:00', '08:00' or 'friday at 10'.",
            code="invalid_time",
        )


def _is_clocklike(sentence: Sentence, at: int) -> bool:
    return sentence.joined(at + 1) in (":", "am", "pm", "ish") and len(sentence.at(at)) <= 2


def _no_interval(sentence: Sentence, start: int) -> Invalid:
    """Why `every …` is not a time."""
    words = [sentence.at(start + 1), sentence.at(start + 2)]
    if words[0] in ("other", "second", "third") and words[1] in _KNOWN | {"month", "year", "weekday", "weekend"}:
        shown = sentence.written(start, start + 3)
        return Invalid(
            f"No task can be at {shown!r}: its days have to be the same each week, month or year. "
            "Write 'every monday at 9' or 'every 2 weeks'.",
            code="invalid_time",
        )
    if words[0] in _LONG or words[1] in _LONG:
        shown = sentence.written(start, start + 2 + (words[1] in _LONG))
        return Invalid(f"No task can be at {shown!r}. Write 'every month on the 1st at 9'.", code="invalid_time")
    if _is_misspelt(words[0]):
        shown = sentence.written(start + 1, start + 2)
        return Invalid(f"Day is not known: {shown!r}. Write 'every monday at 8:00'.", code="invalid_time")
    is_counted = words[0].isdigit()
    end = start + 2 + (is_counted and start + 2 < len(sentence.words))
    try:
        parse_duration(sentence.written(start + 1, min(end, len(sentence.words))))
    except Invalid as error:
        return error
    return Invalid("Time is not valid. Write 'every monday at 8:00' or 'every 2h'.", code="invalid_time")


def _check_rest(sentence: Sentence, phrase: Phrase) -> None:
    """Raises `Invalid` if what follows the time looks like more of it."""
    time_from(phrase.parts)
    if phrase.end == len(sentence.words) and sentence.words[-1].end < len(sentence.text.rstrip()):
        raise Invalid(f"Time is longer than {SEARCHED} characters. Write one time.", code="invalid_time")
    start = phrase.end + (sentence.at(phrase.end) == ",")
    word = sentence.at(start)
    is_first_thing = sentence.has(start, "first", "thing")
    if word in _ALWAYS or ((word in _IF_OPEN or is_first_thing) and phrase.parts.takes_clock):
        raise _unread(sentence, phrase, start, start + 3)
    place = _joined(sentence, start)
    if place > start or start > phrase.end:
        end = _more(sentence, place, sentence.at(place - 1), phrase)
        end = _more_named(sentence, start) if end is None else end
    else:
        end = _next_to(sentence, start, phrase)
    if end is None and not phrase.parts.has_day and _is_misspelt(sentence.at(place)):
        end = place + 1
    if end is not None:
        raise _unread(sentence, phrase, start, end)


def _more(sentence: Sentence, at: int, before: str, phrase: Phrase | None) -> int | None:
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
    if before in ("in", "during") and (sentence.at(at) in _KNOWN or sentence.at(at) in _SEASONS):
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
    return _phrase_end(sentence, at)


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
        return _phrase_end(sentence, place)
    return None


def _phrase_end(sentence: Sentence, at: int, *, is_first: bool = True) -> int | None:
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
    if word == "this" and sentence.at(at + 1) in ("week", *_LONG) and sentence.at(at + 2) != "in":
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
    is_minute = number is not None and number < 60 and sentence.at(at + 1) not in COUNTED
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


def _check_apart(sentence: Sentence, phrase: Phrase) -> None:
    """Raises `Invalid` if a day and a time of day stand apart, so that it is not clear whether they belong together."""
    parts = phrase.parts
    is_day = parts.takes_clock and parts.delay is None and parts.part_of_day is None
    for other, is_free in _others(sentence, phrase.end):
        is_clock = bool(other.parts.clocks) and not other.parts.has_day and is_day and parts.has_day
        is_repeat = other.parts.repeat is not None and not other.parts.clocks and not parts.has_day
        if is_free and (is_clock or is_repeat):
            raise _apart(sentence, phrase, other)


def _apart(sentence: Sentence, one: Phrase, two: Phrase) -> Invalid:
    shown = f"{_shown(sentence, one)!r} and {_shown(sentence, two)!r}"
    return Invalid(f"Time is not clear: {shown} stand apart. Put them together, {APART}", code="invalid_time")


def _joined(sentence: Sentence, at: int) -> int:
    """The place of the first word there that joins nothing."""
    end = at
    while sentence.at(end) in _JOINING and end < at + 4:
        end += 1 + sentence.has(end, "approx", ".")
    return end


def _within(sentence: Sentence, begin: int) -> Phrase:
    """The one time within a sentence that does not begin with it. Raises `Invalid`."""
    free = [phrase for phrase, is_free in _others(sentence, begin) if is_free]
    taken = [phrase for phrase, is_free in _others(sentence, begin) if not is_free]
    strong = [phrase for phrase in free if _is_strong(phrase)]
    last = [phrase for phrase in free if not sentence.at(phrase.end).isalnum() and not sentence.at(phrase.end + 1)]
    chosen = strong or last
    if len(chosen) > 1:
        one, two = (_shown(sentence, phrase) for phrase in chosen[:2])
        raise Invalid(
            f"Task says two times, {one!r} and {two!r}. Begin with the one at which it is to fire.", code="invalid_task"
        )
    if not chosen:
        _refuse_none(sentence, begin, free or taken)
    (phrase,) = chosen
    for other in free:
        if other.parts.has_day and not phrase.parts.has_day:
            raise _apart(sentence, other, phrase)
    _check_before(sentence, begin, phrase)
    return phrase


def _refuse_none(sentence: Sentence, begin: int, seen: list[Phrase]) -> None:
    if seen:
        shown = _shown(sentence, seen[0])
        raise Invalid(
            f"Task does not say clearly when it is to fire: {shown!r} may belong to the prompt. Begin with the time: "
            "'friday at 10 call Mum'.",
            code="invalid_task",
        )
    if sentence.at(begin) in ("in", "on", "next", "this"):
        shown = sentence.written(begin, begin + 3)[:40]
        raise Invalid(f"Time is not understood: {shown!r}. {WHEN}", code="invalid_time")
    raise Invalid(f"Task says no time. {WHEN}", code="invalid_task")


def _check_before(sentence: Sentence, begin: int, phrase: Phrase) -> None:
    """Raises `Invalid` if words before the time look like more of it: `on 24 decembre at 18:00`."""
    for start in range(begin, phrase.start):
        end = _phrase_end(sentence, start, is_first=False) or start
        is_noun = sentence.at(start - 1) in _NOUNS - _VAGUE
        if start < end <= phrase.start <= _joined(sentence, end) and not is_noun:
            raise _unread(sentence, phrase, start - (sentence.at(start - 1) in _VAGUE), end)
    is_near = phrase.start - begin <= 4
    if is_near and (
        sentence.at(begin) in ("this", "next") or (sentence.at(begin) == "at" and phrase.parts.takes_clock)
    ):
        raise _unread(sentence, phrase, begin, phrase.start)
    if phrase.parts.has_day:
        return
    words = range(max(begin, phrase.start - 3), phrase.start)
    is_short = phrase.start - begin <= 4
    begins = sentence.at(begin) in _UNCLEAR or (sentence.at(begin).isdigit() and sentence.joined(begin + 1) != "")
    odd = next((i for i in words if sentence.at(i) in _KNOWN | _DAYS | _OFTEN or _is_misspelt(sentence.at(i))), None)
    if odd is not None or (is_short and begins):
        raise _unread(sentence, phrase, begin if odd is None or is_short else odd, phrase.start)


def _others(sentence: Sentence, start: int) -> Iterator[tuple[Phrase, bool]]:
    """The times within a sentence, with whether each stands for itself rather than with a noun."""
    at = start
    while at < len(sentence.words):
        try:
            phrase = phrase_at(sentence, at, is_first=False)
        except Invalid:
            phrase = None
        is_cut = at > start and sentence.joined(at) != "" and sentence.at(at - 1) in ("/", "-", "–", ".", "'")
        if phrase is None or is_cut or not (sentence.at(at) in _STARTS or _is_full(phrase)):
            at += 1
            continue
        before = sentence.at(at - 1) if at > start else ""
        yield phrase, before not in _NOUNS | _OPENING and not before.isdigit()
        at = phrase.end


def _is_full(phrase: Phrase) -> bool:
    parts = phrase.parts
    return parts.has_day and (
        parts.stated is not None or bool(parts.clocks) or parts.part_of_day is not None or not parts.is_once
    )


def _is_strong(phrase: Phrase) -> bool:
    parts = phrase.parts
    return parts.day is None or bool(parts.clocks) or parts.part_of_day is not None


def _is_misspelt(word: str) -> bool:
    """Whether the word is nearly the name of a day or month."""
    if word == "evry":
        return True
    is_word = 4 < len(word) < 12 and word.isalpha() and word not in _SPELLED
    return is_word and bool(get_close_matches(word, _SPELLED, 1, 0.81))


def _shown(sentence: Sentence, phrase: Phrase) -> str:
    return sentence.written(phrase.start, phrase.end)[:_LONGEST_SHOWN]


def _unread(sentence: Sentence, phrase: Phrase, start: int, end: int) -> Invalid:
    while sentence.joined(end).isalnum() or sentence.joined(end + 1).isdigit():
        end += 1
    rest = sentence.written(start, end)[:40]
    if rest[:3].lower() == "at ":
        return Invalid(
            f"Time of day is not valid: {rest!r} after {_shown(sentence, phrase)!r}. "
            f"Write 'every day at 8:00', {APART}",
            code="invalid_time",
        )
    return Invalid(
        f"Time is not read whole: {_shown(sentence, phrase)!r} is understood, {rest!r} is not. "
        f"Write one time, such as 'friday at 10', {APART}",
        code="invalid_time",
    )
