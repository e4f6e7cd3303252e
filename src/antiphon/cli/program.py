"""How this program was called, for the commands in its messages."""

import shlex
import shutil
import sys
from pathlib import Path

from antiphon.config.sources import default_home


def command_line(command: str, home: Path | None = None) -> str:
    """The command as this program was called, and with the home where that is not the usual one."""
    option = "" if home is None or home == default_home() else f" --home {shlex.quote(str(home))}"
    return f"{_program()} {command}{option}"


def _program() -> str:
    found, program = shutil.which("antiphon"), Path(sys.argv[0])
    if not program.exists() or program.suffix == ".py" or (found is not None and Path(found).samefile(program)):
        return "antiphon"
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)
