"""Configuration: a TOML or JSON5 file and `ANTIPHON_…` variables, checked once, then frozen. Contract: config 1.

Names are snake_case or the founding documents' camelCase. Flags go before variables, variables before the file.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import platformdirs
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from antiphon.annotations import types_in
from antiphon.channels.webhook_settings import NAME as WEBHOOK
from antiphon.channels.webhook_settings import WebhookSettings
from antiphon.config_file import file_in, line_in, read_file
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import LONGEST, Agent, DailyLimits, Effect, RunLimits, SandboxMode, SubagentRules
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import DmScope, direct_key, parse_agent_id
from antiphon.domain.run import QueueMode
from antiphon.domain.sandbox import MEBIBYTE, CommandMode, SandboxLimits
from antiphon.engine.rules import ExchangeRules, ResetMode, ResetRule, ResetRules, Rules
from antiphon.incoming import MAX_PROBLEMS
from antiphon.policy.acts import Act
from antiphon.policy.send import SendAction, SendPolicy, SendRule
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.shares import Rate, Rates, Shares
from antiphon.policy.trigger import OwnerTrigger
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules

DEFAULT_PORT = 7464
DEFAULT_AGENT = AgentId("main")
_MOST_SECONDS = LONGEST // timedelta(seconds=1)
_MOST_MINUTES = LONGEST // timedelta(minutes=1)
_MOST_DAYS = 36_500
"""Of what is kept."""
_MOST_MEBIBYTES = 1024 * 1024
_VARIABLES = ("CONFIG", "HOME", "HOST", "PORT")
_SHORT_VARIABLES = {
    "HOST": ("gateway", "host"),
    "PORT": ("gateway", "port"),
    "MODEL": ("agents", "defaults", "model"),
    "DATABASE": ("database", "url"),
    "ROLE": ("gateway", "role"),
}


_NEEDED = {
    "tuple_type": 'needs a list, such as ["a", "b"]',
    **dict.fromkeys(("dict_type", "model_type"), "needs a table"),
    "string_type": "needs text, in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "needs a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "needs a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "needs true or false"),
    "missing": "is required",
}
"""What is said of a value of the wrong kind, by the kind of error."""


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"there is no time zone {name!r}; write one such as 'Europe/Berlin'") from None
    return name


def _agent_id(text: str) -> str:
    try:
        return parse_agent_id(text)
    except Invalid as error:
        raise ValueError(error.message) from error


def _webhook_names(sections: "dict[str, WebhookSection]") -> "dict[str, WebhookSection]":
    """Names that can stand in addresses and in keys."""
    for name in sections:
        try:
            parse_agent_id(name)
            direct_key(DEFAULT_AGENT, channel=WEBHOOK, account=name, peer="x", scope=DmScope.PER_ACCOUNT_CHANNEL_PEER)
        except Invalid:
            raise ValueError(
                f"{name!r} cannot be a webhook's name; use 1 to 64 of a-z, 0-9, _ and -, and none of the words of keys"
            ) from None
    return sections


def _web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError("needs an address that begins with http:// or https:// and names a host")
    return url


def _allowed_agent(text: str) -> str:
    return text if text == "*" else _agent_id(text)


class _Variable(str):
    """What a variable of the environment says: text, of which a number or truth value may be made."""


class Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _take_as_written(cls, value: object, info: ValidationInfo) -> object:
        """In files numbers are no texts, and truth values no numbers."""
        if isinstance(value, _Variable):
            return str(value)
        assert info.field_name is not None
        kinds = types_in(cls.model_fields[info.field_name].annotation)
        if kinds & {int, float} and isinstance(value, bool | str):
            raise ValueError(_NEEDED["int_type" if int in kinds else "float_type"])
        if bool in kinds and isinstance(value, int | float | str) and not isinstance(value, bool):
            raise ValueError(_NEEDED["bool_type"])
        return value


class Role(StrEnum):
    """What a process does for its database."""

    ALL = "all"
    GATEWAY = "gateway"
    WORKER = "worker"

    @property
    def works(self) -> bool:
        """Whether it runs agents."""
        return self is not Role.GATEWAY


class GatewaySection(Section):
    role: Role = Role.ALL
    """Whether this process answers requests (`gateway`), runs agents (`worker`), or both; with PostgreSQL alone."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """Port to listen on; 0 takes any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that requests may have in `Host`, beside the address itself and localhost."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 1024 * 1024
    """Largest request body where messages and calls of tools enter; elsewhere it is 64 KiB, for webhooks 1 MiB."""
    max_connections: Annotated[int, Field(ge=16, le=60_000)] = 4096
    """Connections open at a time; beyond, the one that has been idle longest is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS)] = 10
    """How long running turns may go on when the gateway is told to stop; then they are resumed at the next start."""


class DatabaseSection(Section):
    url: SecretStr | None = None
    """Address of a PostgreSQL database that several processes share, such as `postgresql://user@host/name`; a file in
    the home unless set."""
    connections: Annotated[int, Field(ge=2, le=500)] = 12
    """Connections to PostgreSQL for reading and writing, of this process; about six more serve its job engine."""


class RunLimitsSection(Section):
    time_seconds: Annotated[float, Field(gt=0, le=_MOST_SECONDS)] | None = None
    """Wall clock for one run, waits included."""
    model_calls: Annotated[int, Field(gt=0)] | None = 100
    """Steps of the model."""
    tool_calls: Annotated[int, Field(gt=0)] | None = 200
    """Calls of tools."""
    tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens, in and out."""
    usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars, as far as prices are known."""


class DailySection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = 5_000_000
    """Tokens in a UTC day."""
    usd: Annotated[float, Field(ge=0)] | None = 20.0
    """US dollars in a UTC day, as far as prices are known."""


class DailyTotalSection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = None
    """All agents together; twice an agent's unless set."""
    usd: Annotated[float, Field(ge=0)] | None = None
    """All agents together; twice an agent's unless set."""


class OwnerLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 600_000
    """Requests that write or call a tool, of the owner's programs together, in one process."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60_000
    """How many of them at once, after a pause."""


class GuestLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 120
    """Messages and calls of tools of each guest, peer of a webhook or bound token, in one process; all peers of a
    webhook together may send ten times as many."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60
    """How many of them at once, after a pause."""
    sessions: Annotated[int, Field(ge=1)] = 100
    """Sessions that each guest may take part in."""
    stored_bytes: Annotated[int, Field(ge=1)] = 64 * MEBIBYTE
    """Bytes that each guest may have written into sessions that exist."""
    queued_runs: Annotated[int, Field(ge=1)] = 20
    """Runs of each guest, or bound token, that may wait for their turn."""


class LimitsSection(Section):
    owner: OwnerLimitsSection = OwnerLimitsSection()
    """How often the owner may ask."""
    guest: GuestLimitsSection = GuestLimitsSection()
    """What each principal may take that is not the owner."""
    run: RunLimitsSection = RunLimitsSection()
    """What one run may take."""
    daily: DailySection = DailySection()
    """What each agent may spend in a UTC day."""
    daily_total: DailyTotalSection = DailyTotalSection()
    """What all agents together may spend in a UTC day."""

    def shares(self) -> Shares:
        return Shares(
            sessions=self.guest.sessions,
            stored_bytes=self.guest.stored_bytes,
            queued_runs=self.guest.queued_runs,
            rates=Rates(
                guest=Rate(per_minute=self.guest.requests_per_minute, burst=self.guest.burst),
                owner=Rate(per_minute=self.owner.requests_per_minute, burst=self.owner.burst),
            ),
        )


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
    memory_mb: Annotated[int, Field(ge=16, le=_MOST_MEBIBYTES)] = 512
    """MiB of memory that a sandboxed command may hold, all its processes and `/tmp` together."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Processes that a sandboxed command may have at a time; four times as many threads."""
    disk_mb: Annotated[int, Field(ge=1, le=_MOST_MEBIBYTES)] = 256
    """MiB that the workspace and `/tmp` may hold together, and the most that a command may write to its output."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """How long a command may take, sandboxed or not."""


class AgentSandboxSection(Section):
    mode: SandboxMode | None = None
    """Instead of `agents.defaults.sandbox.mode`."""
    network: bool | None = None
    """Instead of `agents.defaults.sandbox.network`."""
    memory_mb: Annotated[int, Field(ge=16, le=_MOST_MEBIBYTES)] | None = None
    """Instead of `agents.defaults.sandbox.memory_mb`."""
    processes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Instead of `agents.defaults.sandbox.processes`."""
    disk_mb: Annotated[int, Field(ge=1, le=_MOST_MEBIBYTES)] | None = None
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
    run_timeout_seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS)] = 0
    """How long a child's run may take, where its spawning does not say; 0 sets no limit."""
    archive_after_minutes: Annotated[float, Field(ge=0, le=_MOST_MINUTES)] = 60
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
    stall_seconds: Annotated[float, Field(gt=0, le=_MOST_SECONDS)] = 60.0
    """A stream that sends nothing for this long is given up and tried again."""

    def key(self) -> str | None:
        """The key set here or named by `api_key_env`; None leaves it to the provider's usual variable."""
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        return os.environ.get(self.api_key_env) if self.api_key_env else None


