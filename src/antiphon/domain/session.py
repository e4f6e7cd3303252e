"""A session: a durable thread, its key and its present incarnation."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.message import NO_USAGE, JsonObject, JsonValue, Usage
from antiphon.domain.queue_mode import QueueMode


class SessionStatus(StrEnum):
    """The status of a key. Contract: sessions 2."""

    IDLE = "idle"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    INACTIVE = "inactive"


class SessionType(StrEnum):
    DIRECT = "direct"
    GROUP = "group"


class DescriptionSource(StrEnum):
    FALLBACK = "fallback"
    AI = "ai"


class SendOverride(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Source(Struct, frozen=True):
    """Where a session came from; never changes, even if it is reopened from elsewhere. Contract: sessions 1, 3."""

    kind: str = "api"
    """`cli | api | channel | schedule | hook | node | spawn`, or another word."""
    interactive: bool = True
    platform: str | None = None
    trigger_id: str | None = None
    type: SessionType = SessionType.DIRECT


DEFAULT_ACCOUNT = "default"
"""The account of a channel that has only one."""


class DeliveryContext(Struct, frozen=True, kw_only=True):
    """The place for answers of the session."""

    channel: str | None = None
    to: str | None = None
    account_id: str | None = None
    thread_id: str | None = None

    @property
    def is_outside(self) -> bool:
        """Whether texts for it must be sent, because nobody there reads the log itself."""
        return self.channel is not None and self.to is not None and self.channel not in (INTERNAL, WEBCHAT)


NOWHERE = DeliveryContext()
INTERNAL = "internal"
"""The channel of answers that stay in the log."""
HERE = DeliveryContext(channel=INTERNAL)
"""The place of answers that stay in the log, wherever the session's other answers go."""
WEBCHAT = "webchat"
"""The channel of the page."""


class SessionSummary(Struct, frozen=True):
    """The fields of a session that lists show; every field is a maintained column.

    Made of a row by position, which is ten times as fast as by thirty names; write the names everywhere else.
    """

    row: SessionRow
    key: SessionKey
    agent_id: AgentId
    id: SessionId
    """The id of the present incarnation."""
    source: Source
    status: SessionStatus
    last_seq: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime
    """When the present incarnation began."""
    interacted_at: datetime
    metadata: JsonObject = field(default_factory=dict[str, JsonValue])
    label: str | None = None
    display_name: str | None = None
    description: str | None = None
    preview: str | None = None
    message_count: int = 0
    turn_count: int = 0
    parent_key: str | None = None
    send_policy: SendOverride | None = None
    delivery: DeliveryContext = NOWHERE
    model: str | None = None
    """Overrides the agent's model."""
    thinking_level: str | None = None
    verbose_level: str | None = None
    context_tokens: int = 0
    """Tokens of the newest prompt and answer, as the provider counted them."""
    usage: Usage = NO_USAGE
    aborted_last_run: bool = False
    pending_approvals: int = 0
    """How many of its requests for approval are open."""
    queue_mode: QueueMode | None = None
    """How messages without a mode of their own are handled while the session is busy; None follows its channel."""
    participants: tuple[str, ...] = ()
    """The principals, other than owners, that take part."""
    integrity: Integrity = Integrity.TRUSTED
    """The worst of what its present incarnation has taken in."""

    @property
    def has_description(self) -> bool:
        return self.description is not None


class Session(SessionSummary, frozen=True):
    """The row of a key with its present incarnation."""

    first_seq: int = 1
    """The lowest `seq` still in the log; events below it were deleted or pruned."""
    incarnation_seq: int = 1
    """The `seq` of the present incarnation's `session_started`."""
    description_source: DescriptionSource | None = None
    working_memory: str = ""
    """What the runtime keeps for the next turns of the present incarnation. Contract: checkpoints 2."""
    working_memory_made_of: Classification = PUBLIC
    taint: Classification = PUBLIC
    base: Classification = PUBLIC
    workspace: Classification = PUBLIC
    """What the workspace of the present incarnation was made of."""
    workspace_seq: int = 0
    """A part of the name of the workspace's directory; 0 for the directory that the session began with."""
    preview_made_of: Classification = PUBLIC
    """Besides the session's base, which everything in the session has at least."""
    description_made_of: Classification = PUBLIC
    """Like `preview_made_of`."""
    clearance: Classification | None = None
    """None sets no limit."""
    parent: SessionRow | None = None
    depth: int = 0
    ancestors: tuple[SessionRow | None, ...] = ()
    """Its requester, the requester's requester, and so on: the root first, the parent last. None for a deleted one."""
