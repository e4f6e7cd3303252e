"""Many requesters and their children on PostgreSQL, with one, two and four workers: `python -m bench.crossing`.

Prints spawns and records of children a second, no-op runs a second, which advisory locks were seen, and deadlocks.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
from psycopg.conninfo import make_conninfo

from antiphon.agents.toolset import Tool, ToolContext
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import JsonObject, text_content
from antiphon.domain.run import RunStatus
from antiphon.engine.access.caller import Caller
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from bench.cluster import own_server
from bench.runs import open_session, turn, turns_at_once

REQUESTERS = 50
CHILDREN = 10
TOTAL = REQUESTERS * CHILDREN
TIMEOUT = timedelta(seconds=300)
LOOK_SECONDS = 0.01
MIGRATIONS = "0:7464"


class CrossingRunner:
    """A requester spawns its children and waits for all; they end when the file `go` exists."""

    def __init__(self, go: Path) -> None:
        self.tools: dict[str, Tool] = {}
        self._go = anyio.Path(go)
        self._constant = ConstantRunner("done")

    async def run(self, context: RunContext) -> RunEnding:
        if "subagent" in context.run.session_key:
            while not await self._go.exists():
                await anyio.sleep(0.1)
        elif ":boss" in context.run.session_key:
            ids = [
                (await self._call(context, "sessions_spawn", f"spawn-{n}", {"task": f"task {n}"}))["runId"]
                for n in range(CHILDREN)
            ]
            await self._call(context, "sessions_wait", "wait", {"runIds": ids, "timeoutSeconds": 600})
        return await self._constant.run(context)

    async def _call(self, context: RunContext, name: str, call_id: str, arguments: JsonObject) -> JsonObject:
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


def _config(url: str, role: str) -> Config:
    return Config.model_validate(
        {
            "database": {"url": url, "connections": 24 if role == "gateway" else 8},
            "gateway": {"role": role},
            "runs": {"maxConcurrent": TOTAL + REQUESTERS},
            "agents": {"defaults": {"subagents": {"maxChildrenPerAgent": CHILDREN}}},
        }
    )


def _start_worker(url: str, home: Path, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-m", "bench.crossing", "work", url, str(home), str(number)]
    return subprocess.Popen(command)


@asynccontextmanager
async def _cluster(home: Path, url: str, workers: int) -> AsyncGenerator[App]:
    async with open_app(home / "gateway", _config(url, "gateway")) as app:
        processes = [_start_worker(url, home, number) for number in range(workers)]
        try:
            with anyio.fail_after(120):
                while (await app.services.health.check()).workers < workers:
                    await anyio.sleep(0.1)
            yield app
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


async def measure(home: Path, url: str, workers: int) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    figures: dict[str, Any] = {}
    async with _cluster(home, url, workers) as app, anyio.create_task_group() as watching:
        watching.start_soon(_watch, url, seen)
        bosses = [await open_session(app, f"boss{number}") for number in range(REQUESTERS)]
        posted = await asyncio.gather(*(app.services.inbox.post(OWNER, boss, text_content("go")) for boss in bosses))
        with anyio.fail_after(300):
            while _one(url, "SELECT count(*) FROM spawns") < TOTAL:
                await anyio.sleep(0.05)
        spawned = _one(url, "SELECT 1000.0 * count(*) / (max(created_at) - min(created_at)) FROM spawns")
        with anyio.fail_after(300):
            while _one(url, "SELECT count(*) FROM runs WHERE status = 'running'") < TOTAL + REQUESTERS:
                await anyio.sleep(0.05)
        went = time.time()
        (home / "go").touch()
        for each in posted:
            assert each.run_id is not None
            run = await app.services.waits.wait(each.run_id, TIMEOUT)
            assert run is not None and run.status is RunStatus.OK, run
        recorded = TOTAL / (_one(url, "SELECT max(ended_at) / 1000.0 FROM reports") - went)
        assert _one(url, "SELECT count(*) FROM reports WHERE ended_at IS NOT NULL") == TOTAL
        idle = [await open_session(app, f"s{number}") for number in range(50)]
        for target in idle:
            await turn(app, target)
        rate = await turns_at_once(app, idle, 12)
        figures = {
            "workers": workers,
            "spawns_per_s": round(spawned),
            "records_per_s": round(recorded),
            "runs_per_s": round(rate),
        }
        watching.cancel_scope.cancel()
    return figures | {
        "advisory_locks_seen": {**seen},
        "deadlocks": _one(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
    }


def _one(url: str, statement: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return float(row[0])


async def _watch(url: str, seen: Counter[str]) -> None:
    """Counts which advisory locks, besides the one of migrations, are held or waited for."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            rows = await connection.execute(
                "SELECT classid::text || ':' || objid, granted FROM pg_locks WHERE locktype = 'advisory' "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            for name, granted in await rows.fetchall():
                if name != MIGRATIONS:
                    place = "of the database" if name.startswith("0:") else "of a key"
                    seen[f"{place}, {'held' if granted else 'awaited'}"] += 1
            await anyio.sleep(LOOK_SECONDS)


async def _work(url: str, home: Path, number: str) -> None:
    """A worker process, until it is told to stop."""
    stop = anyio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    runner = CrossingRunner(home / "go")
    async with open_app(home / f"w{number}", _config(url, "worker"), Parts(runner=runner)) as app:
        for tool in ("sessions_spawn", "sessions_wait"):
            found = app.tools.find(tool)
            assert found is not None
            runner.tools[tool] = found
        await stop.wait()


async def main(workers: list[int]) -> None:
    async with own_server() as server:
        for count in workers:
            name = f"crossing{count}"
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
            with tempfile.TemporaryDirectory() as home:
                print(json.dumps(await measure(Path(home), make_conninfo(server, dbname=name), count)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        anyio.run(_work, sys.argv[2], Path(sys.argv[3]), sys.argv[4], backend_options={"use_uvloop": True})
    else:
        anyio.run(main, [int(each) for each in sys.argv[1:]] or [1, 2, 4], backend_options={"use_uvloop": True})
