"""The shared database: lines, locks, reruns, and COMMITs whose answer was lost."""

import asyncio
import logging
import signal
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.backends import describe_process
from antiphon.clock import SystemClock
from antiphon.domain.actor import OWNER, Asker
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import AgentId, ProcessId, SessionId, SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.session import Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.work.processes import Processes
from antiphon.store import processes, sessions
from antiphon.store.database import CommitHook, OnCommit, Query, SqlValue, Transaction
from antiphon.store.moments import Moments
from antiphon.store.postgres.database import PostgresDatabase
from antiphon.store.postgres.link import IDLE_SECONDS
from antiphon.store.postgres.transaction import Defer
from antiphon.store.processes import Process
from tests.claims import requirement
from tests.postgres import fresh_database
from tests.store.stuck_store import OTHERS
from tests.waiting import SECONDS, at_least

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


def defer_nothing(session: SessionRow, asker: Asker) -> tuple[str, Sequence[SqlValue]]:
    raise AssertionError


@asynccontextmanager
async def open_store(
    url: str,
    *,
    commit_hook: CommitHook | None = None,
    on_commit: OnCommit = lambda woken, dispatched, interrupted: None,
    wait_seconds: float = 10,
    connections: int = 6,
    defer: Defer = defer_nothing,
) -> AsyncGenerator[PostgresDatabase]:
    async with PostgresDatabase.open(
        url,
        on_commit=on_commit,
        defer=defer,
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


async def test_work_that_a_refused_unit_dispatched_is_dispatched_by_the_next_one(url: str) -> None:
    def defer(session: SessionRow, asker: Asker) -> tuple[str, Sequence[SqlValue]]:
        return "INSERT INTO kept (word) VALUES (?)", (f"job of {session}",)

    async def dispatch(tx: Transaction, *, is_refused: bool) -> None:
        await tx.dispatch(ONE, Asker(OWNER, True))
        if is_refused:
            raise Conflict("refused")

    sent = list[list[SessionRow]]()
    async with open_store(url, defer=defer, on_commit=lambda woken, dispatched, _: sent.append([*dispatched])) as store:
        units = [partial(store.run, partial(dispatch, is_refused=n % 2 == 0), sessions=(ONE,)) for n in range(4)]
        results = await together(*units)
        assert [type(result) for result in results] == [Conflict, NoneType] * 2
        assert await store.read(words) == ["job of 1"]
    assert sent == [[ONE]]


async def test_statements_go_on_when_their_tables_changed_or_the_server_forgot_them(url: str) -> None:
    async def count(query: Query) -> object:
        return await query.fetch_one("SELECT count FROM counts WHERE name = 'a'")

    async def forget(query: Query) -> None:
        await query.fetch_all("DEALLOCATE ALL")

    async with open_store(url, connections=3) as database:
        for kind in ("INTEGER", "BIGINT", "INTEGER"):
            for _ in range(3):
                assert await database.read(count) == (0,)
                assert await database.run(count) == (0,)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"ALTER TABLE counts ALTER COLUMN count TYPE {kind}".encode())
            assert await database.read(count) == await database.run(count) == (0,)
        for _ in range(3):
            await database.read(count)
            await database.run(count)
        await database.read(forget)
        await database.run(forget)
        assert await database.read(count) == await database.run(count) == (0,)


async def test_locks_that_cannot_be_taken_fail_the_units_by_what_the_server_said(url: str) -> None:
    async with open_store(url) as database:

        def far(number: int) -> Coroutine[Any, Any, str]:
            return database.run(keep, "a", sessions=(ONE, SessionRow(2**63 - 1 + number)))

        errors = await together(lambda: far(0), lambda: far(1), lambda: far(2))
        assert [type(error) for error in errors] == [psycopg.errors.NumericValueOutOfRange] * 3
        assert database.trouble is None
        assert await database.run(keep, "a", sessions=(ONE,)) == "A"


