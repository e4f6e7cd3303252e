"""Settings of agents: models, tools, sandboxes, sub-agents, MCP servers, and of providers."""

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from antiphon.config.sections.limits import DailySection, RunLimitsSection
from antiphon.domain.agent import Effect, SandboxMode, SubagentRules, ToolProfile
from antiphon.domain.skill import MAX_NAME, is_skill_name
from antiphon.policy.acts import Act
from antiphon.policy.visibility import Visibility
from antiphon.settings.addresses import WebAddress
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import AgentName, agent_id
from antiphon.settings.section import MOST_MEBIBYTES, MOST_MINUTES, MOST_SECONDS, Section, secret_from


def _allowed_agent(text: str) -> str:
    return text if text == "*" else agent_id(text)


class ActsSection(Section):
    list: Visibility | Literal[False] | None = None
    """The furthest reach of `sessions_list` and `sessions_search`; `false` switches them off."""
    read: Visibility | Literal[False] | None = None
    """The same for `sessions_history` and for the results of searches."""
    send: Visibility | Literal[False] | None = None
    """The same for `sessions_send`."""
    status: Visibility | Literal[False] | None = None
    """The same for `session_status`."""

    def limits(self) -> dict[Act, Visibility | None]:
        named = {Act(name): getattr(self, name) for name in type(self).model_fields}
        return {act: value or None for act, value in named.items() if value is not None}


class AgentToolsSection(Section):
    profile: ToolProfile = ToolProfile.FULL
    """Which of Antiphon's own tools the agent has: all, or in `chat` the few that a chat with people needs: `memory`,
    `tasks`, `message`, `files`, `fetch_page`, `search_web` and `skill`. Python functions and MCP tools are not
    concerned."""
    allow: tuple[str, ...] | None = None
    """Which Python functions and MCP tools the agent may call, and which of `files`, `fetch_page`, `search_web`,
    `skill` and `run_command`, by name; all unless set."""
    sessions: ActsSection = ActsSection()
    """Narrows the session tools of the agent, act by act, to `self`, `tree`, `agent`, `all` or `false`."""


class SandboxSection(Section):
    mode: SandboxMode = SandboxMode.OFF
    """Which sessions are sandboxed: none, all except the agent's main session, or all."""
    session_tools_visibility: Literal["spawned", "all"] = "spawned"
    """What sandboxed sessions can see: themselves and what they spawned, or as much as other sessions."""
    network: bool = False
    """Whether sandboxed commands may use the host's network, including services on the host itself."""
    memory_mb: Annotated[int, Field(ge=16, le=MOST_MEBIBYTES)] = 512
    """MiB of memory for a sandboxed command, all its processes and `/tmp` together."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Processes that a sandboxed command may have at a time; it may have four times as many threads."""
    disk_mb: Annotated[int, Field(ge=1, le=MOST_MEBIBYTES)] = 256
    """MiB for the workspace and `/tmp` together, and also for the output of a command."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """How long a command may take, sandboxed or not."""


class AgentSandboxSection(Section):
    mode: SandboxMode | None = None
    """Overrides `agents.defaults.sandbox.mode`."""
    network: bool | None = None
    """Overrides `agents.defaults.sandbox.network`."""
    memory_mb: Annotated[int, Field(ge=16, le=MOST_MEBIBYTES)] | None = None
    """Overrides `agents.defaults.sandbox.memory_mb`."""
    processes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Overrides `agents.defaults.sandbox.processes`."""
    disk_mb: Annotated[int, Field(ge=1, le=MOST_MEBIBYTES)] | None = None
    """Overrides `agents.defaults.sandbox.disk_mb`."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Overrides `agents.defaults.sandbox.seconds`."""


