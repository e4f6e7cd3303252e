"""A client library that blocks: its calls run in threads, which end when the connection is shut."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
MOST_THREADS: Final = 100
"""Calls of one connection at once; those that were cancelled last until it is shut."""


class BlockingClient(ABC):
    """One connection, for one call at a time."""

    def __init__(self) -> None:
        self.is_shut = False
        self._in_use = Lock()
        self._limiter = CapacityLimiter(MOST_THREADS)

    async def call(self, act: Callable[..., T], *given: Any) -> T:
        """Calls a method of the client in a thread. One that is cancelled goes on until `shut`."""
        return await to_thread.run_sync(partial(self._run, act, *given), abandon_on_cancel=True, limiter=self._limiter)

    def shut(self) -> None:
        """Ends the call that runs in a thread, and all later ones. May be called from any thread, and twice."""
        self.is_shut = True
        self._break()
        if self._in_use.acquire(blocking=False):
            self._close()
            self._in_use.release()

    @abstractmethod
    def _break(self) -> None:
        """Lets a call that waits for the other side end with an error, such as by shutting the socket."""

    @abstractmethod
    def _close(self) -> None:
        """Frees what the connection has, once no call runs. May be called twice."""

    def _run(self, act: Callable[..., T], *given: Any) -> T:
        with self._in_use:
            try:
                return act(*given)
            finally:
                if self.is_shut:
                    self._close()
