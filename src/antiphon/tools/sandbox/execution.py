"""One command from start to end: output, time and limits, in one blocking loop."""

import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

from antiphon.domain.sandbox import SandboxLimits
from antiphon.tools.sandbox.output import Output
from antiphon.tools.sandbox.watch import Breach, Limit

INTERVAL_SECONDS = 0.04
"""Between two checks of what the command uses."""
DRAIN_SECONDS = 1.0
"""For output that still arrives after the command has ended."""
_CHUNK = 64 * 1024


class Execution(ABC):
    """The processes of one command, represented by the one started here; leaving the context ends them.

    - `kill` ends all reachable processes at once; it may be called again, also after they have ended.
    - `check` returns the limit that they passed, if any.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """The process has pipes for its output."""
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._process.wait()
        for stream in self.streams:
            stream.close()

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdout is not None and self._process.stderr is not None
        return self._process.stdout, self._process.stderr

    @abstractmethod
    def has_ended(self) -> bool: ...

    @abstractmethod
    def check(self) -> Breach | None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def exit_code(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class CommandResult:
    """How a command ended."""

    exit_code: int | None = None
    """The shell's exit code, 128 and more for a signal; None if this process ended the command."""
    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)
    breach: Breach | None = None
    """The limit that the command passed and was ended for."""
    is_timed_out: bool = False


def execute(running: Execution, limits: SandboxLimits, stopped: int) -> CommandResult:
    """Runs the command to its end; ends it early when `stopped` becomes readable."""
    result = CommandResult()
    outputs = dict(zip((stream.fileno() for stream in running.streams), (result.stdout, result.stderr), strict=True))
    poll = select.poll()
    for descriptor in outputs:
        os.set_blocking(descriptor, False)
    for descriptor in (*outputs, stopped):
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + limits.time.total_seconds()
    look_at = 0.0
    is_stopped = False
    while not is_stopped and not running.has_ended():
        is_stopped = _take_in(poll, outputs, stopped, INTERVAL_SECONDS if outputs else INTERVAL_SECONDS / 10)
        now = time.monotonic()
        if now >= look_at:
            result.breach = _breach_of_output(result, limits) or running.check()
            look_at = time.monotonic() + INTERVAL_SECONDS
        if result.breach is not None:
            break
        if now >= deadline:
            result.is_timed_out = True
            break
    else:
        result.exit_code = None if is_stopped else running.exit_code()
    running.kill()
    drained_at = time.monotonic() + DRAIN_SECONDS
    while outputs and not is_stopped and time.monotonic() < drained_at:
        is_stopped = _take_in(poll, outputs, stopped, INTERVAL_SECONDS)
    return result


def _take_in(poll: select.poll, outputs: dict[int, Output], stopped: int, timeout_seconds: float) -> bool:
    """Reads the available output within the time; returns whether the command was stopped."""
    for descriptor, _ in poll.poll(timeout_seconds * 1000):
        if descriptor == stopped:
            return True
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            # The command can read its own output, and was faster.
            continue
        if data:
            outputs[descriptor].add(data)
        else:
            poll.unregister(descriptor)
            del outputs[descriptor]
    return False


def _breach_of_output(result: CommandResult, limits: SandboxLimits) -> Breach | None:
    size = result.stdout.size + result.stderr.size
    return Breach(Limit.OUTPUT, size) if size > limits.disk_bytes else None
