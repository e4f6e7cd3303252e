"""Damaged, deleted and replaced databases: every request is answered, and nothing is acknowledged that may be lost."""

import os
import re
import shutil
import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import anyio
import httpx
import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME, inspect_database
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.event import UNREADABLE
from antiphon.store.database import Transaction
from antiphon.store.migrations import StoreUnusable
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Served, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:cli:damaged"
READS = ("/sessions", f"/sessions/{KEY}/history", f"/sessions/{KEY}/transcript", "/runs", "/deliveries", "/tree")
TABLES = ("sessions", "incarnations", "events", "runs", "deliveries", "reports", "spawns", "indexed_logs")
INDEXES = ("sessions_listed", "runs_active", "runs_newest", "tokens_of_owner", "runs_parked")
WORD = "heron"
LONG = f"{WORD} " * 4_000


def open_embedded(home: Path) -> OpenHome:
    def open_it(config: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, config or Config(), parts)

    return open_it


@pytest.fixture
async def used_home(home: Path) -> Path:
    """A home with a session and a few answered messages, of which one fills pages of its own."""
    async with serve(open_embedded(home)) as gateway:
        await gateway.open(KEY)
        for text in ("first", LONG, "last"):
            await gateway.post(KEY, text)
    return home


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def zero_root(home: Path, name: str) -> None:
    """Zeroes the page at the root of the table or index."""
    path = home / DATABASE_NAME
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    overwrite(path, (root - 1) * size, bytes(size))


