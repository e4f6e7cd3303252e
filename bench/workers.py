"""B8 and B15 on PostgreSQL with one, two and four workers: what a run costs, and what many families of children do."""

import tempfile
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from bench import crossing, trips
from bench.cluster import own_server
from bench.measure import Row

HALF_SECOND_RUNS = {1: 32, 2: 64, 4: 100}
"""Of these, 90 % are the target: what so many workers of 16 places could do in a second, with two cores for all."""
CPU_MS = 4.0
RUNS = 450
SPAWNS = 200
RECORDS = 300


async def measure(directory: Path) -> list[Row]:
    rows: list[Row] = []
    async with own_server() as server:
        for workers, possible in HALF_SECOND_RUNS.items():
            with psycopg.connect(server, autocommit=True) as connection:
                for name in ("trips", "crossing"):
                    connection.execute(f"CREATE DATABASE {name}{workers}".encode())
            with tempfile.TemporaryDirectory(dir=directory) as home:
                url = make_conninfo(server, dbname=f"trips{workers}")
                cost = await trips.measure(Path(home), server, url, workers)
            with tempfile.TemporaryDirectory(dir=directory) as home:
                url = make_conninfo(server, dbname=f"crossing{workers}")
                crossed = await crossing.measure(Path(home), url, workers)
            slow = cost.half_second_runs_per_s
            spawns, records = float(crossed["spawns_per_s"]), float(crossed["records_per_s"])
            rows.append(
                Row(
                    id="B8w",
                    what=f"no-op runs, runs of 0.5 s, spawns and records of children (PostgreSQL, workers: {workers})",
                    measured=f"{cost.runs_per_s:,.0f} runs/s for {cost.cpu_ms:.1f} ms of processor each; {slow:.0f}/s "
                    f"of 0.5 s; {spawns:.0f} spawns/s; {records:.0f} records/s",
                    reference=f"{cost.trips:.1f} waits, {cost.statements:.1f} statements a run; {possible}/s of 0.5 s",
                    target=f"≥ {RUNS}, ≤ {CPU_MS} ms; ≥ 90 %; ≥ {SPAWNS}; ≥ {RECORDS}",
                    is_met=cost.runs_per_s >= RUNS
                    and cost.cpu_ms <= CPU_MS
                    and slow >= 0.9 * possible
                    and spawns >= SPAWNS
                    and records >= RECORDS,
                    figures={
                        "runs_per_s": cost.runs_per_s,
                        "cpu_ms": cost.cpu_ms,
                        "waits": cost.trips,
                        "half_second_runs_per_s": slow,
                        "spawns_per_s": spawns,
                        "records_per_s": records,
                    },
                )
            )
    return rows
