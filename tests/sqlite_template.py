"""A database file with our schema, of which homes of tests get copies: to make one takes as long as a short test."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from antiphon.backends import DATABASE_NAME
from antiphon.store.migrate import migrate
from antiphon.store.sqlite import SqliteConnection, connect_sqlite


@cache
def template() -> Path:
    """Made when it is first asked for; forks of the process share it."""
    folder, process = Path(tempfile.mkdtemp(prefix="antiphon-template-")), os.getpid()

    @atexit.register
    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    path = folder / DATABASE_NAME
    connection = connect_sqlite(path)
    migrate(connection, path=path, now_ms=0)
    connection.close()
    return path


def connect_to_copy(path: Path) -> SqliteConnection:
    """As `connect_sqlite`; a database that was just made becomes a copy first."""
    if path.stat().st_size == 0:
        shutil.copyfile(template(), path)
    return connect_sqlite(path)
