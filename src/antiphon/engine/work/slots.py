"""Places for runs that work at the same time. Contract: runs 1."""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """At most `count` places. Whoever takes one again goes before those who have not begun."""

    def __init__(self, count: int, on_free: Callable[[], None]) -> None:
        self._free = count
        self._on_free = on_free
        self._resuming: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        return self._free

    def try_take(self) -> bool:
        """Takes a free place for a run that has not begun; False if there is none."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        while self._resuming:
            resuming = self._resuming.popleft()
            if not resuming.done():
                resuming.set_result(None)
                return
        self._free += 1
        self._on_free()

    async def take_again(self) -> None:
        if self._free:
            self._free -= 1
            return
        resuming = asyncio.get_running_loop().create_future()
        self._resuming.append(resuming)
        try:
            await resuming
        except asyncio.CancelledError:
            if resuming.done() and not resuming.cancelled():
                self.give_back()
            raise
