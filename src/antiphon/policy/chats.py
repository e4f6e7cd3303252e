"""Settings of channels with people in them, as use cases read them. Contract: keys 5, groups 1, access 3."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.chat_form import PLAIN_CHATS, ChatForm
from antiphon.domain.classification import PUBLIC, Classification, Integrity, Level
from antiphon.domain.ids import AgentId
from antiphon.domain.joining import JoinWaits
from antiphon.domain.keys import DmScope
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.thread_bindings import BindingLimits
from antiphon.policy.standing import Standing
from antiphon.policy.trigger import OwnerTrigger


class ChatData(StrEnum):
    """Whose data the conversation of a new chat is: the setting `flow.chats`."""

    OPEN = "open"
    """Nobody's: only its agent, channel and tools say what it is made of."""
    OWN = "own"
    """Its people's: of a direct chat its person's, of a group what all its members may read."""


class GroupRules(Struct, frozen=True, kw_only=True):
    """Settings of one group, `channels.<name>.groups.<id>`. A group that they name is allowed."""

    agent_id: AgentId | None = None
    owner_trigger: OwnerTrigger | None = None
    is_silent: bool = False
    """Whether its messages are only stored."""


class ChannelRules(Struct, frozen=True, kw_only=True):
    """Settings of one account of a channel."""

    agent_id: AgentId
    access: ChannelAccess = ChannelAccess.PAIRING
    queue_mode: QueueMode = QueueMode.COLLECT
    classification: Classification = PUBLIC
    acknowledgement: str = ""
    """The emoji with which the bot reacts to a message while it is answered; empty for none."""
    threads: BindingLimits | None = None
    """How long threads are bound to sub-agents; None if sub-agents get none there."""
    join_waits: JoinWaits | None = None
    """How long its messages wait for those that belong to them; None if each stands alone."""
    groups: Mapping[str, GroupRules] = field(default_factory=dict[str, GroupRules])


class ChatRules(Struct, frozen=True, kw_only=True):
    """How chats of channels become sessions."""

    dm_scope: DmScope = DmScope.MAIN
    is_global: bool = False
    """Whether all chats share their agent's main session."""
    identity_links: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Accounts of persons as `<channel>:<platform id>`, by the person's id. They count as linked by an owner."""
    channels: Mapping[tuple[str, str], ChannelRules] = field(default_factory=dict[tuple[str, str], ChannelRules])
    """By channel and account."""
    bots: frozenset[str] = frozenset()
    """The accounts of Antiphon itself on platforms, as `<channel>:<platform id>`."""
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Channels as people call them, by name."""
    forms: Mapping[str, ChatForm] = field(default_factory=dict[str, ChatForm])
    """What chats of each channel are called in keys, by its name."""
    data: ChatData = ChatData.OPEN
    quick_turns: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How many turns may follow each other faster than people write, by channel and account; 0 for any number."""

    def form(self, channel: str) -> ChatForm:
        return self.forms.get(channel, PLAIN_CHATS)

    def person_of(self, channel: str, platform_id: str) -> str | None:
        """The person to whom the settings link the account."""
        named = f"{channel}:{platform_id}"
        return next((person for person, accounts in self.identity_links.items() if named in accounts), None)


def data_of_direct(rules: ChatRules, standing: Standing) -> Classification:
    """What a direct chat of the principal is made of from its beginning, besides what its agent is. Contract: flow 2.

    Programs and sessions have none of their own.
    """
    if rules.data is ChatData.OPEN or standing.role is None:
        return PUBLIC
    return Classification(Level.PUBLIC, person=str(standing.principal))


def data_of_group(rules: ChatRules, place: Classification) -> Classification:
    """The same of a group at a place with that clearance: what its members share."""
    return PUBLIC if rules.data is ChatData.OPEN else place.with_integrity(Integrity.TRUSTED)
