"""B11: searching a million messages, and how soon a new one is found. `ANTIPHON_BENCH_MESSAGES` makes them fewer."""

import os
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.event import NewEvent, user_event
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.message import UserMessage, text_content
from antiphon.domain.session import Source
from antiphon.domain.session_ids import parse_session_id
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.views.indexer import Indexer
from antiphon.feed.local import LocalNotifier
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.codec import classification_values, milliseconds
from antiphon.store.database import Transaction
from bench.cluster import own_server
from bench.labels import classification, config_of
from bench.measure import Row, micros, p50

MESSAGES = int(os.environ.get("ANTIPHON_BENCH_MESSAGES", "1000000"))
PER_SESSION = 100
PER_RARE = 1_000
"""One in so many messages has the word that is searched for."""
PER_SMALL = 100
"""One in so many sessions is of the agent that sees no others."""
START = datetime(2024, 1, 1, tzinfo=UTC)
BASE = ("base_level", "base_compartments", "base_integrity", "base_person")
WORDS = [f"{first}{last}{number}" for number in range(250) for first in ("ba", "ku", "so", "mi") for last in "nrtlx"]
WEIGHTS = [1 / rank for rank in range(1, len(WORDS) + 1)]
SETTINGS: Mapping[str, Any] = {
    "agents": {"list": [{"id": "main"}, {"id": "small", "tools": {"sessions": {"read": "agent"}}}]},
    "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
}


async def search(directory: Path) -> list[Row]:
    """On SQLite, and on a PostgreSQL server of our own."""
    embedded = config_of(SETTINGS)
    found = [await _measure(directory / "embedded", embedded, "SQLite")]
    async with own_server() as url:
        shared = config_of({**SETTINGS, "database": {"url": SecretStr(url), "connections": 8}})
        found.append(await _measure(directory / "shared", shared, "PostgreSQL"))
    return found


async def _measure(home: Path, config: Config, name: str) -> Row:
    spent: dict[str, float] = {}
    async with searching(home, config, spent) as (app, callers):
        figures = dict(spent)
        for share, caller in callers.items():
            for word in ("needle", WORDS[0]):
                await _searches(app, caller, word, 5)
                figures[f"{share} {word}"] = p50(await _searches(app, caller, word, 100))
        fresh = await _freshness(app, callers["100 %"])
    few, all_ = figures["1 % needle"], figures["100 % needle"]
    return Row(
        id="B11",
        what=f"search {MESSAGES:,} messages, a word in 0.1 %, caller sees 1 % and 100 %, p50 ({name})",
        measured=f"1 %: {micros(few)}, 100 %: {micros(all_)}; new ones found after {micros(max(fresh))} at most",
        reference=f"a word in most: 1 % {micros(figures[f'1 % {WORDS[0]}'])}, "
        f"100 % {micros(figures[f'100 % {WORDS[0]}'])}; indexed {MESSAGES / spent['index_s']:,.0f}/s",
        target="≤ 10 ms; ≤ 1 s",
        is_met=max(few, all_) <= 10e-3 and max(fresh) <= 1.0,
        figures={**figures, "fresh_s": max(fresh)},
    )


@asynccontextmanager
async def searching(
    home: Path, config: Config, spent: dict[str, float] | None = None
) -> AsyncGenerator[tuple[App, dict[str, Caller]]]:
    """A home whose messages are indexed, and its callers by what they see; `spent` gets the seconds of its making."""
    began = time.perf_counter()
    async with open_app(home, config, Parts(synchronous="OFF")) as app:
        callers = await _fill(app)
        filled = time.perf_counter()
        await Indexer(app.database, LocalNotifier()).catch_up()
        if spent is not None:
            spent |= {"index_s": time.perf_counter() - filled, "fill_s": filled - began}
    async with open_app(home, config) as app:
        yield app, callers


async def _fill(app: App) -> dict[str, Caller]:
    """Sessions that talked all at the same time; a caller that sees one of a hundred, and one that sees all."""
    callers: dict[str, Caller] = {}
    sessions = MESSAGES // PER_SESSION
    for number in range(sessions):
        agent = AgentId("small" if number % PER_SMALL == 0 else "main")
        row = await app.database.run(_make_session, agent, number, sessions)
        share = "1 %" if agent == "small" else "100 %"
        callers[share] = Caller(session=row, agent_id=agent, principal=OWNER, call_id="bench", run=None)
    return callers


async def _make_session(tx: Transaction, agent: AgentId, number: int, sessions: int) -> SessionRow:
    chance = random.Random(number)
    session_id = parse_session_id(f"api:n{number}")
    new = rows.NewSession(
        key=parse_key(f"agent:{agent}:api:n{number}"),
        agent_id=agent,
        id=session_id,
        source=Source(kind="api", interactive=False),
        columns=dict(zip(BASE, classification_values(classification()), strict=True)),
    )
    row = await rows.insert(tx, new, milliseconds(START))
    events: list[NewEvent] = []
    for turn in range(PER_SESSION):
        words = chance.choices(WORDS, WEIGHTS, k=25)
        if (turn * 31 + number) % PER_RARE == 0:
            words.append("needle")
        message = UserMessage(message_id=f"m{turn}", content=text_content(" ".join(words)))
        event = user_event(message, actor="owner", run_id=None, classification=classification())
        events.append(replace(event, occurred_at=START + timedelta(seconds=turn * sessions + number)))
    await log.append(tx, row, log.Addition(incarnation=session_id, events=events, at_ms=milliseconds(START)))
    return row


async def _searches(app: App, caller: Caller, word: str, count: int) -> list[float]:
    samples: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        hits = (await app.services.search.messages(caller, word, limit=10)).hits
        samples.append(time.perf_counter() - start)
        assert hits
    return samples


async def _freshness(app: App, caller: Caller) -> list[float]:
    """Seconds from a message's commit until a search finds it."""
    samples: list[float] = []
    target = NamedTarget(parse_key("agent:main:api:n1"), None)
    for number in range(10):
        await app.services.inbox.append(OWNER, target, text_content(f"fresh{number}"))
        start = time.perf_counter()
        while not (await app.services.search.messages(caller, f"fresh{number}", limit=10)).hits:
            await anyio.sleep(0.005)
        samples.append(time.perf_counter() - start)
    return samples
