"""What the page calls a session."""

from collections.abc import Iterable

from antiphon.domain.agent import Agent
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import main_key
from antiphon.domain.session import SessionSummary
from antiphon.domain.text import plain
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
        if name := session.label or session.display_name:
            return plain(name)
        if session.key == main_key(session.agent_id):
            name = plain(self.agent(session.agent_id))
            return name if self.has_several or name != session.agent_id else MAIN
        if session.description:
            return plain(session.description)
        if session.source.platform == "web":
            return "New chat"
        return str(session.key).removeprefix(f"agent:{session.agent_id}:")


def titles_of(gateway: Gateway) -> Titles:
    return Titles(gateway.services.rules.agents.values())