def change(home: Path, *statements: str) -> None:
    """As another program would."""
    with closing(sqlite3.connect(home / DATABASE_NAME, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def seen_at(gateway: Served, path: str) -> tuple[int, str]:
    return seen(await gateway.client.get(path))


def seen(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, "" if answer.status_code < 400 else answer.json()["error"]["code"]


async def ask_everything(gateway: Served) -> list[tuple[int, str]]:
    """Status and code of each answer; every one comes."""
    with anyio.fail_after(SECONDS):
        found = [seen(await gateway.client.get(path)) for path in READS]
        posted = await gateway.client.post(f"/sessions/{KEY}/messages", json={"text": "again"})
    return [*found, seen(posted)]


async def until_not_ready(gateway: Served) -> tuple[int, str]:
    with anyio.fail_after(SECONDS):
        while (answer := await gateway.client.get("/ready")).status_code == 200:
            await anyio.sleep(0.02)
    return seen(answer)


@requirement("answers:5")
@pytest.mark.parametrize("name", [*TABLES, *INDEXES])
async def test_a_damaged_page_is_answered_with_what_it_is_and_readiness_says_so(used_home: Path, name: str) -> None:
    zero_root(used_home, name)
    async with serve(open_embedded(used_home)) as gateway:
        answers = await ask_everything(gateway)
        assert {status for status, _ in answers} <= {200, 202, 404, 503}
        assert {code for status, code in answers if status == 503} <= {"store_corrupt"}
        # Each reader has met the damage by now, and each still answers.
        with anyio.fail_after(SECONDS):
            again = [seen(await gateway.client.get("/runs")) for _ in range(4)]
        assert set(again) <= {(200, ""), (503, "store_corrupt")}
        if (503, "store_corrupt") in answers:
            ready = await gateway.client.get("/ready")
            assert seen(ready) == (503, "store_corrupt") and "doctor --deep" in ready.json()["error"]["message"]
            posted = await gateway.client.post(f"/sessions/{KEY}/messages", json={"text": "not stored"})
            assert seen(posted) == (503, "store_corrupt")


@pytest.mark.parametrize("name", ["home_keys", "schema_migrations", "schema_hashes", "message_words_data"])
async def test_a_start_on_damage_that_it_needs_says_what_is_wrong(used_home: Path, name: str) -> None:
    zero_root(used_home, name)
    with anyio.fail_after(SECONDS), pytest.raises(Exception) as raised:
        async with open_embedded(used_home)():
            pass
    assert getattr(raised.value, "code", None) == "store_corrupt"


async def test_a_damaged_page_of_one_session_leaves_the_others_readable(used_home: Path) -> None:
    path = used_home / DATABASE_NAME
    other = "agent:main:cli:whole"
    async with serve(open_embedded(used_home)) as gateway:
        await gateway.open(other)
        await gateway.append(other, "sound")
    stored = path.read_bytes()
    begun = re.search(rb'"text":"(?:heron )+h?e?r?o?n?', stored)
    assert begun is not None
    following = int.from_bytes(stored[begun.end() : begun.end() + 4])  # the number of the message's next page
    overwrite(path, (following - 1) * 4096, bytes(4096))
    async with serve(open_embedded(used_home)) as gateway:
        with anyio.fail_after(SECONDS):
            assert seen(await gateway.client.get(f"/sessions/{KEY}/history")) == (503, "store_corrupt")
            assert [each["content"][0]["text"] for each in await gateway.messages(other)] == ["sound"]
            assert seen(await gateway.client.get("/ready")) == (503, "store_corrupt")


async def test_garbage_in_the_log_of_writes_hangs_nobody(used_home: Path) -> None:
    async with serve(open_embedded(used_home)) as gateway:
        for number in range(5):
            await gateway.append(KEY, f"{number} " * 3_000)
        log = used_home / (DATABASE_NAME + "-wal")
        overwrite(log, 32, os.urandom(log.stat().st_size - 32))
        answers = await ask_everything(gateway)
        assert {status for status, _ in answers} <= {200, 202, 404, 500, 503}
        with anyio.fail_after(SECONDS):
            assert (await gateway.client.get("/health")).status_code == 200
            await gateway.client.get("/ready")


async def test_a_schema_without_a_column_is_refused_at_the_start(used_home: Path) -> None:
    change(used_home, "ALTER TABLE deliveries DROP COLUMN attempts")
    with pytest.raises(StoreUnusable, match="'deliveries' has no column 'attempts'") as raised:
        async with open_embedded(used_home)():
            pass
    assert raised.value.code == "store_corrupt"


async def test_a_column_that_goes_while_the_gateway_runs_is_damage(used_home: Path) -> None:
    async with serve(open_embedded(used_home)) as gateway:
        change(used_home, "DROP INDEX runs_newest", "ALTER TABLE runs RENAME COLUMN agent_id TO agent")
        answers = await ask_everything(gateway)
        assert {status for status, _ in answers} <= {200, 404, 503}
        assert (503, "store_corrupt") in answers
        assert await until_not_ready(gateway) == (503, "store_corrupt")


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_nothing_is_acknowledged_once_a_file_is_gone(used_home: Path, suffix: str, is_replaced: bool) -> None:
    async with serve(open_embedded(used_home)) as gateway:
        file = used_home / (DATABASE_NAME + suffix)
        if is_replaced:
            shutil.copy(file, file.with_name("copy"))
            file.with_name("copy").replace(file)
        else:
            file.unlink()
        assert await until_not_ready(gateway) == (503, "store_replaced")
        posted = await gateway.client.post(f"/sessions/{KEY}/messages", json={"text": "not stored"})
        assert seen(posted) == (503, "store_replaced") and str(file) in posted.json()["error"]["message"]
        assert len(await gateway.messages(KEY)) == 6  # what was stored can still be read


async def damage_payload(tx: Transaction, text: str) -> None:
    await tx.change("UPDATE events SET payload = '{\"broken' WHERE payload LIKE ?", (f"%{text}%",))


async def test_an_entry_that_cannot_be_read_is_shown_as_such_and_ends_runs_plainly(open_home: OpenHome) -> None:
    async with serve(open_home) as gateway:
        await gateway.open(KEY)
        await gateway.append(KEY, "sound")
        seq = await gateway.append(KEY, WORD)
        await gateway.app.database.run(damage_payload, WORD)
        sound, damaged = await gateway.messages(KEY)
        assert "unreadable" not in sound and sound["content"][0]["text"] == "sound"
        assert (damaged["seq"], damaged["role"], damaged["unreadable"]) == (seq, "user", True)
        assert damaged["content"][0]["text"] == UNREADABLE
        events = (await gateway.client.get(f"/sessions/{KEY}/transcript")).text
        assert '"unreadable":true' in events

        ended = await gateway.post(KEY, "go on")
        assert (ended["status"], ended["code"]) == ("error", "unreadable_entry")
        assert f"Entry {seq} of this session cannot be read" in ended["error"]
        assert seen(await gateway.client.get("/ready")) == (200, "")

        forked = await gateway.client.post(f"/sessions/{KEY}/fork", json={})
        assert forked.status_code == 201, forked.text
        assert (await gateway.post(forked.json()["key"], "go on"))["status"] == "ok"


STRANGE = ("x'00ff'", "7", """'{"data":{"a":' || replace(hex(zeroblob(3000)), '00', '[')""")
"""Payloads that are not JSON, not even a text, or nested without end."""


@pytest.mark.parametrize("payload", STRANGE)
async def test_a_payload_of_any_kind_is_shown_as_unreadable_and_found(used_home: Path, payload: str) -> None:
    change(used_home, f"UPDATE events SET payload = {payload} WHERE seq = 2")
    async with serve(open_embedded(used_home)) as gateway:
        assert {await seen_at(gateway, path) for path in READS} == {(200, "")}
        messages = (await gateway.client.get(f"/sessions/{KEY}/history")).json()["messages"]
        assert [message["seq"] for message in messages if message.get("unreadable")] == [2]
    (damage,) = (await inspect_database(used_home, None)).found
    assert damage.part == "events" and "session 1 seq 2" in damage.detail


@pytest.mark.parametrize("delay", ["'{'", "'{}'", *STRANGE])
async def test_a_damaged_delay_of_a_run_hides_no_run(used_home: Path, delay: str) -> None:
    change(used_home, f"UPDATE runs SET delay = {delay}")
    async with serve(open_embedded(used_home)) as gateway:
        runs = (await gateway.client.get("/runs")).json()["runs"]
        assert len(runs) == 3 and all("delay" not in run for run in runs)
    assert [damage.part for damage in (await inspect_database(used_home, None)).found] == ["runs"]


async def test_a_text_that_is_not_utf_8_is_read_as_far_as_it_goes(used_home: Path) -> None:
    change(used_home, "UPDATE events SET payload = CAST(replace(payload, 'first', CAST(x'FF66' AS TEXT)) AS TEXT)")
    async with serve(open_embedded(used_home)) as gateway:
        first = (await gateway.messages(KEY))[0]
        assert first["content"][0]["text"] == "\N{REPLACEMENT CHARACTER}f"
        assert seen(await gateway.client.get("/ready")) == (200, "")


async def test_one_damaged_value_of_a_session_is_damage_and_stops_nothing_else(used_home: Path) -> None:
    change(used_home, "UPDATE sessions SET metadata = '{\"broken'")
    async with serve(open_embedded(used_home)) as gateway:
        assert seen(await gateway.client.get(f"/sessions/{KEY}")) == (503, "store_corrupt")
        await gateway.open("agent:main:cli:new")
        assert seen(await gateway.client.get("/ready")) == (200, "")
