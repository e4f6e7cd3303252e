"""The settings of one hook."""

from dataclasses import dataclass, field
from enum import StrEnum

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import NOWHERE, DeliveryContext


class HookSignature(StrEnum):
    """How the sender of a hook's messages signs them."""

    ANTIPHON = "antiphon"
    """`Antiphon-Timestamp` and `Antiphon-Signature`, as for webhooks."""
    GITHUB = "github"
    """`X-Hub-Signature-256` over the body, as GitHub, Gitea and Forgejo send it."""
    STRIPE = "stripe"
    """`Stripe-Signature` over the time and the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """One hook: a program that starts runs with signed messages."""

    name: str
    secret: str = field(repr=False)
    signature: HookSignature = HookSignature.ANTIPHON
    agent_id: AgentId
    session_key: SessionKey | None = None
    """The session of all its messages; None for a session of its own for each."""
    place: DeliveryContext = NOWHERE
    """The place of the replies; nowhere if they stay in the log."""
    queue_mode: QueueMode = QueueMode.ENQUEUE
    """How its messages are handled if their session is busy, unless the session has a mode of its own."""
    classification: Classification = PUBLIC
    """The classification of its messages."""
