"""A database file with our schema, of which homes of tests get copies: to make one takes as long as a short test."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from antiphon.backends import DATABASE_NAME
from antiphon.store.migrate import migrate
from antiphon.store.sqlite import connect_sqlite


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="antiphon-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / DATABASE_NAME
    connection = connect_sqlite(path)
    migrate(connection, path=path, now_ms=0)
    connection.close()
    return path


def copy_template(home: Path) -> None:
    """Makes the home with an empty database, unless it exists."""
    if not home.exists():
        home.mkdir(mode=0o700, parents=True)
        shutil.copyfile(_template(), home / DATABASE_NAME)
