"""`antiphon demo`: its options."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import JsonOption
from antiphon.cli.exits import command


@command
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Omit the pauses for reading.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the home, and print its path.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch agents delegate, ask, try what policy denies, and survive a kill: under a minute, in a temporary home.

    The models are scripts. Everything else is real: a gateway, its database, its log. Your own homes stay as they are.
    """
    from antiphon.cli.demo.story import tell

    tell(is_fast=fast, is_kept=keep, as_json=as_json)
