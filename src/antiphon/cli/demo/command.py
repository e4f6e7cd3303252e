"""`antiphon demo`: its options."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import JsonOption
from antiphon.cli.exits import command


@command
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Without pauses for reading.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the home, and say where it is.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch agents delegate, ask, be refused and survive a kill: under a minute, on a home of its own.

    The models are scripts, everything else is real: a gateway, its database, its log. Nothing of yours is touched.
    """
    from antiphon.cli.demo.story import tell

    tell(is_fast=fast, is_kept=keep, as_json=as_json)