async def test_what_a_refused_unit_keeps_takes_nobody_along_if_the_server_refuses_it(url: str) -> None:
    async def refused(tx: Transaction) -> None:
        await tx.execute("DELETE FROM kept WHERE word = 'a'")
        await tx.keep(keep, "a")
        await tx.fetch_one("SELECT 1")
        raise Conflict("refused")

    async with open_store(url) as database:
        await database.run(keep, "a")
        one, error, two = await together(
            lambda: database.run(keep, "b", sessions=(ONE,)),
            lambda: database.run(refused, sessions=(ONE,)),
            lambda: database.run(keep, "c", sessions=(ONE,)),
        )
        assert (one, two) == ("B", "C") and isinstance(error, psycopg.errors.UniqueViolation)
        assert await database.read(words) == ["a", "b", "c"]


async def test_a_write_that_the_server_refuses_at_the_end_takes_nobody_along(url: str) -> None:
    commits = Commits()
    async with open_store(url, commit_hook=commits) as database:
        entered, go_on = anyio.Event(), anyio.Event()

        async def hold(tx: Transaction) -> None:
            entered.set()
            await go_on.wait()

        async def refused(tx: Transaction) -> None:
            await tx.execute("INSERT INTO kept (word) VALUES (CAST(? AS INTEGER) / 0)", (1,))

        first = asyncio.ensure_future(database.run(hold, sessions=(ONE,)))
        await entered.wait()
        shared = asyncio.ensure_future(
            together(
                lambda: database.run(keep, "a", sessions=(ONE,)),
                lambda: database.run(refused, sessions=(ONE,)),
                lambda: database.run(keep, "b", sessions=(ONE,)),
            )
        )
        await asyncio.sleep(0)
        go_on.set()
        await first
        one, error, two = await shared
        assert (one, two) == ("A", "B")
        assert isinstance(error, psycopg.errors.DivisionByZero)
        assert ["keep", "refused", "keep"] in commits.units
        assert await database.read(words) == ["a", "b"]


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
@pytest.mark.parametrize("named", [(NamedTarget(parse_key("agent:main:main"), None),), ()], ids=["named", "unnamed"])
async def test_of_units_that_make_the_same_session_at_once_one_does_and_the_others_find_it(
    url: str, named: tuple[NamedTarget, ...]
) -> None:
    """Nothing is locked for a key without a row: who was slower is undone, and runs again."""
    key = parse_key("agent:main:main")
    barrier = asyncio.Barrier(2)
    runs = 0

    async def make(tx: Transaction) -> bool:
        nonlocal runs
        runs += 1
        own = runs
        found = await sessions.find_head_by_key(tx, key)
        if own <= 2:
            await barrier.wait()
        if found is None:
            new = sessions.NewSession(
                key=key, agent_id=AgentId("main"), id=SessionId(f"api:{own}"), source=Source(), metadata={}
            )
            await sessions.insert(tx, new, 0)
        return found is None

    async with open_store(url) as one, open_store(url) as other:
        with anyio.fail_after(SECONDS):
            made = await together(*(lambda db=db: db.run(make, sessions=named) for db in (one, other) * 4))
    assert sorted(map(bool, made)) == [False] * 7 + [True] and runs > 8


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
        await tx.execute("UPDATE sessions SET last_seq = ? WHERE id = ?", (row[0] + 1, ONE))
        return row[0] + 1

    names = (ONE, NamedTarget(parse_key("agent:main:main"), None))
    async with open_store(url) as one, open_store(url) as other:
        await one.run(insert_session)
        calls = [(database, name) for database in (one, other) for name in names] * 8
        numbers = await asyncio.gather(*(database.run(take_number, sessions=(name,)) for database, name in calls))
    assert sorted(numbers) == list(range(1, len(calls) + 1))


async def insert_sessions(tx: Transaction) -> None:
    """Four of them, with the numbers 1 to 4."""
    for row in range(1, 5):
        await tx.execute(
            "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
            "created_at, interacted_at, updated_at) "
            "VALUES (?, ?, 'main', 'main', 'idle', 'api', 0, 'direct', '{}', 0, 0, 0)",
            (row, f"agent:main:api:{row}"),
        )


