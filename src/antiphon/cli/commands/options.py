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
        help="Where everything is kept; the platform's data directory unless set.",
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="ANTIPHON_CONFIG",
        metavar="FILE",
        help="The configuration; antiphon.toml in the home unless set.",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
LimitOption: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
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
        help="A PostgreSQL database that processes share; a file in the home unless set (also ANTIPHON_DATABASE).",
    ),
]
