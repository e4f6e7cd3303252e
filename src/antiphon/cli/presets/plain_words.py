"""What a configuration lets flow where, in words that need no glossary, and the preset that it is nearest to.

Contract: flow 14.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from antiphon.cli.presets.answers import PresetName
from antiphon.config.config import Config
from antiphon.config.sections.agents import AgentSection
from antiphon.policy.approvals import PEOPLE, UntrustedRule
from antiphon.policy.chats import ChatData
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import DEFAULT_AGENT

MOST_DIFFERENCES = 2
"""With more of them a configuration is near to no preset."""
_EFFECTS = {
    "effect:reads": "reading",
    "effect:writes": "changing something",
    "effect:leaves": "sending something out",
    "effect:deletes": "deleting",
    "effect:spends": "spending money",
    "effect:configures": "changing settings",
}


class PlainWords(Struct, frozen=True, kw_only=True):
    preset: PresetName | None
    """The nearest one, if there is any."""
    differences: tuple[str, ...]
    """How the configuration differs from it."""
    sees: tuple[str, ...]
    asks: tuple[str, ...]
    leaves: tuple[str, ...]


def plain_words(config: Config) -> PlainWords:
    preset, differences = _nearest(config)
    return PlainWords(
        preset=preset,
        differences=tuple(differences),
        sees=tuple(_sees(config)),
        asks=tuple(_asks(config)),
        leaves=tuple(_leaves(config)),
    )


def _nearest(config: Config) -> tuple[PresetName | None, list[str]]:
    by_name = {
        PresetName.CODING: list(_unlike_coding(config)),
        PresetName.FAMILY: list(_unlike_family(config)),
        PresetName.SOLO: list(_unlike_solo(config)),
    }
    name = min(by_name, key=lambda each: len(by_name[each]))
    return (None, []) if len(by_name[name]) > MOST_DIFFERENCES else (name, by_name[name])


def _agents(config: Config) -> tuple[AgentSection, ...]:
    return config.agents.list or (AgentSection(id=DEFAULT_AGENT),)


def _parts_of(config: Config) -> dict[str, tuple[str, ...]]:
    """The names of the data that each agent keeps apart."""
    return {
        each.id: () if each.classification is None else each.classification.compartments for each in _agents(config)
    }


def _unlike_all(config: Config, chats: ChatData) -> Iterator[str]:
    match config.flow.untrusted:
        case UntrustedRule.BLOCK:
            yield "after a page or a mail was read, sending, deleting and paying are refused; nobody is asked"
        case UntrustedRule.ALLOW:
            yield "after a page or a mail was read, nothing asks you"
        case UntrustedRule.APPROVE:
            pass
    if config.flow.chats is not chats:
        yield (
            "what people say in their chats is not kept to them"
            if chats is ChatData.OWN
            else "what people say in their chats is kept to them"
        )


def _unlike_solo(config: Config) -> Iterator[str]:
    yield from _unlike_all(config, ChatData.OPEN)
    if any(each.classification is not None for each in config.agents.list):
        yield "some agents keep what they read to themselves"
    if len(config.agents.list) > 1:
        yield f"there are {len(config.agents.list)} agents"


def _unlike_family(config: Config) -> Iterator[str]:
    yield from _unlike_all(config, ChatData.OWN)
    if any(_parts_of(config).values()):
        yield "some agents keep what they read to themselves"
        yield "agents are for work, not for people"
    if missing := [each for each in PEOPLE if each not in config.tools.approval.people]:
        yield f"others than you may do this unasked: {_acts(missing)}"
    if approve := config.access.roles.user.approve:
        yield f"invited people answer requests of {', '.join(approve)} too"
    if config.limits.guest.tokens is None:
        yield "guests may use as much as they like"


def _unlike_coding(config: Config) -> Iterator[str]:
    yield from _unlike_all(config, ChatData.OWN)
    parts = _parts_of(config)
    if open_agents := [id for id, names in parts.items() if not names]:
        yield f"these agents keep nothing apart: {', '.join(open_agents)}"
        if len(open_agents) == len(parts):
            yield "no agent has a repository of its own"
            yield "agents are for people, not for work"
    counts = Counter(name for names in parts.values() for name in names)
    if shared := sorted(name for name, count in counts.items() if count > 1):
        yield f"several agents share what belongs to {', '.join(shared)}"
    for name, server in config.agents.defaults.mcp_servers.items():
        if server.clearance is not None and not _is_open(server.clearance):
            yield f"the tool server {name}, which all agents have, may get what they keep apart"
    if (commands := config.tools.run_command.clearance) is not None and not _is_open(commands):
        yield "commands with a network may get what agents keep apart"


def _is_open(section: ClassificationSection | ClearanceSection) -> bool:
    """Whether it stands for what anybody may have."""
    return section.level == "PUBLIC" and not section.compartments


def _sees(config: Config) -> Iterator[str]:
    yield "You, the owner, see everything: all chats, all requests, all costs."
    if config.flow.chats is ChatData.OWN:
        yield "Everybody's own chat is theirs: what is said there reaches nobody but them and you."
        yield "A group sees what everybody in it may see, and nothing of anybody's own chat."
        yield "If you want words of your own chat to go elsewhere, you are shown the exact text, and asked."
    else:
        yield "Chats are not kept apart by person: what one chat reads may be used in another chat of yours."
        yield "Other people see only the chats in which they take part."
    for id, names in _parts_of(config).items():
        if names:
            yield f"What the agent {id} reads and says about {', '.join(names)} stays there: no other agent gets it."
    for account in config.accounts():
        for group, section in getattr(account.section, "groups", {}).items():
            if section.members:
                people = ", ".join(section.members)
                yield f"Group {group} on {account.channel} gets what all of these may see: {people}."
    users = config.access.roles.user.agents
    yield (
        f"People whom you invite may begin conversations with {', '.join(users)}."
        if users
        else "People whom you invite begin no conversations, unless the invitation names an agent."
    )
    tools = config.access.roles.guest.tools
    yield (
        f"Guests, such as children and people in groups, may have these tools used: {', '.join(tools)}."
        if tools
        else "Guests, such as children and people in groups, have no tools but those for their own chat."
    )


def _asks(config: Config) -> Iterator[str]:
    match config.flow.untrusted:
        case UntrustedRule.APPROVE:
            yield "After an agent has read a page or words of others, sending, deleting, paying and setting ask you."
        case UntrustedRule.BLOCK:
            yield "After an agent has read words of others, it may not send, delete, pay or set anything."
        case UntrustedRule.ALLOW:
            yield "Words of others that an agent has read change nothing: it may act on them unasked."
    always, others = config.tools.approval.require, config.tools.approval.people
    if always:
        yield f"This asks you each time: {_acts(always)}."
    if more := [each for each in others if each not in always]:
        yield f"If somebody else wants it, this asks you too: {_acts(more)}."
    deciders = config.access.roles.user.approve
    yield (
        f"You answer, and invited people answer for the agents {', '.join(deciders)}."
        if deciders
        else "You answer. Nobody else does."
    )
    guest = config.limits.guest
    most = [
        *([] if guest.tokens is None else [f"{guest.tokens:,} tokens"]),
        *([] if guest.usd is None else [f"{guest.usd:g} US dollars"]),
    ]
    yield f"Each guest may use {' and '.join(most)} a day." if most else "Guests may use as much as they like."
    for each in config.agents.list:
        if each.daily is not None:
            tokens = "any number of" if each.daily.tokens is None else f"{each.daily.tokens:,}"
            usd = "" if each.daily.usd is None else f" and {each.daily.usd:g} US dollars"
            yield f"The agent {each.id} may use {tokens} tokens{usd} a day, then it rests."


def _acts(patterns: Iterable[str]) -> str:
    """What is asked about; a tool by its name."""
    return ", ".join(_EFFECTS.get(each, each) for each in patterns)


def _leaves(config: Config) -> Iterator[str]:
    models = sorted({agent.model for agent in config.agent_map().values()} - {"offline"})
    if not models:
        yield "No model is set: agents only echo, and nothing goes to a provider."
    for name in sorted({model.partition(":")[0] for model in models}):
        section = config.providers.get(name)
        limited = section is not None and section.clearance is not None
        yield (
            f"The provider {name} gets conversations only as far as its own limit in this file."
            if limited
            else f"The provider {name} gets all that its agents' conversations hold."
        )
    for account in config.accounts():
        limited = account.section.clearance is not None and not _is_open(account.section.clearance)
        name = account.channel if account.account == "default" else f"{account.channel} {account.account}"
        yield (
            f"{name}: people there get their own data, and more as far as this file says."
            if limited
            else f"{name}: people there get their own data and what anybody may have."
        )
    apart = any(_parts_of(config).values())
    for name, server in config.agents.defaults.mcp_servers.items():
        yield f"The tool server {name} gets {_what_goes(server.clearance, apart=apart)}."
    for agent in config.agents.list:
        for name, server in agent.mcp_servers.items():
            kept = () if server.clearance is None else server.clearance.compartments
            got = f"what belongs to {', '.join(kept)}" if kept else _what_goes(server.clearance, apart=apart)
            yield f"The tool server {name} of the agent {agent.id} gets {got}."
    got = _what_goes(config.tools.run_command.clearance, apart=apart)
    match config.tools.run_command.mode.value:
        case "off":
            yield "Agents run no commands."
        case "sandboxed" if not any(each.command_limits.network for each in config.agent_map().values()):
            yield "Commands run in a sandbox without a network: nothing leaves by them."
        case "sandboxed":
            yield f"Commands run in a sandbox; those with a network get {got}."
        case _:
            yield f"Commands may run on this machine itself; they get {got}."


def _what_goes(clearance: ClearanceSection | None, *, apart: bool) -> str:
    if clearance is not None and not _is_open(clearance):
        return "what this file lets it have"
    return "nothing that an agent keeps apart" if apart else "what the agent gives it"
