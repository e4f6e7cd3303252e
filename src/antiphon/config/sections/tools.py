"""Settings of the session tools, of commands and of the web."""

from datetime import timedelta
from ipaddress import ip_network
from typing import Annotated, Any, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from antiphon.domain.errors import Invalid
from antiphon.domain.page_address import parse_page_address
from antiphon.domain.sandbox import CommandMode
from antiphon.domain.search_kind import SearchKind
from antiphon.policy.approvals import PEOPLE, REQUIRED, ApprovalRules, UntrustedRule, problem_of_pattern
from antiphon.policy.visibility import Visibility
from antiphon.settings.addresses import WebAddress
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.section import MOST_DAYS, Section, secret_from
from antiphon.settings.variable import Variable


def _private_host(name: str) -> str:
    try:
        return str(ip_network(name))
    except ValueError:
        pass
    try:
        found = parse_page_address(f"http://{name}")
    except Invalid:
        found = None
    if found is None or found.authority != found.host or found.target != "/":
        raise ValueError(
            f"{name[:80]!r} is no name, address or network; write `nas.lan`, `192.168.1.20` or `10.0.0.0/24`"
        )
    return found.host


def _proxy(url: str) -> str:
    if "@" in url or urlsplit(url).scheme != "http":
        raise ValueError("needs an address that begins with http://, without a user name or a password")
    return url


def _check_engine(url: str) -> None:
    try:
        parse_page_address(url)
    except Invalid as error:
        raise ValueError(f"url: {error.message}") from error
    if "?" in url or "#" in url:
        raise ValueError("url: needs an address without ? and #")


def _port(port: int) -> int:
    if not 0 < port < 65_536:
        raise ValueError("needs a port, from 1 to 65535")
    return port


PagePort = Annotated[int, AfterValidator(_port)]
PrivateHost = Annotated[str, AfterValidator(_private_host)]
ProxyAddress = Annotated[WebAddress, AfterValidator(_proxy)]


class SessionToolsSection(Section):
    visibility: Visibility = Visibility.TREE
    """Which sessions the session tools reach: `self`, `tree` (also what it spawned), `agent`, `all`."""


class AgentToAgentSection(Section):
    enabled: bool = False
    """Whether sessions of different agents may reach each other, if `tools.sessions.visibility` is `all`."""
    allow: tuple[str, ...] = ()
    """Patterns of agent ids, with `*`; both sides must match. All agents unless set."""


class SubagentToolNamesSection(Section):
    allow: tuple[str, ...] = ()
    """Session tools for sub-agents, in addition to sending to their requester; patterns with `*`. A list in place of
    the table means the same."""
    deny: tuple[str, ...] = ()
    """Tools of any kind that sub-agents do not have, whatever else gives them; patterns with `*`."""


def _or_list(schema: dict[str, Any]) -> None:
    """In the schema for editors: a list may stand in place of the table."""
    schema["anyOf"] = [{"type": "array", "items": {"type": "string"}}, {"$ref": schema.pop("$ref")}]


class SubagentToolsSection(Section):
    tools: SubagentToolNamesSection = Field(default=SubagentToolNamesSection(), json_schema_extra=_or_list)

    @model_validator(mode="before")
    @classmethod
    def _take_list(cls, given: object) -> object:
        """A list, or a variable with one, in place of the table: what it allows."""
        if not isinstance(given, dict):
            return given
        settings = cast(dict[str, object], given)
        names = settings.get("tools")
        is_text = isinstance(names, Variable) and not names.strip().startswith("{")
        allowed = {"allow": cast(object, names)}
        return {**settings, "tools": allowed} if is_text or isinstance(names, list | tuple) else settings


class RunCommandSection(Section):
    mode: CommandMode = CommandMode.OFF
    """Whether agents have `run_command`: always in a sandbox, or on the `host` for sessions that are not sandboxed.
    There a command may do anything that this process may do."""
    classification: ClassificationSection | None = None
    """The classification of the output of commands; public and trusted unless set. With a network it is untrusted."""
    clearance: ClearanceSection | None = None
    """What commands with network or on the host may take along: the session's context and its workspace. Unless set,
    data up to their `classification`."""


