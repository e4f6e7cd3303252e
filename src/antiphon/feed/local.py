"""The notifier within one process."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from antiphon.domain.ids import SessionRow
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

W = TypeVar("W", Collection[SessionRow], Collection[SessionRow] | None)


class LocalNotifier:
    """Implements `Notifier`; the database calls `publish` after each commit."""

    def __init__(self) -> None:
        self._subscribers: dict[SessionRow, dict[object, Callable[[], None]]] = {}
        self._of_all: dict[object, Callable[[Collection[SessionRow]], None]] = {}
        self._everywhere: dict[object, Callable[[Collection[SessionRow] | None], None]] = {}
        self._waking = Trouble(logger, "Waking a reader", action="wake_failed", means="That one learns of news late.")

    def subscribe(self, session: SessionRow, wake: Callable[[], None]) -> Callable[[], None]:
        token = object()
        self._subscribers.setdefault(session, {})[token] = wake

        def unsubscribe() -> None:
            subscribers = self._subscribers.get(session)
            if subscribers is not None and subscribers.pop(token, None) is not None and not subscribers:
                del self._subscribers[session]

        return unsubscribe

    def subscribe_all(self, wake: Callable[[Collection[SessionRow]], None]) -> Callable[[], None]:
        token = object()
        self._of_all[token] = wake

        def unsubscribe() -> None:
            self._of_all.pop(token, None)

        return unsubscribe

    def subscribe_everywhere(self, wake: Callable[[Collection[SessionRow] | None], None]) -> Callable[[], None]:
        token = object()
        self._everywhere[token] = wake

        def unsubscribe() -> None:
            self._everywhere.pop(token, None)

        return unsubscribe

    def publish(self, sessions: Collection[SessionRow]) -> None:
        """Reports a commit of this process."""
        self.wake(sessions)
        self.tell(sessions)
        for wake in tuple(self._of_all.values()):
            self._try(wake, sessions)

    def tell(self, sessions: Collection[SessionRow] | None) -> None:
        """Reports commits of any process; None if some may have been missed."""
        for wake in tuple(self._everywhere.values()):
            self._try(wake, sessions)

    @property
    def subscribed(self) -> list[SessionRow]:
        """Sessions with at least one reader."""
        return list(self._subscribers)

    def wake(self, sessions: Iterable[SessionRow]) -> None:
        for session in sessions:
            if subscribers := self._subscribers.get(session):
                for wake in tuple(subscribers.values()):
                    try:
                        wake()
                    except Exception as error:  # of one reader: the others of the commit are woken, and its work begins
                        self._waking.failed(error, session=session)

    def _try(self, wake: Callable[[W], None], sessions: W) -> None:
        try:
            wake(sessions)
        except Exception as error:
            self._waking.failed(error, sessions=None if sessions is None else list(sessions))
