"""An agent: the name that answers in sessions, with its model and limits."""

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.sandbox import SandboxLimits


class RunLimits(Struct, frozen=True, kw_only=True):
    """The limits of one run; None sets no limit. Contract: runs 6."""

    time: timedelta | None = None
    """Wall clock, including waits; zero for no limit. None leaves it to the default of all runs."""
    model_calls: int | None = 100
    tool_calls: int | None = 200
    tokens: int | None = None
    usd: float | None = None


class DailyLimits(Struct, frozen=True, kw_only=True):
    """The limits of a UTC day; None sets no limit."""

    tokens: int | None
    usd: float | None

    def are_reached(self, tokens: int, microusd: int) -> bool:
        """Whether so much was spent that nobody to whom they apply may spend more."""
        is_over = self.tokens is not None and tokens >= self.tokens
        return is_over or (self.usd is not None and microusd >= self.usd * 1_000_000)


MAX_TOOL_FAILURES = 15
"""Failures in a row that end a run."""
LONGEST = timedelta(days=3650)
"""The longest time that can be set for work: ten years."""


class ToolProfile(StrEnum):
    """Which of Antiphon's own tools an agent is offered; those of others are not concerned."""

    FULL = "full"
    CHAT = "chat"
    """A few that a chat with people needs, so that prompts stay short."""


class SandboxMode(StrEnum):
    """Which of an agent's sessions are sandboxed."""

    OFF = "off"
    NON_MAIN = "non-main"
    ALL = "all"


class AgentRuntime(StrEnum):
    """What carries out an agent's runs. Contract: foreign_agents 1, 2."""

    LOOP = "loop"
    """Antiphon's own loop, with a model."""
    RUNNER = "runner"
    """A function or a framework of the program or of an installed package."""
    ACP = "acp"
    """A harness in a process of its own that speaks the Agent Client Protocol."""


class SubagentRules(Struct, frozen=True, kw_only=True):
    """How far an agent's sessions may spawn others. Contract: spawn 2 to 4."""

    allowed: tuple[str, ...] = ()
    """Ids of agents under which they may spawn, in addition to their own; `*` for any."""
    max_depth: int = 1
    max_children: int = 5
    """Children of one session that may work at the same time."""
    models: tuple[str, ...] | None = None
    """Models that a spawn may name, with `*` for any part; None for the models of the agent and of `allowed`."""
    time_limit: timedelta | None = None
    """How long a child's run may take, unless the spawn sets a limit; zero for no limit, None for that of all runs."""
    archive_after: timedelta | None = timedelta(minutes=60)
    """How long after its result a child is archived; None for never."""


class Agent(Struct, frozen=True, kw_only=True):
    """One configured agent."""

    id: AgentId
    name: str
    """For people; the id by default."""
    model: str = "offline"
    instructions: str = ""
    thinking: str | None = None
    context_tokens: int | None = None
    """Overrides the known size of the model's context window."""
    limits: RunLimits = RunLimits()
    daily: DailyLimits = DailyLimits(tokens=5_000_000, usd=20.0)
    tools: tuple[str, ...] | None = None
    """Names of the foreign tools that it may call; None means all registered ones."""
    profile: ToolProfile = ToolProfile.FULL
    skills: tuple[str, ...] = ()
    """Names of the skills that it may use, once an owner has reviewed them."""
    sandbox: SandboxMode = SandboxMode.OFF
    command_limits: SandboxLimits = field(default_factory=SandboxLimits)
    subagents: SubagentRules = SubagentRules()
    runtime: AgentRuntime = AgentRuntime.LOOP
    runner: str | None = None
    """The name of its runner, for `AgentRuntime.RUNNER`: of a function, `shop.agents:answer`, or of an entry point."""
    clearance: Classification | None = None
    """What may go to that which carries out its runs; None for what may go to its model's provider."""
    names_clearance: bool = False
    """Whether an owner has set that for it, so that it counts wherever its network leads."""
    is_unattended: bool = False
    """For `AgentRuntime.ACP`: whether it may act without asking, as an owner's settings say."""
    classification: Classification = PUBLIC
    """The classification of its instructions; its new sessions begin with it."""

    def is_sandboxed(self, key: SessionKey) -> bool:
        if self.sandbox is SandboxMode.NON_MAIN:
            return key.kind is not SessionKind.MAIN
        return self.sandbox is SandboxMode.ALL


class Effect(StrEnum):
    """What a tool does to the world beyond its result. Contract: flow 10."""

    READS = "reads"
    WRITES = "writes"
    LEAVES = "leaves"
    DELETES = "deletes"
    SPENDS = "spends"
    CONFIGURES = "configures"
