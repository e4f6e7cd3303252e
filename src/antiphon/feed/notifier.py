"""The port that says "look again": a hint after a commit, without data."""

from collections.abc import Callable, Collection
from typing import Protocol

from antiphon.domain.ids import SessionRow


class Notifier(Protocol):
    """Wakes those who read a session's log.

    - `wake` is called on the event loop, soon after a commit changed the session, and may be called in vain.
    - It may be lost (a broken connection): implementations then call it within a poll interval.
    - Whoever wants to miss nothing subscribes first and reads then.
    """

    def subscribe(self, session: SessionRow, wake: Callable[[], None]) -> Callable[[], None]:
        """Registers `wake`; returns the function that ends it."""
        ...

    def subscribe_all(self, wake: Callable[[Collection[SessionRow]], None]) -> Callable[[], None]:
        """Registers `wake` for the commits of this process, whichever sessions they change; returns what ends it."""
        ...
