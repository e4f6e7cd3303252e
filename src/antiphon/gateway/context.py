"""What routes find in the request: the services, and who asks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request, Response

from antiphon import wire
from antiphon.agents.calls import ToolCalls
from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId
from antiphon.domain.session import SessionSummary
from antiphon.engine.access.credentials import Watch
from antiphon.engine.access.signin import Browser
from antiphon.engine.services import Services
from antiphon.gateway.guard import GatewaySettings


class InboundWebhooks(Protocol):
    """Takes in what webhooks post, whoever they are: the message itself proves that.

    - `headers` have names in lower case; `body` is what was sent, byte for byte.
    - Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, and what posting a message raises.
    """

    def check_form(self, headers: Mapping[str, str]) -> None: ...

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]: ...


RotateOwnerToken = Callable[[Principal], Awaitable[str]]
"""Replaces the owner's token, and what it let in; gives the path of the file that holds the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    services: Services
    tool_calls: ToolCalls
    settings: GatewaySettings
    check_model: Callable[[str], Awaitable[None]]
    """Raises `Invalid` for a model name that cannot be used."""
    webhooks: InboundWebhooks
    rotate_owner_token: RotateOwnerToken

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


def browser_of(request: Request) -> Browser | None:
    """The browser that asks; None for a program."""
    return request.scope.get("antiphon.browser")


def outlive_credential(request: Request) -> None:
    """Lets the request be answered though it ends what it was let in by."""
    watch: Watch | None = request.scope.get("antiphon.watch")
    if watch is not None:
        gateway_of(request).services.credentials.release(watch)
