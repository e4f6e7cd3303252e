"""The shared database: lines, locks, reruns, and COMMITs whose answer was lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.domain.actor import Asker
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.targets import NamedTarget
from antiphon.store.database import CommitHook, OnCommit, Query, Transaction
from antiphon.store.moments import Moments
from antiphon.store.postgres.database import PostgresDatabase
from tests.claims import requirement
from tests.postgres import fresh_database
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ONE = SessionRow(1)


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (id BIGINT GENERATED ALWAYS AS IDENTITY, word TEXT UNIQUE)")
            connection.execute("CREATE TABLE counts (name TEXT PRIMARY KEY, count BIGINT NOT NULL)")
            connection.execute("INSERT INTO counts VALUES ('a', 0), ('b', 0)")
        yield address


class Commits:
    """A commit hook that remembers which units shared a COMMIT."""

    def __init__(self) -> None:
        self.units: list[list[str]] = []

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None:
        if moment == "before":
            self.units.append(list(units))


async def defer_nothing(connection: AsyncConnection[Any], session: SessionRow, asker: Asker) -> None:
    raise AssertionError


@asynccontextmanager
async def open_store(
    url: str,
    *,
    commit_hook: CommitHook | None = None,
    on_commit: OnCommit = lambda woken, dispatched, interrupted: None,
    wait_seconds: float = 10,
    connections: int = 6,
) -> AsyncGenerator[PostgresDatabase]:
    async with PostgresDatabase.open(
        url,
        on_commit=on_commit,
        defer=defer_nothing,
        moments=Moments(),
        commit_hook=commit_hook,
        wait_seconds=wait_seconds,
        connections=connections,
    ) as database:
        yield database


async def keep(tx: Transaction, word: str) -> str:
    await tx.execute("INSERT INTO kept (word) VALUES (?)", (word,))
    tx.wake(SessionRow(len(word)))
    return word.upper()


async def keep_and_raise(tx: Transaction, word: str) -> None:
    await keep(tx, word)
    raise LookupError(word)


async def words(query: Query) -> list[str]:
    return [row[0] for row in await query.fetch_all("SELECT word FROM kept ORDER BY id")]


async def together(*works: Callable[[], Awaitable[object]]) -> list[object]:
    """What each of them returned or raised; they run at the same time."""
    return await asyncio.gather(*(work() for work in works), return_exceptions=True)


async def test_units_of_one_session_share_transactions_and_others_do_not_wait_for_them(url: str) -> None:
    commits = Commits()
    async with open_store(url, commit_hook=commits) as database:
        entered, go_on = anyio.Event(), anyio.Event()

        async def hold(tx: Transaction) -> None:
            entered.set()
            await go_on.wait()

        async with anyio.create_task_group() as tasks:

            async def run_hold() -> None:
                await database.run(hold, sessions=(ONE,))

            tasks.start_soon(run_hold)
            await entered.wait()
            waiting = [asyncio.ensure_future(database.run(keep, f"w{n}", sessions=(ONE,))) for n in range(10)]
            assert await database.run(keep, "other", sessions=(SessionRow(2),)) == "OTHER"
            assert not any(future.done() for future in waiting)
            go_on.set()
            assert await asyncio.gather(*waiting) == [f"W{n}" for n in range(10)]
    assert commits.units == [["keep"], ["hold"], ["keep"] * 10]


async def test_units_one_after_the_other_keep_to_one_connection_and_the_others_stay_unopened(url: str) -> None:
    async def own_process(query: Query) -> int:
        row = await query.fetch_one("SELECT pg_backend_pid()")
        assert row is not None
        return row[0]

    async with open_store(url) as database:
        written = {await database.run(own_process) for _ in range(8)}
        read = {await database.read(own_process) for _ in range(8)}
    assert len(written) == len(read) == 1


async def test_a_unit_that_raises_undoes_only_itself_also_among_others(url: str) -> None:
    woken: list[SessionRow] = []

    def on_commit(sessions: Any, dispatched: Any, interrupted: Any) -> None:
        woken.extend(sorted(sessions))

    async with open_store(url, on_commit=on_commit) as database:
        outcomes = await together(
            lambda: database.run(keep, "a", sessions=(ONE,)),
            lambda: database.run(keep, "dd", sessions=(ONE,)),
            lambda: database.run(keep_and_raise, "bbb", sessions=(ONE,)),
            lambda: database.run(keep, "a", sessions=(ONE,)),
            lambda: database.run(keep, "cccc", sessions=(ONE,)),
        )
        assert outcomes[:2] == ["A", "DD"] and outcomes[4] == "CCCC"
        assert isinstance(outcomes[2], LookupError) and isinstance(outcomes[3], psycopg.errors.UniqueViolation)
        assert await database.read(words) == ["a", "dd", "cccc"]
    assert sorted(woken) == [1, 2, 4]


async def test_units_that_lock_one_another_out_are_run_again(url: str) -> None:
    """Both have written their first row when each goes for the other's."""
    barrier = asyncio.Barrier(2)
    runs = 0

    async def raise_both(tx: Transaction, first: str, second: str) -> None:
        nonlocal runs
        runs += 1
        await tx.change("UPDATE counts SET count = count + 1 WHERE name = ?", (first,))
        if runs <= 2:
            await barrier.wait()
        await tx.change("UPDATE counts SET count = count + 1 WHERE name = ?", (second,))

    async with open_store(url) as database:
        with anyio.fail_after(SECONDS):
            outcomes = await together(
                lambda: database.run(raise_both, "a", "b"), lambda: database.run(raise_both, "b", "a")
            )
        assert outcomes == [None, None]

        async def counts(query: Query) -> list[int]:
            return [row[0] for row in await query.fetch_all("SELECT count FROM counts")]

        assert await database.read(counts) == [2, 2]
    assert runs >= 3


