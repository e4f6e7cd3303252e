"""What every delivery of work must do, on each backend; where several processes can be, over two of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import psycopg
import pytest
from procrastinate import App as JobApp
from procrastinate import PsycopgConnector

from antiphon.backends import Backend, describe_process, open_postgres, open_sqlite
from antiphon.building import App, Parts
from antiphon.clock import RandomIds, SystemClock
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.run import Run, RunStatus
from antiphon.engine.ledger.fence import Claimant
from antiphon.engine.runs import lifecycle
from antiphon.engine.runs.runner import ConstantRunner
from antiphon.engine.work.procrastinate_dispatch import QUEUE, TASK
from antiphon.store import processes
from antiphon.store import runs as ledger
from antiphon.store.database import CommitHook, Transaction
from antiphon.store.processes import Process
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    config,
    find_run,
    find_session,
    open_session,
    post,
    read_log,
    texts,
    wait_end,
)
from tests.people import asker
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

OpenBackend: TypeAlias = Callable[..., Any]
DAY = timedelta(days=1)
LIMITED = {"id": "main", "limits": {"time_seconds": 1_800}}
OTHER = Process(
    id=ProcessId("proc_other"), role="worker", host="elsewhere", pid=1, version="", fingerprint="", agents=()
)
PROBE, FIRST, SECOND = SessionRow(1000), SessionRow(1001), SessionRow(1002)


class RecordingDriver:
    """Notes what is delivered to it, and works on each session until it is let go."""

    def __init__(self) -> None:
        self.taken: list[SessionRow] = []
        self.has_room = True
        self.let_go = anyio.Event()
        self._changed = anyio.Event()

    def take(self, session: SessionRow) -> None:
        self.taken.append(session)
        self._changed.set()

    async def check_all(self) -> None: ...

    async def wait_room(self) -> bool:
        if not self.has_room:
            await self.let_go.wait()
        return True

    async def wait_guest_room(self) -> None:
        if not self.has_room:
            await self.let_go.wait()

    async def wait_left(self, session: SessionRow) -> bool:
        await self.let_go.wait()
        return True

    async def until_taken(self, *sessions: SessionRow) -> None:
        with anyio.fail_after(SECONDS):
            while not set(sessions) <= set(self.taken):
                self._changed = anyio.Event()
                await self._changed.wait()


class Checks:
    """Notes which sessions are to be looked at."""

    def __init__(self) -> None:
        self.sessions: list[SessionRow] = []
        self._changed = anyio.Event()

    def __call__(self, session: SessionRow) -> None:
        self.sessions.append(session)
        self._changed.set()

    async def until(self, session: SessionRow) -> None:
        with anyio.fail_after(SECONDS):
            while session not in self.sessions:
                self._changed = anyio.Event()
                await self._changed.wait()


@pytest.fixture
def open_backend(home: Path, database_section: DatabaseSection) -> OpenBackend:
    """The bare backend; on PostgreSQL several may be open, each a process of its own."""
    home.mkdir()
    ids = RandomIds(SystemClock())

    @asynccontextmanager
    async def open_it(check: Checks | None = None, commit_hook: CommitHook | None = None) -> AsyncGenerator[Backend]:
        clock, check = SystemClock(), check or Checks()
        if database_section.url is None:
            opened = open_sqlite(home, clock=clock, check=check, commit_hook=commit_hook)
        else:
            opened = open_postgres(
                database_section.url.get_secret_value(),
                clock=clock,
                check=check,
                process=describe_process(ProcessId(ids.new("proc")), "all", version="", fingerprint="", agents=()),
                connections=2,
                commit_hook=commit_hook,
            )
        async with opened as backend, anyio.create_task_group() as tasks:
            for task in backend.tasks:
                tasks.start_soon(task)
            yield backend
            tasks.cancel_scope.cancel()

    return open_it


@asynccontextmanager
async def delivering(backend: Backend, driver: RecordingDriver) -> AsyncGenerator[None]:
    """Delivery to the driver; under way, unless that has no room."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.dispatch.run, driver)
        try:
            if driver.has_room:
                await backend.database.run(dispatch, PROBE)
                await driver.until_taken(PROBE)
                driver.taken.remove(PROBE)
            yield
        finally:
            driver.let_go.set()
            backend.dispatch.stop()
            tasks.cancel_scope.cancel()


async def dispatch(tx: Transaction, *sessions: SessionRow) -> None:
    for session in sessions:
        await tx.dispatch(session, asker(OWNER))


async def dispatch_first(tx: Transaction) -> None:
    await tx.dispatch(FIRST, asker(OWNER))


async def dispatch_and_fail(tx: Transaction, session: SessionRow) -> None:
    await tx.dispatch(session, asker(OWNER))
    raise LookupError("undone")


