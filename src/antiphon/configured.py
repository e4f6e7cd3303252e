"""What a configuration and installed packages name: models, MCP servers, and functions for agents."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replace_settings
from datetime import timedelta
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from antiphon.acp.settings import HarnessSetting, HarnessSettings, ProviderKey
from antiphon.agents.model import Model, ProviderSettings
from antiphon.agents.models import Models
from antiphon.agents.provider import key_variable
from antiphon.agents.toolset import DeclaredFunction, FunctionTool, tool
from antiphon.config.config import Config
from antiphon.config.named import names_of_servers
from antiphon.config.sections.agents import McpServerSection, ProviderSection
from antiphon.domain.agent import AgentRuntime
from antiphon.domain.classification import Compartments
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.tool_review import UNREVIEWED
from antiphon.engine.policy_checks import CodeCheck
from antiphon.engine.rules import Rules
from antiphon.mcp.settings import ServerSettings
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.tools import SearchSetting, WebSetting

TOOLS_GROUP = "antiphon.tools"
"""The entry points by which an installed package offers functions to agents."""

CHECKS_GROUP = "antiphon.checks"
"""The entry points by which an installed package offers checks."""

ToolFunction = Callable[..., Any] | DeclaredFunction


def installed_tools() -> list[FunctionTool]:
    """The functions that installed packages offer, each named by its entry point.

    Raises `Invalid` for one that cannot be loaded. Contract: foreign_tools 1.
    """
    found: list[FunctionTool] = []
    for point in _points(tuple(sys.path), TOOLS_GROUP):
        try:
            loaded: ToolFunction = point.load()
        except Exception as error:  # any error of another package's import
            raise Invalid(
                f"Tool of an installed package cannot be loaded: {point.name!r} = {point.value!r} ({error}). "
                "Mend or uninstall the package.",
                code="invalid_config",
            ) from error
        declared = loaded if isinstance(loaded, DeclaredFunction) else _undeclared(loaded, point)
        found.append(FunctionTool(replace(declared, name=point.name)))
    return found


def installed_checks() -> list[CodeCheck]:
    """The checks that installed packages offer, each named by its entry point. Contract: flow 9.

    Raises `Invalid` for one that cannot be loaded: without it, what it guards would be open.
    """
    found: list[CodeCheck] = []
    for point in _points(tuple(sys.path), CHECKS_GROUP):
        try:
            loaded: object = point.load()
        except Exception as error:  # any error of another package's import
            raise Invalid(
                f"Check of an installed package cannot be loaded: {point.name!r} = {point.value!r} ({error}). "
                "Mend or uninstall the package.",
                code="invalid_config",
            ) from error
        if not isinstance(loaded, CodeCheck):
            raise Invalid(
                f"Check of an installed package is none: {point.name!r} = {point.value!r}. It must be made by "
                "`antiphon.check`.",
                code="invalid_config",
            )
        found.append(replace(loaded, id=point.name))
    return found


def _undeclared(function: Callable[..., Any], point: EntryPoint) -> DeclaredFunction:
    """A function of a package that does not say what it does; an owner reviews it."""
    package = point.value if point.dist is None else point.dist.name
    return replace(tool(function, effects=UNREVIEWED), package=package)


@cache
def _points(path: tuple[str, ...], group: str) -> EntryPoints:
    """What the packages on that path offer; to read what is known of each takes long."""
    return entry_points(group=group)


def classified(
    tools: Sequence[FunctionTool], config: Config, compartments: Compartments | None = None
) -> list[FunctionTool]:
    """The functions, with the settings' classifications of their results. Contract: flow 2."""
    return [each.classified(config.classification_of_function(each.schema.name, compartments)) for each in tools]


def function_tool(function: ToolFunction) -> FunctionTool:
    return FunctionTool(function if isinstance(function, DeclaredFunction) else tool(function))


def open_models(home: Path, config: Config, own: Mapping[str, Model] | None = None) -> Models:
    """The models that the configuration allows, and the program's `own`, by name; none is loaded yet."""
    beside = () if config.directory is None else (config.directory,)
    return Models(provider_settings(config), scripts=(home, *beside), own=own)


def provider_settings(config: Config) -> dict[str, ProviderSettings]:
    """How to reach each configured provider."""
    return {name: _provider(config, name, section) for name, section in config.providers.items()}


def _provider(config: Config, name: str, section: ProviderSection) -> ProviderSettings:
    return ProviderSettings(
        base_url=section.base_url,
        api_key=section.key(),
        headers=section.headers,
        stall_seconds=section.stall_seconds,
        silence_seconds=section.silence_seconds,
        first_byte_seconds=section.first_byte_seconds,
        longest_retry_after_seconds=section.longest_retry_after_seconds,
        names={setting: config.origins.spelt("providers", name, setting)[-1] for setting in type(section).model_fields},
    )


