"""Delivery over PostgreSQL by Procrastinate: a job says "this session has work" and nothing else.

A job holds no lock: the ledger decides which process runs it, and a job that finds no work ends. A job stays `doing`
while its session is worked on, so that the job of a worker without heartbeat identifies the session.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.connector import BaseConnector
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.worker import Worker as JobWorker
from psycopg_pool import AsyncConnectionPool

from antiphon.domain.actor import Asker
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.engine.work.dispatch import Driver
from antiphon.store import jobs
from antiphon.store import runs as ledger
from antiphon.store.codec import json_text
from antiphon.store.database import Database, SqlValue, Transaction
from antiphon.store.postgres.errors import named
from antiphon.store.postgres.link import PostgresConnection
from antiphon.trouble import Setbacks, Trouble, is_of_all

logger = logging.getLogger(__name__)

QUEUE = "sessions"
"""For the owner's work."""
GUEST_QUEUE = "guests"
"""For everyone else's work; not fetched while only the owner's places are free."""
TASK = "drive"
MAX_JOBS = 1_000
"""At the same time in one process; far above the number of runs, because waiting runs hold one each."""
BEAT_SECONDS = 1.0
DEAD_SECONDS = 5.0
SWEEP_SECONDS = 1.0
RETRY_SECONDS = 0.5
MAX_SWEPT = 500


_DEFER = "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(?, ?, 0, NULL, NULL, ?, NULL)::procrastinate_job_to_defer_v1])"
"""What the library's own `defer` sends, without its wait for the job's id."""


class _PatientJobManager(JobManager):
    """Fetches a job only if there is room for it, so that other processes get the jobs that this one cannot do yet."""

    driver: Driver | None = None
    is_stopped = False

    def __init__(self, connector: BaseConnector) -> None:
        super().__init__(connector)
        self.to_finish: set[int] = set()
        """Jobs that ended while the database was not reachable."""
        self.passed_over = asyncio.Event()
        """Set if guests' jobs were not fetched because there was no room for them."""

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        if self.driver is not None and not await self.driver.wait_room():
            self.passed_over.set()
            queues = [QUEUE]
        return None if self.is_stopped else await super().fetch_job(queues, worker_id)

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        assert job.id is not None
        try:
            await super().finish_job(job, status, delete_job)
        except (ProcrastinateException, psycopg.Error):
            self.to_finish.add(job.id)

    async def finish_late(self) -> None:
        """Marks the jobs that ended meanwhile as finished; jobs that other processes buried are already gone."""
        for job_id in tuple(self.to_finish):
            await self.finish_if_there(job_id, Status.SUCCEEDED)
            self.to_finish.discard(job_id)

    async def finish_if_there(self, job_id: int, status: Status) -> None:
        """Finishes the job, unless another process has finished it in the same moment, or before."""
        try:
            await self.finish_job_by_id_async(job_id, status, delete_job=True)
        except ConnectorException as error:
            if not isinstance(error.__cause__, psycopg.errors.RaiseException):
                raise


class _JobWorker(JobWorker):
    """Reports when it stops, also on its own because the database went away."""

    def __init__(self, app: App, **options: Any) -> None:
        super().__init__(app, **options)
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()
        super().stop()

    def look_again(self) -> None:
        """Fetches jobs as if one had just been announced."""
        self._new_job_event.set()


def deferred(session: SessionRow, asker: Asker) -> tuple[str, Sequence[SqlValue]]:
    """The statement that stores the job, for a transaction in which no result is waited for."""
    queue = QUEUE if asker.is_favoured else GUEST_QUEUE
    return _DEFER, (queue, TASK, json_text({"session": session}))


