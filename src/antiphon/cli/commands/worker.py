"""`antiphon worker`: runs agents on a shared database, until a signal stops it."""

import gc
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, DatabaseOption, HomeOption, HostOption, JsonOption
from antiphon.cli.exits import command


@command
def worker(
    config: ConfigOption = None,
    home: HomeOption = None,
    database: DatabaseOption = None,
    host: HostOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Answer /health and /ready on this port, 0 for any; without it, it does not listen.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run agents for other gateways on the same PostgreSQL database.

    Ctrl-C, SIGTERM or closing its terminal stops it. Running turns get some seconds to end. Unfinished turns continue
    in another process.
    """
    gc.disable()
    from antiphon.cli.homes.server import serve_home

    flags: dict[str, object] = {
        "gateway.role": "worker",
        "gateway.host": host,
        "gateway.port": port,
        "database.url": database,
    }
    serve_home(home, config, flags, as_json=as_json)
