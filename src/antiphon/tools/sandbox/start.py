"""Starts a command in bubblewrap; it runs only once its limits are set and it is watched.

It is held twice. bubblewrap waits at its gate, so that everything behind the gate inherits the limits; but the gate
opens by itself when this process dies. So the shell also waits for a line, and exits if none comes.
"""

import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from types import TracebackType
from typing import IO

from antiphon.domain.errors import Unavailable
from antiphon.domain.sandbox import SandboxLimits
from antiphon.private_files import starting_umask
from antiphon.tools.sandbox.execution import Execution
from antiphon.tools.sandbox.profile import FILES, Profile, ShownFolders, arguments
from antiphon.tools.sandbox.system_calls import filter_for
from antiphon.tools.sandbox.watch import READY_SECONDS, Breach, Sandbox

REMEDY = (
    "Install bubblewrap 0.8 or newer (on Debian: apt install bubblewrap) and allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, "
    "user.max_user_namespaces; for containers see docs/SANDBOX.md), or set tools.run_command.mode to 'off'."
)


HELD_SHELL = 'echo; IFS= read -r go || exit 125; exec /bin/sh -c "$1" </dev/null'
"""Reports that it is ready, waits for a line, and becomes the shell of the command."""


class SandboxProcess(Execution):
    """A shell alone in its namespaces, with the workspace and little else."""

    def __init__(self, program: str, text: str, *, shown: ShownFolders, home: Path, limits: SandboxLimits) -> None:
        """Raises `Unavailable` (`sandbox_unavailable`) before the command runs."""
        path = shutil.which(program)
        if path is None or not sys.platform.startswith("linux"):
            raise unavailable(f"{program!r} is not installed")
        with ExitStack() as files:
            info, info_end = _pipe(files)
            gate_end, gate = _pipe(files)
            contents = {name: _content(files, content.encode()) for name, content in FILES.items()}
            call_filter = filter_for(platform.machine())
            system_calls = None if call_filter is None else _content(files, call_filter)
            workspace = shown.workspace
            self._host_paths = {
                str(workspace): "the workspace",
                **({} if shown.skill is None else {str(shown.skill): "the skill"}),
                str(home): "the home",
            }
            profile = Profile(
                shown=shown,
                home=home,
                network=limits.network,
                tmp_bytes=min(limits.disk_bytes, limits.memory_bytes),
                file_descriptors=contents,
                system_calls=system_calls,
                info=info_end.fileno(),
                gate=gate_end.fileno(),
            )
            # Not as arguments: the command could read them as those of the first process of its namespace.
            walls = _content(files, b"".join(os.fsencode(word) + b"\0" for word in arguments(profile)))
            super().__init__(
                subprocess.Popen(
                    [path, "--args", str(walls), "--", "/bin/sh", "-c", HELD_SHELL, "/bin/sh", text],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env={},
                    start_new_session=True,
                    umask=starting_umask(),
                    pass_fds=[
                        walls,
                        *contents.values(),
                        *([] if system_calls is None else [system_calls]),
                        profile.info,
                        profile.gate,
                    ],
                )
            )
            info_end.close()
            try:
                self._sandbox = Sandbox(_process_of(info), limits, workspace)
                try:
                    gate.write(b"\n")
                    self._let_go()
                except BaseException:
                    self._sandbox.kill()
                    self._sandbox.close()
                    raise
            except BaseException as error:
                # Before the gate's descriptor is closed, because closing it opens the gate.
                told = self._abandon()
                if isinstance(error, OSError | ValueError | Unavailable) and told:
                    raise unavailable(told) from error
                raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, at)
        finally:
            self._sandbox.close()

    def has_ended(self) -> bool:
        return self._sandbox.has_ended()

    def check(self) -> Breach | None:
        return self._sandbox.check()

    def kill(self) -> None:
        self._sandbox.kill()
        self._process.wait()
        self._sandbox.has_ended(READY_SECONDS)

    def exit_code(self) -> int:
        return self._process.wait()

    def _let_go(self) -> None:
        """Starts the command. By now bubblewrap has arranged that everything ends with this process."""
        assert self._process.stdin is not None
        if not _is_readable(self.streams[0]) or os.read(self.streams[0].fileno(), 1) != b"\n":
            raise ValueError("the shell did not start in time")
        self._process.stdin.write(b"\n")
        self._process.stdin.close()

    def _abandon(self) -> str:
        """Waits for bubblewrap to end and returns its last output."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            _, told = self._process.communicate(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        shown = told.decode("utf-8", "replace").strip()
        for path, name in self._host_paths.items():
            shown = shown.replace(path, name)
        return shown[-300:]


def unavailable(reason: str) -> Unavailable:
    why = reason.rstrip(".")
    return Unavailable(f"Sandbox is not available, so nothing was run: {why}. {REMEDY}", code="sandbox_unavailable")


def find_problem(program: str = "bwrap") -> str | None:
    """Tries to run a command in a sandbox; returns why it fails, without `REMEDY`, or None."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            place = Path(directory)
            with SandboxProcess(
                program, "true", shown=ShownFolders(workspace=place), home=place, limits=SandboxLimits()
            ) as process:
                ended = process.exit_code()
        except Unavailable as error:
            return error.message.removesuffix(f" {REMEDY}")
    return None if ended == 0 else f"An empty command ended with {ended}."


def _pipe(files: ExitStack) -> tuple[BufferedReader, FileIO]:
    reading, writing = os.pipe()
    return files.enter_context(os.fdopen(reading, "rb")), files.enter_context(os.fdopen(writing, "wb", buffering=0))


def _content(files: ExitStack, content: bytes) -> int:
    """A descriptor to read the content from; the content fits into a pipe."""
    reading, writing = _pipe(files)
    writing.write(content)
    writing.close()
    return reading.fileno()


def _is_readable(stream: IO[bytes]) -> bool:
    """Whether the stream can be read, or has ended, in time."""
    return bool(select.select([stream], [], [], READY_SECONDS)[0])


def _process_of(info: IO[bytes]) -> int:
    """The id of the sandbox's first process, from bubblewrap. Raises `ValueError` if bubblewrap failed before."""
    if not _is_readable(info):
        raise ValueError("bubblewrap did not start in time")
    return int(json.loads(info.read())["child-pid"])
