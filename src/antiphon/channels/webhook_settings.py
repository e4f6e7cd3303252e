"""What is set for one webhook."""

from dataclasses import dataclass, field

from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId

NAME = "webhook"
"""Of the channel, in keys and places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """One webhook, both ways."""

    name: str
    secret: str = field(repr=False)
    url: str | None
    """None where it only takes messages in."""
    agent_id: AgentId
    principal: Principal | None
    """Whose rights its messages have; None for those of guests, each peer its own."""
    timeout_seconds: float = 30.0
