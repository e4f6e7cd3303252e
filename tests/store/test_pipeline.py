"""Statements over one connection: their order, errors, and what a broken connection or a cancelled trip leaves."""

import asyncio
import select
import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Self

import anyio
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.store.postgres import pipeline
from antiphon.store.postgres.link import Link, connect
from antiphon.store.postgres.pipeline import MAX_KEPT, Pipeline
from tests.postgres import fresh_database
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (id BIGINT PRIMARY KEY, word TEXT, bytes BYTEA, share FLOAT8)")
        yield address


async def test_each_statement_of_a_trip_sees_what_those_before_it_wrote(url: str) -> None:
    link = Link(url)
    pipeline = await link.open()
    for number in range(3):  # the first time unprepared, then prepared, then known
        insert, count = (
            pipeline.statement(b"INSERT INTO kept VALUES ($1, $2, $3, $4)", (number, "é\n", b"\x00\xff", 0.1 + number)),
            pipeline.statement(b"SELECT count(*) FROM kept"),
        )
        begun, inserted, counted, done = await pipeline.trip(
            [pipeline.statement(b"BEGIN"), insert, count, pipeline.statement(b"COMMIT")]
        )
        assert (begun.rows, inserted.changed, counted.rows, done.rows) == ([], 1, [(number + 1,)], [])
    assert pipeline.is_idle
    assert await pipeline.fetch(b"SELECT * FROM kept WHERE id = $1", (2,)) == [(2, "é\n", b"\x00\xff", 2.1)]
    assert await pipeline.fetch(b"SELECT id FROM kept WHERE word = $1", (None,)) == []
    assert await pipeline.fetch(b"SELECT id FROM kept WHERE id = ANY($1) ORDER BY id", ([0, 2, 7],)) == [(0,), (2,)]
    await link.close()


async def test_what_is_larger_than_any_buffer_goes_both_ways(url: str) -> None:
    link = Link(url)
    pipeline = await link.open()
    text = "x" * 30_000_000
    _, found = await pipeline.trip(
        [
            pipeline.statement(b"INSERT INTO kept (id, word) VALUES (1, $1)", (text,)),
            pipeline.statement(b"SELECT word FROM kept"),
        ]
    )
    assert found.rows == [(text,)]
    await link.close()


async def test_an_error_ends_a_trip_and_the_connection_stays(url: str) -> None:
    link = Link(url)
    pipeline = await link.open()
    seven = pipeline.statement(b"SELECT 7")
    await pipeline.trip([seven])
    for _ in range(3):
        insert = pipeline.statement(b"INSERT INTO kept (id) VALUES ($1)", (1,))
        with pytest.raises(psycopg.errors.UniqueViolation):
            await pipeline.trip([pipeline.statement(b"BEGIN"), insert, insert, seven, pipeline.statement(b"COMMIT")])
        assert not pipeline.is_idle
        await link.reset()
        assert pipeline.is_idle
        assert await link.open() is pipeline
    with pytest.raises(psycopg.DataError):
        pipeline.statement(b"INSERT INTO kept (word) VALUES ($1)", ("a\0",))
    with pytest.raises(psycopg.errors.SyntaxError):
        await pipeline.fetch(b"SELEC 1")
    assert await pipeline.fetch(b"SELECT count(*) FROM kept") == [(0,)]
    assert await pipeline.fetch(b"SELECT 7") == [(7,)], "the server has skipped its preparation"
    await link.close()


async def test_the_server_keeps_a_bounded_number_of_statements(url: str) -> None:
    link = Link(url)
    pipeline = await link.open()
    for number in range(MAX_KEPT + 200):
        for _ in range(2):  # kept from the second time on
            assert await pipeline.fetch(f"SELECT {number}".encode()) == [(number,)]
    ((count,),) = await pipeline.fetch(b"SELECT count(*) FROM pg_prepared_statements")
    assert MAX_KEPT - 10 <= count <= MAX_KEPT
    assert await pipeline.fetch(b"SELECT 0") == [(0,)]
    await link.close()


