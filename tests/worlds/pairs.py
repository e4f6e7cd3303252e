"""Two worlds side by side: carries out plans in both, finds what differs, and makes a failing plan small."""

import shutil
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import mkdtemp

import anyio

from tests.postgres import fresh_database
from tests.worlds.plans import SIDES, Plan, draw_plan, smaller
from tests.worlds.world import (
    HIDDEN_ACTS,
    PUBLIC_ACTS,
    QUESTIONS,
    SHARED_ACTS,
    WATCHERS,
    Seen,
    open_world,
)

PAIRS_A_HOME = 25
"""Plans that the same two homes live through, one after the other: what one left behind is there for the next."""
REPETITIONS = 3
"""How often a difference has to come again."""
MOST_SHRUNK = 3
"""More failing plans are shown as they are: each takes a while."""
MEMORY = Path("/dev/shm")


class DatabaseKind(StrEnum):
    """Where the worlds have their databases."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class Difference:
    """What an observer was answered in the two worlds of a plan."""

    plan: Plan
    question: str
    texts: tuple[str, str]
    kind: DatabaseKind = field(kw_only=True)

    def __str__(self) -> str:
        a, b = self.texts
        start = next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        shown = [text[max(0, start - 160) : start + 240] for text in self.texts]
        steps = "\n".join(
            f"  {step.number}. {step.act}" + f" (only {step.only})" * bool(step.only) for step in self.plan.steps
        )
        return (
            f"seed {self.plan.seed} on {self.kind}, {self.question!r} differs at character {start}\n{steps}\n"
            f"  a: …{shown[0]}\n  b: …{shown[1]}"
        )


def draw(seed: int) -> Plan:
    """A plan of all acts, questions and streams."""
    return draw_plan(
        seed,
        secret=[*HIDDEN_ACTS, *SHARED_ACTS],
        lone=set(HIDDEN_ACTS),
        public=list(PUBLIC_ACTS),
        questions=list(QUESTIONS),
        watchers=list(WATCHERS),
    )


async def _live_through(
    plans: Sequence[Plan], kind: DatabaseKind, homes: Mapping[str, Path], urls: Mapping[str, str]
) -> list[Difference]:
    seen: dict[str, list[list[Seen]]] = {}

    async def live(side: str) -> None:
        async with open_world(homes[side], side, urls.get(side)) as world:
            seen[side] = [await world.live(plan) for plan in plans]

    async with anyio.create_task_group() as sides:
        for side in SIDES:
            sides.start_soon(live, side)
    return [
        Difference(plan, a.question, (a.text, b.text), kind=kind)
        for plan, seen_a, seen_b in zip(plans, seen["a"], seen["b"], strict=True)
        for a, b in zip(seen_a, seen_b, strict=True)
        if a != b
    ]


@contextmanager
def _homes() -> Generator[dict[str, Path]]:
    """A directory for each world, in memory if possible."""
    directory = Path(mkdtemp(prefix="antiphon-worlds-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield {side: directory / side for side in SIDES}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def live_through(plans: Sequence[Plan], kind: DatabaseKind) -> list[Difference]:
    """What differs when two fresh worlds live through these plans."""
    with ExitStack() as stack:
        homes = stack.enter_context(_homes())
        is_shared = kind is DatabaseKind.POSTGRES
        urls = {side: stack.enter_context(fresh_database()) for side in SIDES} if is_shared else {}
        return anyio.run(_live_through, plans, kind, homes, urls)


def confirmed(plans: Sequence[Plan], kind: DatabaseKind = DatabaseKind.SQLITE) -> list[Difference]:
    """What differs each time that the worlds live through these plans. What differs once is timing, an exception."""
    found = live_through(plans, kind)
    for _ in range(REPETITIONS):
        if not found:
            break
        again = {(each.plan, each.question) for each in live_through(plans, kind)}
        found = [each for each in found if (each.plan, each.question) in again]
    return found


def shrink(plan: Plan, kind: DatabaseKind) -> Difference | None:
    """The difference of the smallest plan that has one, found by leaving out parts; None if alone it has none."""

    def differs(candidate: Plan) -> Difference | None:
        return next(iter(confirmed([candidate], kind)), None)

    smallest = differs(plan)
    while smallest is not None:
        found = next((each for each in map(differs, smaller(smallest.plan)) if each is not None), None)
        if found is None:
            break
        smallest = found
    return smallest


def prove(
    seeds: Sequence[int], kind: DatabaseKind = DatabaseKind.SQLITE, *, show: Callable[[str], None] = print
) -> list[Difference]:
    """The differences of these pairs, of each failing plan the first, once it is small. None is the proof."""
    plans = [draw(seed) for seed in seeds]
    found: list[Difference] = []
    for start in range(0, len(plans), PAIRS_A_HOME):
        differences = confirmed(plans[start : start + PAIRS_A_HOME], kind)
        for plan in dict.fromkeys(each.plan for each in differences):
            small = shrink(plan, kind) if len(found) < MOST_SHRUNK else None
            found.append(small or next(each for each in differences if each.plan == plan))
            show(str(found[-1]))
    show(f"{len(plans)} pairs on {kind}, {len(found)} differ")
    return found


if __name__ == "__main__":
    count, first = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 0
    differences = [each for kind in DatabaseKind for each in prove(range(first, first + count), kind)]
    sys.exit(1 if differences else 0)
