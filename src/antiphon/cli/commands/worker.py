"""`antiphon worker`: runs agents for a database that processes share, until told to stop."""

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
            help="Answer /health and /ready there, 0 for any port; it does not listen unless this is given.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run agents for gateways elsewhere, which share the PostgreSQL database.

    Ctrl-C or SIGTERM stops it: running turns get some seconds to end, and go on in another process if they do not.
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