class RunsSection(Section):
    max_concurrent: Annotated[int, Field(ge=1)] = 16
    """Runs that work at the same time, in one process. Two of these places (one where there are fewer than six) are the
    owner's; of the others one guest holds half at most."""


class QueueSection(Section):
    mode: QueueMode = QueueMode.ENQUEUE
    """What a message does that finds its session busy. A guest's interrupts its own work alone."""


class MessagesSection(Section):
    queue: QueueSection = QueueSection()


class GroupsSection(Section):
    owner_trigger: OwnerTrigger = OwnerTrigger.ALWAYS
    """Whether the owner's messages in groups always start a run, or only where the agent is mentioned."""


class ResetSection(Section):
    mode: ResetMode = ResetMode.NONE
    """Never, daily at an hour, or after some idle time; not while a run or a child of the session is at work."""
    at_hour: Annotated[int, Field(ge=0, le=23)] = 4
    """The hour of mode `daily`."""
    idle_minutes: Annotated[int, Field(ge=0, le=_MOST_MINUTES)] = 0
    """The idle time of mode `idle`."""
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """The time zone of `at_hour`."""

    def rule(self) -> ResetRule:
        return ResetRule(
            mode=self.mode,
            at_hour=self.at_hour,
            idle=timedelta(minutes=self.idle_minutes),
            zone=ZoneInfo(self.zone),
        )


class SendMatchSection(Section):
    channel: Annotated[str | None, Field(validation_alias=AliasChoices("channel", "surface"))] = None
    """The channel of the session; `surface` is the older name."""
    chat_type: Literal["direct", "group", "channel"] | None = None
    """The kind of chat."""
    key_prefix: str | None = None
    """How the session's key begins, with or without `agent:<id>:`."""


class SendRuleSection(Section):
    match: SendMatchSection = SendMatchSection()
    """Which sessions the rule concerns; all unless set."""
    action: SendAction
    """`allow` or `deny`."""


class SendPolicySection(Section):
    rules: tuple[SendRuleSection, ...] = ()
    """One that denies goes before any that allows."""
    default: SendAction = SendAction.ALLOW
    """Where no rule concerns the session."""

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
    """Sends one after the other that one request may cause."""
    max_chain_tokens: Annotated[int, Field(ge=0)] = 200_000
    """Tokens that all runs together may use which one request causes."""

    def rules(self) -> ExchangeRules:
        return ExchangeRules(
            max_turns=self.max_ping_pong_turns, max_hops=self.max_hops, max_chain_tokens=self.max_chain_tokens
        )


