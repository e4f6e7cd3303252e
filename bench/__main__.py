"""`python -m bench [B1 B3 …]`: prints the table and writes `bench/results/<date>.json`."""

import asyncio
import json
import logging
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from bench import (
    approvals,
    audit,
    chats,
    children,
    cluster,
    idle,
    live,
    log,
    page,
    refusals,
    runs,
    search,
    sockets,
    tasks,
    text,
    tools,
    turns,
    workers,
)
from bench.measure import Row, metering

Bench = Callable[[Path], Awaitable[list[Row]]]

BENCHES: dict[str, Bench] = {
    "B1 B2": log.appends,
    "B3": log.throughput,
    "B4": log.lists,
    "B5": log.pages,
    "B6 B6p": live.follow,
    "B7": runs.latency,
    "B8": runs.throughput,
    "B9": tools.sends,
    "B9t": tools.trees,
    "B10": tools.decisions,
    "B11": search.search,
    "B12": idle.idle,
    "B7 B8 B14": cluster.measure,
    "B8w": workers.measure,
    "B15": children.families,
    "B16": turns.turns,
    "B17": approvals.authorizing,
    "B18": approvals.listing,
    "B19": approvals.revoking,
    "B20": chats.chats,
    "B21 B21l": sockets.sockets,
    "B22": page.page,
    "B24": refusals.refusals,
    "B23": tasks.tasks,
    "B25": audit.verifying,
    "TEXT": text.text,
}


async def measure(wanted: set[str]) -> list[Row]:
    rows: list[Row] = []
    for ids, bench in BENCHES.items():
        if wanted and not wanted & set(ids.split()):
            continue
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
            async with metering() as meter:
                found = await bench(Path(directory))
        stalls = meter.last_hour()
        figures = {"loop_p999_ms": stalls.p999_ms, "loop_longest_ms": stalls.longest_ms}
        rows.extend(replace(row, figures={**row.figures, **figures}) for row in found)
        stood = f"loop late by {stalls.p999_ms:g} ms (p99.9), {stalls.longest_ms:g} ms at most"
        print(f"{ids}: {rows[-1].measured}; {stood}", file=sys.stderr)
    return rows


def main() -> None:
    logging.disable(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(measure(set(sys.argv[1:])))
    table = Table("", "what", "measured", "reference", "target", "met")
    for row in rows:
        table.add_row(row.id, row.what, row.measured, row.reference, row.target, "yes" if row.is_met else "NO")
    Console(width=170).print(table)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    path = Path("bench/results") / f"{day}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"date": day, "python": platform.python_version(), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