async def interrupt(tx: Transaction, session: SessionRow) -> None:
    tx.interrupt(session)


@requirement("runs:8")
async def test_work_is_delivered_after_the_commit_and_not_before(
    open_backend: OpenBackend, database_section: DatabaseSection
) -> None:
    driver = RecordingDriver()
    loop = asyncio.get_running_loop()
    early: list[int] = []

    async def settle() -> None:
        for _ in range(10):
            await anyio.lowlevel.checkpoint()

    def look(number: int, moment: str, units: list[str]) -> None:
        if moment == "before" and "dispatch_first" in units:
            if database_section.url is None:
                asyncio.run_coroutine_threadsafe(settle(), loop).result(SECONDS)
            else:
                early.append(count_jobs(database_section) - 1)
            early.append(len(driver.taken))

    async with open_backend(commit_hook=look) as backend, delivering(backend, driver):
        await backend.database.run(dispatch_first)
        await driver.until_taken(FIRST)
    assert early and set(early) == {0}


@requirement("runs:8")
async def test_work_of_a_unit_that_was_undone_is_not_delivered(open_backend: OpenBackend) -> None:
    driver = RecordingDriver()
    async with open_backend() as backend, delivering(backend, driver):
        with pytest.raises(LookupError):
            await backend.database.run(dispatch_and_fail, FIRST)
        await backend.database.run(dispatch, SECOND)
        await driver.until_taken(SECOND)
    assert driver.taken == [SECOND]


@requirement("runs:1")
async def test_work_goes_to_a_process_that_has_room_for_it(
    open_backend: OpenBackend, database_section: DatabaseSection
) -> None:
    if database_section.url is None:
        pytest.skip("one process")
    full, free = RecordingDriver(), RecordingDriver()
    full.has_room = False
    sessions = [SessionRow(2000 + number) for number in range(20)]
    async with open_backend() as one, open_backend() as two, delivering(one, full), delivering(two, free):
        for session in sessions:
            await one.database.run(dispatch, session)
        await free.until_taken(*sessions)
    assert full.taken == []


@requirement("runs:8")
async def test_work_that_a_stopped_process_had_is_delivered_to_another(
    open_backend: OpenBackend, database_section: DatabaseSection
) -> None:
    if database_section.url is None:
        pytest.skip("one process")
    before, after = RecordingDriver(), RecordingDriver()
    async with open_backend() as backend, delivering(backend, before):
        await backend.database.run(dispatch, FIRST)
        await before.until_taken(FIRST)
        backend.dispatch.stop()
        await backend.database.run(dispatch, SECOND)
    async with open_backend() as backend, delivering(backend, after):
        await after.until_taken(SECOND)
    assert before.taken == [FIRST]


@requirement("runs:5")
async def test_an_interrupt_reaches_every_process(open_backend: OpenBackend, database_section: DatabaseSection) -> None:
    checks = [Checks()] if database_section.url is None else [Checks(), Checks()]
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(open_backend(check)) for check in checks]
        with anyio.fail_after(SECONDS):
            # Others hear it once they listen; until then it is told again.
            for check in checks:
                while FIRST not in check.sessions:
                    await backends[0].database.run(interrupt, FIRST)
                    with anyio.move_on_after(0.1):
                        await check.until(FIRST)


def count_jobs(section: DatabaseSection) -> int:
    assert section.url is not None
    with psycopg.connect(section.url.get_secret_value()) as connection:
        row = connection.execute("SELECT count(*) FROM procrastinate_jobs").fetchone()
    assert row is not None
    return row[0]


OpenHomes: TypeAlias = Callable[..., Any]


@pytest.fixture
def open_homes(open_home: OpenHome, database_section: DatabaseSection) -> OpenHomes:
    """As many running systems on the database as it may have, two at the most; each with a clock of its own."""

    @asynccontextmanager
    async def open_them(settings: Config | None = None, **parts: Any) -> AsyncGenerator[list[App]]:
        count = 1 if database_section.url is None else 2
        clocks = parts.pop("clocks", [SystemClock()] * 2)
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(open_home(settings, Parts(clock=clocks[number], **parts)))
                for number in range(count)
            ]

    return open_them


@pytest.fixture
def clocks() -> Generator[list[ManualClock]]:
    yield [ManualClock(), ManualClock()]


@requirement("runs:1")
async def test_runs_of_a_session_go_in_order_and_never_overlap_in_any_process(open_homes: OpenHomes) -> None:
    runner = HeldRunner()
    runner.release_all()
    async with open_homes(runner=runner) as apps:
        for name in ("api:a", "api:b", "api:c"):
            await open_session(apps[0], name)

        async def post_many(app: App, name: str, client: int) -> None:
            for number in range(15):
                await post(app, name, f"{client}-{number}")

        async with anyio.create_task_group() as tasks:
            for name in ("api:a", "api:b", "api:c"):
                for client in range(4):
                    tasks.start_soon(post_many, apps[client % len(apps)], name, client)
        for name in ("api:a", "api:b", "api:c"):
            await check_order(apps[0], name, count=60)
    assert not runner.overlapped


