"""The port for wakes: a hint after a commit, without data."""

from collections.abc import Callable, Collection
from typing import Protocol

from antiphon.domain.ids import SessionRow


class Notifier(Protocol):
    """Wakes the readers of a session's log.

    - `wake` is called on the event loop, soon after a commit changed the session; it may be called without a change.
    - A wake may be lost (a broken connection): implementations then call `wake` within a poll interval.
    - A reader that must miss nothing subscribes first and then reads.
    """

    def subscribe(self, session: SessionRow, wake: Callable[[], None]) -> Callable[[], None]:
        """Registers `wake`; returns the function that ends the subscription."""
        ...

    def subscribe_all(self, wake: Callable[[Collection[SessionRow]], None]) -> Callable[[], None]:
        """Registers `wake` for the commits of this process, in any session; returns the function that ends it."""
        ...

    def subscribe_everywhere(self, wake: Callable[[Collection[SessionRow] | None], None]) -> Callable[[], None]:
        """Registers `wake` for the commits of every process, in any session; returns the function that ends it.

        It gets None once wakes may have been missed.
        """
        ...
