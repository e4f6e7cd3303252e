"""Sessions that wait for a place, by the asker of their work. Contract: runs 1."""

from collections.abc import Callable

from antiphon.domain.actor import Asker
from antiphon.domain.ids import SessionRow


class Line:
    """Askers take turns; the sessions of one asker keep the order in which they joined."""

    def __init__(self) -> None:
        self._sessions: dict[Asker, dict[SessionRow, None]] = {}
        """The asker whose turn is next comes first."""
        self._askers: dict[SessionRow, Asker] = {}

    def __len__(self) -> int:
        return len(self._askers)

    def __contains__(self, session: SessionRow) -> bool:
        return session in self._askers

    def join(self, session: SessionRow, asker: Asker) -> None:
        """Adds the session behind the asker's others; it must not be in the line."""
        assert session not in self._askers
        self._askers[session] = asker
        self._sessions.setdefault(asker, {})[session] = None

    def leave(self, session: SessionRow) -> None:
        """Removes the session, if it is in the line."""
        asker = self._askers.pop(session, None)
        if asker is not None:
            self._drop(asker, session)

    def count(self, may_take: Callable[[Asker], bool]) -> int:
        """The number of waiting sessions whose askers may take a place."""
        return sum(len(sessions) for asker, sessions in self._sessions.items() if may_take(asker))

    def next(self, may_take: Callable[[Asker], bool]) -> tuple[SessionRow, Asker] | None:
        """Removes and returns the oldest session of the next asker that may take a place, if there is one."""
        asker = next(filter(may_take, self._sessions), None)
        if asker is None:
            return None
        session = next(iter(self._sessions[asker]))
        del self._askers[session]
        self._drop(asker, session)
        if asker in self._sessions:
            self._sessions[asker] = self._sessions.pop(asker)
        return session, asker

    def _drop(self, asker: Asker, session: SessionRow) -> None:
        sessions = self._sessions[asker]
        del sessions[session]
        if not sessions:
            del self._sessions[asker]