@pytest.mark.parametrize("others", [(), ("one", "two")])
async def test_a_unit_whose_row_another_one_inserted_meanwhile_runs_again_and_finds_it(
    url: str, others: tuple[str, ...]
) -> None:
    """Both have looked for the row before either inserts it; one may share its transaction with other units."""
    commits = Commits()
    barrier = asyncio.Barrier(2)
    runs = 0

    async def keep_once(tx: Transaction) -> bool:
        nonlocal runs
        runs += 1
        is_missing = await tx.fetch_one("SELECT 1 FROM kept WHERE word = 'once'") is None
        if runs <= 2:
            await barrier.wait()
        if is_missing:
            await keep(tx, "once")
        return is_missing

    other = SessionRow(2)
    async with open_store(url, commit_hook=commits) as database:
        with anyio.fail_after(SECONDS):
            outcomes = await together(
                lambda: database.run(keep_once, sessions=(ONE,)),
                lambda: database.run(keep_once, sessions=(other,)),
                *(lambda word=word: database.run(keep, word, sessions=(other,)) for word in others),
            )
        assert sorted(outcome for outcome in outcomes if isinstance(outcome, bool)) == [False, True]
        assert sorted(await database.read(words)) == sorted(["once", *others])
    assert max(map(len, commits.units)) == len(others) + 1


async def test_a_query_sees_one_state_however_many_statements_it_reads_with(url: str) -> None:
    async with open_store(url) as database:
        await database.run(keep, "first")

        async def read_twice(query: Query) -> tuple[list[str], list[str]]:
            before = await words(query)
            await database.run(keep, f"meanwhile {len(before)}")
            return before, await words(query)

        for _ in range(3):
            before, after = await database.read(read_twice)
            assert before == after


async def test_texts_lose_what_the_server_cannot_hold(url: str) -> None:
    async with open_store(url) as database:
        await database.run(keep, "a\0b")
        assert await database.read(words) == ["a\ufffdb"]


@requirement("sessions:7")
async def test_a_key_without_a_row_is_locked_too(url: str) -> None:
    """Two that make the same session at once: the second finds what the first made."""
    target = NamedTarget(parse_key("agent:main:main"), None)
    inside = 0
    most = 0

    async def make(tx: Transaction) -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        is_made = await tx.fetch_one("SELECT 1 FROM kept WHERE word = 'made'") is None
        if is_made:
            await asyncio.sleep(0)
            await keep(tx, "made")
        inside -= 1
        return is_made

    async with open_store(url) as one, open_store(url) as other:
        made = await together(*(lambda db=db: db.run(make, sessions=(target,)) for db in (one, other) * 4))
    assert sorted(map(bool, made)) == [False] * 7 + [True] and most == 1


