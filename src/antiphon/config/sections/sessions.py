"""Settings of sessions: queues, groups, resets, send policy, exchanges."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AliasChoices, Field

from antiphon.config.sections.zones import Zone
from antiphon.domain.checkpoint import CheckpointRules
from antiphon.domain.keys import DmScope
from antiphon.domain.machine_identities import HOOK, NODE
from antiphon.domain.person import MAX_ID
from antiphon.domain.queue_mode import QueueMode
from antiphon.engine.rules import ExchangeRules, ResetMode, ResetRule
from antiphon.policy.chats import ChatRules
from antiphon.policy.send import SendAction, SendPolicy, SendRule
from antiphon.policy.trigger import OwnerTrigger
from antiphon.settings.section import MOST_DAYS, MOST_MINUTES, Section
from antiphon.settings.threads import ThreadBindingsSection


class QueueSection(Section):
    mode: QueueMode = QueueMode.ENQUEUE
    """How a message is handled if its session is busy. The message's own mode counts first, then the session's, its
    channel's, and this one. Only owners' messages interrupt other people's work."""


class MessagesSection(Section):
    queue: QueueSection = QueueSection()


class GroupsSection(Section):
    owner_trigger: OwnerTrigger = OwnerTrigger.ALWAYS
    """Whether the owner's messages in groups always start a run, or only if they mention the agent."""


class ResetSection(Section):
    mode: ResetMode = ResetMode.NONE
    """When sessions reset by themselves: never, daily at an hour, or after some idle time. A session does not reset
    while a run or a child of it is at work."""
    at_hour: Annotated[int, Field(ge=0, le=23)] = 4
    """The hour for mode `daily`."""
    idle_minutes: Annotated[int, Field(ge=0, le=MOST_MINUTES)] = 0
    """The idle time for mode `idle`."""
    zone: Zone = "UTC"
    """The time zone of `at_hour`."""

    def rule(self) -> ResetRule:
        return ResetRule(
            mode=self.mode,
            at_hour=self.at_hour,
            idle=timedelta(minutes=self.idle_minutes),
            zone=ZoneInfo(self.zone),
        )


class CheckpointsSection(Section):
    enabled: bool = True
    """Whether sessions in which people write look back at their conversations: with a model, they keep notes, a working
    memory and a description. Never with the model `offline`. Tokens count in the caps."""
    turns: Annotated[int, Field(ge=1, le=1_000)] = 5
    """After how many completed turns a session looks back."""
    idle_minutes: Annotated[int, Field(ge=1, le=24 * 60)] = 10
    """How long after its last turn a session looks back."""
    model: str | None = None
    """The model that looks back, such as a smaller one; unless set, the session's own."""

    def rules(self) -> CheckpointRules:
        return CheckpointRules(
            is_enabled=self.enabled,
            turns=self.turns,
            idle=timedelta(minutes=self.idle_minutes),
            model=self.model,
        )


class SendMatchSection(Section):
    channel: Annotated[str | None, Field(validation_alias=AliasChoices("channel", "surface"))] = None
    """The channel of the session; `surface` is the older name."""
    chat_type: Literal["direct", "group", "channel"] | None = None
    """The kind of chat."""
    key_prefix: str | None = None
    """The beginning of the session's key, with or without `agent:<id>:`."""


class SendRuleSection(Section):
    match: SendMatchSection = SendMatchSection()
    """Which sessions the rule applies to; all unless set."""
    action: SendAction
    """`allow` or `deny`."""


class SendPolicySection(Section):
    rules: tuple[SendRuleSection, ...] = ()
    """A rule that denies overrides every rule that allows."""
    default: SendAction = SendAction.ALLOW
    """The action if no rule applies to the session."""

    def policy(self) -> SendPolicy:
        return SendPolicy(
            rules=tuple(
                SendRule(
                    action=rule.action,
                    channel=rule.match.channel,
                    chat_type=rule.match.chat_type,
                    key_prefix=rule.match.key_prefix,
                )
                for rule in self.rules
            ),
            default=self.default,
        )