class SubagentsSection(Section):
    allow_agents: tuple[Annotated[str, AfterValidator(_allowed_agent)], ...] = ()
    """Other agents under which the agent may spawn sessions; `*` for any. It may always spawn under itself."""
    max_spawn_depth: Annotated[int, Field(ge=1, le=5)] = 1
    """How many levels of children are allowed; with 1, children may not spawn."""
    max_children_per_agent: Annotated[int, Field(ge=1, le=1000)] = 5
    """How many children of one session may be at work at the same time."""
    models: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    """Models that a spawn may name, such as `openai:*`; unless set, the models of the agent and of the agents it may
    spawn."""
    run_timeout_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 0
    """How long a child's run may take, unless its spawn sets a limit; 0 for none. Unless set, `limits.run` counts."""
    archive_after_minutes: Annotated[float, Field(ge=0, le=MOST_MINUTES)] = 60
    """How long after its result a child is hidden from lists; 0 for never."""

    def overlaid(self, own: "SubagentsSection | None") -> "SubagentsSection":
        """With what an agent's own section sets."""
        return self if own is None else self.model_copy(update=own.model_dump(include=own.model_fields_set))

    def rules(self) -> SubagentRules:
        is_timed = "run_timeout_seconds" in self.model_fields_set
        return SubagentRules(
            allowed=self.allow_agents,
            max_depth=self.max_spawn_depth,
            max_children=self.max_children_per_agent,
            models=self.models,
            time_limit=timedelta(seconds=self.run_timeout_seconds) if is_timed else None,
            archive_after=timedelta(minutes=self.archive_after_minutes) if self.archive_after_minutes else None,
        )


class McpServerSection(Section):
    command: str | None = None
    """The program of a local server, which speaks over standard input and output."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Its environment, in addition to `PATH`, `HOME` and the like."""
    cwd: str | None = None
    """Its working directory; the home unless set."""
    url: WebAddress | None = None
    """The address of an HTTP server."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """HTTP headers for every request to it."""
    tools: tuple[str, ...] | None = None
    """The names of its tools that the agent may call; all unless set."""
    effects: dict[str, tuple[Effect, ...]] = Field(default_factory=dict[str, tuple[Effect, ...]])
    """What each tool does to the world; `*` for the others. Unless set: `writes`, `leaves`."""
    routes: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """By tool: the arguments that say where to or how much, such as a recipient or an amount. Unless set, each may."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """How long a call, and the start of the server, may take."""
    classification: ClassificationSection | None = None
    """The classification of the results of its tools: public unless set, and untrusted unless a trusted label says
    otherwise."""
    private: ClassificationSection | None = None
    """The classification of the results that the server labels as private; level `INTERNAL` unless set."""
    labels: Literal["untrusted", "trusted"] = "untrusted"
    """Whether its labels `trusted` and `public` count. Labels `untrusted` and `private` always do."""
    clearance: ClearanceSection | None = None
    """What may go to it with a call. Unless set, calls that do more than read carry at most data of its
    `classification`."""

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either 'command' or 'url'")
        return self


def _server_names(servers: dict[str, McpServerSection]) -> dict[str, McpServerSection]:
    for name in servers:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name) or "__" in name:
            raise ValueError(
                f"{name!r} cannot be the name of a server; begin with a letter and use small letters, digits, '-' and "
                "single '_', at most 32"
            )
    return servers


def _skill_name(text: str) -> str:
    if not is_skill_name(text):
        raise ValueError(
            f"{text!r} cannot be the name of a skill; use 1 to {MAX_NAME} small letters a-z, digits and single '-'"
        )
    return text


def _named_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"names {twice!r} twice")
    return names


SkillNames = Annotated[
    tuple[Annotated[str, AfterValidator(_skill_name)], ...], Field(max_length=32), AfterValidator(_named_once)
]


class AgentDefaults(Section):
    model: str = "offline"
    """`provider:model`, `scripted:<file>` or `offline`."""
    instructions: str = ""
    """The system prompt."""
    thinking: Literal["off", "low", "medium", "high"] | None = None
    """How much the model thinks before it answers; the provider's default unless set."""
    context_tokens: Annotated[int, Field(ge=1000)] | None = None
    """The model's context window, if Antiphon does not know it."""
    tools: AgentToolsSection = AgentToolsSection()
    sandbox: SandboxSection = SandboxSection()
    subagents: SubagentsSection = SubagentsSection()
    skills: SkillNames = ()
    """Names of the skills that agents may use ([Skills](SKILLS.md)); a skill is offered once an owner has
    reviewed it."""
    mcp_servers: dict[str, McpServerSection] = Field(default_factory=dict[str, McpServerSection])
    """MCP servers whose tools agents may call, by name; the name is the prefix of the tools."""

    _check_names = field_validator("mcp_servers")(_server_names)


