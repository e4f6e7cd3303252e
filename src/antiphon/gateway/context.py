"""The services and functions that answer requests."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from antiphon.agents.calls import ToolCalls
from antiphon.agents.offered_tools import OfferedTools
from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId
from antiphon.engine.services import Services
from antiphon.wire.runs import PostedShape


class InboundMessages(Protocol):
    """Accepts messages of webhooks or of hooks from any caller; the message itself proves its sender.

    - `headers` have lower-case names; `body` is the body as sent, byte for byte.
    - Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, and the errors of posting a message.
    """

    def check_form(self, headers: Mapping[str, str]) -> None: ...

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> PostedShape: ...


class InboundUpdates(Protocol):
    """Accepts updates that a platform posts; the headers prove the platform.

    - `headers` have lower-case names.
    - `receive` returns once the update is stored. Raises `Invalid`, and `Unavailable`: it must be sent again.
    """

    def is_proved(self, account: str, headers: Mapping[str, str]) -> bool: ...

    async def receive(self, body: bytes) -> None: ...


RotateOwnerToken = Callable[[Principal], Awaitable[str]]
"""Replaces the owner's token and ends what it admitted; returns the path of the file with the new one."""


class Gateway(Struct, frozen=True, kw_only=True):
    services: Services
    tool_calls: ToolCalls
    offered_tools: OfferedTools
    check_model: Callable[[str], Awaitable[None]]
    """Raises `Invalid` for a model name that cannot be used."""
    webhooks: InboundMessages
    hooks: InboundMessages
    rotate_owner_token: RotateOwnerToken
    telegram: InboundUpdates | None = None
    """None unless Telegram posts updates here."""
    public_url: str | None = None
    """The address under which people reach the gateway, if that is configured."""

    @property
    def names_provider(self) -> bool:
        """Whether rows give their channel as `provider` too."""
        return self.services.rules.names_provider

    def default_model(self, agent_id: AgentId) -> str:
        """The model of the agent's sessions that name none."""
        agent = self.services.rules.agents.get(agent_id)
        return agent.model if agent else "unknown"