class SessionToolsSection(Section):
    visibility: Visibility = Visibility.TREE
    """Which sessions the session tools reach: `self`, `tree` (and what it spawned), `agent`, `all`."""


class AgentToAgentSection(Section):
    enabled: bool = False
    """Whether sessions of different agents may meet, where `tools.sessions.visibility` is `all`."""
    allow: tuple[str, ...] = ()
    """Patterns of the agents that may, with `*`; both sides must match. All unless set."""


class SubagentToolsSection(Section):
    tools: tuple[str, ...] = ()
    """Session tools that sub-agents get, beside sending to their requester."""


class RunCommandSection(Section):
    mode: CommandMode = CommandMode.OFF
    """Whether agents have `run_command`: in a sandbox for every session, or for sessions that are not sandboxed on the
    `host`, where it may do whatever this process may."""


class ToolsSection(Section):
    sessions: SessionToolsSection = SessionToolsSection()
    agent_to_agent: AgentToAgentSection = AgentToAgentSection()
    subagents: SubagentToolsSection = SubagentToolsSection()
    run_command: RunCommandSection = RunCommandSection()


MIN_SECRET_LENGTH = 16


class WebhookSection(Section):
    url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Where replies are sent, by POST; without it the webhook only takes messages in."""
    secret: SecretStr | None = None
    """Signs what goes out and proves what comes in; 16 characters at least. Better is `secret_env`."""
    secret_env: str | None = None
    """The environment variable that holds the secret."""
    agent: str | None = None
    """Whose sessions its chats are; `agents.default` unless set."""
    principal: Literal["guest", "owner"] = "guest"
    """Whose rights its messages have: those of a guest, each peer its own, or the owner's."""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    """How long one request may take."""

    def key(self) -> str | None:
        """The secret set here or named by `secret_env`."""
        if self.secret is not None:
            return self.secret.get_secret_value()
        return os.environ.get(self.secret_env) if self.secret_env else None


class ChannelsSection(Section):
    webhook: Annotated[dict[str, WebhookSection], AfterValidator(_webhook_names)] = Field(
        default_factory=dict[str, WebhookSection]
    )
    """Programs that speak with sessions by signed POST requests, by their name."""


class GuestSection(Section):
    tools: tuple[str, ...] = ()
    """Tools that guests may cause calls of beside the session tools, which they have for the session alone that they
    write in: Python functions, `<server>__<tool>` of MCP servers, `run_command`, `sessions_spawn`."""


class RolesSection(Section):
    guest: GuestSection = GuestSection()
    """Whoever writes and is not the owner, such as the peers of a webhook."""


class AccessSection(Section):
    roles: RolesSection = RolesSection()


class SessionScope(StrEnum):
    """Which chats of channels share a session."""

    PER_SENDER = "per-sender"
    GLOBAL = "global"


class SessionSection(Section):
    scope: SessionScope = SessionScope.PER_SENDER
    """Whether each chat of a channel has a session of its own, or all share their agent's main one (`global`). Whoever
    writes there then speaks into what the others said."""
    send_policy: SendPolicySection = SendPolicySection()
    """Whether anything may be sent in a session, by its channel and kind of chat."""
    agent_to_agent: ExchangeSection = ExchangeSection()
    """How far sessions may go in speaking to one another."""

    reset: ResetSection = ResetSection()
    """When sessions begin anew by themselves."""
    reset_by_type: dict[Literal["direct", "group", "thread"], ResetSection] = Field(
        default_factory=dict[Literal["direct", "group", "thread"], ResetSection]
    )
    reset_by_channel: dict[str, ResetSection] = Field(default_factory=dict[str, ResetSection])
    stale_after_days: Annotated[int, Field(ge=1, le=_MOST_DAYS)] | None = None
    """Sessions without an interaction for so long are hidden from normal lists."""
    retention_days: Annotated[int, Field(ge=1, le=_MOST_DAYS)] | None = None
    """Events older than this are deleted; kept for ever unless set."""


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged, on standard error."""
    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for machines, a document a line."""


