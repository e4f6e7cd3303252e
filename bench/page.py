"""B22: the page of a home with 100,000 sessions, 10,000 of them below one; and its requests from the server alone."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import httpx

from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.gateway.server import bind, serving
from antiphon.store.database import Transaction
from bench.measure import Row, micros, p50, p99
from bench.runs import PARTS

SESSIONS = 100_000
BELOW = 10_000
BATCH = 500
ROUNDS = 40
LONGEST = 0.1
"""Seconds from the server, for what a person waits for."""
TOP = "agent:main:cli:top"
KEY = "CASE WHEN i < BELOW THEN 'agent:main:subagent:n' ELSE 'agent:main:cli:n' END || i"
UNDER = "CASE WHEN i < BELOW THEN 1 END"
COPIED: Mapping[str, Mapping[str, str]] = {
    "sessions": {
        "id": "i + 10",
        "key": KEY,
        "folded_key": KEY,
        "incarnation": "'spawn:n' || i",
        "updated_at": "t.updated_at + i",
        "parent": UNDER,
        "ancestor_0": UNDER,
        "depth": "CASE WHEN i < BELOW THEN 1 ELSE 0 END",
    },
    "incarnations": {"id": "'spawn:n' || i", "session": "i + 10"},
    "indexed_logs": {"session": "i + 10"},
    "runs": {
        "id": "printf('run_n%030d', i)",
        "session": "i + 10",
        "incarnation": "'spawn:n' || i",
        "cause": "CASE WHEN i < BELOW THEN t.id END",
    },
}
"""The columns that differ between the copies, which are numbered `i`."""


async def page(directory: Path) -> list[Row]:
    async with open_app(directory / "home", Config(), PARTS) as app:
        run = await _fill(app)
        secret = "bench"
        async with serving(gateway_app(app, secret), bind("127.0.0.1", 0), on_stop=app.services.let_go) as url:
            headers = {"Authorization": f"Bearer {secret}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
                return await _rows(client, run)


async def _rows(client: httpx.AsyncClient, run: str) -> list[Row]:
    asked: Mapping[str, tuple[str, Mapping[str, str]]] = {
        "home": ("/page", {"view": "home"}),
        "list": ("/page/sessions", {}),
        "request": ("/page", {"view": "tree", "run": run}),
        "tree": ("/page", {"session": f"agent:main:subagent:n{BELOW - 1}"}),
        "chat": ("/page", {"session": TOP}),
        "search": ("/page/sessions", {"search": f"n{SESSIONS - 1}"}),
    }
    found = {name: await _timed(client, path, params) for name, (path, params) in asked.items()}
    return [
        Row(
            id="B22",
            what=f"the page with {SESSIONS:,} sessions, {BELOW:,} below one, from the server: p50 (p99)",
            measured=", ".join(f"{name} {micros(p50(each))} ({micros(p99(each))})" for name, each in found.items()),
            reference=f"{ROUNDS} requests of each, one after the other",
            target="home and tree ≤ 100 ms",
            is_met=all(p50(found[name]) <= LONGEST for name in ("home", "tree", "request")),
            figures={f"{name}_s": p50(each) for name, each in found.items()},
        )
    ]


async def _fill(app: App) -> str:
    """Copies one session with its run as often as needed; the id of the run above most of the others."""
    target = app.services.sessions.target(TOP)
    await app.services.sessions.open(OWNER, target)
    posted = await app.services.inbox.post(OWNER, target, text_content("hello"))
    assert posted.run_id is not None
    await app.services.waits.wait(posted.run_id, timedelta(seconds=60))
    while not (await app.services.search.messages(OWNER, "hello", limit=1)).hits:
        await asyncio.sleep(0.05)  # until the index has the log, so that it need not read the copies

    async def copy(tx: Transaction, first: int, last: int, below: int) -> None:
        for table, drawn in COPIED.items():
            names = [str(row[1]) for row in await tx.fetch_all(f"PRAGMA table_info({table})")]
            chosen = [drawn.get(name, f"t.{name}") for name in names]
            whose = "t.id" if table == "sessions" else "t.session"
            statement = (
                f"WITH RECURSIVE n(i) AS (VALUES ({first}) UNION ALL SELECT i + 1 FROM n WHERE i < {last}) "
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(chosen)} FROM n, {table} t "
                f"WHERE {whose} = 1"
            )
            await tx.execute(statement.replace("BELOW", str(below)))

    for first in range(0, SESSIONS, BATCH):
        await app.database.run(copy, first, first + BATCH - 1, BELOW)
    return posted.run_id


async def _timed(client: httpx.AsyncClient, path: str, params: Mapping[str, str]) -> Sequence[float]:
    samples: list[float] = []
    for _ in range(ROUNDS + 3):
        start = time.perf_counter()
        answer = await client.get(path, params=params)
        samples.append(time.perf_counter() - start)
        assert answer.status_code == 200, answer.text[:500]
        await asyncio.sleep(0)
    return samples[3:]