class FetchPageSection(Section):
    enabled: bool = True
    """Whether agents have `fetch_page`."""
    ports: tuple[PagePort, ...] = ()
    """Ports that may be reached besides 80 and 443."""
    hosts: tuple[str, ...] = ()
    """The only hosts that may be reached, as patterns with `*`: `["example.org", "*.example.org"]`. Unless set, every
    public host."""
    private: tuple[PrivateHost, ...] = ()
    """Names, addresses and networks that may be private, such as `nas.lan` or `192.168.1.20`. Other private addresses
    are never reached, nor is this machine itself."""
    proxy: ProxyAddress | None = None
    """The address of an HTTP proxy for all pages, without a password. It then looks names up itself, and must keep
    private addresses out itself. Unless set, none is used, whatever the environment says."""


class SearchWebSection(Section):
    kind: SearchKind | None = None
    """The search engine: `searxng` or `brave`. Agents have `search_web` if it is set."""
    url: WebAddress | None = None
    """The address of the engine, such as `http://127.0.0.1:8888`, also a private one. Brave's own unless set; needed
    for SearXNG."""
    key_env: str | None = None
    """The environment variable that holds the key; needed for Brave."""
    clearance: ClearanceSection | None = None
    """What queries may be made of; public data unless set. The pages that are read with a search get public data only,
    since their addresses come from the engine."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.kind is SearchKind.SEARXNG and self.url is None:
            raise ValueError("kind 'searxng' needs url, the address of your SearXNG")
        if self.kind is SearchKind.BRAVE and self.key_env is None:
            raise ValueError("kind 'brave' needs key_env, the environment variable that holds the key")
        if self.url is not None:
            _check_engine(self.url)
        return self

    def key(self) -> str | None:
        return secret_from(None, self.key_env)


class FunctionSection(Section):
    classification: ClassificationSection | None = None
    """The classification of the function's results, joined with what the function itself declares."""


class ApprovalSection(Section):
    require: tuple[str, ...] = REQUIRED
    """Calls that a person must approve before they run, as patterns: a tool's name (`run_command`, `git_*`), `mcp:*`
    for tools of MCP servers, `effect:deletes` for what a tool does. A command on the host counts as deleting. A list
    replaces the defaults; a name that is one slip away from a tool's stops the start."""
    people: tuple[str, ...] = PEOPLE
    """Calls that a person must approve in addition, unless an owner caused them, in the same patterns: by default
    every effect beyond reading."""
    expire_hours: float = Field(default=168, gt=0, le=MOST_DAYS * 24)
    """How long a request waits for an answer; then its calls are denied, and the run goes on."""

    @field_validator("require", "people")
    @classmethod
    def _may_match(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if problem := problem_of_pattern(pattern):
                raise ValueError(f"{pattern[:80]!r} {problem}")
        return patterns

    def rules(self, untrusted: UntrustedRule) -> ApprovalRules:
        """`untrusted` is `flow.untrusted`."""
        expire_after = timedelta(hours=self.expire_hours)
        return ApprovalRules(require=self.require, people=self.people, expire_after=expire_after, untrusted=untrusted)


class ToolsSection(Section):
    sessions: SessionToolsSection = SessionToolsSection()
    agent_to_agent: AgentToAgentSection = AgentToAgentSection()
    subagents: SubagentToolsSection = SubagentToolsSection()
    run_command: RunCommandSection = RunCommandSection()
    fetch_page: FetchPageSection = FetchPageSection()
    search_web: SearchWebSection = SearchWebSection()
    functions: dict[str, FunctionSection] = Field(default_factory=dict[str, FunctionSection])
    """Python functions that agents may call, by name."""
    approval: ApprovalSection = ApprovalSection()