class Config(Section):
    """Everything that can be set."""

    gateway: GatewaySection = GatewaySection()
    database: DatabaseSection = DatabaseSection()
    agents: AgentsSection = AgentsSection()
    providers: dict[str, ProviderSection] = Field(default_factory=dict[str, ProviderSection])
    """How to reach models, by the name before the colon of a model's name."""
    runs: RunsSection = RunsSection()
    limits: LimitsSection = LimitsSection()
    messages: MessagesSection = MessagesSection()
    groups: GroupsSection = GroupsSection()
    session: SessionSection = SessionSection()
    tools: ToolsSection = ToolsSection()
    access: AccessSection = AccessSection()
    channels: ChannelsSection = ChannelsSection()
    log: LogSection = LogSection()
    _directory: Path | None = PrivateAttr(None)

    @property
    def directory(self) -> Path | None:
        """Where the configuration file lies; None where there is none."""
        return self._directory

    def read_from(self, directory: Path) -> Self:
        """The same, as it was read from a file in that directory."""
        read = self.model_copy()
        read._directory = directory
        return read

    def fingerprint(self) -> str:
        """Equal for processes that treat sessions and runs alike."""
        text = self.model_dump_json(
            include={"agents", "limits", "messages", "groups", "session", "tools", "access", "channels"},
            exclude={"channels": {"webhook": {"__all__": {"secret", "secret_env"}}}},
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def agent_map(self) -> dict[AgentId, Agent]:
        """The agents; `main` with the defaults where none is listed."""
        listed = self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
        return {AgentId(section.id): self._agent(section) for section in listed}

    def mcp_servers(self) -> dict[AgentId, dict[str, McpServerSection]]:
        """The servers of each agent: its own beside those of the defaults, whose names it may take."""
        listed = self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
        common = self.agents.defaults.mcp_servers
        return {AgentId(section.id): {**common, **section.mcp_servers} for section in listed}

    def _agent(self, section: AgentSection) -> Agent:
        defaults = self.agents.defaults
        limits, daily = section.limits or self.limits.run, section.daily or self.limits.daily
        seconds = limits.time_seconds
        return Agent(
            id=AgentId(section.id),
            name=section.name or section.id,
            model=section.model or defaults.model,
            instructions=section.instructions if section.instructions is not None else defaults.instructions,
            thinking=section.thinking or defaults.thinking,
            context_tokens=section.context_tokens or defaults.context_tokens,
            limits=RunLimits(
                time=None if seconds is None else timedelta(seconds=seconds),
                model_calls=limits.model_calls,
                tool_calls=limits.tool_calls,
                tokens=limits.tokens,
                usd=limits.usd,
            ),
            daily=DailyLimits(tokens=daily.tokens, usd=daily.usd),
            tools=(section.tools or defaults.tools).allow,
            sandbox=section.sandbox.mode or defaults.sandbox.mode,
            command_limits=_command_limits(section.sandbox, defaults.sandbox),
            subagents=defaults.subagents.overlaid(section.subagents).rules(),
        )

    def rules(self) -> Rules:
        """What use cases go by. Raises `Invalid` where settings contradict one another."""
        agents = self.agent_map()
        if self.gateway.role is not Role.ALL and self.database.url is None:
            raise Invalid(
                f"Setting gateway.role {self.gateway.role.value!r} needs a database that processes share. "
                "Set database.url to a PostgreSQL address, or leave the role at 'all'.",
                code="invalid_config",
            )
        default = AgentId(self.agents.default) if self.agents.default else next(iter(agents))
        if default not in agents:
            raise Invalid(
                f"Setting agents.default names no listed agent: {default!r}. Listed: {', '.join(agents)}.",
                code="invalid_config",
            )
        for name, webhook in self.channels.webhook.items():
            if webhook.agent is not None and webhook.agent not in agents:
                raise Invalid(
                    f"Setting channels.webhook.{name}.agent names no listed agent: {webhook.agent!r}. "
                    f"Listed: {', '.join(agents)}.",
                    code="invalid_config",
                )
        days, kept_days = self.session.stale_after_days, self.session.retention_days
        return Rules(
            agents=agents,
            default_agent=default,
            daily_total=self.daily_total(),
            max_concurrent=self.runs.max_concurrent,
            queue_mode=self.messages.queue.mode,
            owner_trigger=self.groups.owner_trigger,
            resets=ResetRules(
                common=self.session.reset.rule(),
                by_type={name: section.rule() for name, section in self.session.reset_by_type.items()},
                by_channel={name: section.rule() for name, section in self.session.reset_by_channel.items()},
            ),
            stale_after=None if days is None else timedelta(days=days),
            retention=None if kept_days is None else timedelta(days=kept_days),
            visibility=self._visibility(),
            exchanges=self.session.agent_to_agent.rules(),
            send_policy=self.session.send_policy.policy(),
            shares=self.limits.shares(),
            subagent_tools=frozenset(self.tools.subagents.tools),
            guest_tools=frozenset(self.access.roles.guest.tools),
        )

    def _visibility(self) -> VisibilityRules:
        defaults = self.agents.defaults
        is_clamped = defaults.sandbox.session_tools_visibility == "spawned"
        return VisibilityRules(
            visibility=self.tools.sessions.visibility,
            sandbox_visibility=Visibility.TREE if is_clamped else Visibility.ALL,
            agent_to_agent=AgentToAgent(
                enabled=self.tools.agent_to_agent.enabled, allow=self.tools.agent_to_agent.allow
            ),
            narrowed={
                AgentId(section.id): (section.tools or defaults.tools).sessions.limits()
                for section in self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
            },
        )

    def ineffective(self) -> list[str]:
        """Settings that name what there is not, which does no harm and no good."""
        agents = self.agent_map()
        unknown = {name: None for agent in agents.values() for name in agent.subagents.allowed}
        return [
            *(
                f"tools.subagents.tools names no session tool: {name!r}"
                for name in self.tools.subagents.tools
                if name not in SESSION_TOOLS
            ),
            *(f"allow_agents names no agent: {name!r}" for name in unknown if name != "*" and name not in agents),
        ]

    def webhooks(self) -> list[WebhookSettings]:
        """The webhooks with their secrets. Raises `Invalid` for one without a secret that protects."""
        default = self.agents.default or next(iter(self.agent_map()))
        found: list[WebhookSettings] = []
        for name, section in self.channels.webhook.items():
            secret = section.key() or ""
            if len(secret) < MIN_SECRET_LENGTH:
                place = f"variable {section.secret_env}" if section.secret_env and section.secret is None else "secret"
                what = f"one of {MIN_SECRET_LENGTH} characters or more" if secret else "one"
                raise Invalid(
                    f"Webhook has no secret that protects it: channels.webhook.{name} needs {what} ({place}). "
                    "Make one with `openssl rand -hex 32`.",
                    code="invalid_config",
                )
            found.append(
                WebhookSettings(
                    name=name,
                    secret=secret,
                    url=section.url,
                    agent_id=AgentId(section.agent or default),
                    principal=OWNER if section.principal == "owner" else None,
                    timeout_seconds=section.timeout_seconds,
                )
            )
        return found

    def daily_total(self) -> DailyLimits:
        daily, total = self.limits.daily, self.limits.daily_total
        return DailyLimits(
            tokens=total.tokens if total.tokens is not None else daily.tokens and daily.tokens * 2,
            usd=total.usd if total.usd is not None else daily.usd and daily.usd * 2,
        )


def _command_limits(section: AgentSandboxSection, defaults: SandboxSection) -> SandboxLimits:
    """The agent's own values, else those of the defaults."""
    seconds = section.seconds or defaults.seconds
    return SandboxLimits(
        network=defaults.network if section.network is None else section.network,
        memory_bytes=(section.memory_mb or defaults.memory_mb) * MEBIBYTE,
        processes=section.processes or defaults.processes,
        disk_bytes=(section.disk_mb or defaults.disk_mb) * MEBIBYTE,
        time=timedelta(seconds=seconds),
    )


def default_home() -> Path:
    """Where everything is kept unless told otherwise: `ANTIPHON_HOME`, else the platform's data directory."""
    named = os.environ.get("ANTIPHON_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("antiphon", appauthor=False))


def find_config_file(home: Path, named: Path | None = None) -> Path | None:
    """The file named by flag or `ANTIPHON_CONFIG`, else `antiphon.toml` or `antiphon.json5` in the home."""
    variable = os.environ.get("ANTIPHON_CONFIG")
    if named is None and variable:
        named = Path(variable)
    if named is not None:
        if not named.is_file():
            raise Invalid(f"Configuration file not found: {str(named)!r}", code="invalid_config")
        return named
    return file_in(home)


def load_config(
    path: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """The checked configuration. `flags` are dotted paths and go before everything.

    Raises `Invalid` that names the file, the line and the nearest valid name.
    """
    text = ""
    tree: dict[str, Any] = {}
    if path is not None:
        tree, text = read_file(path)
    origins = dict[tuple[str, ...], str]()
    for variable, value in _variables(os.environ if environment is None else environment):
        _put(tree, variable[0], _Variable(value))
        origins[variable[0]] = variable[1]
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(tree, tuple(dotted.split(".")), value)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise Invalid(_explain(error, path, text, origins), code="invalid_config") from error
    config.rules()
    return config if path is None else config.read_from(path.parent)


def _variables(environment: Mapping[str, str]) -> list[tuple[tuple[tuple[str, ...], str], str]]:
    """Settings from variables: `ANTIPHON_RUNS__MAX_CONCURRENT` sets `runs.max_concurrent`."""
    found: list[tuple[tuple[tuple[str, ...], str], str]] = []
    for name, value in environment.items():
        rest = name.removeprefix("ANTIPHON_")
        if rest == name or rest in ("CONFIG", "HOME") or rest.startswith("TEST_"):
            continue
        place = _SHORT_VARIABLES.get(rest) or tuple(part.lower() for part in rest.split("__"))
        found.append(((place, name), value))
    return found


def _put(tree: dict[str, Any], place: Sequence[str], value: object) -> None:
    for name in place[:-1]:
        existing = tree.get(name, tree.get(to_camel(name)))
        if not isinstance(existing, dict):
            existing = tree[name] = {}
        tree = cast(dict[str, Any], existing)
    tree.pop(to_camel(place[-1]), None)
    tree[place[-1]] = value


def _explain(error: ValidationError, path: Path | None, text: str, origins: Mapping[tuple[str, ...], str]) -> str:
    problems: list[str] = []
    for item in error.errors():
        place = tuple(str(part) for part in item["loc"])
        dotted = ".".join(place)
        variable = origins.get(place)
        if variable is not None:
            where = f"Environment variable {variable}"
        else:
            line = line_in(path, text, place)
            where = f"Configuration {str(path)!r}" + (f", line {line}" if line else "")
        if item["type"] == "extra_forbidden":
            near = get_close_matches(place[-1], _names_beside(place), n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known here: {', '.join(_names_beside(place))}."
            problems.append(f"{where}: unknown setting {dotted!r}.{hint}")
        else:
            said = _NEEDED.get(item["type"], item["msg"].removeprefix("Value error, ")).rstrip(".")
            problems.append(f"{where}: {dotted}: {said}.")
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"And {len(problems) - MAX_PROBLEMS} more."]
    return "\n".join(problems)


def _names_beside(place: Sequence[str]) -> list[str]:
    """The valid names of the section that holds the place."""
    section: type[BaseModel] = Config
    for part in place[:-1]:
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                section = _section_of(field.annotation) or section
                break
    return list(section.model_fields)


def _section_of(annotation: object) -> type[BaseModel] | None:
    return next((each for each in types_in(annotation) if issubclass(each, BaseModel)), None)
