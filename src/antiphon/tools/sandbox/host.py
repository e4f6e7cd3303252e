"""A command on the host itself, for sessions that are not sandboxed."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from antiphon.private_files import starting_umask
from antiphon.tools.sandbox.execution import Execution
from antiphon.tools.sandbox.watch import Breach

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""Variables kept from this process's environment; others may hold keys."""


class HostProcess(Execution):
    """A shell with its own process group, in the workspace."""

    def __init__(self, text: str, workspace: Path) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        super().__init__(
            subprocess.Popen(
                ["/bin/sh", "-c", text],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=workspace,
                env=environment,
                start_new_session=True,
                umask=starting_umask(),
            )
        )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def check(self) -> Breach | None:
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else 128 - code