async def write_to(tx: Transaction, *rows: int) -> list[int]:
    """Counts in each of these sessions, in this order; returns the counts."""
    counts: list[int] = []
    for row in rows:
        found = await tx.fetch_one("UPDATE sessions SET steps = steps + 1 WHERE id = ? RETURNING steps", (row,))
        assert found is not None
        counts.append(found[0])
    return counts


async def test_units_that_share_a_session_take_turns_whatever_their_order_and_others_do_not(url: str) -> None:
    at_once: dict[tuple[SessionRow, ...], int] = {}
    overlaps: set[frozenset[tuple[SessionRow, ...]]] = set()

    async def look_around(tx: Transaction, own: tuple[SessionRow, ...]) -> None:
        await tx.fetch_one("SELECT 1")  # the locks come with the first statement
        at_once[own] = at_once.get(own, 0) + 1
        overlaps.update(frozenset((own, other)) for other, count in at_once.items() if count and other != own)
        await tx.fetch_one("SELECT pg_sleep(0.01)")
        at_once[own] -= 1

    pairs = [(ONE, SessionRow(2)), (SessionRow(2), ONE), (SessionRow(3), SessionRow(4))]
    async with open_store(url) as one, open_store(url) as other:
        await one.run(insert_sessions)
        await asyncio.gather(*(db.run(look_around, pair, sessions=pair) for db in (one, other) for pair in pairs * 4))
    assert frozenset(pairs[:2]) not in overlaps
    assert frozenset((pairs[0], pairs[2])) in overlaps


async def test_a_unit_that_needs_another_session_runs_again_with_it_alone_and_in_its_place(url: str) -> None:
    """What it writes to is locked before it reads: nobody waits for it who holds what it waits for."""
    commits = Commits()

    async def write_and_keep(tx: Transaction, word: str, rows: tuple[int, ...]) -> None:
        await write_to(tx, *rows)
        await keep(tx, word)

    async with open_store(url, commit_hook=commits) as database:
        await database.run(insert_sessions)
        entered, go_on = anyio.Event(), anyio.Event()

        async def hold(tx: Transaction) -> None:
            entered.set()
            await go_on.wait()

        first = asyncio.ensure_future(database.run(hold, sessions=(ONE,)))
        await entered.wait()
        units = [("a", (1,)), ("b", (1, 2)), ("c", (1,)), ("d", (3, 1, 4)), ("e", (1,))]
        waiting = [asyncio.ensure_future(database.run(write_and_keep, *unit, sessions=(ONE,))) for unit in units]
        await anyio.lowlevel.checkpoint()
        go_on.set()
        with anyio.fail_after(SECONDS):
            await asyncio.gather(first, *waiting)
        assert await database.read(words) == ["a", "b", "c", "d", "e"]
    assert [len(units) for units in commits.units] == [1, 1, 1, 1, 1, 1, 1]


async def test_a_unit_that_needs_more_sessions_each_time_ends_and_holds_nobody_up(url: str) -> None:
    """A tree is as deep as it is; what reads something else each time would run again for ever."""
    numbers = count(100)

    async def need_in_turn(tx: Transaction, word: str) -> None:
        for row in range(2, 20):
            tx.hold(SessionRow(row))
        await keep(tx, word)

    async def need_without_end(tx: Transaction) -> None:
        await keep(tx, "never")
        tx.hold(SessionRow(next(numbers)))

    async with open_store(url) as database:
        await database.run(insert_sessions)
        endless = asyncio.ensure_future(database.run(need_without_end, sessions=(ONE,)))
        behind = asyncio.ensure_future(database.run(need_in_turn, "behind", sessions=(ONE,)))
        with anyio.fail_after(SECONDS):
            with pytest.raises(Unavailable, match="changes meanwhile") as busy:
                await endless
            await behind
        assert busy.value.code == "store_busy"
        assert await database.read(words) == ["behind"]


