"""Agents' main sessions that nobody has opened yet: a message, a task or a send that names one opens it.

Contract: sessions 4, send 1.
"""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.agent import Agent
from antiphon.domain.classification import Classification
from antiphon.domain.ids import UNBORN
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.session import Session, SessionStatus, Source
from antiphon.domain.targets import NamedTarget, Target
from antiphon.engine.access.reach import NOBODY
from antiphon.engine.rules import Rules
from antiphon.policy.chats import data_of_direct
from antiphon.policy.rights import may_open_main
from antiphon.policy.standing import Standing


class NewMain(Struct, frozen=True, kw_only=True):
    """An agent's main session as it is opened, if it does not exist yet."""

    key: SessionKey
    agent: Agent
    standing: Standing
    """Of the principal who opens it."""
    base: Classification

    def session_at(self, at: datetime) -> Session:
        """The session as it will be, for decisions about what is stored in it first."""
        return Session(
            row=NOBODY,
            key=self.key,
            agent_id=self.agent.id,
            id=UNBORN,
            source=Source(),
            status=SessionStatus.IDLE,
            last_seq=0,
            created_at=at,
            updated_at=at,
            started_at=at,
            interacted_at=at,
            taint=self.base,
            base=self.base,
        )


def new_main(target: Target | None, standing: Standing, rules: Rules) -> NewMain | None:
    """The main session that the target names, if its agent is configured and the principal may open it.

    Does not look whether it exists.
    """
    key = target.key if isinstance(target, NamedTarget) else None
    if key is None or key.kind is not SessionKind.MAIN or key.agent_id is None or not may_open_main(standing):
        return None
    agent = rules.agents.get(key.agent_id)
    if agent is None:
        return None
    base = agent.classification.join(data_of_direct(rules.chats, standing))
    return NewMain(key=key, agent=agent, standing=standing, base=base)
