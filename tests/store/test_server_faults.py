"""What goes wrong with a server while units run: locks from outside, a failover, a standby in the primary's place."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import httpx
import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.errors import Unavailable
from antiphon.engine.work.health import Health
from antiphon.store.postgres.schema import prepare
from tests.gateway.served import serve
from tests.postgres import fresh_database
from tests.servers import own_server
from tests.store.test_postgres import ONE, insert_sessions, open_store, write_to
from tests.waiting import PROCESS_SECONDS, SECONDS, at_least

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(at_least(20)):
        while not await is_so():
            await anyio.sleep(0.05)


LOCKS = {
    "a session": ("SELECT 1 FROM sessions WHERE key LIKE '%held' FOR UPDATE", 200),
    "every event": ("LOCK TABLE events IN EXCLUSIVE MODE", 503),
}


@pytest.mark.parametrize("what", LOCKS)
async def test_who_locks_from_outside_is_said_by_ready_and_once_by_the_log(
    home: Path, url: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock on one session leaves the process ready, with a note; where nothing can be stored, it is not."""
    statement, status = LOCKS[what]
    config = Config(database=DatabaseSection(url=SecretStr(url)))

    def open_home(_: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, config, parts or Parts())

    async with serve(open_home) as gateway:
        await gateway.open("agent:main:api:held")
        await gateway.open("agent:main:api:free")
        outside = await AsyncConnection.connect(url, application_name="a clerk")
        await outside.execute(statement.encode())
        posted: list[httpx.Response] = []
        async with anyio.create_task_group() as tasks:

            async def post() -> None:
                posted.append(await gateway.client.post("/sessions/agent:main:api:held/messages", json={"text": "?"}))

            async def is_said() -> bool:
                ready = await gateway.client.get("/ready")
                said = ready.json().get("note", "") if status == 200 else ready.json().get("error", {}).get("message")
                return ready.status_code == status and "'a clerk'" in (said or "")

            tasks.start_soon(post)
            await until(is_said)
            if status == 200:
                assert (await gateway.post("agent:main:api:free", "stored"))["status"] == "ok"
                assert await is_said(), "it still waits, whatever else is stored"
            await outside.close()
        assert posted[0].status_code == 200
        ready = await gateway.client.get("/ready")
        assert ready.status_code == 200 and "note" not in ready.json()
    lines = [record.message for record in caplog.records if "'a clerk'" in str(vars(record).get("error"))]
    assert lines.count("Waiting for a lock failed") == 1, lines


async def test_a_unit_on_a_read_only_server_says_so_and_goes_on_over_a_new_connection(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The setting holds for new connections only, so one that is kept would stay read-only."""
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as outside:
        async with open_store(url, wait_seconds=60) as database:
            await database.run(insert_sessions)
            outside.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
            outside.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            waiting = asyncio.ensure_future(database.run(write_to, 1, sessions=(ONE,)))
            await until(lambda: asyncio.sleep(0, database.trouble))
            assert database.trouble is not None and database.trouble.code == "store_read_only"
            with pytest.raises(Unavailable) as refused:
                await Health(database, None).check()
            assert refused.value.code == "store_read_only"
            outside.execute("SET default_transaction_read_only = off")
            outside.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
            with anyio.fail_after(SECONDS):
                assert await waiting == [1]
            assert database.trouble is None
    assert [record.message for record in caplog.records].count("Storing failed") == 1


async def test_units_go_on_at_the_standby_that_takes_over(tmp_path: Path) -> None:
    """Also where the address does not ask for a server that can be written to: no connection keeps to a standby."""
    with own_server() as primary:
        await prepare(primary.url, 0)
        with primary.standby() as standby:
            both = make_conninfo(primary.url, host=f"{primary.sockets},{standby.sockets}")
            asking = make_conninfo(both, target_session_attrs="read-write")
            async with open_store(both, wait_seconds=60) as any_, open_store(asking, wait_seconds=60) as asked:
                await any_.run(insert_sessions)
                assert await asked.run(write_to, 1, sessions=(ONE,)) == [1]
                await asyncio.to_thread(standby.catch_up_with, primary)
                await asyncio.to_thread(primary.stop)
                units = [asyncio.ensure_future(each.run(write_to, 1, sessions=(ONE,))) for each in (any_, asked)]
                await until(lambda: asyncio.sleep(0, any_.trouble))
                assert any_.trouble is not None and any_.trouble.code == "store_read_only"
                began = time.monotonic()
                await asyncio.to_thread(standby.promote)
                with anyio.fail_after(PROCESS_SECONDS):
                    assert sorted(await asyncio.gather(*units)) == [[2], [3]]
                print(f"went on {time.monotonic() - began:.1f} s after the promotion began")
            await asyncio.to_thread(primary.start)


async def test_a_full_disk_of_the_server_is_named_and_over_by_itself(url: str) -> None:
    """The server's own error, raised where it would write."""
    with psycopg.connect(url, autocommit=True) as outside:
        outside.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
        async with open_store(url) as database:
            await database.run(insert_sessions)
            for table in ("sessions", "schema_migrations"):
                outside.execute(
                    f"CREATE TRIGGER full_ BEFORE UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION fill()".encode()
                )
            for _ in range(2):
                with pytest.raises(Unavailable) as refused:
                    await database.run(write_to, 1, sessions=(ONE,))
                assert refused.value.code == "disk_full"
                with pytest.raises(Unavailable) as refused:
                    await Health(database, None).check()
                assert refused.value.code == "disk_full"
            for table in ("sessions", "schema_migrations"):
                outside.execute(f"DROP TRIGGER full_ ON {table}".encode())
            await Health(database, None).check()
            assert await database.run(write_to, 1, sessions=(ONE,)) == [1] and database.trouble is None