async def test_units_that_cross_on_their_way_never_lock_one_another_out(url: str) -> None:
    """They name one session and write to others, in every order, from two processes."""
    orders = [(1, 2, 3), (3, 2, 1), (2, 4, 1), (4, 1, 2), (3, 4), (4, 3)]
    async with open_store(url) as one, open_store(url) as other:
        await one.run(insert_sessions)
        with anyio.fail_after(SECONDS):
            await asyncio.gather(
                *(
                    db.run(write_to, *order, sessions=(SessionRow(order[0]),))
                    for db in (one, other)
                    for order in orders * 5
                )
            )

        async def look(query: Query) -> tuple[Any, ...]:
            counts = await query.fetch_all("SELECT steps FROM sessions ORDER BY id")
            row = await query.fetch_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            return counts, row

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
        counts, deadlocks = await one.read(look)
    assert [count for (count,) in counts] == [10 * sum(row in order for order in orders) for row in range(1, 5)]
    assert deadlocks == (0,)


def waiting_for_locks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
        assert row is not None
        return row[0]


async def test_a_process_that_is_stopped_within_a_unit_holds_nobody_up_for_long(url: str) -> None:
    """It has more units in the queue for the same lock; none of them gets it when the first has lost it."""
    async with open_store(url) as database:
        await database.run(insert_sessions)
        command = [sys.executable, "-m", "tests.store.stuck_store", url]
        async with await anyio.open_process(command, stderr=None) as process:
            try:
                assert process.stdout is not None
                assert b"held" in await process.stdout.receive()
                with anyio.fail_after(SECONDS):
                    while waiting_for_locks(url) < OTHERS:
                        await anyio.sleep(0.01)
                process.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                assert await database.run(write_to, 1, sessions=(ONE,)) == [1]
                # One that had got the lock in its turn would keep it for as long again.
                assert time.monotonic() - began < 2 * IDLE_SECONDS - 1
            finally:
                process.kill()