class AgentSection(Section):
    id: AgentName
    """The agent's part of session keys: small letters, digits, `_` and `-`."""
    name: str | None = None
    """The name that people see; the id unless set."""
    model: str | None = None
    """Overrides `agents.defaults.model`."""
    instructions: str | None = None
    """Overrides `agents.defaults.instructions`."""
    thinking: Literal["off", "low", "medium", "high"] | None = None
    """Overrides `agents.defaults.thinking`."""
    context_tokens: Annotated[int, Field(ge=1000)] | None = None
    """Overrides `agents.defaults.context_tokens`."""
    tools: AgentToolsSection | None = None
    """Replaces all of `agents.defaults.tools`."""
    sandbox: AgentSandboxSection = AgentSandboxSection()
    subagents: SubagentsSection | None = None
    """Overrides `agents.defaults.subagents`, setting by setting."""
    runner: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """What carries out its runs in place of Antiphon's own loop ([Runners](RUNNERS.md)): a function,
    `shop.agents:answer`, or the name of an entry point `antiphon.runners`. Its `model` then only names the provider
    whose clearance counts."""
    runner_clearance: ClearanceSection | None = None
    """What may be given to its runner. Unless set, what may go to the provider of its `model`. A context with more ends
    the run, `runner_clearance`."""
    skills: SkillNames | None = None
    """Replaces all of `agents.defaults.skills`."""
    mcp_servers: dict[str, McpServerSection] = Field(default_factory=dict[str, McpServerSection])
    """In addition to `agents.defaults.mcp_servers`."""
    limits: RunLimitsSection | None = None
    """Replaces all of `limits.run`."""
    daily: DailySection | None = None
    """Replaces all of `limits.daily`."""
    classification: ClassificationSection | None = None
    """The classification of its instructions, and the least classification of its new sessions; public and trusted
    unless set."""

    _check_names = field_validator("mcp_servers")(_server_names)


class AgentsSection(Section):
    default: str | None = None
    """`main` means this agent's main session; the first agent in the list unless set."""
    defaults: AgentDefaults = AgentDefaults()
    list: tuple[AgentSection, ...] = ()


class ProviderSection(Section):
    base_url: WebAddress | None = None
    """The address of an OpenAI-compatible server, such as `http://127.0.0.1:8080/v1`."""
    api_key: SecretStr | None = None
    """The key itself; prefer the provider's environment variable or `api_key_env`."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    headers: dict[str, Annotated[str, AfterValidator(str.strip)]] = Field(default_factory=dict[str, str])
    """HTTP headers for every request to the provider."""
    stall_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 60.0
    """How long a stream may send nothing before Antiphon drops it and tries again."""
    silence_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 600.0
    """How long a stream may send nothing but signs that it is alive. Then the run fails, `model_stalled`."""
    first_byte_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 60.0
    """How long the first byte of an answer may take. Then the run fails; a hanging provider is not asked again."""
    longest_retry_after_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 120.0
    """The longest pause before a retry that the provider may ask for. If it asks for a longer one, the run fails at
    once and says when to try again."""
    clearance: ClearanceSection | None = None
    """What may be sent to its models; everything unless set. A prompt with more ends the run, `model_clearance`."""

    def key(self) -> str | None:
        """The key set here or named by `api_key_env`; None means the provider's usual variable."""
        return secret_from(self.api_key, self.api_key_env)
