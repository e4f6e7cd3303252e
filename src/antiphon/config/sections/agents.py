"""Settings of agents: models, tools, sandboxes, sub-agents, MCP servers, and of providers."""

import os
import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from antiphon.config.sections.limits import DailySection, RunLimitsSection
from antiphon.config.sections.section import MOST_MEBIBYTES, MOST_MINUTES, MOST_SECONDS, Section
from antiphon.domain.agent import Effect, SandboxMode, SubagentRules
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import parse_agent_id
from antiphon.policy.visibility import Act, Visibility

DEFAULT_AGENT = AgentId("main")


def _agent_id(text: str) -> str:
    try:
        return parse_agent_id(text)
    except Invalid as error:
        raise ValueError(error.message) from error


def _allowed_agent(text: str) -> str:
    return text if text == "*" else _agent_id(text)


class ActsSection(Section):
    list: Visibility | Literal[False] | None = None
    """How far `sessions_list` and `sessions_search` reach at most; `false` switches them off."""
    read: Visibility | Literal[False] | None = None
    """The same for `sessions_history` and what searches find."""
    send: Visibility | Literal[False] | None = None
    """The same for `sessions_send`."""
    status: Visibility | Literal[False] | None = None
    """The same for `session_status`."""

    def limits(self) -> dict[Act, Visibility | None]:
        named = {Act(name): getattr(self, name) for name in type(self).model_fields}
        return {act: value or None for act, value in named.items() if value is not None}


class AgentToolsSection(Section):
    allow: tuple[str, ...] | None = None
    """Names of the tools from elsewhere (Python functions, MCP servers) that the agent may call; all unless set."""
    sessions: ActsSection = ActsSection()
    """Narrows the session tools of the agent, act by act, to `self`, `tree`, `agent`, `all` or `false`."""


class SandboxSection(Section):
    mode: SandboxMode = SandboxMode.OFF
    """Which sessions are sandboxed: none, all but the agent's main one, or all."""
    session_tools_visibility: Literal["spawned", "all"] = "spawned"
    """What sandboxed sessions see at most: themselves and what they spawned, or as much as others."""
    network: bool = False
    """Whether sandboxed commands may use the network of the host, its own services included."""
    memory_mb: Annotated[int, Field(ge=16, le=MOST_MEBIBYTES)] = 512
    """MiB of memory that a sandboxed command may hold, all its processes and `/tmp` together."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Processes that a sandboxed command may have at a time; four times as many threads."""
    disk_mb: Annotated[int, Field(ge=1, le=MOST_MEBIBYTES)] = 256
    """MiB that the workspace and `/tmp` may hold together, and the most that a command may write to its output."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """How long a command may take, sandboxed or not."""


class AgentSandboxSection(Section):
    mode: SandboxMode | None = None
    """Instead of `agents.defaults.sandbox.mode`."""
    network: bool | None = None
    """Instead of `agents.defaults.sandbox.network`."""
    memory_mb: Annotated[int, Field(ge=16, le=MOST_MEBIBYTES)] | None = None
    """Instead of `agents.defaults.sandbox.memory_mb`."""
    processes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Instead of `agents.defaults.sandbox.processes`."""
    disk_mb: Annotated[int, Field(ge=1, le=MOST_MEBIBYTES)] | None = None
    """Instead of `agents.defaults.sandbox.disk_mb`."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Instead of `agents.defaults.sandbox.seconds`."""


class SubagentsSection(Section):
    allow_agents: tuple[Annotated[str, AfterValidator(_allowed_agent)], ...] = ()
    """Agents under which sessions may be spawned beside the agent's own; `*` for any."""
    max_spawn_depth: Annotated[int, Field(ge=1, le=5)] = 1
    """How many may spawn one another: with 1 only sessions that were not spawned themselves may."""
    max_children_per_agent: Annotated[int, Field(ge=1, le=1000)] = 5
    """Children of one session that may be at work at the same time."""
    models: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    """Models that a spawn may name, such as `openai:*`; unless set the agent's own, and those of agents that it may
    spawn."""
    run_timeout_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 0
    """How long a child's run may take, where its spawning does not say; 0 sets no limit."""
    archive_after_minutes: Annotated[float, Field(ge=0, le=MOST_MINUTES)] = 60
    """Children are hidden from lists so long after their result; 0 for never."""

    def overlaid(self, own: "SubagentsSection | None") -> "SubagentsSection":
        """With what an agent's own section sets."""
        return self if own is None else self.model_copy(update=own.model_dump(include=own.model_fields_set))

    def rules(self) -> SubagentRules:
        return SubagentRules(
            allowed=self.allow_agents,
            max_depth=self.max_spawn_depth,
            max_children=self.max_children_per_agent,
            models=self.models,
            time_limit=timedelta(seconds=self.run_timeout_seconds) if self.run_timeout_seconds else None,
            archive_after=timedelta(minutes=self.archive_after_minutes) if self.archive_after_minutes else None,
        )