@requirement("sessions:6")
async def test_processes_that_number_the_same_log_take_turns(url: str) -> None:
    """A unit may read where a log ends and go by that: its session's row is locked before it reads."""

    async def insert_session(tx: Transaction) -> None:
        await tx.execute(
            "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
            "created_at, interacted_at, updated_at) "
            "VALUES (1, 'agent:main:main', 'main', 'main', 'idle', 'api', 0, 'direct', '{}', 0, 0, 0)"
        )

    async def take_number(tx: Transaction) -> int:
        row = await tx.fetch_one("SELECT last_seq FROM sessions WHERE id = 1")
        assert row is not None
        await asyncio.sleep(0)
        await tx.execute("UPDATE sessions SET last_seq = ? WHERE id = 1", (row[0] + 1,))
        return row[0] + 1

    names = (ONE, NamedTarget(parse_key("agent:main:main"), None))
    async with open_store(url) as one, open_store(url) as other:
        await one.run(insert_session)
        calls = [(database, name) for database in (one, other) for name in names] * 8
        numbers = await asyncio.gather(*(database.run(take_number, sessions=(name,)) for database, name in calls))
    assert sorted(numbers) == list(range(1, len(calls) + 1))


async def test_units_over_several_sessions_take_turns_whatever_their_order(url: str) -> None:
    inside = 0
    most = 0

    async def look_around(tx: Transaction) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await tx.fetch_one("SELECT 1")
        await asyncio.sleep(0)
        inside -= 1

    pairs = [(ONE, SessionRow(2)), (SessionRow(2), ONE), (SessionRow(3), SessionRow(4))]
    async with open_store(url) as one, open_store(url) as other:
        await asyncio.gather(*(db.run(look_around, sessions=pair) for db in (one, other) for pair in pairs * 4))
    assert most == 1


class Proxy:
    """A socket that leads to the server, and can be cut right behind a COMMIT, before or after it arrived."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = conninfo_to_dict(url)
        self._server = Path(str(parts["host"])) / ".s.PGSQL.5432"
        self.path = folder / ".s.PGSQL.5432"
        self.url = make_conninfo(url, host=str(folder))
        self.cut: str | None = None
        self.cuts = 0

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._server))
        answered = asyncio.Event()
        is_cut = False

        async def downstream() -> None:
            while data := await server_reader.read(65_536):
                if is_cut:
                    answered.set()
                else:
                    writer.write(data)

        back = asyncio.ensure_future(downstream())
        try:
            while not is_cut and (data := await reader.read(65_536)):
                is_cut = self.cut is not None and b"COMMIT" in data
                if not is_cut or self.cut == "after":
                    server_writer.write(data)
            if is_cut:
                if self.cut == "after":
                    await answered.wait()
                self.cut = None
                self.cuts += 1
        finally:
            back.cancel()
            server_writer.close()
            writer.close()


@asynccontextmanager
async def proxied(url: str, folder: Path) -> AsyncGenerator[Proxy]:
    if "/" not in str(conninfo_to_dict(url).get("host", "")):
        pytest.skip("the server of ANTIPHON_TEST_POSTGRES has no local socket")
    proxy = Proxy(url, folder)
    server = await asyncio.start_unix_server(proxy.forward, proxy.path)
    async with server:
        yield proxy


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_without_an_answer_is_asked_after(url: str, tmp_path: Path, moment: str) -> None:
    """The unit stands exactly once, whether the server had received the COMMIT or not."""
    async with proxied(url, tmp_path) as proxy, open_store(proxy.url) as database:
        await database.run(keep, "warm", sessions=(ONE,))
        proxy.cut = moment
        with anyio.fail_after(SECONDS):
            assert await database.run(keep, "once", sessions=(ONE,)) == "ONCE"
        assert proxy.cuts == 1
        assert await database.read(words) == ["warm", "once"]


async def test_a_server_that_stays_away_is_told_of_after_the_wait(url: str, tmp_path: Path) -> None:
    nowhere = make_conninfo(url, host=str(tmp_path))
    works: list[Callable[[PostgresDatabase], Coroutine[Any, Any, object]]] = [
        lambda database: database.run(keep, "x"),
        lambda database: database.read(words),
    ]
    async with open_store(nowhere, wait_seconds=0.3) as database:
        for work in works:
            with anyio.fail_after(SECONDS), pytest.raises(Unavailable) as raised:
                await work(database)
            assert raised.value.code == "store_unreachable"


async def test_a_closed_database_takes_nothing_and_loses_nothing(url: str) -> None:
    async with open_store(url) as database:
        waiting = [asyncio.ensure_future(database.run(keep, f"w{n}", sessions=(ONE,))) for n in range(40)]
        await anyio.lowlevel.checkpoint()
    assert await asyncio.gather(*waiting) == [f"W{n}" for n in range(40)]
    with pytest.raises(Unavailable):
        await database.run(keep, "late")
    async with open_store(url) as again:
        assert len(await again.read(words)) == 40
