"""B15: one session spawns 500 children that all run at the same time, while another process reads the page."""

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from antiphon.agents.toolset import Tool, ToolContext
from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import JsonObject, ReportStage, UserMessage, text_content
from antiphon.domain.run import RunStatus
from antiphon.engine.access.caller import Caller
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from antiphon.gateway.server import bind, serving
from antiphon.owner_token import owner_token
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store.runs import RunFilter
from bench.cluster import own_server
from bench.measure import Row, micros, p50, p99
from bench.runs import open_session

CHILDREN = 500
ROUNDS = 3
IDLE_SECONDS = 2.0
"""How long the page is read before anything happens."""
PAUSE_SECONDS = 0.005
"""Between two requests of the reader."""
TIMEOUT = timedelta(seconds=300)
MIB = 1024 * 1024


@dataclass
class Family:
    """When things happened in one round, in seconds of the clock that readers share."""

    children: int
    begun: float = 0.0
    spawned: float = 0.0
    all_running: float = 0.0
    recorded: float = 0.0
    ended: float = 0.0
    running: int = 0
    released: anyio.Event = field(default_factory=anyio.Event)


class FamilyRunner:
    """The requester spawns and waits for all; each child ends when all of them run."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.family = Family(children=0)
        self._constant = ConstantRunner("done")

    async def run(self, context: RunContext) -> RunEnding:
        family = self.family
        if "subagent" in context.run.session_key:
            family.running += 1
            if family.running == family.children:
                family.all_running = time.monotonic()
                family.released.set()
            await family.released.wait()
        elif family.children:
            await self._spawn(context, family)
        return await self._constant.run(context)

    async def _spawn(self, context: RunContext, family: Family) -> None:
        """One after the other, as an agent's calls are carried out."""
        family.begun = time.monotonic()
        run_ids: list[Any] = []
        for number in range(family.children):
            answer = await self._call(context, "sessions_spawn", f"spawn-{number}", {"task": f"task {number}"})
            run_ids.append(answer["runId"])
        family.spawned = time.monotonic()
        joined = await self._call(context, "sessions_wait", "wait", {"runIds": run_ids, "timeoutSeconds": 600})
        assert joined["status"] == "ok" and len(joined["runs"]) == family.children
        family.recorded = time.monotonic()

    async def _call(self, context: RunContext, name: str, call_id: str, arguments: JsonObject) -> Any:
        caller = Caller(
            session=SessionRow(context.run.session),
            agent_id=context.agent.id,
            principal=OWNER,
            call_id=f"{context.run.id}-{call_id}",
            run=context,
        )
        output = await self.tools[name].call(ToolContext(caller), arguments)
        assert not output.is_error, output.text
        return json.loads(output.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the reader saw of one answer."""

    path: str
    at: float
    seconds: float
    memory: int


async def families(directory: Path) -> list[Row]:
    """B15 on both databases."""
    rows = [await _measure(directory / "sqlite", "SQLite", {})]
    async with own_server() as server:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(b"CREATE DATABASE children")
        url = make_conninfo(server, dbname="children")
        rows.append(await _measure(directory / "postgres", "PostgreSQL", {"url": url, "connections": 32}))
    return rows


async def _measure(home: Path, name: str, database: JsonObject) -> Row:
    runner = FamilyRunner()
    settings: JsonObject = {
        "database": database,
        "runs": {"maxConcurrent": CHILDREN + 1},
        "agents": {"defaults": {"subagents": {"maxChildrenPerAgent": CHILDREN}}},
    }
    async with open_app(home, Config.model_validate(settings), Parts(runner=runner)) as app:
        for tool in ("sessions_spawn", "sessions_wait"):
            found = app.tools.find(tool)
            assert found is not None
            runner.tools[tool] = found
        await _round(app, runner, "warm-up", 20)
        memory = psutil.Process().memory_info().rss
        samples: list[Sample] = []
        async with _reader(app, home, samples):
            await anyio.sleep(IDLE_SECONDS)
            rounds = [await _round(app, runner, f"requester{number}", CHILDREN) for number in range(ROUNDS)]
    return _row(name, rounds, samples, memory)


async def _round(app: App, runner: FamilyRunner, name: str, children: int) -> Family:
    """One requester with so many children, whose results all came once."""
    target = await open_session(app, name)
    family = runner.family = Family(children=children)
    posted = await app.services.inbox.post(OWNER, target, text_content("go"))
    assert posted.run_id is not None
    run = await app.services.waits.wait(posted.run_id, TIMEOUT)
    assert run is not None and run.status is RunStatus.OK, run
    family.ended = time.monotonic()
    session = (await app.services.sessions.get(OWNER, target)).session.row
    read_all = partial(log.read_stretch, limit=100_000, max_bytes=2**40)
    events = (await app.database.read(read_all, system_grant(session), 0)).events
    records = Counter(
        event.message.report.id
        for event in events
        if isinstance(event.message, UserMessage)
        and event.message.report is not None
        and event.message.report.stage is ReportStage.RECORD
    )
    assert len(records) == children and set(records.values()) == {1}, "each result came once"
    assert len(await app.services.runs.list(OWNER, RunFilter(session=session), limit=10)) == 1, (
        "and nobody was told again"
    )
    return family


@asynccontextmanager
async def _reader(app: App, home: Path, samples: list[Sample]) -> AsyncGenerator[None]:
    """Another process that reads the page meanwhile; what it saw is in `samples` afterwards."""
    token = owner_token(home, app.services.ids)
    async with serving(gateway_app(app, token), bind("127.0.0.1", 0), on_stop=app.services.let_go) as url:
        command = [sys.executable, "-W", "ignore", "-m", "bench.children", url, token, str(psutil.Process().pid)]
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None and process.stdout is not None
            await process.stdout.receive()  # it has begun
            yield
            await process.stdin.aclose()
            written = b"".join([chunk async for chunk in process.stdout])
    samples += [Sample(**sample) for sample in json.loads(written)]


def _read(url: str, token: str, pid: int) -> None:
    """Reads the page and the list in turn until standard input ends; writes what it saw."""
    watched = psutil.Process(pid)
    samples: list[dict[str, Any]] = []
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        for path in ("/page", "/sessions?limit=50"):
            client.get(path).raise_for_status()
        print("reading", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for path in ("/page", "/sessions?limit=50"):
                start = time.monotonic()
                client.get(path).raise_for_status()
                seconds = time.monotonic() - start
                samples.append({"path": path, "at": start, "seconds": seconds, "memory": watched.memory_info().rss})
                time.sleep(PAUSE_SECONDS)
    print(json.dumps(samples))


def _row(name: str, rounds: list[Family], samples: list[Sample], memory: int) -> Row:
    spawns = p50([family.children / (family.spawned - family.begun) for family in rounds])
    # The last child begins when all run: what follows is ending them, with their records.
    records = p50([family.children / (family.recorded - family.all_running) for family in rounds])
    whole = p50([family.ended - family.begun for family in rounds])
    peak = max(sample.memory for sample in samples)
    busy = {path: _times(samples, path, rounds) for path in ("/page", "/sessions?limit=50")}
    idle = {path: [s.seconds for s in samples if s.path == path and s.at < rounds[0].begun] for path in busy}
    slowest = max(p99(times) for times in busy.values())
    return Row(
        id="B15",
        what=f"{CHILDREN} children of one session at once ({name})",
        measured=f"{spawns:,.0f} spawns/s, {records:,.0f} records/s, {whole:.1f} s in all, {peak / MIB:.0f} MiB; "
        + "; ".join(f"`{path}` p50 {micros(p50(times))}, p99 {micros(p99(times))}" for path, times in busy.items()),
        reference=f"before: {memory / MIB:.0f} MiB; "
        + "; ".join(f"`{path}` p50 {micros(p50(times))}, p99 {micros(p99(times))}" for path, times in idle.items()),
        target="the page answers, p99 ≤ 250 ms",
        is_met=slowest <= 0.25,
        figures={
            "spawns_per_s": spawns,
            "records_per_s": records,
            "seconds": whole,
            "rss_before": memory,
            "rss_peak": peak,
            "busy": {
                path: {"n": len(t), "p50_s": p50(t), "p99_s": p99(t), "max_s": max(t)} for path, t in busy.items()
            },
            "idle": {
                path: {"n": len(t), "p50_s": p50(t), "p99_s": p99(t), "max_s": max(t)} for path, t in idle.items()
            },
        },
    )


def _times(samples: list[Sample], path: str, rounds: list[Family]) -> list[float]:
    """Of answers that were asked for in one of the rounds."""
    return [
        sample.seconds
        for sample in samples
        if sample.path == path and any(family.begun <= sample.at <= family.ended for family in rounds)
    ]


if __name__ == "__main__":
    _read(sys.argv[1], sys.argv[2], int(sys.argv[3]))
