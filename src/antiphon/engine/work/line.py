"""Sessions that wait for a place, by the principal of their work. Contract: runs 1."""

from collections.abc import Callable

from antiphon.domain.actor import Principal
from antiphon.domain.ids import SessionRow


class Line:
    """Principals take turns; the sessions of one principal keep the order in which they joined."""

    def __init__(self) -> None:
        self._sessions: dict[Principal, dict[SessionRow, None]] = {}
        """The principal whose turn is next comes first."""
        self._principals: dict[SessionRow, Principal] = {}

    def __len__(self) -> int:
        return len(self._principals)

    def __contains__(self, session: SessionRow) -> bool:
        return session in self._principals

    def join(self, session: SessionRow, principal: Principal) -> None:
        """Adds the session behind the principal's others; it must not be in the line."""
        assert session not in self._principals
        self._principals[session] = principal
        self._sessions.setdefault(principal, {})[session] = None

    def leave(self, session: SessionRow) -> None:
        """Removes the session, if it is in the line."""
        principal = self._principals.pop(session, None)
        if principal is not None:
            self._drop(principal, session)

    def count(self, may_take: Callable[[Principal], bool]) -> int:
        """The number of waiting sessions whose principals may take a place."""
        return sum(len(sessions) for principal, sessions in self._sessions.items() if may_take(principal))

    def next(self, may_take: Callable[[Principal], bool]) -> tuple[SessionRow, Principal] | None:
        """Removes and returns the oldest session of the next principal that may take a place, if there is one."""
        principal = next(filter(may_take, self._sessions), None)
        if principal is None:
            return None
        session = next(iter(self._sessions[principal]))
        del self._principals[session]
        self._drop(principal, session)
        if principal in self._sessions:
            self._sessions[principal] = self._sessions.pop(principal)
        return session, principal

    def _drop(self, principal: Principal, session: SessionRow) -> None:
        sessions = self._sessions[principal]
        del sessions[session]
        if not sessions:
            del self._sessions[principal]
