"""The embedded database: group commit, failing disks, and files that are not to be touched."""

import asyncio
import errno
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from antiphon.backends import DATABASE_NAME
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import text_content
from antiphon.owner_token import OWNER_TOKEN_NAME
from antiphon.store.database import CommitHook, Query, Transaction
from antiphon.store.migrations import StoreUnusable, migrations
from antiphon.store.moments import Moments
from antiphon.store.sqlite import MAX_BATCH, Connect, OnCommit, SqliteConnection, SqliteDatabase, connect_sqlite
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

Unit: TypeAlias = Callable[[Transaction, str], Coroutine[Any, Any, object]]


class Gate:
    """A unit that keeps the writer busy, so that others queue up behind it."""

    def __init__(self) -> None:
        self._entered = anyio.Event()
        self._left = Event()
        self._loop_call = anyio.lowlevel.current_token()

    async def unit(self, tx: Transaction, word: str = "") -> None:
        anyio.from_thread.run_sync(self._entered.set, token=self._loop_call)
        assert self._left.wait(SECONDS)

    async def is_entered(self) -> None:
        with anyio.fail_after(SECONDS):
            await self._entered.wait()

    def open(self) -> None:
        self._left.set()


class Commits:
    """A commit hook that remembers which units shared a COMMIT."""

    def __init__(self) -> None:
        self.units: list[list[str]] = []

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None:
        if moment == "before":
            assert number == len(self.units) + 1
            self.units.append(list(units))


@pytest.fixture
def database_section() -> DatabaseSection:
    """These tests are about the file."""
    return DatabaseSection()


class Woken:
    def __init__(self) -> None:
        self.sessions: list[SessionRow] = []

    def __call__(self, woken: Iterable[SessionRow], *others: Iterable[SessionRow]) -> None:
        self.sessions.extend(sorted(woken))


@asynccontextmanager
async def open_store(
    home: Path,
    *,
    connect: Connect = connect_sqlite,
    commit_hook: CommitHook | None = None,
    on_commit: OnCommit = lambda woken, dispatched, interrupted: None,
) -> AsyncGenerator[SqliteDatabase]:
    home.mkdir(exist_ok=True)
    database = await SqliteDatabase.open(
        home / DATABASE_NAME, on_commit=on_commit, moments=Moments(), connect=connect, commit_hook=commit_hook
    )
    try:
        await database.run(make_table)
        yield database
    finally:
        with anyio.CancelScope(shield=True):
            await database.close()


