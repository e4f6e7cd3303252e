"""How this program was called, for the commands in its messages."""

import shlex
from pathlib import Path

from antiphon.config.home import default_home
from antiphon.program import program_path


def command_line(command: str, home: Path | None = None) -> str:
    """The command as this program was called, and with the home where that is not the usual one."""
    option = "" if home is None or home == default_home() else f" --home {shlex.quote(str(home))}"
    return f"{program_path()} {command}{option}"