class ProcrastinateDispatch:
    """Implements `Dispatch`. Without `run` it only defers, for a process without a worker."""

    def __init__(self, url: str) -> None:
        for name in ("procrastinate", "psycopg.pool"):
            logging.getLogger(name).setLevel(logging.ERROR)  # this module logs what matters
        for name in ("procrastinate.utils", "procrastinate.worker", "procrastinate.worker.worker"):
            logging.getLogger(name).addFilter(_is_of_engine)
        # Does not check a connection before each use: a broken one costs one more attempt.
        # Each of the engine's statements is a transaction of its own: one round trip to the server instead of three.
        self._pool: AsyncConnectionPool[PostgresConnection] = AsyncConnectionPool(
            url, connection_class=PostgresConnection, min_size=1, max_size=4, open=False, timeout=3, reconnect_timeout=2
        )
        self._app = App(connector=PsycopgConnector())
        self._manager = _PatientJobManager(self._app.job_manager.connector)
        self._app.job_manager = self._manager
        self._task = self._app.task(name=TASK, queue=QUEUE)(self._drive)
        self._driver: Driver | None = None
        self._database: Database | None = None
        self._worker: _JobWorker | None = None
        self._stopped = asyncio.Event()
        self._jobs = Trouble(
            logger, "Job engine", action="jobs_failed", means="New work reaches this process once it works again."
        )
        self._sweeping = Trouble(
            logger, "Sweep", action="sweep_failed", means="Work of processes that died waits until this is over."
        )
        self._checking = Trouble(
            logger, "Checking runs", action="check_failed", means="Cancels of other processes come late."
        )
        self._inviting = Trouble(
            logger, "Looking for room for guests", action="invite_failed", means="Guests' work begins late."
        )
        self._setbacks = Setbacks(
            logger,
            "Sending work again",
            action="redelivery_failed",
            means="Work of that session waits.",
        )

    def read_from(self, database: Database) -> None:
        """Sets the database to search for work without a job; call before `run`."""
        self._database = database

    async def run(self, driver: Driver) -> None:
        self._driver = self._manager.driver = driver
        # It ends when it is stopped: cancelled in the middle of a query, it would leave jobs `doing`.
        with anyio.CancelScope(shield=True):
            async with self._pool, self._app.open_async(self._pool), anyio.create_task_group() as tasks:
                tasks.start_soon(self._sweep)
                tasks.start_soon(self._check, driver)
                tasks.start_soon(self._invite_guests, driver)
                while not self._manager.is_stopped:
                    try:
                        await self._work()
                    except Exception as error:
                        self._jobs.failed(_cause(error))
                    await self._pause(RETRY_SECONDS)

    def stop(self) -> None:
        self._manager.is_stopped = True
        self._manager.passed_over.set()
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._stopped.wait()

    async def _work(self) -> None:
        self._worker = _JobWorker(
            self._app,
            queues=[QUEUE, GUEST_QUEUE],
            concurrency=MAX_JOBS,
            fetch_job_polling_interval=1.0,
            abort_job_polling_interval=60.0,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=BEAT_SECONDS,
            stalled_worker_timeout=DEAD_SECONDS,
        )
        if not self._manager.is_stopped:
            await self._worker.run()

    async def _drive(self, session: int) -> None:
        """The job: works on the session until it has no more work, or cannot be worked on here."""
        assert self._driver is not None and self._worker is not None and self._database is not None
        row = SessionRow(session)
        self._driver.take(row)
        left = asyncio.ensure_future(self._driver.wait_left(row))
        stopped = asyncio.ensure_future(self._worker.stopped.wait())
        await asyncio.wait((left, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not left.done() and self._manager.is_stopped:
            await asyncio.wait((left,))
        is_given_back = left.done() and not left.result()
        left.cancel()
        stopped.cancel()
        if is_given_back:
            await self._database.run(_deliver_again, row)

    async def _sweep(self) -> None:
        """Takes jobs from workers without a heartbeat, and creates missing jobs, until stopped."""
        assert self._database is not None
        while not self._manager.is_stopped:
            try:
                await self._manager.finish_late()
                await self._bury_jobs_of_the_dead()
                undelivered = await self._database.read(jobs.list_undelivered, DEAD_SECONDS, MAX_SWEPT)
                if undelivered:
                    await self._deliver_again(self._database, undelivered)
                    logger.info("Work was sent again", extra={"action": "jobs_swept", "sessions": len(undelivered)})
            except Exception as error:
                self._sweeping.failed(_cause(error))
            else:
                self._sweeping.worked()
                self._jobs.worked()
            await self._pause(SWEEP_SECONDS)

    async def _deliver_again(self, database: Database, sessions: Sequence[SessionRow]) -> None:
        """All in one unit; if that fails, each alone, so that one that cannot be delivered holds up no other."""
        sessions = [session for session in sessions if not self._setbacks.rests(session)]
        try:
            await database.run(_deliver_again, *sessions)
        except Exception as error:
            if is_of_all(error):
                raise
            for session in sessions:
                with self._setbacks.attempt(session, session=session):
                    await database.run(_deliver_again, session)

    async def _bury_jobs_of_the_dead(self) -> None:
        for job in await self._manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_SECONDS):
            assert job.id is not None
            await self._manager.finish_if_there(job.id, Status.FAILED)

    async def _invite_guests(self, driver: Driver) -> None:
        """Fetches guests' jobs that were passed over, as soon as there is room for them."""
        while not self._manager.is_stopped:
            await self._manager.passed_over.wait()
            try:
                await driver.wait_guest_room()
                self._manager.passed_over.clear()
                if self._worker is not None:
                    self._worker.look_again()
            except Exception as error:
                self._inviting.failed(_cause(error))
                await self._pause(RETRY_SECONDS)
            else:
                self._inviting.worked()

    async def _check(self, driver: Driver) -> None:
        """Makes up for lost interrupts."""
        while not self._manager.is_stopped:
            await self._pause(SWEEP_SECONDS)
            try:
                await driver.check_all()
            except Exception as error:
                self._checking.failed(_cause(error))
            else:
                self._checking.worked()


async def _deliver_again(tx: Transaction, *sessions: SessionRow) -> None:
    for session, asker in (await ledger.find_askers(tx, sessions)).items():
        await tx.dispatch(session, asker)


def _is_of_engine(record: logging.LogRecord) -> bool:
    """Leaves out what the engine logs, task by task, of a server that failed: the sweep says so, once."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectorException))


def _cause(error: Exception) -> Exception:
    """The server's error, which says what happened; the job engine wraps it."""
    found = error.__cause__ if isinstance(error, ProcrastinateException) else None
    if isinstance(found, psycopg.errors.ForeignKeyViolation):
        return Unavailable("Others took this process for dead; it begins to fetch anew.", code="store_unreachable")
    return named(found if isinstance(found, Exception) else error)
