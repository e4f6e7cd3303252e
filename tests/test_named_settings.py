"""Settings that name a tool, a function, an agent or a channel: a misspelt guard stops the start, or is told."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon.annotations import types_in
from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.config.named import (
    Noun,
    dropped_defaults,
    ineffective_names,
    named,
    names_of_servers,
    refuse_misspelt,
)
from antiphon.config.sources import load_config
from antiphon.domain.errors import Invalid
from antiphon.domain.nearness import is_near
from antiphon.incoming import MAX_PROBLEMS
from tests.claims import requirement

TOOLS = ("lookup", "git_push")
"""The functions of the program."""
AGENTS = '[[agents.list]]\nid = "main"\n[[agents.list]]\nid = "porter"\n'

JUDGED = {
    "tools.approval.require": ("tools.approval.require = ['effect:deletes', {}]\n", Noun.TOOL),
    "tools.approval.people": ("tools.approval.people = ['effect:deletes', {}]\n", Noun.TOOL),
    "agents.defaults.tools.allow": ("agents.defaults.tools.allow = [{}]\n", Noun.TOOL),
    "agents.list.tools.allow": ('[[agents.list]]\nid = "x"\ntools.allow = [{}]\n', Noun.TOOL),
    "access.roles.guest.tools": ("access.roles.guest.tools = [{}]\n", Noun.TOOL),
    "access.roles.user.tools": ("access.roles.user.tools = [{}]\n", Noun.TOOL),
    "tools.subagents.tools.allow": ("tools.subagents.tools.allow = [{}]\n", Noun.SESSION_TOOL),
    "tools.subagents.tools.deny": ("tools.subagents.tools.deny = [{}]\n", Noun.TOOL),
    "tools.functions": ("[tools.functions.{}]\n", Noun.FUNCTION),
    "agents.defaults.subagents.allow_agents": ("agents.defaults.subagents.allow_agents = [{}]\n", Noun.AGENT),
    "agents.list.subagents.allow_agents": ('[[agents.list]]\nid = "x"\nsubagents.allow_agents = [{}]\n', Noun.AGENT),
    "acp.agents.tools.allow": ('[acp.agents.x]\ncommand = ["x"]\ntools.allow = [{}]\n', Noun.TOOL),
    "acp.agents.subagents.allow_agents": (
        '[acp.agents.x]\ncommand = ["x"]\nsubagents.allow_agents = [{}]\n',
        Noun.AGENT,
    ),
    "access.roles.user.agents": ("access.roles.user.agents = [{}]\n", Noun.AGENT),
    "access.roles.user.approve": ("access.roles.user.approve = [{}]\n", Noun.AGENT),
    "tools.agent_to_agent.allow": ("tools.agent_to_agent.allow = [{}]\n", Noun.AGENT),
    "session.reset_by_channel": ("[session.reset_by_channel.{}]\nmode = 'idle'\nidle_minutes = 5\n", Noun.CHANNEL),
    "session.send_policy.rules.match.channel": (
        "[[session.send_policy.rules]]\nmatch.channel = {}\naction = 'deny'\n",
        Noun.CHANNEL,
    ),
    "session.identity_links": ("session.identity_links.ann = [{}]\n", Noun.CHANNEL),
}
"""Each setting that names something of which there may be another; how it is written, and what it names."""
REFUSED = {
    "agents.default": "agents.default = {}\n",
    "channels.discord.agent": "channels.discord.agent = {}\n",
    "channels.discord.groups.agent": 'channels.discord.groups."1".agent = {}\n',
    "channels.discord.accounts.agent": "channels.discord.accounts.home.agent = {}\n",
    "channels.discord.accounts.groups.agent": 'channels.discord.accounts.home.groups."1".agent = {}\n',
    "channels.deltachat.agent": "channels.deltachat.agent = {}\n",
    "channels.deltachat.groups.agent": "channels.deltachat.groups.x.agent = {}\n",
    "channels.deltachat.accounts.agent": "channels.deltachat.accounts.home.agent = {}\n",
    "channels.deltachat.accounts.groups.agent": "channels.deltachat.accounts.home.groups.x.agent = {}\n",
    "channels.matrix.agent": "channels.matrix.agent = {}\n",
    "channels.matrix.groups.agent": 'channels.matrix.groups."!a".agent = {}\n',
    "channels.matrix.bridges.agent": "channels.matrix.bridges.signal.agent = {}\n",
    "channels.matrix.bridges.groups.agent": 'channels.matrix.bridges.signal.groups."!a".agent = {}\n',
    "channels.matrix.accounts.agent": "channels.matrix.accounts.home.agent = {}\n",
    "channels.matrix.accounts.groups.agent": 'channels.matrix.accounts.home.groups."!a".agent = {}\n',
    "channels.matrix.accounts.bridges.agent": "channels.matrix.accounts.home.bridges.signal.agent = {}\n",
    "channels.matrix.accounts.bridges.groups.agent": 'channels.matrix.accounts.a.bridges.b.groups."!a".agent = {}\n',
    "channels.slack.agent": "channels.slack.agent = {}\n",
    "channels.slack.groups.agent": "channels.slack.groups.C1.agent = {}\n",
    "channels.slack.accounts.agent": "channels.slack.accounts.acme.agent = {}\n",
    "channels.slack.accounts.groups.agent": "channels.slack.accounts.acme.groups.C1.agent = {}\n",
    "channels.email.agent": "channels.email.agent = {}\n",
    "channels.email.groups.agent": "channels.email.groups.x.agent = {}\n",
    "channels.email.accounts.agent": "channels.email.accounts.home.agent = {}\n",
    "channels.email.accounts.groups.agent": "channels.email.accounts.home.groups.x.agent = {}\n",
    "channels.telegram.agent": "channels.telegram.agent = {}\n",
    "channels.telegram.groups.agent": 'channels.telegram.groups."-1".agent = {}\n',
    "channels.webhook.agent": "channels.webhook.door.agent = {}\n",
    "hooks.agent": "hooks.bell.agent = {}\n",
    "hooks.deliver.channel": "hooks.bell.deliver.channel = {}\nhooks.bell.deliver.to = '7'\n",
    "access.roles.guest.commands": "access.roles.guest.commands = [{}]\n",
    "access.roles.user.commands": "access.roles.user.commands = [{}]\n",
}
"""Settings whose unknown names always stop the start."""
OF_SERVERS = {"agents.defaults.mcp_servers", "agents.list.mcp_servers"}
NEAR = {
    Noun.TOOL: "run_comand",
    Noun.SESSION_TOOL: "sessions_lsit",
    Noun.FUNCTION: "lokup",
    Noun.AGENT: "portr",
    Noun.CHANNEL: "telegrm",
}
FREE = {
    "flow.rules",
    *("acp.agents", "acp.agents.command", "acp.agents.env", "acp.agents.keeps", "acp.agents.subagents.models"),
    *("tools.fetch_page.hosts", "tools.fetch_page.private"),
    *("access.roles", "gateway.allowed_hosts", "agents.list", "channels.webhook", "hooks", "providers"),
    *("channels.apprise.person", "channels.apprise.accounts", "channels.apprise.accounts.person"),
    *("channels.telegram.groups", "channels.telegram.groups.members"),
    *("channels.discord.groups", "channels.discord.groups.members", "channels.discord.accounts"),
    *("channels.discord.accounts.groups", "channels.discord.accounts.groups.members"),
    *("channels.deltachat.groups", "channels.deltachat.groups.members", "channels.deltachat.accounts"),
    *("channels.deltachat.accounts.groups", "channels.deltachat.accounts.groups.members"),
    *("channels.email.groups", "channels.email.groups.members", "channels.email.accounts"),
    *("channels.email.accounts.groups", "channels.email.accounts.groups.members"),
    *(
        f"channels.matrix.{place}{name}"
        for place in ("", "bridges.", "accounts.", "accounts.bridges.")
        for name in ("groups", "groups.members")
    ),
    *("channels.matrix.accounts", "channels.matrix.bridges", "channels.matrix.accounts.bridges"),
    *("channels.slack.groups", "channels.slack.groups.members", "channels.slack.accounts"),
    *("channels.slack.accounts.groups", "channels.slack.accounts.groups.members"),
    *("agents.defaults.subagents.models", "agents.list.subagents.models"),
    *("agents.defaults.skills", "agents.list.skills"),
}
"""Names that the settings give themselves, and names of hosts, models, persons and skills, which may come later."""


def written(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "antiphon.toml"
    file.write_text(text + AGENTS)
    return load_config(file, environment={})


def config_of(tmp_path: Path, place: str, name: str) -> Config:
    """A configuration whose setting at the place has the name."""
    text = JUDGED[place][0]
    account = f"{name}:1" if place == "session.identity_links" else name
    return written(tmp_path, text.format(name if ".{}]" in text else repr(account)))


def settings_of(section: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[str]:
    """The settings with more than one text, and those of one agent or channel."""
    for name, field in section.model_fields.items():
        inner = [each for each in types_in(field.annotation) if issubclass(each, BaseModel)]
        here, kind = (*place, name), str(field.annotation)
        is_many = "tuple[" in kind or "dict[str" in kind
        if str in types_in(field.annotation) and (is_many or name in ("agent", "channel", "default")):
            yield ".".join(here)
        for each in inner:
            yield from settings_of(each, here)


@requirement("config:1", "approvals:1")
def test_every_setting_that_names_something_is_judged() -> None:
    """A new setting has to be put into one of the tables."""
    found = {
        each
        for each in settings_of(Config)
        if not each.endswith((".compartments", ".args", ".password_command", ".env", ".headers", ".level"))
        and not any(each.startswith(f"{servers}.") for servers in OF_SERVERS)
    }
    assert found == (set(JUDGED) | set(REFUSED) | OF_SERVERS | FREE) & found
    assert set(JUDGED) | set(REFUSED) <= found


@requirement("config:1", "approvals:1")
@pytest.mark.parametrize("place", JUDGED)
def test_a_name_one_slip_away_stops_the_start_and_another_unknown_one_is_told(tmp_path: Path, place: str) -> None:
    noun = JUDGED[place][1]
    near = config_of(tmp_path, place, NEAR[noun])
    said = f"names no {noun}: {NEAR[noun]!r}"
    if noun is Noun.CHANNEL:
        refuse_misspelt(near, TOOLS)  # a token may serve a channel of that name
    else:
        with pytest.raises(Invalid) as refused:
            refuse_misspelt(near, TOOLS)
        assert refused.value.code == "invalid_config" and ", line " in refused.value.message
        assert said in refused.value.message and "Did you mean" in refused.value.message
    assert any(said in each for each in ineffective_names(near, TOOLS))
    far = config_of(tmp_path, place, "quite-different")
    refuse_misspelt(far, TOOLS)
    is_told = any("'quite-different'" in each for each in ineffective_names(far, TOOLS))
    assert is_told is (noun is not Noun.CHANNEL)


@requirement("config:1")
@pytest.mark.parametrize("place", REFUSED)
def test_a_name_of_nothing_is_refused_where_one_is_needed(tmp_path: Path, place: str) -> None:
    with pytest.raises(Invalid) as refused:
        written(tmp_path, REFUSED[place].format("'portr'"))
    assert "portr" in refused.value.message and ", line 1" in refused.value.message


@requirement("config:1", "approvals:1")
@pytest.mark.parametrize(
    "name", ["lookup", "git_push", "run_command", "message", "git_*", "*", "docs__search", "mcp:docs__search", "mcp:*"]
)
def test_known_names_patterns_and_tools_of_servers_are_let_be(tmp_path: Path, name: str) -> None:
    server = "[agents.defaults.mcp_servers.docs]\ncommand = 'docs'\n"
    text = f"[tools.approval]\nrequire = ['effect:deletes', '{name}']\n{server}"
    config = written(tmp_path, text)
    refuse_misspelt(config, TOOLS)
    assert ineffective_names(config, TOOLS) == []
    tools = {"docs": {"search": "tools.approval.require"}}
    assert names_of_servers(config) == (tools if "docs__" in name else {})


@pytest.mark.anyio
@requirement("approvals:1")
async def test_a_misspelt_guard_of_commands_does_not_start(tmp_path: Path) -> None:
    text = "tools.run_command.mode = 'host'\n[tools.approval]\n\nrequire = ['effect:deletes', 'run_comand']\n"
    config = written(tmp_path, text)
    with pytest.raises(Invalid, match=r"line 4: tools.approval.require names no tool: 'run_comand'.*'run_command'"):
        async with open_app(tmp_path / "home", config, Parts()):
            pass
    assert not (tmp_path / "home").exists()


@requirement("approvals:1")
@pytest.mark.parametrize(
    ("patterns", "dropped"),
    [
        (None, []),
        (["git_push"], ["effect:deletes", "effect:spends", "effect:configures"]),
        (["git_push", "effect:deletes"], []),
        (["*"], []),
    ],
)
def test_a_list_that_names_no_effect_says_which_defaults_it_drops(
    patterns: list[str] | None, dropped: list[str]
) -> None:
    approval: dict[str, Any] = {} if patterns is None else {"require": patterns}
    told = dropped_defaults(Config.model_validate({"tools": {"approval": approval}}))
    assert bool(told) is bool(dropped)
    assert all(effect in told[0] for effect in dropped)


@requirement("config:1")
def test_two_agents_with_one_id_are_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        written(tmp_path, "[[agents.list]]\nid = 'ops'\nmodel = 'offline'\n\n[[agents.list]]\nid = 'ops'\n")
    assert "line 6: agents.list.1.id is the id of two agents: 'ops'" in refused.value.message
    assert "line 2: agents.list.0.id" in refused.value.message


WORDS = ["".join(letters) for length in range(5) for letters in product("abC", repeat=length)]


def distance(one: str, other: str) -> int:
    """By the textbook's table, with neighbours exchanged."""
    a, b = one.casefold(), other.casefold()
    rows = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = a[i - 1] != b[j - 1]
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + cost)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def test_nearness_is_one_edit() -> None:
    wrong = [(a, b) for a, b in product(WORDS, WORDS) if is_near(a, b) is not (distance(a, b) <= 1)]
    assert wrong == []