@requirement("runs:8")
async def test_what_a_dead_process_has_open_is_ended_by_the_one_that_gives_it_up(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server waits for it to read an answer: neither an idle transaction nor a lock ends by a limit."""
    command = [sys.executable, "-m", "tests.store.stuck_store", url, "reading"]
    async with open_store(url) as database:
        await database.run(insert_sessions)
        async with await anyio.open_process(command, stderr=None) as process:
            try:
                assert process.stdout is not None
                assert b"held" in await process.stdout.receive()
                await until_one_waits_for(url, "PgSleep")
                process.send_signal(signal.SIGSTOP)
                await until_one_waits_for(url, "ClientWrite")
                dead = replace(_process("dead"), pid=process.pid)
                await database.run(processes.insert, dead, 0)
                giving_up = Processes(
                    database,
                    SystemClock(),
                    _process("this"),
                    beat_seconds=0.1,
                    dead_seconds=0.5,
                    end_transactions=database.end_transactions,
                )
                async with anyio.create_task_group() as tasks:
                    await giving_up.register()
                    tasks.start_soon(giving_up.run)
                    assert await database.run(write_to, 1, sessions=(ONE,)) == [1]
                    with anyio.fail_after(SECONDS):
                        while not any(map(_tells_of_death, caplog.records)):
                            await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
            finally:
                process.kill()
    (told,) = filter(_tells_of_death, caplog.records)
    assert vars(told)["transactions_ended"] >= 1


def _tells_of_death(record: logging.LogRecord) -> bool:
    return getattr(record, "action", None) == "process_dead"


async def test_a_process_that_was_started_again_under_its_number_keeps_what_it_has_open(url: str) -> None:
    """In a container each process may have the number 1 on a host of the same name."""
    ended: list[tuple[int, str]] = []

    async def end(pid: int, host: str) -> int:
        ended.append((pid, host))
        return 1

    async with open_store(url) as database:
        for id, pid in (("dead", 1), ("again", 1), ("other", 2)):
            await database.run(processes.insert, replace(_process(id), pid=pid), 0)
        giving_up = Processes(
            database,
            SystemClock(),
            _process("this"),
            beat_seconds=0.05,
            dead_seconds=0.5,
            end_transactions=end,
        )
        await giving_up.register()

        async def again_lives() -> None:
            while True:
                await database.run(processes.beat, ProcessId("again"))
                await anyio.sleep(0.02)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(giving_up.run)
            tasks.start_soon(again_lives)
            with anyio.fail_after(SECONDS):
                while len(await giving_up.list()) > 2:
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
    assert ended == [(2, _process("").host)]


async def until_one_waits_for(url: str, event: str) -> None:
    asked = "SELECT 1 FROM pg_stat_activity WHERE wait_event = %s AND application_name LIKE 'antiphon%%'"
    with anyio.fail_after(at_least(20)), psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(asked, (event,)).fetchone():
            await anyio.sleep(0.02)


def _process(id: str) -> Process:
    return describe_process(ProcessId(id), "worker", version="", fingerprint="", agents=())


async def test_who_holds_a_lock_from_outside_is_said_once_and_the_unit_goes_on_when_it_is_free(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(url) as database, open_store(url, wait_seconds=0) as hasty:
        await database.run(insert_sessions)
        outside = await AsyncConnection.connect(url, application_name="a clerk")
        await outside.execute("SELECT 1 FROM sessions WHERE id = 1 FOR UPDATE")
        waiting = [asyncio.ensure_future(database.run(write_to, 1, sessions=(ONE,))) for _ in range(3)]
        with pytest.raises(
            Unavailable, match=r"Store is busy: process \d+ of the server \('a clerk', for \d s\)"
        ) as busy:
            await hasty.run(write_to, 1, sessions=(ONE,))
        assert busy.value.code == "store_busy"
        await outside.close()
        with anyio.fail_after(SECONDS):
            assert await asyncio.gather(*waiting) == [[1], [2], [3]]
        assert database.trouble is None
    said = [record for record in caplog.records if getattr(record, "code", None) == "store_busy"]
    assert 1 <= len(said) <= 2 and all("a clerk" in str(vars(record)["error"]) for record in said)  # once a process


async def test_every_one_of_many_units_of_a_locked_session_is_answered_in_its_time(url: str, *, is_soak: bool) -> None:
    """Each transaction waits for the lock; the many behind the first ones have waited as long as these."""
    many = 10_000 if is_soak else 1_000
    async with open_store(url, wait_seconds=1) as database:
        await database.run(insert_sessions)
        outside = await AsyncConnection.connect(url, application_name="a clerk")
        await outside.execute("SELECT 1 FROM sessions WHERE id = 1 FOR UPDATE")
        tracemalloc.start()
        waiting = [asyncio.ensure_future(database.run(write_to, 1, sessions=(ONE,))) for _ in range(many)]
        with anyio.fail_after(SECONDS):
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert all(isinstance(each, Unavailable) and "'a clerk'" in each.message for each in answers)
        assert most < 10_000 * many, "bytes"
        await outside.close()
        began = time.monotonic()
        written = await asyncio.gather(*(database.run(write_to, 1, sessions=(ONE,)) for _ in range(many)))
        print(
            f"{many:,} units of one session in {time.monotonic() - began:.1f} s, refused {most / many:,.0f} bytes each"
        )
    assert written == [[number] for number in range(1, many + 1)]


async def test_a_server_that_takes_no_more_connections_is_named_as_such(url: str) -> None:
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN CONNECTION LIMIT 0")
        connection.execute(f'GRANT CONNECT ON DATABASE "{name}" TO clerk'.encode())
        try:
            async with open_store(make_conninfo(url, user="clerk"), wait_seconds=0.3) as database:
                with pytest.raises(Unavailable, match="takes no more connections") as raised:
                    await database.run(keep, "x")
        finally:
            connection.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM clerk'.encode())
            connection.execute("DROP ROLE clerk")
    assert raised.value.code == "store_unreachable"


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
