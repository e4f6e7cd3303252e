"""What `doctor` says of the way to a server: measured, encrypted, pooled, full, locked, replicated."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.backends import look_at_server
from antiphon.cli.homes.server_checks import check_access
from antiphon.domain.check_result import Grade
from antiphon.domain.ids import SessionRow
from antiphon.store.migrations import StoreUnusable
from antiphon.store.postgres.access import LockHolder, ReplicaState, ServerAccess, look_at_access
from antiphon.store.postgres.link import connect
from tests.postgres import fresh_database
from tests.store.test_connecting import behind_tls, certify
from tests.store.test_pooled import SOCKET, pooled
from tests.store.test_postgres import ONE, insert_sessions, open_store, write_to
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


async def access(url: str) -> ServerAccess:
    connection = await connect(url)
    try:
        return await look_at_access(connection, url)
    finally:
        await connection.close()


async def test_the_way_to_the_server_is_measured(url: str, tmp_path: Path) -> None:
    found = await access(url)
    assert 0 < found.round_trip_ms < 1000 * SECONDS and 0 < found.used < found.usable
    assert (found.is_local, found.is_encrypted, found.is_pooled, found.holders) == (True, False, False, ())
    async with behind_tls(url, certify(tmp_path, "server")) as (_, address):
        assert (await access(f"{address}?sslmode=require")).is_encrypted


async def test_limits_of_the_user_and_of_the_database_count(url: str) -> None:
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 7'.encode())
        assert (await access(url)).usable == 7
        connection.execute(f'CREATE ROLE few LOGIN CONNECTION LIMIT 3; GRANT ALL ON DATABASE "{name}" TO few'.encode())
        try:
            assert (await access(make_conninfo(url, user="few"))).usable == 3
        finally:
            connection.execute(f'REVOKE ALL ON DATABASE "{name}" FROM few; DROP ROLE few'.encode())


async def test_who_holds_what_units_wait_for_is_named_and_not_who_waits(url: str) -> None:
    async with open_store(url) as database, await AsyncConnection.connect(url, application_name="a clerk") as outside:
        await database.run(insert_sessions)
        await outside.execute("SELECT 1 FROM sessions WHERE id = 1 FOR UPDATE")
        waiting = [asyncio.ensure_future(database.run(write_to, 1, sessions=(SessionRow(row), ONE))) for row in (2, 3)]
        with anyio.fail_after(2 * SECONDS):
            while sum(each.waiting for each in (await access(url)).holders) < 1:
                await anyio.sleep(0.05)
        (holder,) = (await access(url)).holders
        assert holder.name == "a clerk" and holder.pid == outside.info.backend_pid
        await outside.rollback()
        await asyncio.gather(*waiting)
        assert (await access(url)).holders == ()


async def test_a_pooler_is_noticed_and_in_transaction_mode_refused(url: str, tmp_path: Path) -> None:
    """One that keeps a connection for each client gives it a number of its own, which no process of the server has."""
    async with pooled(url, tmp_path) as address:
        with pytest.raises(StoreUnusable) as refused:
            await look_at_server(address)
        assert refused.value.code == "store_pooled"
    (tmp_path / "session").mkdir()
    server = Path(str(conninfo_to_dict(url)["host"])) / SOCKET

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_server = await asyncio.open_unix_connection(str(server))

        async def back() -> None:
            key = b"K" + (12).to_bytes(4, "big")
            while data := await behind.read(65_536):
                at = data.find(key)
                writer.write(data if at < 0 else data[: at + 5] + b"\0\0\0\1" + data[at + 9 :])
            writer.close()

        task = asyncio.ensure_future(back())
        while data := await reader.read(65_536):
            to_server.write(data)
        to_server.close()
        await task

    async with await asyncio.start_unix_server(serve, tmp_path / "session" / SOCKET):
        assert (await access(make_conninfo(url, host=str(tmp_path / "session")))).is_pooled


FINE = ServerAccess(
    round_trip_ms=0.2, is_encrypted=True, is_local=False, is_pooled=False, usable=97, used=5, holders=()
)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({}, None),
        ({"is_encrypted": False, "is_local": True}, None),
        ({"is_encrypted": False}, "not encrypted"),
        ({"round_trip_ms": 25.0}, "25.0 ms for a round trip"),
        ({"usable": 53}, "5 of 53 in use; this configuration needs up to 54 for 3 processes"),
        (
            {"holders": (LockHolder(pid=9, name="a clerk", seconds=40, waiting=2),)},
            "process 9 of the server ('a clerk', for 40 s) holds up 2 others",
        ),
        ({"replica": ReplicaState(bytes=5, seconds=1)}, None),
        ({"replica": ReplicaState(problem="it is away")}, "it is away"),
    ],
)
def test_doctor_warns_of_what_needs_a_hand(changes: dict[str, Any], warning: str | None) -> None:
    checks = list(check_access(replace(FINE, **changes), connections=12, processes=3))
    warned = [each for each in checks if each.grade is not Grade.OK]
    assert [each.detail for each in warned if warning is None or warning not in each.detail] == []
    assert len(warned) == (warning is not None)
    assert all(each.remedy for each in warned)