def test_names_in_settings_have_no_pattern_in_them(tmp_path: Path) -> None:
    config = written(tmp_path, "tools.approval.require = ['git_*', 'lookup']\n")
    assert [each.name for each in named(config)] == ["lookup"]


MANY = 50_000


@requirement("config:1")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "".join(f"unknown_{number} = 1\n" for number in range(MANY))),
        ("a.json5", "{" + ",\n".join(f"unknown{number}: 1" for number in range(MANY)) + "}"),
        ("a.toml", "".join(f'[[agents.list]]\nid = "a{number}"\nmaxx = 1\n' for number in range(MANY // 10))),
    ],
    ids=["toml", "json5", "agents"],
)
def test_a_file_with_ever_so_many_unknown_names_is_refused_soon(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    before = process_time()
    with pytest.raises(Invalid) as refused:
        load_config(file, environment={})
    assert process_time() - before < 30, "of this process alone"
    assert len(refused.value.message.splitlines()) == MAX_PROBLEMS + 1
    assert "And " in refused.value.message and len(refused.value.message) < 10_000


@requirement("config:1")
def test_ever_so_many_unknown_names_in_a_list_are_told_soon_and_in_short() -> None:
    guests = {"access": {"roles": {"guest": {"tools": [f"tool_{number}" for number in range(MANY)]}}}}
    agents = [{"id": f"a{number}"} for number in range(1_000)]
    users = {"roles": {**guests["access"]["roles"], "user": {"agents": [f"b{number}" for number in range(MANY)]}}}
    before = process_time()
    config = Config.model_validate({"agents": {"list": agents}, "access": users})
    told = ineffective_names(config, TOOLS)
    with suppress(Invalid):
        refuse_misspelt(config, TOOLS)
    assert process_time() - before < 30 and len(told) == MAX_PROBLEMS + 1
