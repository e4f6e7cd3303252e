"""A gateway that dies where it is told to, and the side of the test that starts it again.

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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from antiphon.agents.asking import RetryPolicy
from antiphon.agents.toolset import tool
from antiphon.app import gateway_app, open_app
from antiphon.building import Parts
from antiphon.channels.channel import Channel
from antiphon.config.config import Config
from antiphon.gateway.server import bind, serving
from antiphon.testing.serving import WAIT_SECONDS

TOKEN: Final = "ant_" + "7" * 48
"""The owner's at such a gateway."""
LONGEST_SECONDS: Final = 600
"""After which a life ends that nobody has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one process does, and when it dies."""

    home: str
    settings: dict[str, Any]
    port: int = 0
    """Where it answers requests on 127.0.0.1; any free port unless set."""
    send_seconds: float | None = None
    """After so long it gives a send up, whatever its channel allows."""
    dies_after: str | None = None
    """It dies once it has committed a unit of this name, or with `name 2` the second one; else when it is killed."""
    dies_before: int | None = None
    """It dies when it is about to commit for the so-manieth time."""


def wipe() -> str:
    """Deletes."""
    return "wiped"


def live(life: Life) -> None:
    """Runs the gateway; notes the units that it commits."""

    unit, _, count = (life.dies_after or "").partition(" ")
    left = int(count or 1)

    def on_commit(number: int, moment: str, units: Sequence[str]) -> None:
        nonlocal left
        if moment == "after":
            os.write(noted, "".join(f"{each}\n" for each in units).encode())
            left -= units.count(unit)
        if left <= 0 or (moment == "before" and number == life.dies_before):
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        parts = Parts(
            commit_hook=on_commit,
            tools=[tool(wipe, effects=["deletes"], is_idempotent=True)],
            retry=RetryPolicy(attempts=1),
        )
        async with open_app(Path(life.home), Config.model_validate(life.settings), parts) as app:
            for sender in app.channels.senders.values():
                _hurry(sender, life.send_seconds)
            listener = bind("127.0.0.1", life.port)
            async with serving(gateway_app(app, TOKEN), listener, on_stop=app.services.hub.close):
                await anyio.sleep_forever()

    signal.alarm(LONGEST_SECONDS)
    noted = os.open(f"{life.home}.units", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    anyio.run(run)


def _hurry(sender: Channel, seconds: float | None) -> None:
    if seconds is not None:
        hurried = type("Hurried", (type(sender),), {"__slots__": (), "timeout_seconds": seconds})
        object.__setattr__(sender, "__class__", hurried)


class MortalGateway:
    """The gateway as the test sees it: it lives, dies, and is started again."""

    def __init__(self, *modules: str) -> None:
        """`modules` are imported beforehand, so that each life begins at once."""
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__, "antiphon.store.sqlite", *modules],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
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
        self._server.wait(WAIT_SECONDS)
        self._server.stdout.close()


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
        _say(process)
        _, status = os.waitpid(process, 0)
        _say(os.waitstatus_to_exitcode(status))


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        importlib.import_module(each)
    serve_lives()
