"""`antiphon serve`: the gateway, until a signal stops it. Contract: first_start 1."""

import gc
from typing import Annotated, Literal

import typer

from antiphon.cli.commands.options import ConfigOption, DatabaseOption, HomeOption, HostOption, JsonOption
from antiphon.cli.exits import command


@command
def serve(
    config: ConfigOption = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Port to listen on, 0 for any (also ANTIPHON_PORT)."
        ),
    ] = None,
    role: Annotated[
        Literal["all", "gateway", "worker"] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="gateway (answers requests), worker (runs agents) or all; needs PostgreSQL (also ANTIPHON_ROLE).",
        ),
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the gateway; it needs no configuration.

    Ctrl-C, SIGTERM or closing its terminal stops it. Running turns get some seconds to end. Unfinished turns continue
    at the next start, or with PostgreSQL at once in another process.
    """
    # What is imported now stays: looking for garbage in it again and again costs a tenth of the start.
    gc.disable()
    from antiphon.cli.homes.server import serve_home

    flags: dict[str, object] = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.role": role,
        "database.url": database,
    }
    serve_home(home, config, flags, as_json=as_json)