async def check_order(app: App, name: str, *, count: int) -> None:
    """Every message of the session got a run, and they began in the order of the messages."""
    posted = [event for event in await read_log(app, name) if event.type == "user_message"]
    in_order = [event.run_id for event in posted]
    assert len(in_order) == count
    for run_id in in_order:
        assert (await wait_end(app, run_id)).status is RunStatus.OK
    events = await read_log(app, name)
    assert [event.run_id for event in events if event.type == "run_started"] == in_order
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@requirement("runs:1")
async def test_work_that_is_delivered_many_times_is_done_once(
    open_homes: OpenHomes, database_section: DatabaseSection
) -> None:
    runner = HeldRunner()
    async with open_homes(runner=runner) as apps:
        first = await post(apps[0], "main", "m-1")
        row = (await find_session(apps[0], "main")).row
        await runner.until_begun(1)
        for app in apps * 10:
            await app.database.run(dispatch, row)
        second = await post(apps[0], "main", "m-2")
        for app in apps * 10:
            await app.database.run(dispatch, row)
        runner.release_all()
        for posted in (first, second):
            assert (await wait_end(apps[0], posted.run_id)).attempt == 1
        for app in apps * 10:
            await app.database.run(dispatch, row)
        assert (await wait_end(apps[0], (await post(apps[0], "main", "m-3")).run_id)).attempt == 1
        assert len(runner.begun) == 3 and not runner.overlapped
        if database_section.url is not None:
            with anyio.fail_after(SECONDS):
                while count_jobs(database_section):
                    await anyio.sleep(0.05)


