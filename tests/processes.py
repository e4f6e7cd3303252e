"""Programs that tests begin: none outlives its block, so that a failure in the block is seen at once."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer
from types import TracebackType
from typing import AnyStr, Protocol, Self, TypeVar

from tests.waiting import PROCESS_SECONDS


class Program(Protocol):
    """A `subprocess.Popen`, or what can be used as one."""

    def kill(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


P = TypeVar("P", bound=Program)


@contextmanager
def ending(process: P) -> Generator[P]:
    """The program, which is killed where the block is left. `Popen` alone waits there, for ever if a check failed."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def ending_soon(process: subprocess.Popen[AnyStr]) -> Generator[subprocess.Popen[AnyStr]]:
    """Also kills it when its time is over, so that a block that reads its output comes to an end."""
    end = Timer(2 * PROCESS_SECONDS, process.kill)
    end.start()
    try:
        with ending(process):
            yield process
    finally:
        end.cancel()
