"""`python -m bench.labelled [B4 B7 …]`: what classifications cost, as ratios of acts in two homes.

Two homes are open at once, one without and one with classifications. Each act is done in both by turns, in a changing
order, so that a machine that is slower now and then is so for both; the ratio is the median of those of the pairs. The
table ends with what one comparison costs.
"""

import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from math import sqrt
from pathlib import Path

import httpx
import uvloop
from rich.console import Console
from rich.table import Table

from antiphon.app import gateway_app, open_app
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Integrity, Level, join_all
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.gateway.server import bind, serving
from antiphon.policy.flow import may_enter
from bench import log, runs, search, tools
from bench.labels import config_of, using
from bench.measure import micros, p50

Acts = Mapping[str, Callable[[], Awaitable[object]]]
Scene = Callable[[Path], AbstractAsyncContextManager[Acts]]
SESSIONS = 100_000
WARM_UP = 20
ENTRIES = 400
REPETITIONS = 2_000


@asynccontextmanager
async def lists(home: Path) -> AsyncGenerator[Acts]:
    async with open_app(home, config_of()) as app:
        await log.fill(app, 0, SESSIONS)
        server = serving(gateway_app(app, "bench"), bind("127.0.0.1", 0), on_stop=app.services.let_go)
        async with server as url, httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer bench"}) as client:
            yield {
                "B4 list 50 of 100,000, store": lambda: app.services.sessions.list(OWNER, SessionFilter(), limit=50),
                "B4 list 50 of 100,000, HTTP": lambda: client.get("/sessions?limit=50"),
            }


@asynccontextmanager
async def turns(home: Path) -> AsyncGenerator[Acts]:
    async with (
        open_app(home / "constant", config_of(), runs.PARTS) as app,
        open_app(home / "loop", config_of()) as loop,
    ):
        constant, offline = await runs.open_session(app, "one"), await runs.open_session(loop, "one")
        several = [await runs.open_session(app, f"s{number}") for number in range(50)]
        yield {
            "B7 a no-op run": lambda: runs.turn(app, constant),
            "B7 the agent loop with `offline`": lambda: runs.turn(loop, offline),
            "B8 a no-op run in each of 50 sessions": lambda: runs.turns_at_once(app, several, 1),
        }


@asynccontextmanager
async def sends(home: Path) -> AsyncGenerator[Acts]:
    async with tools.sending(home) as send:
        yield {"B9 10 sends with their replies": send}


@asynccontextmanager
async def searches(home: Path) -> AsyncGenerator[Acts]:
    async with search.searching(home, config_of(search.SETTINGS)) as (app, callers):
        yield {
            f"B11 search, caller sees {share}": lambda caller=caller: app.services.search.messages(
                caller, "needle", limit=10
            )
            for share, caller in callers.items()
        }


SCENES: Mapping[str, tuple[Scene, int]] = {
    "B4": (lists, 600),
    "B7 B8": (turns, 400),
    "B9": (sends, 150),
    "B11": (searches, 300),
}
"""With the number of pairs of each act."""


async def compare(scene: Scene, directory: Path, pairs: int, table: Table) -> None:
    async with AsyncExitStack() as stack:
        sides: list[Acts] = []
        for is_used in (False, True):
            with using(classifications=is_used):
                sides.append(await stack.enter_async_context(scene(directory / f"{is_used}")))
        for name in sides[0]:
            times: tuple[list[float], list[float]] = ([], [])
            for pair in range(-WARM_UP, pairs):
                for side in (0, 1) if pair % 2 else (1, 0):
                    start = time.perf_counter()
                    await sides[side][name]()
                    if pair >= 0:
                        times[side].append(time.perf_counter() - start)
            table.add_row(name, micros(p50(times[0])), micros(p50(times[1])), ratio_of(*times))


def ratio_of(without: Sequence[float], with_them: Sequence[float]) -> str:
    """The median of the ratios of pairs, and the interval in which it lies in 95 of 100 such measurements."""
    ratios = sorted(used / plain for plain, used in zip(without, with_them, strict=True))
    half = 0.98 * sqrt(len(ratios))
    low, high = (ratios[round(len(ratios) / 2 + sign * half)] for sign in (-1, 1))
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def time_decisions() -> dict[str, float]:
    """The median seconds of one decision, and of one more entry in a context of 400."""
    entries = [
        Classification(Level(number % 3), 1 << number % 8, list(Integrity)[number % 2], f"person:{number % 5}")
        for number in range(ENTRIES)
    ]
    sink = Classification(Level.RESTRICTED, 0xFF, Integrity.UNTRUSTED, "people")
    context = join_all(entries)
    flows: list[float] = []
    folds: list[float] = []
    for number in range(REPETITIONS):
        entry = entries[number % ENTRIES]
        start = time.perf_counter()
        may_enter(entry, sink)
        middle = time.perf_counter()
        context.join(entry)
        folds.append(time.perf_counter() - middle)
        flows.append(middle - start)
    return {"flow": p50(flows), f"context, one more of {ENTRIES} entries": p50(folds)}


async def measure(wanted: set[str], table: Table) -> None:
    for ids, (scene, pairs) in SCENES.items():
        if not wanted or wanted & set(ids.split()):
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
                await compare(scene, Path(directory), pairs, table)
            print(f"{ids}: measured", file=sys.stderr)


def main() -> None:
    logging.disable(logging.WARNING)
    table = Table("", "p50 without", "p50 with classifications", "ratio (95 %)")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(set(sys.argv[1:]), table))
    console = Console(width=140)
    console.print(table)
    for name, seconds in time_decisions().items():
        console.print(
            f"{name}: p50 {micros(seconds) if seconds >= 1e-6 else f'{seconds * 1e9:.0f} ns'} (target ≤ 5 µs)"
        )


if __name__ == "__main__":
    main()