@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_our_statement_stores_the_job_that_the_library_stores(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    assert database_section.url is not None
    url = database_section.url.get_secret_value()
    async with open_home(config(gateway__role="gateway")) as gateway:
        await post(gateway, "main", "m-1")
    library = JobApp(connector=PsycopgConnector(conninfo=url))
    with psycopg.connect(url) as connection:
        ((session,),) = connection.execute("SELECT session FROM runs").fetchall()
    async with library.open_async():
        await library.configure_task(TASK, queue=QUEUE).defer_async(session=session)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_jsonb(j) - 'id' FROM procrastinate_jobs j ORDER BY id").fetchall()
    assert len(found) == 2 and found[0] == found[1]


@requirement("runs:8")
async def test_work_whose_wake_was_lost_is_found(open_home: OpenHome, database_section: DatabaseSection) -> None:
    if database_section.url is None:
        pytest.skip("a wake within a process is not lost")
    async with open_home(config(gateway__role="gateway")) as gateway:
        posted = await post(gateway, "main", "m-1")
        with psycopg.connect(database_section.url.get_secret_value()) as connection:
            assert connection.execute("DELETE FROM procrastinate_jobs").rowcount == 1
        async with open_home(config(gateway__role="worker"), Parts(runner=ConstantRunner("found"))):
            assert (await wait_end(gateway, posted.run_id)).reply == "found"


@requirement("runs:5")
async def test_a_cancel_over_any_process_reaches_the_run(open_homes: OpenHomes) -> None:
    runner = HeldRunner()
    async with open_homes(runner=runner) as apps:
        for number, app in enumerate(apps):
            posted = await post(apps[0], "main", f"m-{number}")
            await runner.until_begun(number + 1)
            assert posted.run_id is not None
            await app.services.runs.cancel(OWNER, posted.run_id)
            assert (await wait_end(app, posted.run_id)).status is RunStatus.CANCELLED


@requirement("runs:5")
async def test_a_cancel_whose_interrupt_was_lost_is_found(
    open_homes: OpenHomes, database_section: DatabaseSection
) -> None:
    if database_section.url is None:
        pytest.skip("an interrupt within a process is not lost")
    runner = HeldRunner()
    async with open_homes(runner=runner) as apps:
        posted = await post(apps[0], "main", "m-1")
        await runner.until_begun(1)
        assert posted.run_id is not None
        await apps[0].database.run(request_cancel, posted.run_id)
        assert (await wait_end(apps[0], posted.run_id)).status is RunStatus.CANCELLED


async def request_cancel(tx: Transaction, run_id: RunId) -> None:
    await ledger.change(tx, run_id, {"cancel_requested": 1})


@requirement("runs:6")
async def test_a_run_that_goes_on_after_a_restart_keeps_its_deadline(open_home: OpenHome) -> None:
    clock, settings = ManualClock(), config(limits__run={"time_seconds": 60}, gateway__drain_seconds=0)
    runner = HeldRunner()
    async with open_home(settings, Parts(runner=runner, clock=clock)) as app:
        posted = await post(app, "main", "m-1")
        await runner.until_begun(1)
    clock.pass_time(timedelta(seconds=61))
    async with open_home(settings, Parts(runner=HeldRunner(), clock=clock)) as app:
        run = await wait_end(app, posted.run_id)
        assert (run.status, run.code) == (RunStatus.TIMEOUT, "run_timeout")


@requirement("runs:6", "runs:8")
async def test_an_outage_longer_than_the_default_that_nobody_named_ends_no_run(open_home: OpenHome) -> None:
    clock, settings, runner = ManualClock(), config(gateway__drain_seconds=0), HeldRunner()
    async with open_home(settings, Parts(runner=runner, clock=clock)) as app:
        posted = await post(app, "main", "m-1")
        await runner.until_begun(1)
    for _ in range(2):
        clock.pass_time(timedelta(hours=1))
        later = HeldRunner()
        async with open_home(settings, Parts(runner=later, clock=clock)) as app:
            await later.until_begun(1)
            run = await find_run(app, posted.run_id)
            assert run.deadline == clock.now() + timedelta(minutes=30)
    async with open_home(settings, Parts(runner=(last := HeldRunner()), clock=clock)) as app:
        await last.until_begun(1)
        last.release(posted.run_id)
        assert (await wait_end(app, posted.run_id)).status is RunStatus.OK


@requirement("runs:6", "spawn:3")
@pytest.mark.parametrize("named", [{"limits__run": {"time_seconds": 1_800}}, {"agents__list": [LIMITED]}], ids=str)
async def test_a_limit_that_somebody_named_counts_an_outage(open_home: OpenHome, named: dict[str, Any]) -> None:
    clock, settings, runner = ManualClock(), config(gateway__drain_seconds=0, **named), HeldRunner()
    async with open_home(settings, Parts(runner=runner, clock=clock)) as app:
        posted = await post(app, "main", "m-1")
        await runner.until_begun(1)
    clock.pass_time(timedelta(minutes=31))
    async with open_home(settings, Parts(runner=HeldRunner(), clock=clock)) as app:
        run = await wait_end(app, posted.run_id)
        assert (run.status, run.code) == (RunStatus.TIMEOUT, "run_timeout")


@requirement("runs:8")
async def test_a_worker_whose_run_another_process_took_over_changes_nothing(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    runner = HeldRunner()
    claimant = Claimant(process=OTHER.id, time_limits={AgentId("main"): None})
    async with open_home(parts=Parts(runner=runner)) as app:
        posted = await post(app, "main", "m-1")
        await runner.until_begun(1)
        row = (await find_session(app, "main")).row
        mine = await find_run(app, posted.run_id)
        assert mine.process is not None
        taken = await app.database.run(take_over, mine.process, row, claimant)
        assert taken is not None and taken.fence == mine.fence + 1
        runner.release(mine.id)
        with anyio.fail_after(SECONDS):
            while runner.working[row]:
                await anyio.lowlevel.checkpoint()
        await app.database.run(give_up, OTHER.id)
        await app.database.run(dispatch, row)
        ended = await wait_end(app, mine.id)
        assert (ended.status, ended.attempt) == (RunStatus.OK, mine.attempt + 2)
        assert texts(await read_log(app, "main")) == ["m-1", "answer to m-1"]


async def take_over(tx: Transaction, process: ProcessId, session: SessionRow, claimant: Claimant) -> Run | None:
    """In one unit: in between, the living process would show itself again."""
    await processes.delete(tx, process)
    await processes.insert(tx, OTHER, 0)
    return await lifecycle.claim(tx, session, claimant)


async def give_up(tx: Transaction, process: ProcessId) -> None:
    await processes.delete(tx, process)


@requirement("runs:1", "runs:8")
async def test_a_clock_that_jumps_by_a_day_changes_neither_order_nor_end(
    open_homes: OpenHomes, clocks: list[ManualClock]
) -> None:
    runner = HeldRunner()
    # A jump by a day is more time than a run has unless it may take any.
    async with open_homes(config(limits__run={"time_seconds": 0}), runner=runner, clocks=clocks) as apps:
        posted: list[RunId | None] = []
        for number, jump in enumerate((DAY, -DAY, -DAY, DAY)):
            clocks[0].pass_time(jump)
            clocks[1].pass_time(-jump)
            posted.append((await post(apps[number % len(apps)], "main", f"m-{number}")).run_id)
        await runner.until_begun(1)
        clocks[0].pass_time(-DAY)
        clocks[1].pass_time(DAY)
        runner.release_all()
        await check_order(apps[0], "main", count=4)
        assert runner.begun == posted and not runner.overlapped