class McpServerSection(Section):
    command: str | None = None
    """The program of a server that is started here and spoken to over its standard input and output."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Its environment, beside what any program needs."""
    cwd: str | None = None
    """The directory that it is started in; the home unless set."""
    url: str | None = None
    """The address of a server that is reached by HTTP."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Sent with every request to it."""
    tools: tuple[str, ...] | None = None
    """Names of its tools that the agent may call; all unless set."""
    effects: dict[str, tuple[Effect, ...]] = Field(default_factory=dict[str, tuple[Effect, ...]])
    """What each tool does to the world; `*` for the others. Unless set it writes and leaves."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """How long a call, and the start of the server, may take."""

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either 'command' or 'url'")
        return self


def _server_names(servers: dict[str, McpServerSection]) -> dict[str, McpServerSection]:
    for name in servers:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name) or "__" in name:
            raise ValueError(
                f"{name!r} cannot be the name of a server; use small letters, digits, '-' and single '_', "
                "a letter first, at most 32"
            )
    return servers


class AgentDefaults(Section):
    model: str = "offline"
    """`provider:model`, `scripted:<file>` or `offline`."""
    instructions: str = ""
    """The system prompt."""
    thinking: Literal["off", "low", "medium", "high"] | None = None
    """How much the model thinks before it answers; the provider's own unless set."""
    context_tokens: Annotated[int, Field(ge=1000)] | None = None
    """The model's context window, where it is not known."""
    tools: AgentToolsSection = AgentToolsSection()
    sandbox: SandboxSection = SandboxSection()
    subagents: SubagentsSection = SubagentsSection()
    mcp_servers: dict[str, McpServerSection] = Field(default_factory=dict[str, McpServerSection])
    """MCP servers whose tools agents may call, by the name that goes before the tool's."""

    _check_names = field_validator("mcp_servers")(_server_names)


class AgentSection(Section):
    id: Annotated[str, AfterValidator(_agent_id)]
    """The agent's part of session keys: small letters, digits, `_` and `-`."""
    name: str | None = None
    """What people see; the id unless set."""
    model: str | None = None
    """Instead of `agents.defaults.model`."""
    instructions: str | None = None
    """Instead of `agents.defaults.instructions`."""
    thinking: Literal["off", "low", "medium", "high"] | None = None
    """Instead of `agents.defaults.thinking`."""
    context_tokens: Annotated[int, Field(ge=1000)] | None = None
    """Instead of `agents.defaults.context_tokens`."""
    tools: AgentToolsSection | None = None
    """Instead of `agents.defaults.tools`, all of it."""
    sandbox: AgentSandboxSection = AgentSandboxSection()
    subagents: SubagentsSection | None = None
    """What is set goes before `agents.defaults.subagents`."""
    mcp_servers: dict[str, McpServerSection] = Field(default_factory=dict[str, McpServerSection])
    """Beside `agents.defaults.mcp_servers`."""
    limits: RunLimitsSection | None = None
    """Instead of `limits.run`, all of it."""
    daily: DailySection | None = None
    """Instead of `limits.daily`, all of it."""

    _check_names = field_validator("mcp_servers")(_server_names)


class AgentsSection(Section):
    default: str | None = None
    """Whose main session `main` is; the first listed unless set."""
    defaults: AgentDefaults = AgentDefaults()
    list: tuple[AgentSection, ...] = ()


class ProviderSection(Section):
    base_url: str | None = None
    """Where an OpenAI-compatible server answers, such as `http://127.0.0.1:8080/v1`."""
    api_key: SecretStr | None = None
    """The key itself; better is the provider's environment variable or `api_key_env`."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Sent with every request to the provider."""
    stall_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 60.0
    """A stream that sends nothing for this long is given up and tried again."""

    def key(self) -> str | None:
        """The key set here or named by `api_key_env`; None leaves it to the provider's usual variable."""
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        return os.environ.get(self.api_key_env) if self.api_key_env else None
