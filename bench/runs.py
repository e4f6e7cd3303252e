"""B7 and B8: runs that do nothing, from post to the wait's return."""

import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import anyio

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.runs.cancel import RunFilter
from antiphon.engine.runs.runner import ConstantRunner
from bench.labels import config_of
from bench.measure import Row, micros, p50, p99

TIMEOUT = timedelta(seconds=30)
PARTS = Parts(runner=ConstantRunner("ok"))


async def open_session(app: App, name: str) -> NamedTarget:
    opened = await app.services.sessions.open(OWNER, app.services.sessions.target(f"api:{name}"))
    return NamedTarget(opened.session.key, None)


async def turn(app: App, target: NamedTarget) -> float:
    """Seconds from post to the wait's return."""
    start = time.perf_counter()
    posted = await app.services.inbox.post(OWNER, target, text_content("hello"))
    assert posted.run_id is not None
    run = await app.services.waits.wait(posted.run_id, TIMEOUT)
    assert run is not None
    return time.perf_counter() - start


async def latency(directory: Path) -> list[Row]:
    """B7, with the agent loop on the `offline` model beside it."""
    async with open_app(directory / "constant", config_of(), PARTS) as app:
        target = await open_session(app, "one")
        constant = [await turn(app, target) for _ in range(1_000)]
    async with open_app(directory / "loop", config_of()) as app:
        target = await open_session(app, "one")
        loop = [await turn(app, target) for _ in range(300)]
    return [
        Row(
            id="B7",
            what="a no-op run, post to wait returning (embedded)",
            measured=f"p50 {micros(p50(constant))}, p99 {micros(p99(constant))}",
            reference=f"the agent loop with `offline`: p50 {micros(p50(loop))}",
            target="p50 ≤ 3 ms, p99 ≤ 10 ms",
            is_met=p50(constant) <= 3e-3 and p99(constant) <= 10e-3,
            figures={"p50_s": p50(constant), "p99_s": p99(constant), "loop_p50_s": p50(loop)},
        )
    ]


async def throughput(directory: Path) -> list[Row]:
    """B8. An order violation is a run that began before an earlier one of its session had ended."""
    sessions, each = 50, 60
    async with open_app(directory / "constant", config_of(), PARTS) as app:
        targets = [await open_session(app, f"s{number}") for number in range(sessions)]
        for target in targets:
            await turn(app, target)

        rate = await turns_at_once(app, targets, each)
        violations = await order_violations(app, targets)
    return [
        Row(
            id="B8",
            what="no-op runs a second over 50 sessions (embedded)",
            measured=f"{rate:,.0f}/s, order violations {violations}",
            reference="–",
            target="≥ 1,000/s, 0",
            is_met=rate >= 1_000 and violations == 0,
            figures={"per_s": rate, "violations": violations},
        )
    ]


async def turns_at_once(app: App, targets: list[NamedTarget], each: int) -> float:
    """Runs a second, where so many messages are posted to each session, and all sessions are posted to together."""

    async def turns(target: NamedTarget) -> None:
        posted = [await app.services.inbox.post(OWNER, target, text_content("hello")) for _ in range(each)]
        last = posted[-1].run_id
        assert last is not None
        assert await app.services.waits.wait(last, TIMEOUT) is not None

    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for target in targets:
            tasks.start_soon(turns, target)
    return len(targets) * each / (time.perf_counter() - start)


async def order_violations(app: App, targets: list[NamedTarget]) -> int:
    violations = 0
    for target in targets:
        row = (await app.services.sessions.get(OWNER, target)).session.row
        runs = sorted(await app.services.runs.list(OWNER, RunFilter(session=row), limit=1_000), key=lambda run: run.seq)
        for before, after in pairwise(runs):
            assert before.ended_at is not None and after.started_at is not None
            violations += after.started_at < before.ended_at
    return violations
