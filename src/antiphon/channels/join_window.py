"""The time in which a join link works: it lets one person in, and is withdrawn then."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from antiphon.channels.kind import Admit, JoinLink
from antiphon.clock import Clock

WINDOW_MS: Final = 600_000
_LEAST_PAUSE_SECONDS: Final = 0.05


class JoinWindow:
    """Of one account; another link closes the window of the one before."""

    def __init__(
        self, clock: Clock, withdraw: Callable[[], Awaitable[None]], settle: Callable[[], Awaitable[None]]
    ) -> None:
        """`withdraw` makes all links of the account useless; it may be called again.

        `settle` returns once `take` was called for everybody who had followed a link before.
        """
        self._clock = clock
        self._withdraw = withdraw
        self._settle = settle
        self._admit: Admit | None = None
        self._until_ms = 0
        self._is_opened = anyio.Event()
        self._links = anyio.Lock()
        """Held while links are withdrawn and made, so that none is withdrawn in place of another one."""
        self._is_making = False

    async def open(self, admit: Admit, make: Callable[[], Awaitable[str]]) -> JoinLink:
        """Opens the window for whoever follows the link that is made; the one before is withdrawn first."""
        async with self._links:
            self._is_making = True
            try:
                await self._withdraw()
                await self._settle()  # whoever has followed the link before comes by its window
                self._admit = None
                link = await make()
                self._admit, self._until_ms = admit, self._clock.now_ms() + WINDOW_MS
            finally:
                self._is_making = False
        self._is_opened.set()
        return JoinLink(link=link, expires_at_ms=self._until_ms)

    async def take(self) -> Admit | None:
        """Closes the window for somebody who has followed the link; None if it was not open any more."""
        admit, self._admit = self._admit, None
        is_open = self._clock.now_ms() < self._until_ms
        if not self._is_making:  # then the link is withdrawn already
            async with self._links:
                await self._withdraw()
        return admit if is_open else None

    async def close_in_time(self) -> None:
        """Withdraws each link when its time is over, until it is cancelled."""
        while True:
            await self._is_opened.wait()
            self._is_opened = anyio.Event()
            while self._admit is not None:
                left = (self._until_ms - self._clock.now_ms()) / 1000
                if left <= 0:
                    await self.take()
                else:
                    await anyio.sleep(max(left, _LEAST_PAUSE_SECONDS))
