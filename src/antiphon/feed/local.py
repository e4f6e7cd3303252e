"""The notifier within one process."""

from collections.abc import Callable, Iterable

from antiphon.domain.ids import SessionRow


class LocalNotifier:
    """Implements `Notifier`; the database calls `wake` after each commit."""

    def __init__(self) -> None:
        self._subscribers: dict[SessionRow, dict[object, Callable[[], None]]] = {}

    def subscribe(self, session: SessionRow, wake: Callable[[], None]) -> Callable[[], None]:
        token = object()
        self._subscribers.setdefault(session, {})[token] = wake

        def unsubscribe() -> None:
            subscribers = self._subscribers.get(session)
            if subscribers is not None and subscribers.pop(token, None) is not None and not subscribers:
                del self._subscribers[session]

        return unsubscribe

    @property
    def subscribed(self) -> list[SessionRow]:
        """Sessions that somebody reads."""
        return list(self._subscribers)

    def wake(self, sessions: Iterable[SessionRow]) -> None:
        for session in sessions:
            if subscribers := self._subscribers.get(session):
                for wake in tuple(subscribers.values()):
                    wake()
