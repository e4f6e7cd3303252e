"""`antiphon backup` and `antiphon restore`: a home as one file."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command


@command
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; readable by you alone.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Save the home to one file: database, workspaces and configuration, also while the gateway runs."""
    from antiphon.cli.homes.backups import back_up_home

    back_up_home(home, config, file, replaces=force, as_json=as_json)


@command
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `antiphon backup` wrote.")],
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty home, after checking it."""
    from antiphon.cli.homes.backups import restore_home

    restore_home(home, config, file, as_json=as_json)
