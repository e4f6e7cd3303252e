"""What routes find in the request: the services, and who asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request, Response

from antiphon import wire
from antiphon.agents.calls import ToolCalls
from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId
from antiphon.domain.session import SessionSummary
from antiphon.engine.services import Services
from antiphon.gateway.guard import GatewaySettings


class InboundWebhooks(Protocol):
    """Takes in what webhooks post, whoever they are: the message itself proves that.

    - `headers` have names in lower case; `body` is what was sent, byte for byte.
    - Raises `Unproven`, `NotJson`, `Misfit`, and what posting a message raises.
    """

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    services: Services
    tool_calls: ToolCalls
    settings: GatewaySettings
    check_model: Callable[[str], None]
    """Raises `Invalid` for a model name that cannot be used."""
    webhooks: InboundWebhooks

    def session_row(self, session: SessionSummary) -> dict[str, Any]:
        return wire.session_row(session, default_model=self.default_model(session.agent_id))

    def default_model(self, agent_id: AgentId) -> str:
        """What the agent's sessions use where they name none themselves."""
        agent = self.services.rules.agents.get(agent_id)
        return agent.model if agent else "unknown"


class Json(Response):
    """A JSON answer, encoded once."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return wire.compact_json(content)


def gateway_of(request: Request) -> Gateway:
    return request.app.state.gateway


def principal_of(request: Request) -> Principal:
    """Who asks; the guard let nobody else through."""
    principal = request.scope["antiphon.principal"]
    assert isinstance(principal, Principal)
    return principal


def bound_session(request: Request) -> str | None:
    """The key of the session that the request's token is bound to; None for any other way to sign in."""
    return request.scope.get("antiphon.session")
