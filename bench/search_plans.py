"""Searching on PostgreSQL before and after ANALYZE: `python -m bench.search_plans 100000 1000000`.

The messages are made once by the server itself, and kept in the folder `ANTIPHON_BENCH_CORPUS`.
"""

import sys
import tempfile
import time
from pathlib import Path

import anyio
import psycopg
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.redaction import RULES
from antiphon.engine.access.caller import Caller
from bench.bulk import begin, clone, finish, fresh_copy, is_made, kept_server
from bench.labels import config_of
from bench.measure import p50, p99
from bench.search import SETTINGS

PER_SESSION = 100
VOCABULARY = 5_000
WORDS_PER_MESSAGE = 25
FIRST = 1_000
"""The rows below it are those that the product made."""
QUERIES = {
    "in most": "w1",
    "in 0.1 %": "needle",
    "in three": "unicorn",
    "two common": "w1 w2",
    "common and rare": "w1 needle",
    "a phrase of five": "w1 w2 w3 w4 w5",
    "two of 1 %": "w150 w151",
    "in none": "nowhere",
}
TIMES = 40


async def _make(server: str, messages: int, home: Path) -> None:
    url = begin(server)
    config = config_of({**SETTINGS, "database": {"url": SecretStr(url), "connections": 8}})
    async with open_app(home, config) as app:
        for agent in ("main", "small"):
            target = app.services.sessions.target(f"agent:{agent}:api:model")
            await app.services.sessions.open(OWNER, target)
            await app.services.inbox.append(OWNER, target, text_content("MODEL"))
            while await app.services.search.lag():
                await anyio.sleep(0.05)
    with psycopg.connect(url, autocommit=True) as connection:
        _fill(connection, messages)
    finish(server)


def _fill(connection: psycopg.Connection[tuple[object, ...]], messages: int) -> None:
    sessions = messages // PER_SESSION
    connection.execute("SELECT setseed(0.5)")
    one = "x.session = (SELECT id FROM sessions WHERE key = 'agent:main:api:model')"
    numbers = f"generate_series({FIRST}, {FIRST + sessions - 1}) n"
    each = f"generate_series({FIRST}, {FIRST + sessions - 1}) n CROSS JOIN generate_series(1, {PER_SESSION}) turn"
    clone(
        connection,
        "sessions",
        "x.key = CASE WHEN n % 100 = 0 THEN 'agent:small:api:model' ELSE 'agent:main:api:model' END",
        {
            "id": "n",
            "key": "'agent:' || x.agent_id || ':api:n' || n",
            "folded_key": "'agent:' || x.agent_id || ':api:n' || n",
            "incarnation": "'api:n' || n",
            "last_seq": str(PER_SESSION + 2),
            "message_count": str(PER_SESSION),
            "updated_at": "x.updated_at + n",
        },
        numbers=numbers,
    )
    clone(connection, "incarnations", one, {"id": "'api:n' || n", "session": "n"}, numbers=numbers)
    connection.execute(
        "CREATE TABLE texts AS SELECT n AS session, turn + 2 AS seq, "
        f"1700000000000 + turn * {sessions} + n AS at, (SELECT string_agg('w' || floor(exp(random() * "
        f"ln({VOCABULARY})))::int, ' ') FROM generate_series(1, {WORDS_PER_MESSAGE}) k WHERE k + n + turn > 0) "
        "|| CASE WHEN (turn * 31 + n) % 1000 = 0 THEN ' needle' ELSE '' END "
        f"|| CASE WHEN turn = 50 AND n IN ({FIRST}, {FIRST + 1}, {FIRST + 100}) THEN ' unicorn' ELSE '' END AS text "
        f"FROM {each}".encode()
    )
    message = f"{one} AND x.seq = 2 AND n.session = n.session"
    clone(
        connection,
        "events",
        message,
        {
            "session": "n.session",
            "seq": "n.seq",
            "incarnation": "'api:n' || n.session",
            "message_id": "'m' || n.seq",
            "created_at": "n.at",
            "payload": "replace(x.payload, 'MODEL', n.text)",
        },
        numbers="texts n",
    )
    clone(
        connection,
        "indexed_messages",
        message,
        {"id": "n.at << 15", "session": "n.session", "seq": "n.seq", "incarnation": "'api:n' || n.session"},
        numbers="texts n",
    )
    connection.execute(
        "INSERT INTO indexed_logs (session, first_seq, indexed_seq, reading) "
        f"SELECT id, 1, last_seq, {RULES} FROM sessions WHERE id >= {FIRST}".encode()
    )
    connection.execute("SET maintenance_work_mem = '512MB'")
    connection.execute("DROP INDEX message_words_by_word")
    connection.execute(
        "INSERT INTO message_words SELECT at << 15, ('_' || session || ' ' || text)::tsvector FROM texts"
    )
    connection.execute("CREATE INDEX message_words_by_word ON message_words USING GIN (words) WITH (fastupdate = off)")
    connection.execute("DROP TABLE texts")


async def _measure(app: App, callers: dict[str, Caller]) -> dict[str, str]:
    figures: dict[str, str] = {}
    for share, caller in callers.items():
        for name, words in QUERIES.items():
            samples: list[float] = []
            hits = 0
            for _ in range(TIMES):
                start = time.perf_counter()
                hits = len((await app.services.search.messages(caller, words, limit=10)).hits)
                samples.append((time.perf_counter() - start) * 1000)
                if sum(samples) > 10_000:
                    break
            figures[f"{share}, {name}"] = f"{p50(samples):.1f} / {p99(samples):.1f} ms ({hits})"
    return figures


async def main(counts: list[int]) -> None:
    for messages in counts:
        async with kept_server(f"search-{messages}") as server:
            with tempfile.TemporaryDirectory() as home:
                if not is_made(server):
                    began = time.perf_counter()
                    await _make(server, messages, Path(home) / "making")
                    print(f"made {messages:,} in {time.perf_counter() - began:.0f} s", flush=True)
                url = fresh_copy(server)
                config = config_of({**SETTINGS, "database": {"url": SecretStr(url), "connections": 8}})
                async with open_app(Path(home) / "home", config) as app:
                    callers = {
                        share: Caller(
                            session=SessionRow(row), agent_id=AgentId(agent), principal=OWNER, call_id="b", run=None
                        )
                        for share, agent, row in (("1 %", "small", FIRST), ("100 %", "main", FIRST + 1))
                    }
                    before = await _measure(app, callers)
                    with psycopg.connect(url, autocommit=True) as connection:
                        connection.execute("ANALYZE")
                    after = await _measure(app, callers)
                print(f"{messages:,} messages: p50 / p99 before ANALYZE and after (hits)")
                for name in before:
                    print(f"  {name:24} {before[name]:28} {after[name]}", flush=True)


if __name__ == "__main__":
    anyio.run(main, [int(each) for each in sys.argv[1:]] or [100_000], backend_options={"use_uvloop": True})
