"""What the page shows costs no more in a home with many sessions: no statement reads a whole table of them."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from antiphon.app import gateway_app, open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.gateway.server import bind, serving
from antiphon.store.sqlite import connect_sqlite
from tests.claims import requirement
from tests.directives import to_spawn
from tests.gateway.served import TOKEN, Served, new_client

pytestmark = pytest.mark.anyio

LARGE = ("runs", "events", "sessions", "incarnations", "indexed_messages", "deliveries", "approvals")
KEY = "agent:main:main"
SHOWN = (
    "/page",
    "/page?view=home",
    "/page?view=costs",
    f"/page?session={KEY}",
    f"/page?view=details&session={KEY}",
    f"/page/header?session={KEY}",
    f"/page/entries?session={KEY}&after=1",
    "/page/sessions",
    "/page/sessions?which=scheduled",
    "/page/sessions?which=archived",
    "/who",
    "/tree",
    f"/sessions/{KEY}/tree",
)
"""What a person opens, and the program that shows the same. A search looks through all names."""


class Statements:
    """Those that a home's connections carried out."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def connect(self, path: Path, **options: Any) -> sqlite3.Connection:
        connection: Any = connect_sqlite(path, **options)
        connection.set_trace_callback(self.texts.add)
        return connection


def whole_reads(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The steps of the statement's plan that read every row of a large table, or make an index of it first."""
    names = {name for table in LARGE for name in (table, *re.findall(rf"\b{table} (?:AS )?(\w+)", statement))}
    steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    found = [re.fullmatch(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX sqlite_auto\w+)?", step) for step in steps]
    whole = [match[0] for match in found if match is not None and match[1] in names]
    return [*whole, *(step for step in steps if "AUTOMATIC" in step and step.split()[1] in names)]


@requirement("gateway:6", "runs:1")
async def test_nothing_that_the_page_shows_reads_a_whole_table(tmp_path: Path) -> None:
    home, seen = tmp_path / "home", Statements()
    config = Config.model_validate({"gateway": {"drain_seconds": 0}})
    async with (
        open_app(home, config, Parts(connect=seen.connect)) as app,
        serving(gateway_app(app, TOKEN), bind("127.0.0.1", 0), on_stop=app.services.let_go) as url,
        new_client(url, TOKEN) as client,
    ):
        served = Served(app, url, client)
        await served.open(KEY)
        run = (await served.post(KEY, f"{to_spawn('task', label='Child')}"))["runId"]
        seen.texts.clear()
        for path in (*SHOWN, f"/page?view=tree&run={run}", f"/runs/{run}/tree"):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
        selects = {text for text in seen.texts if text.startswith(("SELECT", "WITH"))}
    assert len(selects) > 30
    with closing(sqlite3.connect(home / "antiphon.db")) as connection:
        found = {text: steps for text in selects if (steps := whole_reads(connection, text))}
    assert not found, "an index is missing, or a condition that the index has"


async def test_a_gateway_finds_the_sessions_with_work_without_reading_all_runs(tmp_path: Path) -> None:
    home, seen = tmp_path / "home", Statements()
    for _ in range(2):
        seen.texts.clear()  # those of making the home
        async with open_app(home, Config(), Parts(connect=seen.connect)):
            pass
    with closing(sqlite3.connect(home / "antiphon.db")) as connection:
        selects = [text for text in seen.texts if text.startswith("SELECT") and re.search(r"\bFROM runs\b", text)]
        assert selects
        assert {text: steps for text in selects if (steps := whole_reads(connection, text))} == {}
