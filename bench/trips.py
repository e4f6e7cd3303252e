"""Round trips and processor's time of a no-op run on PostgreSQL: `python -m bench.trips [WORKERS …] [-v]`.

A *trip* is one wait for the server. All figures are by run: of each kind of unit in each program, and their sums; the
processor's time is that of all programs, the server's processes included. `-v` lists the statements too.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.sections.gateway import ProcessRole
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from antiphon.store.postgres.database import PostgresDatabase
from antiphon.store.postgres.lane import LaneJob
from antiphon.store.postgres.link import Link
from antiphon.store.postgres.pipeline import BoundStatement, Pipeline, StatementResult
from bench.cluster import cluster_config, own_server
from bench.runs import open_session, turn, turns_at_once

SESSIONS = 50
TURNS = 20
RUNS = SESSIONS * TURNS
SLOW_TURNS = 6
SLOW_SESSIONS = 64
"""So many places do four workers have; fewer workers get through them in whole rounds."""
SLOW = "-slow"
WORKERS = (1, 2, 4)
FIGURES = ("units", "trips", "statements", "ms")
SHOWN = 0.02
"""The fewest trips of a run with which a kind of unit is listed."""
_NUMBERS = re.compile(r"\d+(, \d+)*")
_unit: ContextVar[str] = ContextVar("_unit", default="")


class Trips:
    """Counts what this program sends to the server."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = {}
        self.texts: Counter[str] = Counter()

    def watch(self, stack: ExitStack) -> None:
        """Counts until the stack ends."""
        trip, execute = Pipeline.trip, psycopg.AsyncCursor[Any].execute

        async def gone(pipeline: Pipeline, statements: Sequence[BoundStatement]) -> list[StatementResult]:
            name = _unit.get() or "notify"
            with self._counting(name, [statement.text.decode() for statement in statements]):
                return await trip(pipeline, statements)

        async def executed(cursor: Any, query: Any, *rest: Any, **named: Any) -> Any:
            text = query.as_string() if hasattr(query, "as_string") else str(query)
            called = re.search(r"procrastinate_\w+", text)
            with self._counting("jobs" if called is None else called[0], [text]):
                return await execute(cursor, query, *rest, **named)

        _put(stack, Pipeline, "trip", gone)
        _put(stack, psycopg.AsyncCursor, "execute", executed)
        for name in ("_write", "_read"):
            _put(stack, PostgresDatabase, name, self._named(getattr(PostgresDatabase, name)))

    def take(self) -> dict[str, Any]:
        found = {"found": self.found, "texts": self.texts}
        self.found, self.texts = {}, Counter()
        return found

    def _counting(self, name: str, texts: Sequence[str]) -> ExitStack:
        stack, began = ExitStack(), time.perf_counter()
        for text in texts:
            self.texts[f"{name}: {_NUMBERS.sub('#', ' '.join(text.split()))[:200]}"] += 1

        def ended() -> None:
            took = (time.perf_counter() - began) * 1000
            self._add(name, {"trips": 1, "statements": len(texts), "ms": took})

        stack.callback(ended)
        return stack

    def _add(self, name: str, figures: dict[str, float]) -> None:
        counter: dict[str, float] = self.found.setdefault(name, Counter())  # pyright: ignore[reportAssignmentType]
        for figure, by in figures.items():
            counter[figure] = counter.get(figure, 0) + by

    def _named(self, work: Any) -> Any:
        async def named(database: PostgresDatabase, link: Link, batch: list[LaneJob]) -> None:
            name = batch[0].body.__name__.strip("_")
            self._add(name, {"units": len(batch)})
            token = _unit.set(name)
            try:
                await work(database, link, batch)
            finally:
                _unit.reset(token)

        return named


