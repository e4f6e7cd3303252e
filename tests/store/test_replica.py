"""Queries that read much are answered by a standby, and never from an older state than the primary's."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.errors import Invalid
from antiphon.server_url import ServerUrl
from antiphon.store.database import READS_MUCH, Query, reads_much
from antiphon.store.postgres import replica
from antiphon.store.postgres.access import ReplicaState
from antiphon.store.postgres.database import PostgresDatabase
from antiphon.store.postgres.schema import prepare
from tests.gateway.served import serve
from tests.postgres import server_url
from tests.servers import OwnServer, own_server
from tests.store.test_access import access
from tests.store.test_postgres import keep, open_store
from tests.waiting import SECONDS, at_least

pytestmark = pytest.mark.anyio

Servers = tuple[OwnServer, OwnServer]


@pytest.fixture(scope="module")
def servers() -> Generator[Servers]:
    """A primary with our schema, and its standby."""
    with own_server() as primary:
        anyio.run(prepare, primary.url, 0)
        primary.execute("CREATE TABLE kept (id BIGINT GENERATED ALWAYS AS IDENTITY, word TEXT UNIQUE)")
        with primary.standby() as standby:
            yield primary, standby


@reads_much
async def look(query: Query) -> tuple[bool, set[str]]:
    """Whether a standby answers, and what it has; with two statements, in one snapshot."""
    row = await query.fetch_one("SELECT pg_is_in_recovery()")
    assert row is not None
    return row[0], {word for (word,) in await query.fetch_all("SELECT word FROM kept")}


@reads_much
async def refuse(query: Query) -> None:
    await query.fetch_one("SELECT 1")
    raise Invalid("no", code="invalid")


@reads_much
async def look_slowly(query: Query) -> bool:
    """Whether a standby answers, which takes very long there."""
    row = await query.fetch_one("SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN pg_sleep(100) END")
    assert row is not None
    return row[0]


async def look_near(query: Query) -> bool:
    row = await query.fetch_one("SELECT pg_is_in_recovery()")
    assert row is not None
    return row[0]


@asynccontextmanager
async def open_both(primary: OwnServer, url: str) -> AsyncGenerator[PostgresDatabase]:
    async with open_store(ServerUrl(primary.url, None, replica=url)) as database:
        yield database


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(each).get("error", each.message)) for each in caplog.records if "replica" in each.message]


def test_what_a_replica_may_answer_is_listed() -> None:
    """No run, no unit and no decision but the reader's own waits for these."""
    assert {f"{each.__module__.removeprefix('antiphon.engine.')}.{each.__name__}" for each in READS_MUCH} - {
        f"{__name__}.{each.__name__}" for each in (look, refuse, look_slowly)
    } == {
        "sessions.sessions._list_page",
        "views.costs._read",
        "views.search._find_named",
        "views.search._look",
        "views.trees._recent",
    }


async def test_a_standby_answers_and_has_what_any_process_has_just_stored(servers: Servers) -> None:
    primary, standby = servers
    async with open_both(primary, standby.url) as one, open_store(primary.url) as other:
        expected = set[str]()
        for number in range(30):
            writer = (one, other)[number % 2]
            await writer.run(keep, f"near {number}")
            expected.add(f"near {number}")
            is_standby, words = await one.read(look)
            assert is_standby and expected <= words
        assert not await one.read(look_near)
        with pytest.raises(Invalid):
            await one.read(refuse)
        assert all(is_standby for is_standby, _ in await asyncio.gather(*(one.read(look) for _ in range(20))))


