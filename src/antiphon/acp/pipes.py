"""A process with pipes, the same on any event loop.

uvloop cannot set a umask. It also leaves its own ends of the pipes open in the process, which hides that the process
has closed its output.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    notify_closing,
    wait_readable,
    wait_writable,
)
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint

_PIECE: Final = 65_536


class PipedProcess:
    """A started process in a group of its own. Raises `OSError`, and `ValueError` for a NUL character."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], pass_fds: Sequence[int], umask: int
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=pass_fds,
            umask=umask,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None and self._process.stderr is not None
        self.stdin = PipeEnd(self._process.stdin)
        self.stdout, self.stderr = PipeStart(self._process.stdout), PipeStart(self._process.stderr)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    async def wait(self) -> int:
        """The exit code, once it has ended."""
        while (code := self._process.poll()) is None:
            handle = os.pidfd_open(self.pid)
            try:
                await wait_readable(handle)
            finally:
                os.close(handle)
        return code


class PipeStart(ByteReceiveStream):
    """What a process writes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def receive(self, max_bytes: int = _PIECE) -> bytes:
        await checkpoint()
        while True:
            if self._file.closed:
                raise ClosedResourceError
            try:
                data = os.read(self._file.fileno(), max_bytes)
            except BlockingIOError:
                await wait_readable(self._file)
                continue
            if not data:
                raise EndOfStream
            return data

    async def aclose(self) -> None:
        _close(self._file)


class PipeEnd(ByteSendStream):
    """What a process reads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def send(self, item: bytes) -> None:
        await checkpoint()
        left = memoryview(item)
        while left:
            if self._file.closed:
                raise ClosedResourceError
            try:
                left = left[os.write(self._file.fileno(), left) :]
            except BlockingIOError:
                await wait_writable(self._file)
            except BrokenPipeError as error:
                raise BrokenResourceError from error

    async def aclose(self) -> None:
        _close(self._file)


def _close(file: IO[bytes]) -> None:
    if not file.closed:
        notify_closing(file)
        file.close()
