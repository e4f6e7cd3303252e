"""What requests are answered with: the services, and what else the edge needs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from antiphon.agents.calls import ToolCalls
from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId
from antiphon.engine.services import Services
from antiphon.wire.runs import PostedShape


class InboundWebhooks(Protocol):
    """Takes in what webhooks post, whoever they are: the message itself proves that.

    - `headers` have names in lower case; `body` is what was sent, byte for byte.
    - Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, and what posting a message raises.
    """

    def check_form(self, headers: Mapping[str, str]) -> None: ...

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> PostedShape: ...


RotateOwnerToken = Callable[[Principal], Awaitable[str]]
"""Replaces the owner's token, and what it let in; gives the path of the file that holds the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    services: Services
    tool_calls: ToolCalls
    check_model: Callable[[str], Awaitable[None]]
    """Raises `Invalid` for a model name that cannot be used."""
    webhooks: InboundWebhooks
    rotate_owner_token: RotateOwnerToken

    def default_model(self, agent_id: AgentId) -> str:
        """What the agent's sessions use where they name none themselves."""
        agent = self.services.rules.agents.get(agent_id)
        return agent.model if agent else "unknown"
