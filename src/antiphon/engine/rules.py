"""The configured rules that use cases follow; frozen, made once from the configuration."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from antiphon.domain.agent import Agent, DailyLimits
from antiphon.domain.checkpoint import CheckpointRules
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import Session
from antiphon.engine.rules_in_force import RulesInForce
from antiphon.policy.approvals import ApprovalRules
from antiphon.policy.caps import PersonCaps
from antiphon.policy.chats import ChatRules
from antiphon.policy.commands import RoleCommands
from antiphon.policy.notified import NotifiedPerson
from antiphon.policy.rights import RoleTools
from antiphon.policy.send import SendPolicy
from antiphon.policy.shares import Shares
from antiphon.policy.sinks import Sinks
from antiphon.policy.trigger import OwnerTrigger
from antiphon.policy.visibility import VisibilityRules
from antiphon.policy.voices import Voices


class ResetMode(StrEnum):
    NONE = "none"
    DAILY = "daily"
    IDLE = "idle"


class ResetRule(Struct, frozen=True, kw_only=True):
    """When a session resets by itself. Contract: sessions 6."""

    mode: ResetMode = ResetMode.NONE
    at_hour: int = 4
    """For `daily`: the hour of the day, 0 to 23, in `zone`."""
    idle: timedelta = timedelta(0)
    """For `idle`, and in addition to `daily`; zero means never."""
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))

    def is_stale(self, *, started_at: datetime, interacted_at: datetime, now: datetime) -> bool:
        if self.mode is ResetMode.NONE:
            return False
        if self.idle and now - interacted_at > self.idle:
            return True
        return self.mode is ResetMode.DAILY and started_at < self._last_boundary(now)

    def _last_boundary(self, now: datetime) -> datetime:
        local = now.astimezone(self.zone)
        boundary = local.replace(hour=self.at_hour, minute=0, second=0, microsecond=0)
        return boundary if boundary <= local else boundary - timedelta(days=1)


class ResetRules(Struct, frozen=True, kw_only=True):
    """The reset rule for a session: its channel's, else its type's, else the common one."""

    common: ResetRule = field(default_factory=ResetRule)
    by_type: Mapping[str, ResetRule] = field(default_factory=dict[str, ResetRule])
    """By `direct | group | thread`."""
    by_channel: Mapping[str, ResetRule] = field(default_factory=dict[str, ResetRule])

    @property
    def is_off(self) -> bool:
        """Whether no session ever resets by itself."""
        return self.common.mode is ResetMode.NONE and not self.by_type and not self.by_channel


class ExchangeRules(Struct, frozen=True, kw_only=True):
    """Limits on exchanges between sessions. Contract: send 5, 7."""

    max_turns: int = 5
    """Reply-back turns of one exchange."""
    max_hops: int = 8
    """Sends that one request may cause one after another."""
    max_chain_tokens: int = 200_000
    """Tokens that all runs caused by one request may use together."""


class Rules(Struct, frozen=True, kw_only=True):
    """The configuration of all use cases."""

    agents: Mapping[AgentId, Agent]
    """Not empty."""
    default_agent: AgentId
    missing_runners: Mapping[AgentId, str] = field(default_factory=dict[AgentId, str])
    """Why this process cannot carry out the runs of these agents: their runners are not there."""
    daily_total: DailyLimits
    person_caps: PersonCaps = field(default_factory=PersonCaps)
    run_time: timedelta | None = None
    is_run_time_named: bool = False
    """Whether the settings name the limit; else it is the default of Antiphon."""
    """How long a run may take, unless its agent, spawn or task names a limit; None for no limit. Contract: runs 6."""
    max_concurrent: int = 16
    queue_mode: QueueMode = QueueMode.ENQUEUE
    owner_trigger: OwnerTrigger = OwnerTrigger.ALWAYS
    resets: ResetRules = field(default_factory=ResetRules)
    stale_after: timedelta | None = None
    retention: timedelta | None = None
    """How long events are kept; None means for ever."""
    visibility: VisibilityRules = field(default_factory=VisibilityRules)
    exchanges: ExchangeRules = field(default_factory=ExchangeRules)
    send_policy: SendPolicy = field(default_factory=SendPolicy)
    shares: Shares = field(default_factory=Shares)
    subagent_tools: frozenset[str] = frozenset()
    """Session tools that sub-agents have besides sending to their requester."""
    subagents_lack: tuple[str, ...] = ()
    """Patterns of the tools that sub-agents do not have, whatever else gives them."""
    user_agents: frozenset[AgentId] = frozenset()
    """Agents with which all users may open sessions."""
    user_approves: frozenset[AgentId] = frozenset()
    """Agents whose calls users may approve."""
    role_tools: RoleTools = field(default_factory=RoleTools)
    role_commands: RoleCommands = field(default_factory=RoleCommands)
    approval: ApprovalRules = field(default_factory=ApprovalRules)
    sinks: Sinks = field(default_factory=Sinks)
    written: RulesInForce = field(default_factory=RulesInForce)
    """Rules that people wrote. All else here is frozen; this is replaced when they write others."""
    chats: ChatRules = field(default_factory=ChatRules)
    voices: Voices = field(default_factory=Voices)
    notified: tuple[NotifiedPerson, ...] = ()
    """Who is told that something waits for them, through accounts that do only that."""
    has_channels: bool = True
    """Whether texts can be sent out at all."""
    checkpoints: CheckpointRules = field(default_factory=CheckpointRules)
    task_zone: str = "UTC"
    """The time zone of new tasks that name none."""
    names_provider: bool = False
    """Whether rows of sessions also give their channel as `provider`, its name in S0."""

    def agent(self, agent_id: AgentId) -> Agent:
        """The configured agent. Raises `Invalid` if there is none with this id."""
        agent = self.agents.get(agent_id)
        if agent is None:
            raise Invalid(
                f"Agent is not configured: {agent_id!r}. Configured: {', '.join(sorted(self.agents))}.",
                code="unknown_agent",
            )
        return agent

    def are_sandboxed(self, *sessions: Session) -> bool:
        """Whether any of the sessions is sandboxed. A session whose agent is no longer configured has no tools."""
        agents = ((self.agents.get(session.agent_id), session.key) for session in sessions)
        return any(agent is not None and agent.is_sandboxed(key) for agent, key in agents)

    def agent_id(self, text: str | None) -> AgentId | None:
        """The id of a configured agent, from outside input; None for None. Raises `Invalid`."""
        return None if text is None else self.agent(AgentId(text)).id