def mcp_settings(home: Path, config: Config, compartments: Compartments | None = None) -> list[ServerSettings]:
    """The configured MCP servers, each with the agent that may use it."""
    named = names_of_servers(config)
    return [
        replace_settings(
            _server(home, agent_id, name, section),
            named={**named.get(name, {}), **_named_by(name, section)},
            classification=config.classification_of_server(section, name, compartments),
            private=config.private_of_server(section, name, compartments),
            clearance=config.clearance_of_server(section, name, compartments),
        )
        for agent_id, servers in config.mcp_servers().items()
        for name, section in servers.items()
    ]


def _named_by(name: str, section: McpServerSection) -> dict[str, str]:
    """The tools of the server that its own settings name."""
    tools = dict.fromkeys(section.tools or (), f"mcp_servers.{name}.tools")
    routes = dict.fromkeys(section.routes, f"mcp_servers.{name}.routes")
    return {**routes, **dict.fromkeys(section.effects.keys() - {"*"}, f"mcp_servers.{name}.effects"), **tools}


def _server(home: Path, agent_id: AgentId, name: str, section: McpServerSection) -> ServerSettings:
    return ServerSettings(
        agent_id=agent_id,
        name=name,
        command=section.command,
        args=section.args,
        env={variable: value.get_secret_value() for variable, value in section.env.items()},
        cwd=home if section.cwd is None else Path(section.cwd),
        url=section.url,
        headers={header: value.get_secret_value() for header, value in section.headers.items()},
        tools=section.tools,
        effects={tool: frozenset(effects) for tool, effects in section.effects.items()},
        routes=section.routes,
        trusts_labels=section.labels == "trusted",
        timeout=timedelta(seconds=section.timeout_seconds),
        log=home / "mcp" / f"{agent_id}.{name}.log",
    )


def web_setting(config: Config, compartments: Compartments | None) -> WebSetting:
    """What the tools of the web may reach, and with what."""
    fetch, search = config.tools.fetch_page, config.tools.search_web
    return WebSetting(
        rules=WebRules(ports=fetch.ports, hosts=fetch.hosts, private=fetch.private, own=_own_hosts(config)),
        fetches=fetch.enabled,
        proxy=fetch.proxy,
        search=None
        if search.kind is None
        else SearchSetting(
            kind=search.kind,
            url=search.url,
            key=search.key(),
            clearance=config.clearance_of_search(compartments),
        ),
    )


def _own_hosts(config: Config) -> tuple[str, ...]:
    """The names and addresses under which the settings know this gateway."""
    gateway = config.gateway
    public = None if gateway.public_url is None else urlsplit(gateway.public_url).hostname
    named = [gateway.host, public, *(urlsplit(f"//{host}").hostname for host in gateway.allowed_hosts)]
    return tuple(dict.fromkeys(name.lower() for name in named if name))


def harness_settings(config: Config) -> HarnessSettings:
    """How the configured harnesses are started. A harness gets the key of its own provider, and no other."""
    return HarnessSettings(
        agents={
            AgentId(name): HarnessSetting(
                command=section.command,
                mode=section.mode,
                is_unattended=section.unattended,
                env={variable: secret.get_secret_value() for variable, secret in section.env.items()},
                keeps=section.keeps,
                provider=None
                if section.provider is None
                else _provider_key(section.provider, config.providers[section.provider]),
            )
            for name, section in config.acp.agents.items()
        }
    )


def _provider_key(name: str, section: ProviderSection) -> ProviderKey | None:
    """None if no key is set: then the harness has its own sign-in, or cannot reach its provider."""
    variable = section.api_key_env or key_variable(name)
    key = section.key() or os.environ.get(variable)
    if not key:
        return None
    known = HARNESS_PROVIDERS.get(name, HARNESS_PROVIDERS["openai"])
    address = str(section.base_url or known.address)
    return replace(known, name=name, variable=key_variable(name), key=key, address=address)


HARNESS_PROVIDERS: Mapping[str, ProviderKey] = {
    "anthropic": ProviderKey(
        name="anthropic",
        variable="ANTHROPIC_API_KEY",
        key="",
        address="https://api.anthropic.com",
        address_variable="ANTHROPIC_BASE_URL",
        header="x-api-key",
    ),
    "openai": ProviderKey(
        name="openai",
        variable="OPENAI_API_KEY",
        key="",
        address="https://api.openai.com/v1",
        address_variable="OPENAI_BASE_URL",
        header="authorization",
    ),
    "gemini": ProviderKey(
        name="gemini",
        variable="GEMINI_API_KEY",
        key="",
        address="https://generativelanguage.googleapis.com",
        address_variable="GOOGLE_GEMINI_BASE_URL",
        header="x-goog-api-key",
    ),
}
"""How the harnesses of these providers look for their key and their address."""


def check_models(rules: Rules, models: Models) -> None:
    """Checks at start that every configured model has a known name."""
    for agent in rules.agents.values():
        if agent.runtime is AgentRuntime.ACP:
            continue
        try:
            models.open(agent.model, context_tokens=agent.context_tokens)
        except Invalid as error:
            raise Invalid(f"Agent {agent.id!r}: {error.message}", code=error.code) from error
    if rules.checkpoints.model is not None:
        try:
            models.open(rules.checkpoints.model)
        except Invalid as error:
            raise Invalid(f"checkpoints.model: {error.message}", code=error.code) from error