class ExchangeSection(Section):
    max_ping_pong_turns: Annotated[int, Field(ge=0, le=5)] = 5
    """Reply-back turns after a message from one session to another."""
    max_hops: Annotated[int, Field(ge=1, le=64)] = 8
    """How many sends in sequence one request may cause."""
    max_chain_tokens: Annotated[int, Field(ge=0)] = 200_000
    """How many tokens all runs that one request causes may use together."""

    def rules(self) -> ExchangeRules:
        return ExchangeRules(
            max_turns=self.max_ping_pong_turns, max_hops=self.max_hops, max_chain_tokens=self.max_chain_tokens
        )


class SessionScope(StrEnum):
    """Which chats of channels share a session."""

    PER_SENDER = "per-sender"
    GLOBAL = "global"


_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}:.+", re.DOTALL)
_PERSON = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
PROGRAMS = (HOOK, NODE, "webhook")
"""What stands before the accounts of programs. A webhook's program can give its peers any id."""


def _identity_links(links: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The links, if each account names its channel, and belongs to one person."""
    linked: dict[str, str] = {}
    for person, accounts in links.items():
        if not _PERSON.fullmatch(person) or len(person) > MAX_ID:
            raise ValueError(f"{person!r} cannot be a person's id; `antiphon people list` shows the ids")
        for account in accounts:
            if not _ACCOUNT.fullmatch(account):
                raise ValueError(f"{account!r} names no account; write '<channel>:<id>'")
            if account.partition(":")[0] in PROGRAMS:
                raise ValueError(
                    f"{account!r} is an account of a program, which is never a person's; "
                    "name the account with which the person writes, as '<channel>:<id>'"
                )
            if linked.setdefault(account, person) != person:
                raise ValueError(f"{account!r} is linked to two persons, {linked[account]!r} and {person!r}")
    return links


class SessionSection(Section):
    scope: SessionScope = SessionScope.PER_SENDER
    """Whether each chat of a channel has its own session, or all share their agent's main session (`global`). With
    `global`, everyone writes into the same conversation."""
    dm_scope: DmScope = DmScope.MAIN
    """Which direct chats of channels share a session. `main`: the owner's chats share the main session, and everybody
    else has one for each chat. `per-peer`: the chats of one person share one, on all channels. `per-channel-peer`: one
    for each chat. `per-account-channel-peer`: also for each account of Antiphon's on the channel."""
    identity_links: Annotated[dict[str, tuple[str, ...]], AfterValidator(_identity_links)] = Field(
        default_factory=dict[str, tuple[str, ...]]
    )
    """Accounts that belong to a person, as `<channel>:<platform id>`, by the person's id (`owner` is the first owner).
    They count as linked by an owner. A link stays after it is removed here."""
    send_policy: SendPolicySection = SendPolicySection()
    """Whether replies and messages may be sent in a session, by its channel and kind of chat."""
    agent_to_agent: ExchangeSection = ExchangeSection()
    """Limits on messages between sessions."""
    thread_bindings: ThreadBindingsSection = ThreadBindingsSection()
    """How long threads of sub-agents are bound to them."""
    reset: ResetSection = ResetSection()
    """When sessions reset by themselves."""
    reset_by_type: dict[Literal["direct", "group", "thread"], ResetSection] = Field(
        default_factory=dict[Literal["direct", "group", "thread"], ResetSection]
    )
    reset_by_channel: dict[str, ResetSection] = Field(default_factory=dict[str, ResetSection])
    stale_after_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None
    """Sessions without an interaction for this many days are hidden from normal lists."""
    retention_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None
    """Events older than this many days are deleted; unless set, they are kept for ever."""

    def chat_rules(self) -> ChatRules:
        """How direct chats become sessions, without the settings of channels."""
        return ChatRules(
            dm_scope=self.dm_scope,
            is_global=self.scope is SessionScope.GLOBAL,
            identity_links=self.identity_links,
        )
