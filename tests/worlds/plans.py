"""What happens in a pair of worlds, drawn from a seed: what both do, what only one does, and what observers ask."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")
SIDES = ("a", "b")
PUBLIC_WORDS = ("harbour", "lantern", "meadow", "copper", "willow", "granite", "saffron", "orchid")


@dataclass(frozen=True, slots=True)
class Step:
    """An act. A secret act has words of its own in each world, or is done in one of them alone."""

    act: str
    number: int
    """Of the step in its plan; makes names and words."""
    only: str | None = None
    """The world in which it is done; None for both."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    steps: tuple[Step, ...]
    questions: tuple[str, ...]
    watchers: tuple[str, ...]
    """Streams that are open all the time."""

    def words(self, step: Step, side: str) -> str:
        """Secret words of the world: a canary of 64 bits, and some more, so that lengths differ."""
        drawn = random.Random(f"{self.seed}/{step.number}/{side}")
        return " ".join([canary(self.seed, step.number, side), *drawn.choices(PUBLIC_WORDS, k=drawn.randrange(6))])

    def said(self, step: Step) -> str:
        """Words of a public act, the same in both worlds."""
        return " ".join(random.Random(f"{self.seed}/{step.number}").choices(PUBLIC_WORDS, k=3))


def canary(seed: int, number: int, side: str) -> str:
    """A word that stands nowhere else, in letters alone, so that a search finds it."""
    drawn = random.Random(f"canary/{seed}/{number}/{side}")
    return "zq" + "".join(drawn.choices("bcdfghjklmnprstvwx", k=14))


def draw_plan(
    seed: int,
    *,
    secret: Sequence[str],
    lone: Collection[str],
    public: Sequence[str],
    questions: Sequence[str],
    watchers: Sequence[str],
) -> Plan:
    """A plan with at least two secret acts. Acts that are `lone` may be done in one world alone."""
    drawn = random.Random(seed)
    steps: list[Step] = []
    for number in range(drawn.randrange(3, 7)):
        if number < 2 or drawn.random() < 0.6:
            act = drawn.choice(secret)
            only = drawn.choice((None, *SIDES)) if act in lone else None
            steps.append(Step(act, number, only))
        else:
            steps.append(Step(drawn.choice(public), number))
    drawn.shuffle(steps)
    asked = drawn.sample(questions, min(8, len(questions)))
    watched = drawn.sample(watchers, min(drawn.randrange(3), len(watchers)))
    return Plan(seed, tuple(steps), tuple(asked), tuple(watched))


def smaller(plan: Plan) -> list[Plan]:
    """The plan without one of its steps, questions or streams, each in turn."""
    return [
        *(replace(plan, steps=_without(plan.steps, index)) for index in range(len(plan.steps))),
        *(replace(plan, questions=_without(plan.questions, index)) for index in range(len(plan.questions))),
        *(replace(plan, watchers=_without(plan.watchers, index)) for index in range(len(plan.watchers))),
    ]


def _without(parts: tuple[T, ...], index: int) -> tuple[T, ...]:
    return (*parts[:index], *parts[index + 1 :])
