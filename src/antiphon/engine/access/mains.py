"""Agents' main sessions that nobody has opened yet: a message, a task or a send that names one opens it.

Contract: sessions 4, send 1.
"""

from msgspec import Struct

from antiphon.domain.agent import Agent
from antiphon.domain.ids import SessionId
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.session import Session, SessionStatus, Source
from antiphon.domain.targets import NamedTarget, Target
from antiphon.engine.access.reach import NOBODY
from antiphon.engine.rules import Rules
from antiphon.policy.rights import may_open_main
from antiphon.policy.standing import Standing
from antiphon.store.codec import moment


class NewMain(Struct, frozen=True, kw_only=True):
    """An agent's main session as it is opened, if it does not exist yet."""

    key: SessionKey
    agent: Agent
    standing: Standing
    """Of the principal who opens it."""
    session_id: SessionId
    at_ms: int

    @property
    def session(self) -> Session:
        """The session as it will be, for decisions about what is stored in it first."""
        at, base = moment(self.at_ms), self.agent.classification
        return Session(
            row=NOBODY,
            key=self.key,
            agent_id=self.agent.id,
            id=self.session_id,
            source=Source(),
            status=SessionStatus.IDLE,
            last_seq=0,
            created_at=at,
            updated_at=at,
            started_at=at,
            interacted_at=at,
            taint=base,
            base=base,
        )


def new_main(
    target: Target | None, standing: Standing, rules: Rules, *, session_id: SessionId, at_ms: int
) -> NewMain | None:
    """The main session that the target names, if its agent is configured and the principal may open it.

    Does not look whether it exists.
    """
    key = target.key if isinstance(target, NamedTarget) else None
    if key is None or key.kind is not SessionKind.MAIN or key.agent_id is None or not may_open_main(standing):
        return None
    agent = rules.agents.get(key.agent_id)
    if agent is None:
        return None
    return NewMain(key=key, agent=agent, standing=standing, session_id=session_id, at_ms=at_ms)