async def test_an_error_when_the_server_keeps_all_that_it_may_leaves_a_connection_that_works(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_KEPT", 3)
    link = Link(url)
    wire = await link.open()
    for number in range(20):
        begin, fails = wire.statement(b"BEGIN"), wire.statement(f"SELECT {number} / 0".encode())
        works = wire.statement(f"SELECT {number}".encode())
        with pytest.raises(psycopg.errors.DivisionByZero):
            await wire.trip([begin, works, works, wire.statement(b"SAVEPOINT unit"), fails])
        if number % 2:
            await wire.fetch(b"ROLLBACK TO SAVEPOINT unit")
        await link.reset()
        assert wire.is_idle and await link.open() is wire
    await wire.fetch(b"SELECT 1")
    ((count,),) = await wire.fetch(b"SELECT count(*) FROM pg_prepared_statements")
    assert count <= 4
    await link.close()


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_connection_that_the_server_ended_is_opened_again(url: str, is_open: bool) -> None:
    link = Link(url)
    pipeline = await link.open()
    ((pid,),) = await pipeline.fetch(b"SELECT pg_backend_pid()")
    if is_open:
        await pipeline.fetch(b"BEGIN")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    if is_open:
        with pytest.raises(psycopg.OperationalError):
            await pipeline.fetch(b"SELECT 1")
    else:
        with anyio.fail_after(SECONDS):
            while pipeline.is_usable:
                await anyio.sleep(0.01)  # what the server said last is on its way
    await link.reset()
    assert await (await link.open()).fetch(b"SELECT 1") == [(1,)]
    await link.close()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_a_server_that_is_gone_before_it_has_read_is_noticed(url: str, tmp_path: Path) -> None:
    with Relay(url, tmp_path) as relay:
        link = Link(relay.url)
        pipeline = await link.open()
        relay.is_deaf = True
        asked = asyncio.ensure_future(pipeline.fetch(b"SELECT 1"))
        await asyncio.sleep(0)
        relay.has_closed.wait(SECONDS)  # the loop sees all at once: a part of an answer, and the end
        with pytest.raises(psycopg.OperationalError), anyio.fail_after(SECONDS):
            await asked
        assert not pipeline.is_usable
        await link.close()


class Relay:
    """Passes bytes between clients and the server; once deaf, it answers in part what it has not read, and closes."""

    def __init__(self, url: str, directory: Path) -> None:
        self._server = f"{conninfo_to_dict(url)['host']}/.s.PGSQL.5432"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(directory / ".s.PGSQL.5432"))
        self._door.listen()
        self.url = make_conninfo(url, host=str(directory))
        self.is_deaf = False
        self.has_closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            while True:
                readable, _, _ = select.select((client, server), (), ())
                if client in readable and self.is_deaf:
                    client.sendall(b"N")
                    break
                for one, other in ((client, server), (server, client)):
                    if one in readable:
                        received = one.recv(65_536)
                        if not received:
                            return
                        other.sendall(received)
        self.has_closed.set()


async def test_a_trip_that_is_cancelled_leaves_nothing_behind(url: str) -> None:
    link = Link(url)
    pipeline = await link.open()
    with anyio.move_on_after(0.2):
        await pipeline.trip([pipeline.statement(b"BEGIN"), pipeline.statement(b"SELECT pg_sleep(600)")])
    assert not pipeline.is_usable
    await link.reset()
    fresh = await link.open()
    assert fresh is not pipeline
    assert await fresh.fetch(b"SELECT 2") == [(2,)]
    await link.close()


async def test_a_connection_that_is_left_is_watched_by_nobody(url: str) -> None:
    connection = await connect(url)
    pipeline = Pipeline(connection)
    socket = connection.pgconn.socket
    pipeline.leave()
    pipeline.leave()
    assert not pipeline.is_usable
    assert not asyncio.get_running_loop().remove_reader(socket)
    await connection.close()
