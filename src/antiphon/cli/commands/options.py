"""Options that many commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="ANTIPHON_HOME",
        metavar="DIR",
        help="The home directory; default: the platform's data directory.",
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="ANTIPHON_CONFIG",
        metavar="FILE",
        help="The configuration file; default: antiphon.toml in the home.",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
CursorOption: TypeAlias = Annotated[str | None, typer.Option("--cursor", help="The cursor from the previous page.")]
LimitOption: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, help="The largest number to show.")]
SessionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SESSION", help="'main', a key, a session id, or the name of a chat.")
]
HostOption: TypeAlias = Annotated[
    str | None, typer.Option("--host", metavar="HOST", help="Address to listen on (also ANTIPHON_HOST).")
]
DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="A shared PostgreSQL database; default: a file in the home (also ANTIPHON_DATABASE).",
    ),
]
