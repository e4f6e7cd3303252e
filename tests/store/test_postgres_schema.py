"""What a PostgreSQL database must be like, and how it is brought there while others work on it."""

import itertools
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.errors import AntiphonError, Invalid
from antiphon.store.migrations import Migration, StoreUnusable
from antiphon.store.postgres.schema import look, migrations, prepare
from antiphon.testing.ports import free_port
from tests.engine.stage import ask, config, open_session, texts, wait_end
from tests.engine.stage import post as post_message
from tests.engine.stage import read_log as read_all
from tests.postgres import fresh_database, server_url
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

PASSWORD = "geheim-4711"
NEWEST = max(number for number, _, _ in migrations())
LATER = "ALTER TABLE sessions ADD COLUMN later TEXT;\nALTER TABLE events ADD COLUMN later BIGINT DEFAULT 1;\n"


@pytest.fixture
def empty() -> Generator[str]:
    """The address of a database without our tables."""
    with fresh_database(is_empty=True) as url:
        yield url


@pytest.fixture
def prepared() -> Generator[str]:
    """The address of a database with our schema."""
    with fresh_database() as url:
        yield url


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def tables(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [row[0] for row in cursor.fetchall()]


async def refusal(url: str, *, start_seconds: float = 0.0) -> AntiphonError:
    """What `prepare` says of the address."""
    with anyio.fail_after(SECONDS), pytest.raises((StoreUnusable, Invalid)) as caught:
        await prepare(url, 0, start_seconds=start_seconds)
    assert PASSWORD not in caught.value.message and PASSWORD not in str(caught.value)
    return caught.value


@contextmanager
def role(url: str) -> Generator[tuple[str, str]]:
    """A role that may do nothing with the database, and the address by which one works in it."""
    name = f"antiphon_{uuid.uuid4().hex[:12]}"
    execute(url, f"CREATE ROLE {name}", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        yield name, make_conninfo(url, options=f"-c role={name}")
    finally:
        execute(url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    port = free_port()
    error = await refusal(f"postgresql://owner:{PASSWORD}@127.0.0.1:{port}/antiphon")
    assert error.code == "store_unreachable"
    assert f"'antiphon' on 127.0.0.1:{port}" in error.message and "owner" not in error.message


async def test_a_server_that_does_not_answer_yet_is_waited_for() -> None:
    began = anyio.current_time()
    with pytest.raises(StoreUnusable), anyio.fail_after(SECONDS):
        await prepare(f"host=127.0.0.1 port={free_port()}", 0, start_seconds=1.5)
    assert anyio.current_time() - began >= 1.5


async def test_a_database_that_does_not_exist_is_not_waited_for() -> None:
    began = anyio.current_time()
    error = await refusal(make_conninfo(server_url(), dbname="nowhere", password=PASSWORD), start_seconds=SECONDS * 2)
    assert error.code == "store_unreachable" and "does not exist" in error.message
    assert anyio.current_time() - began < SECONDS


@pytest.mark.parametrize(
    "address",
    [
        f"mysql://owner:{PASSWORD}@host/name",
        f"postgres:/owner:{PASSWORD}@host/name",
        f"postgresql://owner:p@{PASSWORD}@host/name",
        f"postgresql://owner:p@{PASSWORD}:x@host:5432/name",
        f"postgresql://owner:p/{PASSWORD}@host/name",
        f"postgresql://owner:12/{PASSWORD}@host/name",
        f"postgresql://owner:p?a/{PASSWORD}@host/name",
        f"host=localhost password={PASSWORD} nonsense",
        PASSWORD,
    ],
)
async def test_an_address_that_is_none_is_refused_and_not_shown(address: str) -> None:
    error = await refusal(address)
    assert error.code == "invalid_database" and "postgresql://user@host:5432/name" in error.message


async def test_a_server_that_is_too_old_is_refused_untouched(empty: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        await prepare(empty, 0, oldest=990_000)
    assert caught.value.code == "store_too_old" and "at least 99" in caught.value.message
    assert tables(empty) == []


async def test_another_encoding_than_utf8_is_refused() -> None:
    name = f"antiphon_{uuid.uuid4().hex[:12]}"
    execute(server_url(), f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        error = await refusal(make_conninfo(server_url(), dbname=name))
    finally:
        execute(server_url(), f"DROP DATABASE {name} WITH (FORCE)")
    assert error.code == "store_encoding" and "LATIN1" in error.message


async def test_a_user_who_may_not_create_tables_is_told_what_is_needed(empty: str) -> None:
    with role(empty) as (_, url):
        error = await refusal(url)
    assert error.code == "store_denied" and "CREATE on the schema" in error.message
    assert tables(empty) == []


async def test_a_user_who_may_not_use_the_schema_is_told_so(empty: str) -> None:
    execute(empty, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    with role(empty) as (_, url):
        error = await refusal(url)
    assert error.code == "store_denied" and "no schema to work in" in error.message


async def test_a_user_with_rights_on_rows_alone_works_where_the_schema_is_up_to_date(prepared: str, home: Path) -> None:
    with role(prepared) as (name, url):
        execute(
            prepared,
            f"GRANT USAGE ON SCHEMA public TO {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}",
        )
        async with open_app(home, on(url)) as app:
            await open_session(app, "main")
            assert (await ask(app, "main", "hello")).reply == "echo: hello"
        assert await prepare(url, 0) == NEWEST


async def test_rights_that_are_missing_at_work_are_told_to_who_posts(prepared: str, home: Path) -> None:
    async with open_app(home, on(prepared)) as app:
        await open_session(app, "main")
    with role(prepared) as (name, url):
        execute(
            prepared,
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}",
            f"REVOKE INSERT ON events FROM {name}",
        )
        async with open_app(home, on(url)) as app:
            with anyio.fail_after(SECONDS), pytest.raises(AntiphonError) as caught:
                await post_message(app, "main", "m-1")
    assert caught.value.code == "store_denied" and "events" in caught.value.message


async def test_a_database_that_can_only_be_read_is_refused(empty: str) -> None:
    error = await refusal(make_conninfo(empty, options="-c default_transaction_read_only=on"))
    assert error.code == "store_read_only" and "primary" in error.message


@pytest.mark.parametrize("table", ["notes (text TEXT)", "schema_migrations (version TEXT)"])
async def test_another_programs_database_is_left_as_it_is(empty: str, table: str) -> None:
    execute(empty, f"CREATE TABLE {table}")
    error = await refusal(empty)
    assert error.code == "store_foreign" and "database of its own" in error.message
    assert tables(empty) == [table.partition(" ")[0]]


async def test_a_database_of_a_newer_version_is_refused(prepared: str) -> None:
    execute(prepared, "INSERT INTO schema_migrations VALUES (9999, 'later', 0)")
    error = await refusal(prepared)
    assert error.code == "store_newer" and f"schema 9999, this program knows {NEWEST}" in error.message


async def test_many_who_begin_on_an_empty_database_apply_each_migration_once(empty: str) -> None:
    reached: list[int] = []

    async def begin() -> None:
        reached.append(await prepare(empty, 0))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(begin)
    assert reached == [NEWEST] * 4
    with psycopg.connect(empty) as connection:
        applied = connection.execute("SELECT version FROM schema_migrations ORDER BY 1").fetchall()
        assert [row[0] for row in applied] == [number for number, _, _ in migrations()]
        assert connection.execute("SELECT count(*) FROM job_engine_migrations").fetchone() == (1,)


def later() -> Iterable[Migration]:
    """The migrations of the version after this one."""
    return [*migrations(), Migration(NEWEST + 1, "later", LATER)]


async def test_a_migration_of_the_next_version_does_not_disturb_those_who_post(prepared: str, home: Path) -> None:
    acknowledged: list[str] = []
    has_news = anyio.Event()

    async with open_app(home, on(prepared)) as app:

        async def post() -> None:
            nonlocal has_news
            await open_session(app, "main")
            for number in itertools.count():
                posted = await post_message(app, "main", f"m-{number}")
                if number % 10 == 0:
                    await wait_end(app, posted.run_id)
                acknowledged.append(f"m-{number}")
                has_news.set()
                has_news = anyio.Event()

        async def until(count: int) -> None:
            while len(acknowledged) < count:
                await has_news.wait()

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(post)
                await until(20)
                assert await prepare(prepared, 0, migrations=later) == NEWEST + 1
                await until(len(acknowledged) + 20)
                tasks.cancel_scope.cancel()
        stored = texts(await read_all(app, "main"))
        assert [text for text in stored if text in acknowledged] == acknowledged
        assert (await ask(app, "main", "the last one")).reply == "echo: the last one"
    error = await refusal(prepared)
    assert error.code == "store_newer"


async def test_a_migration_that_has_to_wait_lets_the_others_pass(prepared: str, home: Path) -> None:
    async with open_app(home, on(prepared)) as app:
        await open_session(app, "main")
        with anyio.fail_after(SECONDS):
            async with await psycopg.AsyncConnection.connect(prepared) as long_reader:
                await long_reader.execute("SELECT count(*) FROM events")
                async with anyio.create_task_group() as tasks:

                    async def migrate() -> None:
                        await prepare(prepared, 0, migrations=later)

                    tasks.start_soon(migrate)
                    await until_somebody_waits_for_a_lock(prepared)
                    with anyio.fail_after(SECONDS):
                        assert (await ask(app, "main", "hello")).reply == "echo: hello"
                    await long_reader.rollback()
        assert await prepare(prepared, 0, migrations=later) == NEWEST + 1


async def until_somebody_waits_for_a_lock(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        statement = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        while await (await connection.execute(statement)).fetchone() is None:
            await anyio.lowlevel.checkpoint()


async def test_a_look_tells_the_living_from_those_that_left_a_row_behind(prepared: str, home: Path) -> None:
    async with open_app(home, on(prepared)):
        execute(
            prepared,
            "INSERT INTO processes (id, role, host, pid, version, fingerprint, agents, beats, started_at) "
            "VALUES ('proc_dead', 'worker', 'elsewhere', 1, '0', 'other', '[]', 7, 0)",
        )
        state = await look(prepared)
        assert [(member.role, member.works) for member in state.living] == [("all", True)]
    assert (state.schema, state.known_schema) == (NEWEST, NEWEST)
    assert state.bytes > 0 and state.server


async def test_a_look_changes_nothing(empty: str) -> None:
    state = await look(empty)
    assert (state.schema, state.living, tables(empty)) == (0, (), [])


def on(url: str) -> Config:
    return config(database=DatabaseSection.model_validate({"url": url, "connections": 4}).model_dump())
