"""What the page calls a session."""

from collections.abc import Iterable

from antiphon.domain.agent import Agent
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey, main_key
from antiphon.domain.session import SessionSummary
from antiphon.domain.text import plain
from antiphon.engine.views.search import Hit
from antiphon.gateway.context import Gateway

MAIN = "Main chat"


class Titles:
    """The names of sessions for people. An agent's main session has the name of its agent."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._names = {agent.id: agent.name for agent in agents}

    @property
    def has_several(self) -> bool:
        """Whether there is more than one agent to tell apart."""
        return len(self._names) > 1

    def agent(self, id: AgentId) -> str:
        return self._names.get(id, id)

    def of(self, session: SessionSummary) -> str:
        """The session's name, without characters that would rewrite the words around it."""
        if name := session.label or session.display_name or self._main(session.key):
            return plain(name)
        if session.description:
            return plain(session.description)
        if session.source.platform == "web":
            return "New chat"
        return _short(session.key)

    def of_hit(self, hit: Hit) -> str:
        """The name of the session that holds the message."""
        name = hit.label or hit.display_name or self._main(hit.session_key) or hit.description
        return plain(name or _short(hit.session_key))

    def _main(self, key: SessionKey) -> str | None:
        """The name of an agent's main session; None for another one."""
        if key.agent_id is None or key != main_key(key.agent_id):
            return None
        name = self.agent(key.agent_id)
        return name if self.has_several or name != key.agent_id else MAIN


def _short(key: SessionKey) -> str:
    name = str(key).removeprefix(f"agent:{key.agent_id}:")
    return "Chat" if name.startswith("web:") else name


def titles_of(gateway: Gateway) -> Titles:
    return Titles(gateway.services.rules.agents.values())
