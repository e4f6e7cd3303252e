"""The path by which this program was called, for the commands in what people read."""

import re
import shutil
import sys
from functools import cache
from pathlib import Path

NAME = "antiphon"
_COMMAND = re.compile(rf"`{NAME} (?=[a-z])")


@cache
def program_path() -> str:
    """What works here: the name alone where the shell finds it, else the path."""
    found, program = shutil.which(NAME), Path(sys.argv[0])
    if program.name != NAME or not program.exists() or (found is not None and Path(found).samefile(program)):
        return NAME
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)


def public_path() -> str:
    """The same for readers elsewhere, whom an absolute path would tell about this machine: then the name alone."""
    path = program_path()
    return NAME if Path(path).is_absolute() else path


def with_path(text: str) -> str:
    """The text with the program's path in the commands between backticks."""
    return _with(program_path(), text)


def with_public_path(text: str) -> str:
    return _with(public_path(), text)


def _with(path: str, text: str) -> str:
    return text if path == NAME else _COMMAND.sub(lambda _: f"`{path} ", text)