async def make_table(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS kept (word TEXT)")


async def keep(tx: Transaction, word: str) -> str:
    await tx.execute("INSERT INTO kept VALUES (?)", (word,))
    tx.wake(SessionRow(len(word)))
    return word.upper()


async def keep_and_raise(tx: Transaction, word: str) -> None:
    await keep(tx, word)
    raise LookupError(word)


async def words(query: Query) -> list[str]:
    return [row[0] for row in await query.fetch_all("SELECT word FROM kept ORDER BY rowid")]


class Outcomes:
    """What became of units that were submitted together."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self.results: list[object] = []
        self.errors: list[BaseException] = []

    async def run(self, unit: Unit, word: str) -> None:
        try:
            self.results.append(await self._database.run(unit, word))
        except Exception as error:
            self.errors.append(error)


async def submit_together(database: SqliteDatabase, *units: tuple[Unit, str]) -> Outcomes:
    """Runs the units so that they wait at the same time for a writer that is busy."""
    outcomes, gate = Outcomes(database), Gate()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcomes.run, gate.unit, "")
            await gate.is_entered()
            for unit, word in units:
                tasks.start_soon(outcomes.run, unit, word)
            await anyio.wait_all_tasks_blocked()
            gate.open()
    return outcomes


async def test_units_that_wait_share_a_commit(home: Path) -> None:
    commits = Commits()
    async with open_store(home, commit_hook=commits) as database:
        outcomes = await submit_together(database, *((keep, f"w{number}") for number in range(10)))
        assert outcomes.results == [None, *(f"W{number}" for number in range(10))]
    assert commits.units == [["make_table"], ["unit", *["keep"] * 10]]


async def test_a_commit_is_not_shared_by_more_than_its_share(home: Path) -> None:
    commits = Commits()
    async with open_store(home, commit_hook=commits) as database:
        await submit_together(database, *((keep, f"w{number}") for number in range(2 * MAX_BATCH)))
    assert [len(units) for units in commits.units] == [1, MAX_BATCH, MAX_BATCH, 1]


async def test_a_unit_that_raises_undoes_only_itself(home: Path) -> None:
    commits, woken = Commits(), Woken()
    async with open_store(home, commit_hook=commits, on_commit=woken) as database:
        outcomes = await submit_together(database, (keep, "a"), (keep_and_raise, "bb"), (keep, "ccc"))
        assert outcomes.results == [None, "A", "CCC"]
        assert [repr(error) for error in outcomes.errors] == ["LookupError('bb')"]
        assert await database.read(words) == ["a", "ccc"]
    assert commits.units[1:] == [["unit", "keep", "keep_and_raise"], ["keep"]]
    assert woken.sessions == [1, 3]


async def test_a_unit_that_awaits_anything_else_is_an_error_and_is_undone(home: Path) -> None:
    async def wander(tx: Transaction) -> None:
        await keep(tx, "wandered")
        await asyncio.sleep(0)

    async with open_store(home) as database:
        with pytest.raises(RuntimeError, match="wander"):
            await database.run(wander)
        assert await database.read(words) == []
        assert await database.run(keep, "after") == "AFTER"


async def test_results_are_released_only_after_the_commit(home: Path) -> None:
    moments: dict[str, list[str]] = {}
    results: list[str] = []
    reached, release = anyio.Event(), Event()
    token = anyio.lowlevel.current_token()

    def hook(number: int, moment: str, units: Sequence[str]) -> None:
        if "keep" not in units:
            return
        with closing(sqlite3.connect(home / DATABASE_NAME)) as other:
            moments[moment] = [row[0] for row in other.execute("SELECT word FROM kept")]
        if moment == "before":
            anyio.from_thread.run_sync(reached.set, token=token)
            assert release.wait(SECONDS)

    async with open_store(home, commit_hook=hook) as database:

        async def run() -> None:
            results.append(await database.run(keep, "word"))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await reached.wait()
                # The answer to a read comes back behind whatever was released before it.
                assert await database.read(words) == []
                assert results == []
                release.set()
        assert results == ["WORD"]
    assert moments == {"before": [], "after": ["word"]}


async def test_cancelling_the_waiter_does_not_cancel_the_unit(home: Path) -> None:
    gate = Gate()
    async with open_store(home) as database:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(database.run, gate.unit)
                await gate.is_entered()
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await database.run(keep, "kept")
                assert scope.cancelled_caught
                gate.open()
        await database.run(make_table)
        assert await database.read(words) == ["kept"]


async def test_a_commit_that_fails_fails_everything_in_it_and_everything_after(home: Path) -> None:
    disk = FaultyDisk()
    async with open_store(home, connect=disk.connect) as database:
        await database.run(keep, "before")
        disk.error = errno.EIO
        outcomes = await submit_together(database, (keep, "a"), (keep, "b"))
        assert outcomes.results == []
        assert codes(outcomes) == ["store_failed"] * 3
        disk.error = None
        with pytest.raises(Unavailable) as raised:
            await database.run(keep, "after")
        assert raised.value.code == "store_failed"
        assert database.failure is not None
    async with open_store(home) as database:
        assert await database.read(words) == ["before"]


async def test_after_a_failed_read_nothing_is_acknowledged(home: Path) -> None:
    async def read_cold(tx: Transaction, word: str) -> None:
        await tx.fetch_all("SELECT COUNT(*) FROM cold")

    async def make_cold(tx: Transaction) -> None:
        await tx.execute("CREATE TABLE cold (word TEXT)")

    async with open_store(home) as database:
        await database.run(make_cold)
    disk = FaultyDisk()
    async with open_store(home, connect=disk.connect) as database:
        await database.run(keep, "before")
        disk.has_bad_sector = True
        outcomes = await submit_together(database, (keep, "a"), (read_cold, ""), (keep, "b"))
        assert outcomes.results == []
        assert codes(outcomes) == ["store_failed"] * 4
    async with open_store(home) as database:
        assert await database.read(words) == ["before"]


async def test_a_full_disk_stores_nothing_and_works_again_when_there_is_room(home: Path) -> None:
    disk = FaultyDisk()
    async with open_store(home, connect=disk.connect) as database:
        await database.run(keep, "before")
        disk.error = errno.ENOSPC
        outcomes = await submit_together(database, (keep, "a"), (keep, "b"))
        assert outcomes.results == []
        assert codes(outcomes) == ["disk_full"] * 3
        assert await database.read(words) == ["before"]
        disk.error = None
        assert await database.run(keep, "after") == "AFTER"
        assert await database.read(words) == ["before", "after"]


async def test_a_unit_that_does_not_fit_is_refused_with_all_that_shares_its_commit(
    home: Path,
) -> None:
    connections: list[SqliteConnection] = []

    def connect(path: Path) -> SqliteConnection:
        connections.append(connect_sqlite(path))
        return connections[-1]

    async with open_store(home, connect=connect) as database:
        writer = connections[0]
        row = writer.execute("PRAGMA page_count").fetchone()
        assert row is not None
        writer.execute(f"PRAGMA max_page_count = {row[0] + 2}")
        outcomes = await submit_together(database, (keep, "small"), (keep, "large" * 10_000), (keep, "little"))
        assert codes(outcomes) == ["disk_full"] * 3
        assert outcomes.results == ["LITTLE"]
        assert await database.read(words) == ["little"]


def codes(outcomes: Outcomes) -> list[str]:
    return [error.code for error in outcomes.errors if isinstance(error, Unavailable)]


async def test_closing_commits_what_waits(home: Path) -> None:
    async with open_store(home) as database:
        outcomes, gate = Outcomes(database), Gate()
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outcomes.run, gate.unit, "")
                await gate.is_entered()
                tasks.start_soon(outcomes.run, keep_and_raise, "not this")
                tasks.start_soon(outcomes.run, keep, "this")
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(database.close)
                await anyio.wait_all_tasks_blocked()
                gate.open()
        assert outcomes.results == [None, "THIS"]
    async with open_store(home) as database:
        assert await database.read(words) == ["this"]


async def test_reading_after_the_end_is_refused_and_does_not_wait(home: Path) -> None:
    async with open_store(home) as database:
        await database.run(keep, "word")
    with anyio.fail_after(SECONDS), pytest.raises(Unavailable) as raised:
        await database.read(words)
    assert raised.value.code == "store_closed"
    with anyio.fail_after(SECONDS), pytest.raises(Unavailable) as raised:
        await database.run(keep, "late")
    assert raised.value.code == "store_closed"


@requirement("first_start:1")
async def test_a_home_that_is_in_use_is_refused(home: Path, open_home: OpenHome) -> None:
    async with open_home():
        with pytest.raises(StoreUnusable, match="in use") as raised:
            async with open_home():
                pass
        assert raised.value.code == "home_in_use"
    async with open_home():
        pass


async def test_opening_again_changes_no_schema_and_loses_nothing(home: Path, open_home: OpenHome) -> None:
    def schema() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(home / DATABASE_NAME)) as connection:
            return [
                *connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name"),
                *connection.execute("SELECT version, name, applied_at FROM schema_migrations"),
            ]

    async with open_home() as app:
        target = app.services.sessions.target("main")
        first = await app.services.inbox.post(OWNER, target, text_content("hello"), message_id="m")
    before = schema()
    async with open_home() as app:
        assert await app.services.inbox.post(OWNER, target, text_content("hello"), message_id="m") == first
    assert schema() == before
    assert [row[0] for row in before[-len(list(migrations())) :]] == [number for number, _, _ in migrations()]


def write_noise(path: Path) -> None:
    path.write_bytes(bytes(number * 7 % 256 for number in range(8192)))


def write_text(path: Path) -> None:
    path.write_text("Dear diary, this is no database.\n" * 100)


def write_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.execute("INSERT INTO songs VALUES ('Kyrie')")
        connection.commit()


def write_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (9999, 'later', 0)")
        connection.commit()


def damage_first_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (write_noise, "store_corrupt"),
        (write_text, "store_corrupt"),
        (write_foreign, "store_foreign"),
        (write_newer, "store_newer"),
        (damage_first_page, "store_corrupt"),
        (cut_off, "store_corrupt"),
    ],
)
async def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(
    home: Path, open_home: OpenHome, spoil: Callable[[Path], None], code: str
) -> None:
    path = home / DATABASE_NAME
    async with open_home():
        pass
    if code in ("store_foreign",):
        path.unlink()
    spoil(path)
    content = path.read_bytes()
    with pytest.raises(StoreUnusable, match="Database") as raised:
        async with open_home():
            pass
    assert raised.value.code == code
    assert str(path) in raised.value.message
    assert path.read_bytes() == content


async def test_an_empty_file_over_a_used_home_is_refused(home: Path, open_home: OpenHome) -> None:
    async with open_home():
        (home / OWNER_TOKEN_NAME).write_text("token")
    for left in home.glob(f"{DATABASE_NAME}*"):
        left.unlink()
    path = home / DATABASE_NAME
    for spoil in (path.touch, path.unlink):
        spoil()
        with pytest.raises(StoreUnusable) as raised:
            async with open_home():
                pass
        assert raised.value.code == "store_missing"
        assert not path.exists() or path.stat().st_size == 0


async def test_a_clean_stop_leaves_everything_in_one_file(home: Path, open_home: OpenHome) -> None:
    for _ in range(10):
        async with open_home() as app:
            await app.services.sessions.open(OWNER, app.services.sessions.target("api:one"))
        assert not (home / "antiphon.db-wal").exists()
