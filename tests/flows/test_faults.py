"""Faults of the server, of connections, of clocks and of processes under load: the long form has 1,000 of each kind."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from statistics import median, quantiles

import anyio
import psycopg
import pytest
from anyio import to_thread

from tests.claims import requirement
from tests.flows.cluster import (
    Clients,
    Cluster,
    Load,
    Node,
    check_ledger,
    log_file,
    open_clients,
    open_cluster,
    read_ledger,
)
from tests.flows.test_postgres_restarts import Server, open_server

pytestmark = pytest.mark.anyio

SEED = 20_261_130
HOUR_SECONDS = 3_600.0
WORKERS = 3
CLIENTS = 8
SHORT_COUNT, LONG_COUNT = 100, 1_000
"""Messages that are acknowledged while faults of one kind come."""
STOP_SECONDS = 10.0
"""Longer than the time after which others take over."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults come to."""

    server: Server
    cluster: Cluster
    workers: list[Node]
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))


async def restart(scene: Scene) -> None:
    """Every connection is cut, and nothing answers for a while."""
    await anyio.sleep(scene.chance.uniform(0.5, 2))
    await to_thread.run_sync(scene.server.stop_at_once)
    await anyio.sleep(scene.chance.uniform(0, 1))
    await to_thread.run_sync(scene.server.start)


async def drop(scene: Scene) -> None:
    """Some connections are cut, whatever they are in."""
    await anyio.sleep(scene.chance.uniform(0.05, 0.3))
    connection = await psycopg.AsyncConnection.connect(scene.server.url, autocommit=True)
    async with connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND random() < 0.2"
        )


async def stop(scene: Scene) -> None:
    """A process stands still until others have taken over, and then goes on as if nothing had been."""
    node = scene.chance.choice(scene.workers)
    scene.cluster.send_signal(node, SIGSTOP)
    await anyio.sleep(STOP_SECONDS)
    scene.cluster.send_signal(node, SIGCONT)
    await anyio.sleep(scene.chance.uniform(0, 1))


async def skew(scene: Scene) -> None:
    """The clocks go wrong from the beginning: there is nothing more to do."""
    await anyio.sleep(0.5)


KINDS: dict[str, Callable[[Scene], Awaitable[None]]] = {"restart": restart, "drop": drop, "skew": skew, "stop": stop}


@asynccontextmanager
async def open_scene(home: Path, *, are_clocks_wrong: bool) -> AsyncGenerator[tuple[Scene, Clients]]:
    shift = HOUR_SECONDS if are_clocks_wrong else 0.0
    with open_server() as server:
        async with open_cluster(home, server.url) as cluster:
            gateways = [
                await cluster.start(f"gateway-{number}", "gateway", clock_shift_seconds=number * shift)
                for number in (0, 1)
            ]
            workers = [
                await cluster.start(f"worker-{number}", "worker", clock_shift_seconds=(number - 1) * shift)
                for number in range(WORKERS)
            ]
            async with open_clients(*gateways) as clients:
                yield Scene(server, cluster, workers), clients


async def suffer(home: Path, kinds: list[str], count: int) -> str:
    """The faults come in turn until so many messages were acknowledged. The row of a table, if all laws hold."""
    async with open_scene(home, are_clocks_wrong="skew" in kinds) as (scene, clients):
        load, faults, began = Load(clients, sessions=24), 0, time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load.run, CLIENTS)
            while faults < len(kinds) or len(clients.acknowledged) < count:
                await KINDS[kinds[faults % len(kinds)]](scene)
                faults += 1
            load.stop()
        seconds = time.monotonic() - began
        check_ledger(await read_ledger(scene.server.url), clients.acknowledged)
    assert "Traceback" not in log_file(home).read_text("utf-8", "replace")
    p99 = quantiles(clients.seconds, n=100)[-1]
    return (
        f"| {' '.join(kinds)} | {faults} | {len(clients.acknowledged):,} | {clients.repeats} | 0 | 0 | 0 "
        f"| {median(clients.seconds) * 1000:.0f} ms | {p99:.2f} s | {max(clients.seconds):.2f} s | {seconds:.0f} s |"
    )


@requirement("sessions:4", "runs:8")
async def test_faults_of_each_kind_lose_double_and_disorder_nothing(tmp_path: Path, *, is_soak: bool) -> None:
    groups = [[kind] for kind in KINDS] if is_soak else [[*KINDS]]
    rows: list[str] = []
    for number, kinds in enumerate(groups):
        rows.append(await suffer(tmp_path / str(number) / "home", kinds, LONG_COUNT if is_soak else SHORT_COUNT))
    print("| fault | times | acknowledged | repeats | lost | doubled | out of order | p50 | p99 | longest | in all |")
    print("\n".join(rows))
