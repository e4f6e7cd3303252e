"""`antiphon migrate`: brings a database up to date, or moves a home to PostgreSQL."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, DatabaseOption, HomeOption, JsonOption
from antiphon.cli.exits import command


@command
def migrate(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Move the home's embedded database to this PostgreSQL database."),
    ] = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upgrade the configured database, while processes of the previous version continue.

    With --to it moves a home to PostgreSQL, with its queued, running and waiting runs. No other process may use the
    home.
    """
    from antiphon.cli.homes.moving import move_home, update_home

    if to is None:
        update_home(home, config, database, as_json=as_json)
    else:
        move_home(home, config, to, as_json=as_json)
