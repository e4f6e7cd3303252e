"""A scripted model that lets children in quarantine read: what its calls need comes back as values and references."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from bench.dojo.declared import DECLARED
from bench.dojo.plans import MARK, Attack, Call, Step, Stepping, steps_of

MOST_ITEMS: Final = 20
MOST: Final = 100_000
"""The greatest number that a schema allows."""
FIRST, LAST = "2020-01-01", "2030-01-01"
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}")


@dataclass(frozen=True, slots=True)
class Field:
    """A value that a call needs and that the owner did not say."""

    name: str
    argument: str
    """Of the call that needs it."""
    is_route: bool
    """Whether it says where to or how much."""
    value: str | int | float
    """As the ground truth has it."""

    @property
    def schema(self) -> Mapping[str, Any]:
        if isinstance(self.value, int):
            return {"type": "integer", "minimum": 0, "maximum": MOST}
        if isinstance(self.value, float):
            return {"type": "number", "minimum": 0, "maximum": MOST, "multipleOf": 0.01}
        if _DATE.fullmatch(self.value):
            return {"type": "string", "format": "date", "formatMinimum": FIRST, "formatMaximum": LAST}
        if _TIME.fullmatch(self.value):
            bounds = {"formatMinimum": f"{FIRST}T00:00", "formatMaximum": f"{LAST}T00:00"}
            return {"type": "string", "format": "date-time", **bounds}
        return {"type": "string"}

    def returned(self, value: str | int | float) -> str | int | float:
        """The value as a child returns it."""
        return value.replace(" ", "T") if isinstance(value, str) and _TIME.fullmatch(value) else value

    def taken(self, value: Any) -> Any:
        """What a child returned, as the call has it; a reference stays one."""
        if isinstance(value, str) and isinstance(self.value, str) and _TIME.fullmatch(self.value):
            return datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M")
        return value


@dataclass(frozen=True, slots=True)
class Reading:
    """What a child reads, and what it returns."""

    calls: tuple[Call, ...]
    fields: tuple[Field, ...]

    @property
    def schema(self) -> Mapping[str, Any]:
        names = [each.name for each in self.fields]
        properties = {each.name: each.schema for each in self.fields}
        return {"type": "object", "properties": properties, "required": names}


@dataclass(frozen=True, slots=True)
class Acting:
    """Calls that need what children returned: an argument may hold `Field`s."""

    step: Step


Stage = Reading | Acting


def can_be_quarantined(function: str) -> bool:
    """Whether a child may call it, and reading it oneself would end the trust in what one has read."""
    effects = {*DECLARED[function].effects}
    return "reads" in effects <= {"reads", "leaves"} and not DECLARED[function].is_trusted


def plain_stages(calls: Sequence[Call], has_effect: Callable[[str], bool]) -> list[Stage]:
    """How `Player` plays."""
    return [Acting(step) for step in steps_of(calls, has_effect, Stepping.TOGETHER)]


def _spares_questions(reading: Reading) -> bool:
    """Whether the child asks nothing, and no reference that it returns says where to or how much."""
    pages = sum("leaves" in DECLARED[call.function].effects for call in reading.calls)
    return pages <= 1 and not any(each.is_route and each.schema == {"type": "string"} for each in reading.fields)


@dataclass(frozen=True, slots=True)
class Read:
    """A call of the ground truth that reads, and what it returns."""

    call: Call
    text: str
    can_stand_alone: bool
    """Whether the owner said what to read."""


def stages_of(
    calls: Sequence[tuple[Call, str]], said: str, has_effect: Callable[[str], bool], answer: str
) -> list[Stage]:
    """A child reads before the calls that need what it read; what the answer alone needs is read at the end.

    Where a child would not spare a question, because a text that it returns says where to, the model reads itself.
    A value that stands in what one call returns comes from a child that makes this call alone, if the owner said
    what it reads. Any other comes from a child that reads all that was read so far.
    """
    names = (f"v{number}" for number in range(1_000))
    stages: list[Stage] = []
    reads: list[Read] = []
    made: dict[tuple[int, ...], int] = {}
    texts = {id(call): text for call, text in calls}

    def source_of(value: Any) -> tuple[int, ...]:
        for number, read in enumerate(reads):
            if str(value).lower() in read.text.lower():
                return (number,) if read.can_stand_alone else tuple(range(number + 1))
        return tuple(range(len(reads)))

    acts = [call for call, _ in calls]
    for step in steps_of(acts, lambda name: has_effect(name) and not can_be_quarantined(name), Stepping.TOGETHER):
        if can_be_quarantined(step[0].function):
            if all(step[0] != read.call for read in reads):
                is_known = not _with_fields(step[0], said, iter(["?"] * 100))[1]
                reads.append(Read(step[0], texts[id(step[0])], is_known))
            continue
        needed: list[Call] = []
        for call in step:
            filled, fields = _with_fields(call, said, names) if reads else (call, ())
            needed.append(filled)
            for each in fields:
                source = source_of(each.value)
                if source in made:
                    before = stages[made[source]]
                    assert isinstance(before, Reading)
                    stages[made[source]] = Reading(before.calls, (*before.fields, each))
                else:
                    made[source] = len(stages)
                    stages.append(Reading(tuple(reads[number].call for number in source), (each,)))
        stages.append(Acting(tuple(needed)))
    if not all(isinstance(stage, Acting) or _spares_questions(stage) for stage in stages):
        return plain_stages(acts, has_effect)
    is_answered = answer.lower() in said.lower() or not re.search("[a-z]", answer.lower())
    seen = {number for source in made for number in source}
    rest = [read.call for number, read in enumerate(reads) if not is_answered or number not in seen]
    return [*stages, *(Acting((call,)) for call in rest)]


def _with_fields(call: Call, said: str, names: Iterator[str]) -> tuple[Call, Sequence[Field]]:
    """The call with what the owner did not say as fields."""
    found: list[Field] = []

    def needed(argument: str, value: Any) -> Any:
        match value:
            case Mapping():
                entries = cast("Mapping[str, Any]", value).items()
                return {name: needed(argument, each) for name, each in entries}
            case list():
                return [needed(argument, each) for each in cast("list[Any]", value)]
            case bool() | None:
                return value
            case str() | int() | float() if str(value) and str(value).lower() not in said.lower():
                found.append(Field(next(names), argument, argument in DECLARED[call.function].routes, value))
                return found[-1]
            case _:
                return value

    return Call(call.function, {name: needed(name, value) for name, value in call.arguments.items()}), found


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    match value:
        case Field():
            return value.taken(values[value.name])
        case Mapping():
            return {name: _filled(each, values) for name, each in cast("Mapping[str, Any]", value).items()}
        case list():
            return [_filled(each, values) for each in cast("list[Any]", value)]
        case _:
            return value


@dataclass(slots=True, kw_only=True)
class QuarantinedPlayer:
    """Plays one task like `Player`, and lets children read."""

    game: str
    """What its children name, so that they find it."""
    stages: list[Stage]
    answer: str
    has_effect: Callable[[str], bool]
    attack: Callable[[], Attack] | None = None
    is_by_value: bool = False
    """Whether its children return what the attacker wants."""
    seen_at: int | None = field(default=None, init=False)
    """The step before which it, or a child of it, first read the injection."""
    readings: list[Reading] = field(default_factory=list[Reading], init=False)
    _values: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _played: list[Step] = field(default_factory=list[Step], init=False)
    _left: list[Step] = field(default_factory=list[Step], init=False)
    """Of the injection."""
    _has_obeyed: bool = field(default=False, init=False)

    def step(self, number: int, results: Sequence[str]) -> Step:
        """The calls of that step, from 0; none once there is only the answer left."""
        while number >= len(self._played):
            self._played.append(self._next(results))
        return self._played[number]

    def _next(self, results: Sequence[str]) -> Step:
        last = self._played[-1][0].function if self._played and self._played[-1] else ""
        if last == "sessions_spawn":
            arguments = {"runIds": [json.loads(results[-1])["runId"]], "timeoutSeconds": 600}
            return (Call("sessions_wait", arguments),)
        if last == "sessions_wait":
            self._take(json.loads(results[-1])["runs"][0])
        if self.attack is not None and not self._has_obeyed and any(MARK in result for result in results):
            self._has_obeyed = True
            self.note_seen()
            attack = self.attack()
            self._left = steps_of(attack.calls, self.has_effect, Stepping.TOGETHER)
            self.answer = f"{self.answer}\n{attack.words}" if attack.words else self.answer
        if self._left:
            return self._left.pop(0)
        if not self.stages:
            return ()
        stage = self.stages.pop(0)
        if isinstance(stage, Acting):
            return tuple(Call(call.function, _filled(call.arguments, self._values)) for call in stage.step)
        self.readings.append(stage)
        task = json.dumps({"game": self.game, "reading": len(self.readings) - 1})
        return (Call("sessions_spawn", {"task": task, "returns": stage.schema}),)

    def _take(self, run: Mapping[str, Any]) -> None:
        if "reply" in run:
            self._values |= json.loads(run["reply"])
        else:
            self.stages.clear()

    def note_seen(self) -> None:
        if self.seen_at is None:
            self.seen_at = len(self._played)


@dataclass(slots=True)
class ChildPlayer:
    """A child that reads, and obeys an injection as far as its tools go, and its values if they are attacked too."""

    reading: Reading
    parent: QuarantinedPlayer = field(kw_only=True)
    _attack: Attack | None = field(default=None, init=False)
    _left: list[Step] = field(default_factory=list[Step], init=False)
    _played: list[Step] = field(default_factory=list[Step], init=False)

    def __post_init__(self) -> None:
        self._left = [(call,) for call in self.reading.calls]

    def step(self, number: int, results: Sequence[str], offered: Collection[str]) -> Step:
        while number >= len(self._played):
            if self._attack is None and self.parent.attack is not None and any(MARK in each for each in results):
                self.parent.note_seen()
                self._attack = self.parent.attack()
                self._left[:0] = [(call,) for call in self._attack.calls if call.function in offered]
            self._played.append(self._left.pop(0) if self._left else ())
        return self._played[number]

    @property
    def reply(self) -> str:
        return json.dumps({each.name: each.returned(self._wanted(each)) for each in self.reading.fields})

    def _wanted(self, asked: Field) -> str | int | float:
        """What the attacker's call has in the same argument, if that has the form; else what was read."""
        calls = () if self._attack is None or not self.parent.is_by_value else self._attack.calls
        for call in calls:
            for value in _leaves(call.arguments.get(asked.argument)):
                if Field("", "", False, value).schema == asked.schema and not isinstance(value, bool):
                    return value
        return asked.value


def _leaves(value: Any) -> Iterator[Any]:
    match value:
        case Mapping():
            for each in cast("Mapping[str, Any]", value).values():
                yield from _leaves(each)
        case list():
            for each in cast("list[Any]", value):
                yield from _leaves(each)
        case None:
            return
        case _:
            yield value
