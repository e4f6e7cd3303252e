"""Commands of the program `antiphon`, carried out in this process, so that hundreds cost little."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Lock
from typing import Final

from anyio import to_thread
from typer.main import get_command

from antiphon.cli.main import app

_PROGRAM: Final = get_command(app)
_ONE_AT_A_TIME: Final = Lock()
"""What a command writes goes to the streams of the whole process."""


async def run_command_line(home: Path, *words: str) -> str:
    """All that the command writes. A gateway of the home has to run."""
    return await to_thread.run_sync(_run, [*words, "--json", "--home", str(home)])


def _run(words: list[str]) -> str:
    written = io.StringIO()
    with _ONE_AT_A_TIME, redirect_stdout(written), redirect_stderr(written):
        _PROGRAM(words, prog_name="antiphon", standalone_mode=False)
    return written.getvalue()
