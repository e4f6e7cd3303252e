"""Runs one command of an agent, in a sandbox or on the host, and ends everything it started."""

import os
from pathlib import Path

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import Struct

from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.sandbox import SandboxLimits
from antiphon.tools.sandbox.execution import CommandResult, Execution, execute
from antiphon.tools.sandbox.host import HostProcess
from antiphon.tools.sandbox.profile import ShownFolders
from antiphon.tools.sandbox.start import SandboxProcess

MAX_COMMANDS = 64
"""Commands that run at the same time in one process; others wait."""


class Command(Struct, frozen=True, kw_only=True):
    """A command, its directory and its limits."""

    text: str
    """The text for the shell."""
    shown: ShownFolders
    """On the host, the workspace is where it runs, and everything is seen."""
    home: Path
    """The home, hidden from the command."""
    limits: SandboxLimits
    is_sandboxed: bool


class Commands:
    """Runs each command in its own thread, so that limits hold however busy the event loop is."""

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program
        self._threads = CapacityLimiter(MAX_COMMANDS)

    async def run(self, command: Command) -> CommandResult:
        """Runs the command and returns how it ended. When this returns or is cancelled, its processes have ended.

        On the host these are the processes of the shell's group; no process can leave a sandbox. Raises `Unavailable`
        (`sandbox_unavailable` before anything runs, `command_unavailable`) and `Conflict` (`workspace_unsafe`).
        """
        stopped, stop = os.pipe()
        outcome: CommandResult | AntiphonError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_close_when_cancelled, stop)
                try:
                    outcome = await to_thread.run_sync(self._run, command, stopped, limiter=self._threads)
                except AntiphonError as error:
                    outcome = error
                tasks.cancel_scope.cancel()
        finally:
            os.close(stopped)
        if isinstance(outcome, AntiphonError):
            raise outcome
        assert outcome is not None
        return outcome

    def _run(self, command: Command, stopped: int) -> CommandResult:
        try:
            with self._begun(command) as process:
                return execute(process, command.limits, stopped)
        except OSError as error:
            raise Unavailable(
                f"Command did not run, or stopped halfway: {error.strerror}. Try again.",
                code="command_unavailable",
            ) from error

    def _begun(self, command: Command) -> Execution:
        if not command.is_sandboxed:
            return HostProcess(command.text, command.shown.workspace)
        return SandboxProcess(
            self._program,
            command.text,
            shown=command.shown,
            home=command.home,
            limits=command.limits,
        )


async def _close_when_cancelled(stop: int) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        os.close(stop)
