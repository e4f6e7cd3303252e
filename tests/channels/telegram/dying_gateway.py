"""A gateway with a bot that dies where it is told to, and the side of the test that starts it again.

Run as a module it imports everything once and forks a process for each life, a line of JSON on its standard input. It
answers with the process's id, and once that has ended with its exit code.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio

from antiphon.agents.toolset import tool
from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.testing.telegram import FakeTelegram
from tests.sqlite_template import connect_to_copy, template
from tests.waiting import PROCESS_SECONDS

LOOK_SECONDS = 0.02
"""Between looks whether the process lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one process does, and when it dies."""

    home: str
    settings: dict[str, Any]
    dies_after: str | None = None
    """It dies as soon as it has committed a unit of this name, or with `name 2` the second one; else when killed."""


def wipe() -> str:
    """Deletes."""
    return "wiped"


def live(life: Life) -> None:
    """Serves the bot; notes the units that it commits."""

    unit, _, count = (life.dies_after or "").partition(" ")
    left = int(count or 1)

    def on_commit(number: int, moment: str, units: Sequence[str]) -> None:
        nonlocal left
        if moment == "after":
            os.write(noted, "".join(f"{each}\n" for each in units).encode())
            left -= units.count(unit)
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def serve() -> None:
        parts = Parts(
            commit_hook=on_commit,
            tools=[tool(wipe, effects=["deletes"], is_idempotent=True)],
            connect=connect_to_copy,
        )
        async with open_app(Path(life.home), Config.model_validate(life.settings), parts):
            await anyio.sleep_forever()

    signal.alarm(round(PROCESS_SECONDS))  # if the test is killed itself
    noted = os.open(f"{life.home}.units", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    anyio.run(serve)


class Gateway:
    """The gateway as the test sees it: it lives, dies, and is started again."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._pid: int | None = None

    def begin(self, life: Life) -> None:
        assert self._pid is None and self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(asdict(life)) + "\n")
        self._server.stdin.flush()
        self._pid = int(self._server.stdout.readline())

    def has_died(self) -> bool:
        """Whether the process has ended since it began; it must have been killed."""
        assert self._server.stdout is not None
        if self._pid is not None and select.select([self._server.stdout], [], [], 0)[0]:
            self._bury()
        return self._pid is None

    def kill(self) -> None:
        """Kills it with signal 9, unless it is dead."""
        if not self.has_died() and self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._bury()

    def _bury(self) -> None:
        assert self._server.stdout is not None
        code = int(self._server.stdout.readline())
        self._pid = None
        assert code == -signal.SIGKILL, f"The gateway ended with {code}"

    def close(self) -> None:
        self.kill()
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PROCESS_SECONDS)
        self._server.stdout.close()


def wait_through_death(fake: FakeTelegram, is_so: Callable[[], object], on_death: Callable[[], None]) -> None:
    """Returns once it is so, and calls `on_death` each time it looks in between."""
    for _ in range(int(PROCESS_SECONDS / LOOK_SECONDS)):
        with fake.changed:
            if fake.changed.wait_for(is_so, LOOK_SECONDS):
                return
        on_death()
    raise TimeoutError("it did not come to be")


def serve_lives() -> None:
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            try:
                os.close(1)
                os.open(os.devnull, os.O_WRONLY)
                live(Life(**json.loads(line)))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    for lazy in ("antiphon.channels.telegram.channel", "antiphon.channels.telegram.loop", "antiphon.store.sqlite"):
        importlib.import_module(lazy)  # so that each life begins at once
    template()
    serve_lives()