async def test_a_standby_that_lags_is_left_alone_for_a_while_and_said_once(
    servers: Servers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, standby = servers
    monkeypatch.setattr(replica, "NEAR_SECONDS", 0.3)
    monkeypatch.setattr(replica, "REST_SECONDS", 2.0)
    async with open_both(primary, standby.url) as database:
        standby.execute("SELECT pg_wal_replay_pause()")
        try:
            for number in range(5):
                await database.run(keep, f"lag {number}")
                is_standby, words = await database.read(look)
                assert not is_standby and f"lag {number}" in words
        finally:
            standby.execute("SELECT pg_wal_replay_resume()")
        assert said(caplog) == ["Replica cannot be read: does not catch up within 0.3 s, or answer within 20 s"]
        monkeypatch.setattr(replica, "NEAR_SECONDS", SECONDS)
        with anyio.fail_after(at_least(10)):
            while not (await database.read(look))[0]:
                await anyio.sleep(0.05)
    assert said(caplog)[1:] == ["Reading from the replica works again"]


async def test_a_standby_that_is_away_or_another_server_costs_nothing_but_a_line(
    servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    primary, _ = servers
    for url, why in (
        (make_conninfo(primary.url, host=str(tmp_path)), "Replica cannot be read: connection "),
        (primary.url, "Replica is no standby of this database"),
        (server_url(), "Replica is no standby of this database"),
    ):
        caplog.clear()
        async with open_both(primary, url) as database:
            assert [(await database.read(look))[0] for _ in range(3)] == [False] * 3
        (line,) = said(caplog)
        assert line.startswith(why)


async def test_another_database_of_the_standbys_server_is_not_read(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    primary, standby = servers
    primary.execute("CREATE DATABASE other")
    other = make_conninfo(primary.url, dbname="other")
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id BIGINT, word TEXT)")
        connection.execute("INSERT INTO kept VALUES (1, 'of others')")
        position = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    url, caught_up = make_conninfo(standby.url, dbname="other"), False
    with anyio.fail_after(SECONDS), psycopg.connect(standby.url, autocommit=True) as connection:
        while not caught_up:
            row = connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position).fetchone()
            assert row is not None
            (caught_up,) = row
            await anyio.sleep(0.01)
    async with open_both(primary, url) as database:
        is_standby, words = await database.read(look)
    assert not is_standby and "of others" not in words
    assert said(caplog) == ["Replica is no standby of this database: database.replica_url"]
    found = (await access(ServerUrl(primary.url, None, replica=url))).replica
    assert found == ReplicaState(problem="it is no standby of this database")


async def test_what_a_standby_does_not_answer_in_time_the_primary_answers(
    servers: Servers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, standby = servers
    monkeypatch.setattr(replica, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(replica, "NEAR_SECONDS", SECONDS)
    async with open_both(primary, standby.url) as database:
        with anyio.fail_after(SECONDS):
            answers = await asyncio.gather(*(database.read(look_slowly) for _ in range(9)))
    assert answers == [False] * 9
    assert len(said(caplog)) == 1


async def test_how_far_a_standby_is_behind_is_shown_by_doctor(servers: Servers, tmp_path: Path) -> None:
    primary, standby = servers
    both = ServerUrl(primary.url, None, replica=standby.url)
    standby.execute("SELECT pg_wal_replay_pause()")
    try:
        primary.execute("CREATE TABLE more AS SELECT generate_series(1, 10000)", "DROP TABLE more")
        found = (await access(both)).replica
    finally:
        standby.execute("SELECT pg_wal_replay_resume()")
    assert found is not None and found.problem is None and found.bytes > 100_000
    away = (await access(ServerUrl(primary.url, None, replica=f"{primary.url} port=1"))).replica
    other = (await access(ServerUrl(primary.url, None, replica=primary.url))).replica
    assert away is not None and "No such file" in (away.problem or "")
    assert other == ReplicaState(problem="it is no standby of this database")


async def test_a_message_is_found_over_the_standby_as_soon_as_it_is_indexed(servers: Servers, home: Path) -> None:
    primary, standby = servers
    section = DatabaseSection(url=SecretStr(primary.url), replica_url=SecretStr(standby.url))

    def open_home(_: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, Config(database=section), parts or Parts())

    async with serve(open_home) as gateway:
        await gateway.open("agent:main:api:far")
        keys = [each["key"] for each in (await gateway.client.get("/sessions")).json()["sessions"]]
        assert keys == ["agent:main:api:far"]
        await gateway.append("agent:main:api:far", "a pelican")
        with anyio.fail_after(SECONDS):
            while not (await gateway.client.get("/search", params={"q": "pelican"})).json()["messages"]:
                await anyio.sleep(0.05)
        with psycopg.connect(standby.url) as connection:
            row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'antiphon%'")
            assert row.fetchone() != (0,)
