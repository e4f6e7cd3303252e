"""Groups of commands that list something when they are called alone."""

from typing import Any

from typer.core import TyperGroup


class ListingGroup(TyperGroup):
    """Runs `list` if no command is named; options without a command are those of `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list else args)
