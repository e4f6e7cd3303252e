"""`python -m bench.peers [B1 B3 B4]`: prints the table and writes `bench/results/<date>-peers.json`."""

import asyncio
import json
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import p50
from bench.peers.comparison import MEASURES, Comparison, Measure
from bench.peers.environments import environment_python
from bench.peers.subject import OTHERS, OURS, Subject, Worker, working
from bench.peers.work import Answer, Command

FILL_SECONDS = 120
SAMPLE_SECONDS = 1.5
ROUNDS = 5
TOGETHER_ROUNDS = 3
TOGETHER_SECONDS = 2.0

Measured = dict[str, float]
Facts = dict[str, dict[str, str]]


async def one_session(directory: Path, comparison: Comparison, facts: Facts) -> None:
    """B1, B2, B5."""
    async with AsyncExitStack() as stack:
        ours, others = await _start(stack, directory, OTHERS)
        for worker in (ours, *others):
            told = await worker.do(Command(work="facts", session="facts"))
            facts[worker.subject.name] = told.facts
            filled = await worker.do(Command(work="fill", session="big", count=10_000, seconds=FILL_SECONDS))
            for measure in ("B1", "B2", "B5"):
                _note_size(comparison, measure, worker.subject, filled.reached, 10_000)

        async def measure_one(worker: Worker, label: str) -> Measured:
            await worker.do(Command(work="fill", session=label, count=100, seconds=FILL_SECONDS))
            small = await _p50(worker, "append", session=label, count=100)
            await worker.do(Command(work="close", session=label))
            big = await _p50(worker, "append", session="big", count=200)
            page = await _p50(worker, "read", session="big", count=200)
            return {"B1 at 100": small, "B1": big, "B5": page}

        await _alternate(ours, others, ROUNDS, measure_one, comparison)
    comparison.add_growth("B2", of="B1", since="B1 at 100")


async def many_sessions(directory: Path, comparison: Comparison, facts: Facts) -> None:
    """B3."""
    async with AsyncExitStack() as stack:
        ours, others = await _start(stack, directory, OTHERS)

        async def measure_many(worker: Worker, label: str) -> Measured:
            command = Command(work="append_together", session=label, count=32, seconds=TOGETHER_SECONDS)
            answer = await worker.do(command)
            if answer.failures:
                text = f"{answer.failures} failed in a round, the last: {answer.last_failure}"
                comparison.note("B3", worker.subject.name, text)
            return {"B3": answer.per_second, "B3 p99": answer.p99_seconds}

        await _alternate(ours, others, TOGETHER_ROUNDS, measure_many, comparison)


async def lists(directory: Path, comparison: Comparison, facts: Facts) -> None:
    """B4."""
    async with AsyncExitStack() as stack:
        ours, others = await _start(stack, directory, [other for other in OTHERS if other.lists_sessions])
        for size, measure in ((1_000, "B4 at 1,000"), (10_000, "B4")):
            for worker in (ours, *others):
                made = await worker.do(Command(work="make_sessions", count=size, seconds=FILL_SECONDS))
                _note_size(comparison, measure, worker.subject, made.reached, size)

            async def measure_list(worker: Worker, label: str, measure: str = measure) -> Measured:
                return {measure: await _p50(worker, "list", count=200)}

            await _alternate(ours, others, ROUNDS, measure_list, comparison)
    comparison.add_growth("B4 growth", of="B4", since="B4 at 1,000")


BENCHES: dict[str, Callable[[Path, Comparison, Facts], Awaitable[None]]] = {
    "B1 B2 B5": one_session,
    "B3": many_sessions,
    "B4": lists,
}


async def _start(stack: AsyncExitStack, directory: Path, others: Sequence[Subject]) -> tuple[Worker, list[Worker]]:
    ours, *rest = [
        await stack.enter_async_context(working(subject, directory / str(number)))
        for number, subject in enumerate((OURS, *others))
    ]
    return ours, rest


