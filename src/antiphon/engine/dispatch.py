"""The port to what delivers work: "this session has work", at least once."""

from collections.abc import Callable, Iterable
from typing import Protocol

from antiphon.domain.ids import SessionRow


class Dispatch(Protocol):
    """Delivers sessions that have work to a worker.

    - What a unit handed to `Transaction.dispatch` is delivered after its commit, at least once.
    - It may be delivered twice, late, and to several workers; the ledger decides who runs what.
    - After a start, every session with unfinished runs is delivered.
    """

    def deliver_to(self, take: Callable[[SessionRow], None]) -> None:
        """From now on `take` is called, on the event loop, with each session that has work."""
        ...


class LocalDispatch:
    """Within one process: the database tells of each commit, the worker looks at the ledger."""

    def __init__(self) -> None:
        self._take: Callable[[SessionRow], None] | None = None
        self._early: dict[SessionRow, None] = {}

    def deliver_to(self, take: Callable[[SessionRow], None]) -> None:
        self._take = take
        early, self._early = self._early, {}
        for session in early:
            take(session)

    def dispatch(self, sessions: Iterable[SessionRow]) -> None:
        if self._take is None:
            self._early.update(dict.fromkeys(sessions))
            return
        for session in sessions:
            self._take(session)
