"""The services and functions that answer requests."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct, field

from antiphon.agents.calls import ToolCalls
from antiphon.agents.foreign_tools import ForeignTools
from antiphon.agents.offered_tools import OfferedTools
from antiphon.channels.kind import Admit, JoinLink, PostAddress, Receiver
from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId
from antiphon.engine.services import Services

RotateOwnerToken = Callable[[Principal], Awaitable[str]]
"""Replaces the owner's token and ends what it admitted; returns the path of the file with the new one."""


class Gateway(Struct, frozen=True, kw_only=True):
    services: Services
    tool_calls: ToolCalls
    offered_tools: OfferedTools
    foreign_tools: ForeignTools
    check_model: Callable[[str], Awaitable[None]]
    """Raises `Invalid` for a model name that cannot be used."""
    receivers: Mapping[str, Receiver]
    """What accepts requests at the addresses of channels, by the channel's name."""
    addresses: Mapping[str, PostAddress] = field(default_factory=dict[str, PostAddress])
    """Those of the open channels."""
    invite: Callable[[str, str, Admit], Awaitable[JoinLink]]
    """An invitation to the account of a channel. Raises `Invalid` and `Unavailable`."""
    join_channels: Sequence[str] = ()
    """Channels that had such invitations at the start, by name."""
    rotate_owner_token: RotateOwnerToken
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
