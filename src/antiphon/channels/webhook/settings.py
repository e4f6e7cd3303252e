"""The settings of one webhook."""

from dataclasses import dataclass, field

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.queue_mode import QueueMode

NAME = "webhook"
"""The channel's name in keys and places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """One webhook, for both directions."""

    name: str
    secret: str = field(repr=False)
    url: str | None
    """None if the webhook only receives messages."""
    agent_id: AgentId
    principal: Principal | None
    """The principal of its messages; None for guests, one for each peer."""
    queue_mode: QueueMode = QueueMode.COLLECT
    """How its messages are handled if their session is busy, unless the session has a mode of its own."""
    timeout_seconds: float = 30.0
    classification: Classification = PUBLIC
    """The classification of its messages."""
