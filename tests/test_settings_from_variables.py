"""Settings from the environment: lists and tables as text, secrets without blanks, and what is told about the rest."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import pytest
from pydantic import BaseModel

from antiphon.annotations import types_in
from antiphon.config.config import Config
from antiphon.config.misread import misread
from antiphon.config.named import refuse_misspelt
from antiphon.config.sections.zones import machine_zone
from antiphon.config.sources import load_config
from antiphon.configured import provider_settings
from antiphon.domain.errors import Invalid
from tests.claims import requirement

SERVER = {"command": "true"}
LEVEL = {"level": "INTERNAL"}
LISTS = {
    "gateway.allowed_hosts": ["a.example", "b.example"],
    "database.password_command": ["token", "--now"],
    "acp.agents.x.command": ["claude-agent-acp", "--debug"],
    "acp.agents.x.keeps": [".coder/sessions/**/*.jsonl", "state.json"],
    "acp.agents.x.tools.allow": ["lookup", "run_command"],
    "acp.agents.x.subagents.allow_agents": ["main", "porter"],
    "acp.agents.x.subagents.models": ["openai:*", "ollama:qwen3"],
    "agents.defaults.tools.allow": ["lookup", "run_command"],
    "agents.defaults.skills": ["walks", "talks"],
    "agents.defaults.subagents.allow_agents": ["main", "porter"],
    "agents.defaults.subagents.models": ["openai:*", "ollama:qwen3"],
    "agents.defaults.mcp_servers.x.args": ["-v", "--all"],
    "agents.defaults.mcp_servers.x.tools": ["read", "write"],
    "tools.agent_to_agent.allow": ["ops-*", "main"],
    "tools.subagents.tools.allow": ["sessions_list", "sessions_*"],
    "tools.subagents.tools.deny": ["git_*", "run_command"],
    "tools.fetch_page.hosts": ["example.org", "*.example.org"],
    "tools.fetch_page.private": ["nas.lan", "10.0.0.0/24"],
    "tools.approval.require": ["effect:deletes", "git_*"],
    "tools.approval.people": ["effect:leaves", "git_*"],
    "access.roles.user.agents": ["main", "porter"],
    "access.roles.user.tools": ["lookup", "memory"],
    "access.roles.user.approve": ["main", "porter"],
    "access.roles.user.commands": ["help", "status"],
    "access.roles.guest.tools": ["lookup", "run_command"],
    "access.roles.guest.commands": ["help", "status"],
    "channels.discord.accounts.x.groups.x.members": ["ann", "bob"],
    "channels.discord.groups.x.members": ["ann", "bob"],
    "channels.deltachat.accounts.x.groups.x.members": ["ann", "bob"],
    "channels.deltachat.groups.x.members": ["ann", "bob"],
    "channels.matrix.groups.x.members": ["ann", "bob"],
    "channels.matrix.bridges.x.groups.x.members": ["ann", "bob"],
    "channels.matrix.accounts.x.groups.x.members": ["ann", "bob"],
    "channels.matrix.accounts.x.bridges.x.groups.x.members": ["ann", "bob"],
    "channels.slack.groups.x.members": ["ann", "bob"],
    "channels.slack.accounts.x.groups.x.members": ["ann", "bob"],
    "channels.email.accounts.x.groups.x.members": ["ann", "bob"],
    "channels.email.groups.x.members": ["ann", "bob"],
    "channels.telegram.groups.x.members": ["ann", "bob"],
}
"""A value of every setting that is a list of texts, besides names of compartments."""
TABLES: dict[str, object] = {
    "acp.agents": {"coder": {"command": ["claude-agent-acp"], "mode": "default"}},
    "acp.agents.x.env": {"CLAUDE_CODE_EXECUTABLE": "/usr/bin/claude"},
    "agents.list": [{"id": "main"}, {"id": "porter", "tools": {"allow": ["lookup"]}}],
    "agents.defaults.mcp_servers": {"x": {"command": "true", "args": ["-v"]}},
    "agents.defaults.mcp_servers.x.env": {"GITHUB_TOKEN": "abc"},
    "agents.defaults.mcp_servers.x.headers": {"Authorization": "Bearer abc"},
    "agents.defaults.mcp_servers.x.effects": {"*": ["writes"]},
    "agents.defaults.mcp_servers.x.routes": {"send": ["to"]},
    "providers": {"local": {"base_url": "http://127.0.0.1:1/v1", "stall_seconds": 5}},
    "providers.x.headers": {"X-Org": "a,b"},
    "session.identity_links": {"ann": ["telegram:1"]},
    "session.send_policy.rules": [{"match": {"channel": "telegram"}, "action": "deny"}],
    "session.reset_by_type": {"direct": {"mode": "daily"}},
    "session.reset_by_channel": {"telegram": {"mode": "daily"}},
    "flow.rules": [{"id": "night", "hook": "SESSION_RESET", "action": "BLOCK"}],
    "tools.fetch_page.ports": [8080, 8443],
    "tools.functions": {"lookup": {"classification": LEVEL}},
    "channels.apprise.accounts": {"phone": {"person": "ann"}},
    "channels.discord.accounts": {"home": {"agent": "main"}},
    "channels.discord.accounts.x.groups": {"5": {"agent": "main", "silent": True}},
    "channels.discord.groups": {"5": {"agent": "main", "silent": True}},
    "channels.deltachat.accounts": {"home": {"agent": "main"}},
    "channels.deltachat.accounts.x.groups": {"group-12": {"agent": "main"}},
    "channels.deltachat.groups": {"group-12": {"agent": "main"}},
    "channels.matrix.groups": {"!a:home": {"agent": "main", "silent": True}},
    "channels.matrix.bridges": {"signal": {"users": "@signal_*:home"}},
    "channels.matrix.bridges.x.groups": {"!a:home": {"agent": "main", "silent": True}},
    "channels.matrix.accounts": {"home": {"agent": "main"}},
    "channels.matrix.accounts.x.groups": {"!a:home": {"agent": "main", "silent": True}},
    "channels.matrix.accounts.x.bridges": {"signal": {"users": "@signal_*:home"}},
    "channels.matrix.accounts.x.bridges.x.groups": {"!a:home": {"agent": "main", "silent": True}},
    "channels.slack.groups": {"C1": {"agent": "main", "silent": True}},
    "channels.slack.accounts": {"acme": {"agent": "main"}},
    "channels.slack.accounts.x.groups": {"C1": {"agent": "main", "silent": True}},
    "channels.email.accounts": {"home": {"agent": "main"}},
    "channels.email.accounts.x.groups": {"family": {"agent": "main"}},
    "channels.email.groups": {"family": {"agent": "main"}},
    "channels.telegram.groups": {"-100": {"agent": "main", "silent": True}},
    "channels.webhook": {"door": {"agent": "main"}},
    "hooks": {"bell": {"agent": "main"}},
}
"""A value of every other setting that is a list or a table."""
SIBLINGS: dict[str, dict[str, object]] = {
    "acp": {"command": ["true"]},
    "mcp_servers": {**SERVER},
    "classification": {**LEVEL},
    "clearance": {**LEVEL},
    "private": {**LEVEL},
}
_NAMED_AT = {"acp": 3, "mcp_servers": 2}
"""How deep below them the section is that needs it; 1 for others."""
"""What a section needs besides."""


def lists_and_tables(section: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[str]:
    """Every setting that a single text cannot hold, but those of the agents in the list."""
    for name, field in section.model_fields.items():
        here, kind = (*place, name), str(field.annotation)
        is_named, is_list = "dict[" in kind, "tuple[" in kind
        if is_named or is_list:
            yield ".".join(here)
        for inner in types_in(field.annotation):
            if issubclass(inner, BaseModel) and here != ("agents", "list"):
                yield from lists_and_tables(inner, (*here, "x") if is_named else here)


SETTINGS = sorted({*lists_and_tables(Config)})
SAMPLES = {**TABLES, **LISTS}


def sample(setting: str) -> object:
    return ["crew", "board"] if setting.endswith(".compartments") else SAMPLES[setting]


def siblings(setting: str) -> dict[str, object]:
    """What the section around the setting needs, by the place."""
    parts = setting.split(".")
    found: dict[str, object] = {}
    for index, part in enumerate(parts):
        needed = SIBLINGS.get(part, {})
        depth = index + _NAMED_AT.get(part, 1)
        if len(parts) > depth:
            found |= {".".join((*parts[:depth], name)): value for name, value in needed.items()}
    return found


def beside(setting: str) -> dict[str, str]:
    """The variables of its siblings."""
    found = siblings(setting).items()
    return {variable(place): value if isinstance(value, str) else json.dumps(value) for place, value in found}


def variable(setting: str) -> str:
    return "ANTIPHON_" + setting.upper().replace(".", "__")


def read(setting: str, text: str) -> Config:
    environment = {variable(setting): text}
    return load_config(None, environment=beside(setting) | environment)


def written(tmp_path: Path, setting: str) -> Config:
    tree: dict[str, Any] = {}
    for place, value in {**siblings(setting), setting: sample(setting)}.items():
        node = tree
        *parents, last = place.split(".")
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value
    file = tmp_path / "antiphon.json5"
    file.write_text(json.dumps(tree), "utf-8")
    return load_config(file, environment={})


@requirement("config:1")
def test_the_table_has_every_list_and_every_table() -> None:
    assert {each for each in SETTINGS if not each.endswith(".compartments")} == set(SAMPLES)
    assert get_origin(Config.model_fields["hooks"].annotation) is dict
    assert get_args(Config.model_fields["hooks"].annotation)[0] is str


@requirement("config:1")
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_variable_holds_a_list_or_a_table_in_json(tmp_path: Path, setting: str) -> None:
    config = read(setting, f" {json.dumps(sample(setting))}\n")
    assert config == written(tmp_path, setting)
    assert config != load_config(None, environment=beside(setting))


@requirement("config:1")
@pytest.mark.parametrize("setting", [each for each in SETTINGS if isinstance(sample(each), list) and each in LISTS])
def test_a_variable_holds_a_list_with_commas(tmp_path: Path, setting: str) -> None:
    names = cast(list[str], sample(setting))
    assert read(setting, ", ".join(names) + ",\n") == written(tmp_path, setting)


@requirement("config:1")
@pytest.mark.parametrize("setting", [each for each in SETTINGS if each in LISTS])
@pytest.mark.parametrize("text", ["", " ", ",", "[a.example]", "[1", '{"a": 1}', "[" * 100_000])
def test_what_is_no_list_is_refused_in_the_form_that_helps(setting: str, text: str) -> None:
    """An empty variable is none: an empty list of calls to approve would let all of them run."""
    with pytest.raises(Invalid) as refused:
        read(setting, text)
    where = f"Environment variable {variable(setting)}: {setting}"
    assert refused.value.message == f'{where}: needs a list, such as a,b or ["a", "b"]; [] is the empty list.'


@requirement("config:1")
def test_a_list_stands_for_the_tools_that_sub_agents_are_allowed(tmp_path: Path) -> None:
    setting, names = "tools.subagents.tools", ("sessions_list", "sessions_history")
    for text in ('["sessions_list", "sessions_history"]', "sessions_list,sessions_history"):
        assert read(setting, text).tools.subagents.tools.allow == names
    with pytest.raises(Invalid) as refused:
        read(setting, "[1]")
    assert refused.value.message.startswith("Environment variable ANTIPHON_TOOLS__SUBAGENTS__TOOLS: ")
    file = tmp_path / "antiphon.toml"
    file.write_text('[tools]\nsubagents.tools = ["sessions_lsit"]\n', "utf-8")
    with pytest.raises(Invalid) as misspelt:
        refuse_misspelt(load_config(file, environment={}), ())
    assert f"{str(file)!r}, line 2" in misspelt.value.message


@requirement("config:1")
def test_a_wrong_entry_of_a_list_names_the_variable() -> None:
    with pytest.raises(Invalid) as refused:
        read("gateway.allowed_hosts", "a.example,http://b.example")
    assert refused.value.message.startswith(
        "Environment variable ANTIPHON_GATEWAY__ALLOWED_HOSTS: gateway.allowed_hosts.1: 'http://b.example' is no host"
    )


@requirement("config:1")
@pytest.mark.parametrize("setting", [each for each in SETTINGS if isinstance(SAMPLES.get(each), dict)])
@pytest.mark.parametrize("text", ["", "a,b", "{a: 1}", "[]", "1"])
def test_what_is_no_table_is_refused_in_the_form_that_helps(setting: str, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(setting, text)
    where = f"Environment variable {variable(setting)}: {setting}: "
    assert refused.value.message == f'{where}needs a table in JSON, such as {{"name": "value"}}.'


@requirement("config:1")
@pytest.mark.parametrize("turned", [False, True])
def test_a_variable_for_a_part_changes_the_table_of_another_variable(*, turned: bool) -> None:
    variables = [
        ("ANTIPHON_PROVIDERS", '{"local": {"base_url": "http://127.0.0.1:1/v1"}, "far": {}}'),
        ("ANTIPHON_PROVIDERS__LOCAL__STALL_SECONDS", "5"),
    ]
    config = load_config(None, environment=dict(reversed(variables) if turned else variables))
    assert config.providers["local"].base_url == "http://127.0.0.1:1/v1"
    assert config.providers["local"].stall_seconds == 5
    assert "far" in config.providers


@requirement("config:1")
def test_a_part_of_what_is_no_table_names_both_variables() -> None:
    with pytest.raises(Invalid) as refused:
        load_config(None, environment={"ANTIPHON_PROVIDERS": "a", "ANTIPHON_PROVIDERS__LOCAL__STALL_SECONDS": "5"})
    assert refused.value.message.startswith("Environment variable ANTIPHON_PROVIDERS__LOCAL__STALL_SECONDS")
    assert "'providers'" in refused.value.message


TOKEN = "1234567:abcdefghijklmnop"
SECRET = "0123456789abcdef0123"
SECRETS = {
    "channels.telegram.token": TOKEN,
    "providers.x.api_key": "sk-1",
    "channels.webhook.x.secret": SECRET,
    "hooks.x.secret": SECRET,
}


def secret_of(config: Config, setting: str) -> str | None:
    match setting.split(".")[0], setting.split(".")[1]:
        case "channels", "telegram":
            return config.channels.by_name()["telegram"].key()
        case "channels", _:
            return config.channels.by_name()["webhook"]["x"].key()
        case "hooks", _:
            return config.hooks["x"].key()
        case _:
            return provider_settings(config)["x"].api_key


@requirement("config:1")
@pytest.mark.parametrize("setting", SECRETS)
@pytest.mark.parametrize("blanks", ["\n", "\r\n", " \t\n"])
def test_a_secret_loses_the_blanks_at_its_ends_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, blanks: str
) -> None:
    wanted = SECRETS[setting]
    given = f"{blanks}{wanted}{blanks}"
    assert secret_of(load_config(None, environment={variable(setting): given}), setting) == wanted
    file = tmp_path / "antiphon.toml"
    file.write_text(f"{setting} = {json.dumps(given)}\n", "utf-8")
    assert secret_of(load_config(file, environment={}), setting) == wanted
    monkeypatch.setenv("THE_SECRET", given)
    named = load_config(None, environment={f"{variable(setting)}_ENV": "THE_SECRET"})
    assert secret_of(named, setting) == wanted
    assert secret_of(load_config(None, environment={f"{variable(setting)}_ENV": "UNSET_SECRET"}), setting) is None


@requirement("config:1")
def test_other_secrets_lose_their_blanks_too() -> None:
    config = load_config(
        None,
        environment={
            "ANTIPHON_DATABASE": "postgresql://u@h/n\n",
            "ANTIPHON_MODEL": "openai:gpt-5\n",
            "ANTIPHON_AGENTS__DEFAULTS__MCP_SERVERS__X": json.dumps(
                {"command": "true", "env": {"T": "abc\n"}, "headers": {"A": "Bearer abc\r\n"}}
            ),
            "ANTIPHON_PROVIDERS__X__HEADERS": '{"A": "b\\n"}',
        },
    )
    server = config.agents.defaults.mcp_servers["x"]
    assert config.database.url is not None and config.database.url.get_secret_value() == "postgresql://u@h/n"
    assert config.agents.defaults.model == "openai:gpt-5"
    assert [server.env["T"].get_secret_value(), server.headers["A"].get_secret_value()] == ["abc", "Bearer abc"]
    assert provider_settings(config)["x"].headers == {"A": "b"}


LITERAL = {
    'providers.x.api_key = "${SOME_KEY}"': "api_key_env",
    'channels.telegram.token = "${SOME_KEY}"': "token_env",
    'providers.x.headers.Authorization = "Bearer ${SOME_KEY}"': "ANTIPHON_PROVIDERS__X__HEADERS__AUTHORIZATION",
    'database.url = "postgresql://u:${SOME_KEY}@h/n"': "ANTIPHON_DATABASE__URL",
    'agents.defaults.mcp_servers.x = {command = "true", args = ["${SOME_KEY}"]}': "Write the value itself",
    'agents.defaults.mcp_servers.x = {command = "true", env = {A = "${SOME_KEY}"}}': "__X__ENV__A",
}


@requirement("config:1")
@pytest.mark.parametrize("text", LITERAL)
def test_a_setting_that_holds_a_variables_name_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(f"{text}\n", "utf-8")
    [told] = misread(load_config(file, environment={"ANTIPHON_TASKS__ZONE": "UTC"}))
    assert f"{str(file)!r}, line 1" in told and "'${SOME_KEY}'" in told and LITERAL[text] in told


@requirement("config:1")
@pytest.mark.parametrize(
    "text",
    [
        'agents.defaults.instructions = "Write ${NAME} where a name is missing."',
        'agents.defaults.mcp_servers.x = {command = "sh", args = ["-c", "cat ${HOME}/notes"]}',
        'providers.x.api_key = "sk-$1{a}"',
    ],
)
def test_prose_and_commands_of_a_shell_may_speak_of_variables(tmp_path: Path, text: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(f"{text}\n", "utf-8")
    assert [*misread(load_config(file, environment={"ANTIPHON_TASKS__ZONE": "UTC"}))] == []


@requirement("config:1")
@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"ANTIPHON_MODEL": "openai:gpt-5"}, "OPENAI_API_KEY"),
        ({"ANTIPHON_PROVIDERS__LOCAL__API_KEY_ENV": "SOME_KEY"}, "SOME_KEY"),
        ({"ANTIPHON_CHANNELS__TELEGRAM__TOKEN_ENV": "SOME_KEY"}, "SOME_KEY"),
        ({"ANTIPHON_HOOKS__BELL__SECRET_ENV": "SOME_KEY"}, "SOME_KEY"),
        ({"ANTIPHON_CHANNELS__WEBHOOK__DOOR__SECRET_ENV": "SOME_KEY"}, "SOME_KEY"),
    ],
)
def test_a_variable_that_holds_a_variables_name_is_told(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str
) -> None:
    monkeypatch.setenv(name, "${REAL_KEY}")
    [told] = misread(load_config(None, environment=environment | {"ANTIPHON_TASKS__ZONE": "UTC"}))
    assert told.startswith(f"Environment variable {name} holds the letters '${{REAL_KEY}}'")


@requirement("config:1")
def test_a_setting_that_a_variable_sets_is_told_by_the_variable_alone() -> None:
    given = {"ANTIPHON_TELEGRAM_TOKEN": "${REAL_TOKEN}", "ANTIPHON_TASKS__ZONE": "UTC"}
    [told] = misread(load_config(None, environment=given))
    assert told.startswith("Environment variable ANTIPHON_TELEGRAM_TOKEN holds the letters '${REAL_TOKEN}'")
    assert told.endswith("Set it to the value itself")


@requirement("config:1")
@pytest.mark.parametrize("zone", ["CET-1CEST,M3.5.0,M10.5.0/3", "<+03>-3", "Mars/Olympus", "Europe/Berlinn", "../UTC"])
def test_a_zone_that_names_none_is_told_with_the_setting(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    [told] = misread(load_config(None, environment={}))
    assert told.startswith(f"Environment variable TZ: {zone!r}") and told.endswith("or set tasks.zone")
    assert machine_zone() in told
    assert [*misread(load_config(None, environment={"ANTIPHON_TASKS__ZONE": "UTC"}))] == []


@requirement("config:1")
@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin\n", "Europe/Berlin"),
        ("Etc/UTC", "UTC"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        (":/etc/localtime", None),
        ("", None),
    ],
)
def test_a_zone_that_is_known_is_taken_without_a_word(
    monkeypatch: pytest.MonkeyPatch, zone: str, meant: str | None
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    unset = machine_zone()
    monkeypatch.setenv("TZ", zone)
    assert machine_zone() == (meant or unset)
    assert [*misread(load_config(None, environment={}))] == []
