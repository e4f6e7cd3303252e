"""Settings that name a tool, a function, an agent or a channel, and which names nothing has. Contract: config 1.

A misspelt name in a list that guards something takes the guard away, silently. One slip from a name that exists stops
the start; other unknown names are told. Tools of MCP servers are known only once their server has listed them.
"""

from collections.abc import Collection, Iterator
from enum import StrEnum

from msgspec import Struct

from antiphon.channels.kinds import installed_names
from antiphon.config.config import Config
from antiphon.domain.errors import Invalid
from antiphon.domain.machine_identities import HOOK
from antiphon.domain.nearness import nearest
from antiphon.domain.session import WEBCHAT
from antiphon.incoming import MAX_PROBLEMS
from antiphon.policy.approvals import EFFECT, PEOPLE, REQUIRED, SERVER
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.shipped_tools import SHIPPED_TOOLS

SEPARATOR = "__"
"""Between the name of an MCP server and that of its tool."""
MOST_LOOKED_UP = 1_000
"""For how many unknown names the nearest known one is looked for."""


class Noun(StrEnum):
    TOOL = "tool"
    SESSION_TOOL = "session tool"
    FUNCTION = "function of this program"
    AGENT = "agent"
    CHANNEL = "channel"


class Named(Struct, frozen=True):
    """A name in a setting, without patterns."""

    place: tuple[str, ...]
    name: str
    noun: Noun


def named(config: Config) -> Iterator[Named]:
    """Every name of a tool, a function, an agent or a channel that a setting holds, where another one could stand."""
    for place, noun, names in _lists(config):
        yield from (Named(place, name, noun) for name in names if "*" not in name)


def refuse_misspelt(config: Config, functions: Collection[str]) -> None:
    """Raises `Invalid` for names that are one slip away from one that exists. `functions` are this program's."""
    misspelt = [
        (each, near) for each, near in _unknown(config, functions) if near is not None and each.noun is not Noun.CHANNEL
    ]
    problems = [
        f"{config.origins.where(config.origins.spelt(*each.place))}: {_problem(config, each)}. Did you mean {near!r}?"
        for each, near in misspelt[:MAX_PROBLEMS]
    ]
    if len(misspelt) > MAX_PROBLEMS:
        problems.append(f"And {len(misspelt) - MAX_PROBLEMS} more.")
    if problems:
        raise Invalid("\n".join(problems), code="invalid_config")


def ineffective_names(config: Config, functions: Collection[str]) -> list[str]:
    """The names that nothing has. Of channels only those that look misspelt: tokens serve channels of any name."""
    unknown = [
        (each, near) for each, near in _unknown(config, functions) if near is not None or each.noun is not Noun.CHANNEL
    ]
    told = [
        _problem(config, each) + (f"; did you mean {near!r}?" if near is not None else "")
        for each, near in unknown[:MAX_PROBLEMS]
    ]
    if len(unknown) > MAX_PROBLEMS:
        told.append(f"Settings name {len(unknown) - MAX_PROBLEMS} other things that do not exist")
    return told


def dropped_defaults(config: Config) -> list[str]:
    """Lists of calls to approve that replace the default effects and name none; these calls run unasked."""
    approval = config.tools.approval
    return [
        f"{config.origins.named('tools', 'approval', setting)} names no effect, so it drops its defaults: "
        f"{', '.join(defaults)}. Add those that are still to be asked"
        for setting, patterns, defaults in (
            ("require", approval.require, REQUIRED),
            ("people", approval.people, PEOPLE),
        )
        if "*" not in patterns and not any(pattern.startswith(EFFECT) for pattern in patterns)
    ]


def names_of_servers(config: Config) -> dict[str, dict[str, str]]:
    """By MCP server: the tools that settings name, without the server's prefix, each with its setting."""
    found: dict[str, dict[str, str]] = {}
    for each in named(config):
        server, separator, tool = each.name.partition(SEPARATOR)
        if each.noun is Noun.TOOL and separator and tool:
            found.setdefault(server, {})[tool] = config.origins.named(*each.place)
    return found


def _problem(config: Config, each: Named) -> str:
    return f"{config.origins.named(*each.place)} names no {each.noun}: {each.name[:80]!r}"


def _unknown(config: Config, functions: Collection[str]) -> Iterator[tuple[Named, str | None]]:
    """The names that nothing has, each with the known one that is nearest."""
    known: dict[Noun, Collection[str]] = {
        Noun.TOOL: {*SESSION_TOOLS, *SHIPPED_TOOLS, *functions},
        Noun.SESSION_TOOL: SESSION_TOOLS,
        Noun.FUNCTION: set(functions),
        Noun.AGENT: config.agent_map().keys(),
        Noun.CHANNEL: (*installed_names(), *config.further(), WEBCHAT, HOOK),
    }
    candidates = {noun: sorted(names) for noun, names in known.items()}
    servers = {name for servers in config.mcp_servers().values() for name in servers}
    looked_up = 0
    for each in named(config):
        is_listed_later = each.noun is Noun.TOOL and each.name.partition(SEPARATOR)[0] in servers
        if each.name not in known[each.noun] and not (is_listed_later and SEPARATOR in each.name):
            looked_up += 1
            yield each, nearest(each.name, candidates[each.noun]) if looked_up <= MOST_LOOKED_UP else None


def _lists(config: Config) -> Iterator[tuple[tuple[str, ...], Noun, Collection[str]]]:
    tools, roles, session = config.tools, config.access.roles, config.session
    approval = ("tools", "approval")
    for setting, patterns in (("require", tools.approval.require), ("people", tools.approval.people)):
        yield (*approval, setting), Noun.TOOL, [_tool_in(each) for each in patterns if not each.startswith(EFFECT)]
    yield ("tools", "subagents", "tools", "allow"), Noun.SESSION_TOOL, tools.subagents.tools.allow
    yield ("tools", "subagents", "tools", "deny"), Noun.TOOL, tools.subagents.tools.deny
    for name in tools.functions:
        yield ("tools", "functions", name), Noun.FUNCTION, (name,)
    for place, section in (
        (("agents", "defaults"), config.agents.defaults),
        *((("agents", "list", str(index)), each) for index, each in enumerate(config.agents.list)),
        *((("acp", "agents", name), each) for name, each in config.acp.agents.items()),
    ):
        if section.tools is not None:
            yield (*place, "tools", "allow"), Noun.TOOL, section.tools.allow or ()
        if section.subagents is not None:
            yield (*place, "subagents", "allow_agents"), Noun.AGENT, section.subagents.allow_agents
    yield ("access", "roles", "guest", "tools"), Noun.TOOL, roles.guest.tools
    yield ("access", "roles", "user", "tools"), Noun.TOOL, roles.user.tools or ()
    yield ("access", "roles", "user", "agents"), Noun.AGENT, roles.user.agents
    yield ("access", "roles", "user", "approve"), Noun.AGENT, roles.user.approve
    yield ("tools", "agent_to_agent", "allow"), Noun.AGENT, tools.agent_to_agent.allow
    yield ("session", "reset_by_channel"), Noun.CHANNEL, session.reset_by_channel
    for index, rule in enumerate(session.send_policy.rules):
        if rule.match.channel is not None:
            place = ("session", "send_policy", "rules", str(index), "match", "channel")
            yield place, Noun.CHANNEL, (rule.match.channel,)
    for person, accounts in session.identity_links.items():
        place = ("session", "identity_links", person)
        yield place, Noun.CHANNEL, [account.partition(":")[0] for account in accounts]


def _tool_in(pattern: str) -> str:
    return pattern.removeprefix(SERVER).strip()