def _put(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


@dataclass(frozen=True)
class Cost:
    """Of a no-op run with so many workers."""

    workers: int
    runs_per_s: float
    cpu_ms: float
    """Of all programs, and the server's processes."""
    trips: float
    statements: float
    half_second_runs_per_s: float
    """Where each run takes 0.5 s."""


class HalfSecondRunner(ConstantRunner):
    """Takes half a second for the runs of some sessions, and no time for others."""

    async def run(self, context: RunContext) -> RunEnding:
        if context.run.session_key.endswith(SLOW):
            await anyio.sleep(0.5)
        return await super().run(context)


async def measure(home: Path, server: str, url: str, workers: int) -> Cost:
    trips = Trips()
    with ExitStack() as stack:
        trips.watch(stack)
        async with open_app(home / "gateway", cluster_config(url, ProcessRole.GATEWAY)) as app:
            processes = [_start_worker(url, home / f"w{number}") for number in range(workers)]
            try:
                with anyio.fail_after(60):
                    while (await app.services.health.check()).workers < workers:
                        await anyio.sleep(0.1)
                targets = [await open_session(app, f"s{number}") for number in range(SESSIONS)]
                for target in targets:
                    await turn(app, target)
                programs = [psutil.Process(), *(psutil.Process(each.pid) for each in processes)]
                cluster = _Cluster(trips, home, programs, _postmaster(server))
                if workers == 1:
                    await cluster.count("one after the other", lambda: _one_by_one(app, targets))
                cost = await cluster.count("50 at once", lambda: turns_at_once(app, targets, TURNS))
                slow = [await open_session(app, f"s{number}{SLOW}") for number in range(SLOW_SESSIONS)]
                for target in slow:
                    await app.services.inbox.append(OWNER, target, text_content("hello"))
                rate = await turns_at_once(app, slow, SLOW_TURNS)
                print(f"  runs of half a second: {rate:.0f}/s")
                return replace(cost, half_second_runs_per_s=rate)
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.wait(20)


def _start_worker(url: str, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-W", "ignore", "-m", "bench.trips", "work", url, str(home)])


def _postmaster(server: str) -> psutil.Process:
    """The process whose children serve the connections."""
    with psycopg.connect(server) as connection:
        parent = psutil.Process(connection.info.backend_pid).parent()
    assert parent is not None
    return parent


def _used(program: psutil.Process) -> float:
    """Seconds of processor's time."""
    times = program.cpu_times()
    return times.user + times.system


def _used_by_server(postmaster: psutil.Process) -> float:
    ended = postmaster.cpu_times()
    used = ended.children_user + ended.children_system
    for child in postmaster.children():
        with suppress(psutil.NoSuchProcess):  # it has ended just now
            used += _used(child)
    return used


async def _one_by_one(app: App, targets: Sequence[NamedTarget]) -> float:
    began = time.perf_counter()
    for _ in range(TURNS):
        for target in targets:
            await turn(app, target)
    return TURNS * len(targets) / (time.perf_counter() - began)


class _Cluster:
    def __init__(
        self, trips: Trips, home: Path, programs: Sequence[psutil.Process], postmaster: psutil.Process
    ) -> None:
        self._trips = trips
        self._home = home
        self._programs = programs
        self._postmaster = postmaster
        self._workers = len(programs) - 1

    async def count(self, what: str, work: Callable[[], Awaitable[float]]) -> Cost:
        """Prints and returns what the work costs by run."""
        await self._ask()
        before = self._used()
        rate = await work()
        used = [(after - was) / RUNS * 1000 for was, after in zip(before, self._used(), strict=True)]
        gateway, *others = await self._ask()
        own, *each, server = used
        print(
            f"\n{what}, {self._workers} workers: {rate:.0f} runs/s; {sum(used):.2f} ms of processor a run: "
            f"gateway {own:.2f}, workers {sum(each):.2f}, server {server:.2f}"
        )
        sums = [_print("gateway", [gateway]), _print("workers", others)]
        trips, statements = (sum(each[figure] for each in sums) / RUNS for figure in ("trips", "statements"))
        return Cost(self._workers, rate, sum(used), trips, statements, 0.0)

    def _used(self) -> list[float]:
        return [*(_used(program) for program in self._programs), _used_by_server(self._postmaster)]

    async def _ask(self) -> list[dict[str, Any]]:
        """What each program has counted since it was asked last: the gateway, then the workers."""
        found = [json.loads(json.dumps(self._trips.take()))]
        for number in range(self._workers):
            home = anyio.Path(self._home / f"w{number}")
            await (home / "ask").touch()
            while not await (home / "answer").exists():
                await anyio.sleep(0.02)
            found.append(json.loads(await (home / "answer").read_text()))
            await (home / "answer").unlink()
        return found


def _print(where: str, programs: Sequence[dict[str, Any]]) -> Counter[str]:
    runs = RUNS
    by_unit: dict[str, Counter[str]] = {}
    texts: Counter[str] = Counter()
    for program in programs:
        texts.update(program["texts"])
        for name, figures in program["found"].items():
            by_unit.setdefault(name, Counter()).update(figures)
    total: Counter[str] = Counter()
    for name, figures in sorted(by_unit.items(), key=lambda each: -each[1]["trips"]):
        total.update(figures)
        if figures["trips"] >= SHOWN * runs:
            print(f"  {where} {name:40.40}", *(f"{figures[each] / runs:7.2f} {each}" for each in FIGURES))
    print(f"  {where} {'sum':40}", *(f"{total[each] / runs:7.2f} {each}" for each in FIGURES))
    if "-v" in sys.argv:
        for text, count in sorted(texts.items()):
            if count >= SHOWN * runs:
                print(f"    {count / runs:5.2f} {text}")
    return total


async def _work(url: str, home: Path) -> None:
    """A worker that counts, until it is ended."""
    trips = Trips()
    with ExitStack() as stack:
        trips.watch(stack)
        async with open_app(home, cluster_config(url, ProcessRole.WORKER), Parts(runner=HalfSecondRunner("ok"))):
            while True:
                await anyio.sleep(0.02)
                if (home / "ask").exists():
                    (home / "ask").unlink()
                    (home / "new").write_text(json.dumps(trips.take()))
                    (home / "new").rename(home / "answer")


async def main() -> None:
    async with own_server() as server:
        for workers in [int(each) for each in sys.argv[1:] if each.isdigit()] or WORKERS:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE trips{workers}".encode())
            with tempfile.TemporaryDirectory() as home:
                await measure(Path(home), server, make_conninfo(server, dbname=f"trips{workers}"), workers)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        anyio.run(_work, sys.argv[2], Path(sys.argv[3]), backend_options={"use_uvloop": True})
    else:
        anyio.run(main, backend_options={"use_uvloop": True})
