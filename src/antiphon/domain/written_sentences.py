"""The one time that a sentence says, or why it is not clear which. Contract: tasks 1, channels 3.

A time at the beginning of the sentence is its time. Others may then stand in the prompt.
"""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.durations import UNITS, parse_duration
from antiphon.domain.errors import Invalid
from antiphon.domain.written_rest import (
    APART,
    KNOWN,
    LONG,
    check_rest,
    is_misspelt,
    joined_end,
    more_at,
    phrase_end,
    shown_phrase,
    unread,
)
from antiphon.domain.written_times import Phrase, WrittenKind, WrittenTime, phrase_at, time_from
from antiphon.domain.written_words import Sentence, sentence_of

WHEN = "Write when, such as 'every weekday at 8', 'tomorrow at 9', 'in 20 minutes' or 'every 2h'."
_COURTESY = frozenset(
    (
        *("please", "can", "could", "will", "would", "you", "remind", "me", "us", "tell", "let", "know"),
        *("to", "wake", "up", "send", "ping", "notify", "ask", "give", "hey", "hi", "hello", "ok", "kindly"),
        *(",", "!"),
    )
)
_NAME = re.compile(r"[^\s:][^:\n]{0,59}:\s+")
_VAGUE = frozenset(
    (
        *("around", "about", "circa", "approximately", "roughly", "nearly", "almost", "by", "before"),
        *("after", "between", "from", "starting", "beginning", "until", "till", "for", "during", "since"),
        *("within", "except", "not", "~"),
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
_OFTEN = frozenset(("twice", "thrice", "times", "biweekly", "bimonthly"))
_STARTS = frozenset(("on", "at", "@", "in", "every", "each", "next", "today", "tomorrow", "tonight"))
_UNCLEAR = frozenset(("on", "next", "this", "the", "coming", "at"))
_DAYS = frozenset(("mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "days", "weeks", "months", "years"))


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
            check_rest(sentence, phrase)
            _check_apart(sentence, phrase)
            return _found(sentence, phrase)
        _check_beginning(sentence, start)
    phrase = _within(sentence, begin)
    check_rest(sentence, phrase)
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
            raise unread(sentence, phrase, phrase.end, len(sentence.words))
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
    is_vague = word in _VAGUE and more_at(sentence, start + 1, word, None) is not None
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
    if words[0] in ("other", "second", "third") and words[1] in KNOWN | {"month", "year", "weekday", "weekend"}:
        shown = sentence.written(start, start + 3)
        return Invalid(
            f"No task can be at {shown!r}: its days have to be the same each week, month or year. "
            "Write 'every monday at 9' or 'every 2 weeks'.",
            code="invalid_time",
        )
    if words[0] in LONG or words[1] in LONG:
        shown = sentence.written(start, start + 2 + (words[1] in LONG))
        return Invalid(f"No task can be at {shown!r}. Write 'every month on the 1st at 9'.", code="invalid_time")
    if is_misspelt(words[0]):
        shown = sentence.written(start + 1, start + 2)
        return Invalid(f"Day is not known: {shown!r}. Write 'every monday at 8:00'.", code="invalid_time")
    is_counted = words[0].isdigit()
    end = start + 2 + (is_counted and start + 2 < len(sentence.words))
    try:
        parse_duration(sentence.written(start + 1, min(end, len(sentence.words))))
    except Invalid as error:
        return error
    return Invalid("Time is not valid. Write 'every monday at 8:00' or 'every 2h'.", code="invalid_time")


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
    shown = f"{shown_phrase(sentence, one)!r} and {shown_phrase(sentence, two)!r}"
    return Invalid(f"Time is not clear: {shown} stand apart. Put them together, {APART}", code="invalid_time")


def _within(sentence: Sentence, begin: int) -> Phrase:
    """The one time within a sentence that does not begin with it. Raises `Invalid`."""
    free = [phrase for phrase, is_free in _others(sentence, begin) if is_free]
    taken = [phrase for phrase, is_free in _others(sentence, begin) if not is_free]
    strong = [phrase for phrase in free if _is_strong(phrase)]
    last = [phrase for phrase in free if not sentence.at(phrase.end).isalnum() and not sentence.at(phrase.end + 1)]
    chosen = strong or last
    if len(chosen) > 1:
        one, two = (shown_phrase(sentence, phrase) for phrase in chosen[:2])
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
        shown = shown_phrase(sentence, seen[0])
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
        end = phrase_end(sentence, start, is_first=False) or start
        is_noun = sentence.at(start - 1) in _NOUNS - _VAGUE
        if start < end <= phrase.start <= joined_end(sentence, end) and not is_noun:
            raise unread(sentence, phrase, start - (sentence.at(start - 1) in _VAGUE), end)
    is_near = phrase.start - begin <= 4
    if is_near and (
        sentence.at(begin) in ("this", "next") or (sentence.at(begin) == "at" and phrase.parts.takes_clock)
    ):
        raise unread(sentence, phrase, begin, phrase.start)
    if phrase.parts.has_day:
        return
    words = range(max(begin, phrase.start - 3), phrase.start)
    is_short = phrase.start - begin <= 4
    begins = sentence.at(begin) in _UNCLEAR or (sentence.at(begin).isdigit() and sentence.joined(begin + 1) != "")
    odd = next((i for i in words if sentence.at(i) in KNOWN | _DAYS | _OFTEN or is_misspelt(sentence.at(i))), None)
    if odd is not None or (is_short and begins):
        raise unread(sentence, phrase, begin if odd is None or is_short else odd, phrase.start)


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
