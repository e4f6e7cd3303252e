"""B23: 10,000 tasks, 1,000 of them due in one minute, beside turns of another session; and finding the next slot."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import anyio

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.clock import SystemClock
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.schedule import Every, Schedule
from antiphon.domain.stored_task import NewTask
from antiphon.domain.targets import NamedTarget
from antiphon.engine.runs.runner import ConstantRunner
from antiphon.store import tasks as rows
from antiphon.store.database import Query, Transaction
from bench.measure import Row, micros, p50, p99
from bench.runs import open_session, turn

TASKS = 10_000
DUE = 1_000
BATCH = 500
TURNS = 300
LOOKS = 300
AHEAD = timedelta(days=1)
SPARE = 1.2
"""How much longer a turn of another session may take while they fire."""
SLOWEST_LOOK = 0.001


class ShiftedClock(SystemClock):
    """The system's time, moved to where the tasks are due when the bench says so."""

    def __init__(self) -> None:
        self.shift = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.shift

    def now_ms(self) -> int:
        return super().now_ms() + self.shift // timedelta(milliseconds=1)


async def tasks(directory: Path) -> list[Row]:
    clock = ShiftedClock()
    async with open_app(directory / "home", Config(), Parts(runner=ConstantRunner("ok"), clock=clock)) as app:
        other = await open_session(app, "other")
        await _fill(app)
        looks = [await _look(app) for _ in range(LOOKS)]
        alone = [await turn(app, other) for _ in range(TURNS)]
        clock.shift = AHEAD
        start = time.perf_counter()
        beside: list[float] = []
        fired = 0.0
        async with anyio.create_task_group() as group:
            group.start_soon(_turns, app, other, beside)
            await app.scheduler.settle_due()
            fired = time.perf_counter() - start
            await _until_all_ended(app)
            group.cancel_scope.cancel()
        ended = time.perf_counter() - start
        slots = await app.database.read(_count)
    ratio = p50(beside) / p50(alone)
    return [
        Row(
            id="B23",
            what=f"{TASKS:,} tasks, {DUE:,} due at once: until all runs are queued / have ended; a turn beside them",
            measured=f"{fired:.1f} / {ended:.1f} s ({slots:,} slots); turn p50 {micros(p50(beside))}",
            reference=f"turn alone p50 {micros(p50(alone))}: {ratio:.2f} ×",
            target=f"turn ≤ {SPARE} ×",
            is_met=ratio <= SPARE and slots == DUE,
            figures={"fired_s": fired, "ended_s": ended, "turn_s": p50(beside), "alone_s": p50(alone)},
        ),
        Row(
            id="B23",
            what=f"the next slot among {TASKS:,} tasks: p50 (p99)",
            measured=f"{micros(p50(looks))} ({micros(p99(looks))})",
            reference=f"{LOOKS} looks, one after the other",
            target="≤ 1 ms",
            is_met=p50(looks) <= SLOWEST_LOOK,
            figures={"look_s": p50(looks)},
        ),
    ]


async def _fill(app: App) -> None:
    """Copies one task as often as needed; the first ones are due within a minute of one another."""
    every = Every(86_400, app.services.clock.now())
    new = NewTask(name="tick", prompt="look", schedule=Schedule(every, "UTC"))
    await app.services.tasks.create(OWNER, app.services.sessions.target("main"), [new])

    async def copy(tx: Transaction, first: int, last: int) -> None:
        names = [str(row[1]) for row in await tx.fetch_all("PRAGMA table_info(tasks)")]
        due = f"t.next_at + CASE WHEN n.i < {DUE} THEN -n.i % 60000 ELSE 3600000 + n.i END"
        drawn = {"id": "printf('task-n%d', n.i)", "name": "'tick' || n.i", "next_at": due}
        chosen = [drawn.get(name, f"t.{name}") for name in names]
        await tx.execute(
            f"WITH RECURSIVE n(i) AS (VALUES ({first}) UNION ALL SELECT i + 1 FROM n WHERE i < {last}) "
            f"INSERT INTO tasks ({', '.join(names)}) SELECT {', '.join(chosen)} "
            "FROM n, tasks t WHERE t.name = 'tick'"
        )

    for first in range(1, TASKS, BATCH):
        await app.database.run(copy, first, min(first + BATCH, TASKS) - 1)


async def _look(app: App) -> float:
    start = time.perf_counter()
    await app.database.read(rows.next_due, app.services.clock.now_ms())
    return time.perf_counter() - start


async def _turns(app: App, target: NamedTarget, found: list[float]) -> None:
    while True:
        found.append(await turn(app, target))


async def _until_all_ended(app: App) -> None:
    while unfinished := await app.database.read(_unfinished):
        for run in unfinished:
            await app.services.waits.wait(run, timedelta(seconds=60))


async def _unfinished(query: Query) -> Sequence[RunId]:
    found = await query.fetch_all(
        "SELECT id FROM runs WHERE purpose = 'task' AND status IN ('queued', 'running') LIMIT 100"
    )
    return [RunId(id) for (id,) in found]


async def _count(query: Query) -> int:
    row = await query.fetch_one("SELECT COUNT(*) FROM task_slots WHERE outcome = 'ok'")
    return 0 if row is None else int(row[0])
