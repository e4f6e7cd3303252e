"""Databases brought up to date, and homes moved from one to another."""

from pathlib import Path

import anyio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from antiphon.backends import DATABASE_NAME, MOVED_SUFFIX, describe_database, move_database, update_database
from antiphon.cli.connection.gateway_file import find_gateway
from antiphon.cli.connection.home import config_of, home_of
from antiphon.cli.connection.local_gateway import home_in_use
from antiphon.cli.connection.logs import configure_logs
from antiphon.cli.homes.channels import kept_state
from antiphon.cli.rendering.output import error_console, show, show_json
from antiphon.clock import SystemClock
from antiphon.domain.message import JsonObject
from antiphon.home import prepare_home
from antiphon.server_url import secrets_in


def update_home(home_option: Path | None, config_option: Path | None, database: str | None, *, as_json: bool) -> None:
    """Applies what the configured database lacks, and says its schema."""
    home = home_of(home_option)
    config = config_of(home, config_option, {"database.url": database})
    configure_logs(config, level="warning")
    url = config.database.address()
    prepare_home(home, is_embedded=url is None)
    schema = anyio.run(update_database, home, url, SystemClock())
    place = describe_database(home, url)
    if as_json:
        show_json({"ok": True, "database": place, "schema": schema})
    else:
        show(f"Database is up to date: {place}, schema {schema}")


def move_home(home_option: Path | None, config_option: Path | None, url: str, *, as_json: bool) -> None:
    """Moves the home's embedded database to PostgreSQL, and says what to set."""
    home = home_of(home_option)
    config = config_of(home, config_option)
    configure_logs(config, level="warning", secrets=[url, *secrets_in(url)])
    running = find_gateway(home)
    if running is not None:
        raise home_in_use(home, running)
    with _Bars(is_shown=not as_json) as bars:
        rows = anyio.run(move_database, home, config.database.with_command(url), SystemClock(), bars.report)
    place, old = describe_database(home, url), home / (DATABASE_NAME + MOVED_SUFFIX)
    folders = [str(each) for each in kept_state(home)]
    if as_json:
        stay: JsonObject = {"stay": [*folders]} if folders else {}
        show_json({"ok": True, "database": place, "rows": {**rows}, "oldDatabase": str(old), **stay})
        return
    show(
        f"Home was moved to {place}: {rows['sessions']} sessions, {rows['events']} events, {rows['runs']} runs.", "bold"
    )
    show("Now set database.url in the configuration, or ANTIPHON_DATABASE, to that address, and start the gateway.")
    for folder in folders:
        show(f"Stays here: {folder!r}. It holds keys of an account, so only a gateway with this home may serve that.")
    show(f"The old database is kept: {str(old)!r}. Nothing writes to it any more; you can remove it.", "dim")


class _Bars:
    """How far each table is, on a terminal."""

    def __init__(self, *, is_shown: bool) -> None:
        columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn())
        console = error_console()
        self._progress = Progress(*columns, console=console, disable=not (is_shown and console.is_terminal))
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def report(self, table: str, done: int, total: int) -> None:
        if table not in self._tasks:
            self._tasks[table] = self._progress.add_task(table, total=total)
        self._progress.update(self._tasks[table], completed=done)
