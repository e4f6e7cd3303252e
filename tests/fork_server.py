"""Processes that begin at once: a server that has imported everything forks one for each line of JSON."""

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import PROCESS_SECONDS


class ForkServer:
    """The server, from the testing side. `module` calls `serve_forks` when it is run, with `arguments`."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, request: dict[str, Any]) -> int:
        """The exit code of a new process; negative for the signal that killed it."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PROCESS_SECONDS)
        self._server.stdout.close()


def serve_forks(carry_out: Callable[[dict[str, Any]], None], *, seconds: float = PROCESS_SECONDS) -> None:
    """Forks a process for each request; one that neither ends nor dies within `seconds` is killed."""
    signal.alarm(0)
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.close(1)
                os.open(os.devnull, os.O_WRONLY)
                signal.alarm(round(seconds))
                carry_out(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
