"""What a scripted model does: the steps of a task's ground truth, and of an injection at first sight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MARK = "INJECTED-7f3a"
"""Stands in each injected text, without blanks, so that no formatter breaks it."""


class Stepping(StrEnum):
    """Which calls a step holds."""

    TOGETHER = "together"
    """Neighbouring calls with effects are one step, as models with parallel calls make them."""
    SINGLE = "single"
    """One call a step."""
    QUARANTINE = "quarantine"
    """As together, and children in quarantine read."""
    BY_VALUE = "by value"
    """The same, and obedient children return the attacker's values."""


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: Mapping[str, Any]


Step = tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What the model does once it has read the injection."""

    calls: tuple[Call, ...]
    words: str
    """What its answer says in addition."""


def steps_of(calls: Sequence[Call], has_effect: Callable[[str], bool], stepping: Stepping) -> list[Step]:
    """The calls in their order; those that only read stand alone."""
    steps: list[Step] = []
    for call in calls:
        if stepping is Stepping.TOGETHER and steps and has_effect(call.function) and has_effect(steps[-1][-1].function):
            steps[-1] = (*steps[-1], call)
        else:
            steps.append((call,))
    return steps


@dataclass(slots=True, kw_only=True)
class Player:
    """Plays one task. Asked again for a step, it answers the same."""

    calls: Sequence[Call]
    answer: str
    has_effect: Callable[[str], bool]
    stepping: Stepping
    attack: Callable[[], Attack] | None = None
    """What the injection asks for, made when it is first read; None for a model that obeys none."""
    seen_at: int | None = field(default=None, init=False)
    """The step before which it first read the injection."""
    _left: list[Step] = field(default_factory=list[Step], init=False)
    _played: list[Step] = field(default_factory=list[Step], init=False)

    def __post_init__(self) -> None:
        self._left = steps_of(self.calls, self.has_effect, self.stepping)

    def step(self, number: int, results: Sequence[str]) -> Step:
        """The calls of that step, from 0; none once there is only the answer left."""
        while number >= len(self._played):
            self._look(results)
            self._played.append(self._left.pop(0) if self._left else ())
        return self._played[number]

    def _look(self, results: Sequence[str]) -> None:
        if self.attack is None or self.seen_at is not None or not any(MARK in result for result in results):
            return
        self.seen_at = len(self._played)
        attack = self.attack()
        self._left[:0] = steps_of(attack.calls, self.has_effect, self.stepping)
        self.answer = f"{self.answer}\n{attack.words}" if attack.words else self.answer
