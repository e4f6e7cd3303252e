"""`antiphon open`: a fresh sign-in link. Contract: gateway 6."""

import os
import sys
import webbrowser
from typing import Annotated

import typer

from antiphon.cli.commands.options import HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.errors import Invalid, Unavailable


@command
def open_page(
    home: HomeOption = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    do_print: Annotated[
        bool, typer.Option("--print", help="Print the link even if the output is not a terminal.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a fresh sign-in link of the running gateway, and open it on a desktop."""
    from antiphon.cli.connection.connect import client_of
    from antiphon.cli.connection.gateway_file import find_gateway
    from antiphon.cli.connection.home import home_of
    from antiphon.cli.connection.link_page import write_page
    from antiphon.cli.rendering.links import sign_in_link
    from antiphon.cli.rendering.output import show, show_json

    directory = home_of(home)
    running = find_gateway(directory)
    if running is None or running.is_temporary:
        raise Unavailable(
            f"No gateway runs on this home: {str(directory)!r}. Start one with `antiphon serve`.",
            code="gateway_not_running",
        )
    is_printed = do_print or as_json or sys.stdout.isatty()
    is_opened = not no_browser and sys.stdout.isatty() and _has_desktop()
    if not is_printed:
        raise Invalid(
            "Sign-in link is not printed: the output is not a terminal. Add --print (or --json) to print it here.",
            code="not_terminal",
        )
    client = client_of(directory, running)
    answer = client.post("/auth/link")
    client.close()
    made = sign_in_link(running.url, answer["code"])
    if as_json:
        show_json(
            {
                "url": running.url,
                "signInLink": made.link,
                "onlyHere": made.is_only_here,
                "expiresInSeconds": answer["expiresInSeconds"],
            }
        )
    else:
        show(made.link, "bold green")
        show(" ".join(["Good once, for 10 minutes.", *made.hints]), "dim")
    if is_opened:
        webbrowser.open(write_page(directory, made.link).as_uri())


def _has_desktop() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
