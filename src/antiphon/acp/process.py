"""The process of a harness: a group of its own that ends whole, however this program or the harness ends."""

import os
import secrets
import select
import shutil
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    Event,
    move_on_after,
    to_thread,
)

from antiphon.acp.background import background_tasks
from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.pipes import PipedProcess
from antiphon.domain.redaction import redact
from antiphon.domain.spans import MASK
from antiphon.private_files import starting_umask

KEPT: Final = ("PATH", "LANG", "TZ")
"""Variables of this program that a harness gets; others may hold keys."""
MARK: Final = "ANTIPHON_HARNESS"
"""The variable by which the processes of a harness are found that left its group."""
SHORTEST_SECRET: Final = 6
MAX_LAST_LINES: Final = 20
MAX_LAST_LINE_LENGTH: Final = 500
REAP_SECONDS: Final = 10.0
MOST_ROUNDS: Final = 100

_SWEEP: Final = f'for at in /proc/[0-9]*; do grep -qs "{MARK}=$1" "$at/environ" && kill -KILL "${{at#/proc/}}"; done'
_GUARD: Final = (
    "sweep=$1; shift; "
    f'((read -r gone </dev/fd/%d; env -u {MARK} /bin/sh -c "$sweep" sh "${MARK}"; kill -KILL 0) '
    '</dev/null >/dev/null 2>&1 &); exec "$@"'
)
"""Starts the harness, and beside it a shell that kills what is left of it once this program has closed its end of the
pipe, or is gone. It also keeps the group's number from being given away when the harness ends before its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessCommand:
    """How a harness is started."""

    argv: tuple[str, ...]
    """The program, found by PATH or by its path, and its arguments; no shell reads them."""
    cwd: Path
    env: Mapping[str, str]
    """Its variables. `HOME` is one of them; only PATH, LANG and TZ of this program are added, and `TERM=dumb`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that are masked in what it says, besides what looks like a secret."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that it inherits under the same numbers, as a sandbox needs them."""

    def environment(self, mark: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {"LANG": "C.UTF-8", "TERM": "dumb", **kept, **self.env, MARK: mark}

    def masked(self, text: str) -> str:
        """The text without the command's secrets and without others that are known by their form."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return redact(text).text


class HarnessProcess:
    """A running harness, from `started`."""

    def __init__(self, process: PipedProcess, command: HarnessCommand, mark: str) -> None:
        self.stdin, self.stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._process = process
        self._command = command
        self._mark = mark
        self._lines = deque[str](maxlen=MAX_LAST_LINES)
        self._unfinished = b""
        self._errors_are_read = Event()

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.exit_code

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its standard error, masked."""
        lines = [*self._lines, self._unfinished.decode("utf-8", "replace")]
        shown = (self._command.masked(line.strip())[:MAX_LAST_LINE_LENGTH] for line in lines)
        return tuple(line for line in shown if line)[-MAX_LAST_LINES:]

    async def read_errors(self) -> None:
        """Reads its standard error until it ends, so that it never waits for a reader."""
        with suppress(EndOfStream, ClosedResourceError, BrokenResourceError, ConnectionError):
            while True:
                *lines, rest = (self._unfinished + await self._stderr.receive()).split(b"\n")
                self._lines.extend(_cut(line).decode("utf-8", "replace") for line in lines[-MAX_LAST_LINES:])
                self._unfinished = _cut(rest)
        self._errors_are_read.set()

    async def wait(self) -> int:
        return await self._process.wait()

    async def wait_errors(self) -> None:
        """Waits until it has written the last of its standard error."""
        await self._errors_are_read.wait()

    async def kill(self) -> None:
        """Ends all its processes at once, also those that left its group, and waits for that. May be called again."""
        with CancelScope(shield=True):
            await to_thread.run_sync(_kill_all, self.pid, self._mark)
            with move_on_after(REAP_SECONDS):
                await self._process.wait()
            # Its pipes may be held by processes that cannot be reached: nothing waits for them.
            for stream in (self.stdin, self.stdout, self._stderr):
                with suppress(ClosedResourceError, BrokenResourceError, ConnectionError):
                    await stream.aclose()


@asynccontextmanager
async def started(command: HarnessCommand) -> AsyncGenerator[HarnessProcess]:
    """Starts the harness and kills it with all its processes in the end. Raises `HarnessError` (`acp_not_started`)."""
    mark = secrets.token_hex(16)
    environment = command.environment(mark)
    if "HOME" not in command.env:
        raise _not_started("its HOME is not set")
    if not command.argv or shutil.which(command.argv[0], path=environment.get("PATH")) is None:
        raise _not_started(f"the program {(command.argv or ('',))[0]!r} is not there or cannot be run")
    reading, writing = os.pipe()
    try:
        running = HarnessProcess(_open(command, environment, reading), command, mark)
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(running.read_errors)
                yield running
        finally:
            await running.kill()
    finally:
        os.close(writing)


def _open(command: HarnessCommand, environment: Mapping[str, str], reading: int) -> PipedProcess:
    try:
        return PipedProcess(
            ["/bin/sh", "-c", _GUARD % reading, "sh", _SWEEP, *command.argv],
            cwd=command.cwd,
            env=environment,
            pass_fds=[reading, *command.pass_fds],
            umask=starting_umask(),
        )
    except OSError as error:
        raise _not_started(error.strerror or "this machine starts no further process") from error
    except ValueError as error:
        raise _not_started("its arguments or variables hold a character that none may hold") from error
    finally:
        os.close(reading)


def _cut(line: bytes) -> bytes:
    return line[: 4 * MAX_LAST_LINE_LENGTH]


def _kill_all(group: int, mark: str) -> None:
    """Kills the group and what carries the mark in its environment, and waits until they have ended."""
    wanted = f"{MARK}={mark}".encode()
    with ExitStack() as files:
        ended = select.poll()
        killed = set[int]()
        for _ in range(MOST_ROUNDS):  # what they have forked meanwhile is found in the next one
            new = [pid for pid in _process_ids() if pid not in killed and _kill_if(wanted, pid, ended, files)]
            killed.update(new)
            if not new:
                break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        deadline = time.monotonic() + REAP_SECONDS
        waiting = len(killed)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for handle, _ in ended.poll(left * 1000):
                ended.unregister(handle)
                waiting -= 1


def _process_ids() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _kill_if(wanted: bytes, pid: int, ended: select.poll, files: ExitStack) -> bool:
    """Kills the process if its environment holds the variable; by a handle, because ids are given away again."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    with ExitStack() as opened:
        opened.callback(os.close, handle)
        try:
            if wanted not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            return False
        ended.register(handle, select.POLLIN)
        files.push(opened.pop_all())
    return True


def _not_started(why: str) -> HarnessError:
    return HarnessError(HarnessCode.NOT_STARTED, f"Harness could not be started: {why}.")