async def _alternate(
    ours: Worker,
    others: Sequence[Worker],
    rounds: int,
    measure: Callable[[Worker, str], Awaitable[Measured]],
    comparison: Comparison,
) -> None:
    """Ours before each of the others, so that what slows the machine shows in both."""
    for number in range(rounds):
        for position, other in enumerate(others):
            label = f"round-{number}-{position}"
            beside = await measure(ours, label)
            for name, theirs in (await measure(other, label)).items():
                comparison.add(name, other.subject.name, ours=beside[name], theirs=theirs)


async def _p50(worker: Worker, work: str, *, session: str = "", count: int) -> float:
    answer: Answer = await worker.do(Command(work=work, session=session, count=count, seconds=SAMPLE_SECONDS))
    return p50(answer.samples)


def _note_size(comparison: Comparison, measure: str, subject: Subject, reached: int, wanted: int) -> None:
    if reached < wanted:
        comparison.note(measure, subject.name, f"of {reached:,}, all that {FILL_SECONDS} s sufficed for")


async def compare(wanted: set[str]) -> tuple[Comparison, Facts]:
    comparison, facts = Comparison(), Facts()
    for ids, bench in BENCHES.items():
        if wanted and not wanted & set(ids.split()):
            continue
        print(f"{ids} …", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
            await bench(Path(directory), comparison, facts)
    return comparison, facts


def lead(measure: Measure, comparison: Comparison) -> float:
    """How many times better ours is than the best other package."""
    packages = {other.name for other in OTHERS if other.package}
    ratios = [figure.ratio for name, figure in comparison.figures(measure.id).items() if name in packages]
    return 1 / max(ratios) if measure.is_better_high else min(ratios)


def show(comparison: Comparison, facts: Facts) -> Table:
    table = Table("", "what (× is theirs ÷ ours)", OURS.name, *(other.name for other in OTHERS), "ours ahead")
    if facts:
        opened = [
            f"{facts[subject.name]['journal']}, {facts[subject.name]['synchronous']}" for subject in (OURS, *OTHERS)
        ]
        table.add_row("", "journal, synchronous, by default", *opened, "", end_section=True)
    for measure in MEASURES:
        if measure.id not in comparison.pairs:
            continue
        figures, notes = comparison.figures(measure.id), comparison.notes.get(measure.id, {})
        cells: list[str] = []
        for other in OTHERS:
            figure = figures.get(other.name)
            cell = f"{measure.text(figure.value)} ({figure.ratio:.2f} ×)" if figure else "not offered"
            cells.append(f"{cell}; {notes[other.name]}" if other.name in notes else cell)
        ahead = f"{lead(measure, comparison):.2f} ×"
        table.add_row(measure.id, measure.what, measure.text(comparison.ours(measure.id)), *cells, ahead)
    return table


def report(comparison: Comparison, facts: Facts, day: str) -> dict[str, object]:
    subjects = [
        {"name": subject.name, "version": subject.version, **facts.get(subject.name, {})} for subject in (OURS, *OTHERS)
    ]
    rows = [
        {
            "id": measure.id,
            "what": measure.what,
            "unit": measure.unit,
            "ours": comparison.ours(measure.id),
            "others": {name: asdict(figure) for name, figure in comparison.figures(measure.id).items()},
            "notes": comparison.notes.get(measure.id, {}),
            "ours_ahead": lead(measure, comparison),
        }
        for measure in MEASURES
        if measure.id in comparison.pairs
    ]
    return {"date": day, "python": platform.python_version(), "subjects": subjects, "rows": rows}


def main() -> None:
    for package in sorted({other.package for other in OTHERS if other.package}):
        environment_python(package)
    comparison, facts = asyncio.run(compare(set(sys.argv[1:])))
    Console(width=200).print(show(comparison, facts))
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    path = Path("bench/results") / f"{day}-peers.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report(comparison, facts, day), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
