"""`antiphon serve`: the gateway, until told to stop. Contract: first_start 1."""

import gc
from typing import Annotated

import typer

from antiphon.cli.exits import command
from antiphon.cli.options import ConfigOption, HomeOption, JsonOption


@command
def serve(
    config: ConfigOption = None,
    home: HomeOption = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on (also ANTIPHON_HOST).")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Port to listen on, 0 for any (also ANTIPHON_PORT)."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the gateway; it needs no configuration.

    Ctrl-C or SIGTERM stops it: running turns get some seconds to end, and go on at the next start if they do not.
    """
    # What is imported now stays: looking for garbage in it again and again costs a tenth of the start.
    gc.disable()
    from antiphon.cli.server import serve_home

    serve_home(home, config, {"gateway.host": host, "gateway.port": port}, as_json=as_json)
