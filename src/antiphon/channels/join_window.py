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

    def __init__(self, clock: Clock, withdraw: Callable[[], Awaitable[None]]) -> None:
        """`withdraw` makes all links of the account useless; it may be called again."""
        self._clock = clock
        self._withdraw = withdraw
        self._admit: Admit | None = None
        self._until_ms = 0
        self._is_opened = anyio.Event()

    def open(self, admit: Admit, link: str) -> JoinLink:
        self._admit, self._until_ms = admit, self._clock.now_ms() + WINDOW_MS
        self._is_opened.set()
        return JoinLink(link=link, expires_at_ms=self._until_ms)

    async def take(self) -> Admit | None:
        """Closes the window for somebody who has followed the link; None if it was not open any more."""
        admit, self._admit = self._admit, None
        is_open = self._clock.now_ms() < self._until_ms
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
