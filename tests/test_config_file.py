"""Configuration files: TOML and JSON5 in the seeds' shape, and errors that name the line."""

import re
from pathlib import Path

import pytest

from antiphon.config.config import Config
from antiphon.config.named import ineffective_names
from antiphon.config.sources import find_config_file, load_config
from antiphon.configured import mcp_settings, provider_settings
from antiphon.domain.agent import LONGEST
from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, Classification, Compartments, Level
from antiphon.domain.errors import Invalid
from antiphon.domain.session import DeliveryContext
from antiphon.policy.send import SendAction, SendRule
from antiphon.policy.visibility import AgentToAgent, Visibility
from tests.channels.settings import read_settings
from tests.claims import requirement

SEEDED = """\
// in the seeds' shape
{
  session: {
    sendPolicy: {
      rules: [
        { match: { surface: "discord", chatType: "group" }, action: "deny" },
        { match: { keyPrefix: 'cron:' }, action: "allow" },
      ],
      default: "allow",
    },
    agentToAgent: { maxPingPongTurns: 3 },
  },
  tools: {
    sessions: { visibility: "all" },
    agentToAgent: { enabled: true, allow: ["ops-*", "main"] },
    subagents: { tools: ["sessions_list"] },
  },
  agents: {
    defaults: {
      subagents: { allowAgents: ["*"] },
      sandbox: { sessionToolsVisibility: "spawned" },
    },
    list: [
      { id: "main" },
      /* the second */ { id: "ops-a", subagents: { allowAgents: [] }, tools: { sessions: { send: false } } },
    ],
  },
}
"""
AS_TOML = """\
[session]
agentToAgent.maxPingPongTurns = 3
[session.sendPolicy]
default = "allow"
[[session.sendPolicy.rules]]
match = { channel = "discord", chat_type = "group" }
action = "deny"
[[session.sendPolicy.rules]]
match.keyPrefix = "cron:"
action = "allow"
[tools]
sessions.visibility = "all"
subagents.tools = ["sessions_list"]
[tools.agent_to_agent]
enabled = true
allow = ["ops-*", "main"]
[agents.defaults]
subagents.allow_agents = ["*"]
sandbox.sessionToolsVisibility = "spawned"
[[agents.list]]
id = "main"
[[agents.list]]
id = "ops-a"
subagents.allowAgents = []
tools.sessions.send = false
"""


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, "utf-8")
    return path


@requirement("config:1")
def test_a_json5_file_in_the_seeds_shape_means_the_same_as_toml(tmp_path: Path) -> None:
    json5 = load_config(written(tmp_path, "a.json5", SEEDED), environment={})
    assert json5 == load_config(written(tmp_path, "a.toml", AS_TOML), environment={})
    rules = json5.rules()
    assert rules.send_policy.rules == (
        SendRule(action=SendAction.DENY, channel="discord", chat_type="group"),
        SendRule(action=SendAction.ALLOW, key_prefix="cron:"),
    )
    assert rules.visibility.visibility is Visibility.ALL
    assert rules.visibility.agent_to_agent == AgentToAgent(enabled=True, allow=("ops-*", "main"))
    assert rules.exchanges.max_turns == 3
    assert rules.subagent_tools == {"sessions_list"}


@requirement("config:1")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{\n  tools: {\n    sesions: {},\n  },\n}", ["line 3", "'tools.sesions'", "Did you mean 'sessions'?"]),
        (
            "{\n  tools: {\n    sessions: {\n      visibility: 'everything' } } }",
            ["line 4", "tools.sessions.visibility"],
        ),
        ("{\n  agents: { list: [\n { id: 'a' },\n { id: 'No' } ] } }", ["line 4", "agents.list.1.id"]),
        ("{\n  session: {\n    agentToAgent: { maxPingPongTurns: 9 } } }", ["line 3", "maxPingPongTurns"]),
        ("{\n  tools: {},\n  tools: {} }", ["line 3", "'tools' is given twice"]),
        ("{\n  tools: {\n    sessions: }\n}", ["not JSON5", "line 3"]),
        ("[]", ["not an object"]),
        (
            "{\n  agents: {\n    defaults: { subagents: {\n      allowAgents: ['main', 'Ops*'] } } } }",
            ["line 4", "agents.defaults.subagents.allowAgents.1", "'Ops*'"],
        ),
        ("{\n  agents: { list: [{\n    id: 'a', subagents: { allowAgents: [''] } }] } }", ["line 3", "allowAgents.0"]),
        ("{\n  session: { sendPolicy: { rules: [\n { action: 'maybe' } ] } } }", ["line 3", "action"]),
    ],
)
def test_what_is_wrong_in_json5_is_told_with_its_line(tmp_path: Path, text: str, told: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        load_config(written(tmp_path, "antiphon.json5", text), environment={})
    assert refused.value.code == "invalid_config"
    for part in told:
        assert part in refused.value.message


@requirement("config:1", "spawn:3", "spawn:4")
@pytest.mark.parametrize("value", ["inf", "nan", "1e300", "1e9"])
@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("agents.defaults.subagents", "run_timeout_seconds"),
        ("agents.defaults.subagents", "archive_after_minutes"),
        ("limits.run", "time_seconds"),
        ("gateway", "drain_seconds"),
        ("providers.own", "stall_seconds"),
    ],
)
def test_no_time_is_set_longer_than_ten_years(tmp_path: Path, section: str, name: str, value: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_config(written(tmp_path, "antiphon.toml", f"[{section}]\n{name} = {value}\n"), environment={})
    assert f"{section}.{name}" in refused.value.message


@requirement("config:1", "spawn:3", "spawn:4")
def test_times_of_ten_years_can_be_set(tmp_path: Path) -> None:
    text = "[agents.defaults.subagents]\nrun_timeout_seconds = 315360000\narchive_after_minutes = 5256000\n"
    rules = load_config(written(tmp_path, "antiphon.toml", text), environment={}).rules()
    (agent,) = rules.agents.values()
    assert agent.subagents.time_limit == agent.subagents.archive_after == LONGEST


@requirement("config:1")
@pytest.mark.parametrize("name", ["idleMinutes", "staleAfterDays", "retentionDays"])
def test_times_that_cannot_be_counted_are_refused(tmp_path: Path, name: str) -> None:
    section = "session.reset" if name == "idleMinutes" else "session"
    with pytest.raises(Invalid) as refused:
        load_config(written(tmp_path, "antiphon.toml", f"[{section}]\n{name} = 10000000000\n"), environment={})
    assert f"{section}.{name}" in refused.value.message


@requirement("config:1")
@pytest.mark.parametrize("name", ["memory_mb", "disk_mb"])
@pytest.mark.parametrize("section", ["[agents.defaults.sandbox]\n", '[[agents.list]]\nid = "main"\nsandbox.'])
def test_no_command_is_allowed_more_than_a_tebibyte(tmp_path: Path, section: str, name: str) -> None:
    most = load_config(written(tmp_path, "antiphon.toml", f"{section}{name} = 1048576\n"), environment={})
    (agent,) = most.agent_map().values()
    assert 1 << 40 in (agent.command_limits.memory_bytes, agent.command_limits.disk_bytes)
    for value in (1_048_577, 10**30):
        with pytest.raises(Invalid) as refused:
            load_config(written(tmp_path, "antiphon.toml", f"{section}{name} = {value}\n"), environment={})
        assert f"sandbox.{name}" in refused.value.message and "1048576" in refused.value.message


@requirement("config:1")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('agents.defaults.subagents.allow_agents = "*"', 'allow_agents: needs a list, such as ["a", "b"].'),
        ("agents = 1", "agents: needs a table."),
        ("providers = []", "providers: needs a table."),
        ("gateway.host = 1", "gateway.host: needs text, in quotes."),
        ('gateway.port = "80"', "gateway.port: needs a whole number."),
        ("gateway.port = 1.5", "gateway.port: needs a whole number."),
        ("gateway.drain_seconds = true", "gateway.drain_seconds: needs a number."),
        ("limits.run.tokens = true", "limits.run.tokens: needs a whole number."),
        ("agents.defaults.subagents.max_children_per_agent = true", "max_children_per_agent: needs a whole number."),
        ('agents.defaults.sandbox = { network = "yes" }', "sandbox.network: needs true or false."),
        ("tools.agent_to_agent.enabled = 1", "enabled: needs true or false."),
        ('[[agents.list]]\nid = "a"\nsandbox.network = 0', "sandbox.network: needs true or false."),
        ('[[agents.list]]\nname = "a"', "agents.list.0.id: is required."),
        ('[[agents.list]]\nid = "A"', "beginning with a letter or digit.\0"),
        ('session.reset.zone = "x"', "session.reset.zone: unknown time zone 'x'"),
        ('access.roles.owner.tools = ["a"]', "access.roles: 'owner' cannot be set here: owners may do everything"),
        (
            'access.roles.user.commands = ["a"]',
            "access.roles.user.commands.0: 'a' is not a command that they may have; choose from agent, approve,",
        ),
        ("access.roles.user.tools = 1", 'access.roles.user.tools: needs a list, such as ["a", "b"].'),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_words_of_the_file(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_config(written(tmp_path, "antiphon.toml", text + "\n"), environment={})
    assert told in f"{refused.value.message}\0"
    assert "Value error" not in refused.value.message


@requirement("config:1")
def test_numbers_and_truth_values_of_variables_are_texts() -> None:
    config = load_config(
        None,
        environment={
            "ANTIPHON_PORT": "80",
            "ANTIPHON_GATEWAY__DRAIN_SECONDS": "1.5",
            "ANTIPHON_LIMITS__RUN__TOKENS": "7",
            "ANTIPHON_TOOLS__AGENT_TO_AGENT__ENABLED": "yes",
            "ANTIPHON_AGENTS__DEFAULTS__SANDBOX__NETWORK": "true",
        },
    )
    assert (config.gateway.port, config.gateway.drain_seconds, config.limits.run.tokens) == (80, 1.5, 7)
    assert config.tools.agent_to_agent.enabled and config.agents.defaults.sandbox.network
    with pytest.raises(Invalid) as refused:
        load_config(None, environment={"ANTIPHON_PORT": "http"})
    assert refused.value.message == "Environment variable ANTIPHON_PORT: gateway.port: needs a whole number."


@requirement("config:1")
def test_a_file_that_cannot_be_read_shows_nothing_of_what_it_holds(tmp_path: Path) -> None:
    path = written(tmp_path, "antiphon.json5", '{ providers: { openai: { apiKey: "sk-very-secret" } }, oops }')
    with pytest.raises(Invalid) as refused:
        load_config(path, environment={})
    assert "sk-very-secret" not in str(refused.value)


@requirement("config:1")
def test_the_homes_own_file_is_of_either_kind_but_not_of_both(tmp_path: Path) -> None:
    assert find_config_file(tmp_path) is None
    json5 = written(tmp_path, "antiphon.json5", "{}")
    assert find_config_file(tmp_path) == json5
    written(tmp_path, "antiphon.toml", "")
    with pytest.raises(Invalid) as refused:
        find_config_file(tmp_path)
    assert "antiphon.json5" in refused.value.message and "antiphon.toml" in refused.value.message


@requirement("config:1")
@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.toml", "[runs]\nmaxConcurent = 3\n", "'runs.maxConcurent'. Did you mean 'maxConcurrent'?"),
        ("a.toml", "[runs]\nmax_concurent = 3\n", "'runs.max_concurent'. Did you mean 'max_concurrent'?"),
        ("a.json5", "{ groups: { trigger: 'x' } }", "'groups.trigger'. Did you mean 'ownerTrigger'?"),
        ("a.toml", "[groups]\ntrigger = 'x'\n", "'groups.trigger'. Did you mean 'owner_trigger'?"),
        ("a.toml", "[providers.p]\nfirstByteSeconds = 0\n", "line 2: providers.p.firstByteSeconds: "),
        ("a.toml", "[providers.p]\nfirst_byte_seconds = 0\n", "line 2: providers.p.first_byte_seconds: "),
        ("a.json5", "{ agents: {\n  default: 'x' } }", "line 2: agents.default names no listed agent: 'x'"),
        ("a.toml", "[gateway]\nrole = 'worker'\n", "line 2: gateway.role: 'worker' needs a shared database"),
        ("a.toml", "[channels.webhook.w]\nagent = 'x'\n", "line 2: channels.webhook.w.agent names no listed agent"),
    ],
)
def test_an_error_spells_names_as_the_file_does(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_config(written(tmp_path, name, text), environment={})
    assert told in refused.value.message


@requirement("config:1")
def test_what_has_no_effect_is_named_as_the_file_does(tmp_path: Path) -> None:
    text = "[[agents.list]]\nid = 'a_b'\n[agents.list.subagents]\nallow{}gents = ['nobody']\n"
    camel = load_config(written(tmp_path, "a.toml", text.format("A")), environment={})
    assert ineffective_names(camel, ()) == ["agents.list.0.subagents.allowAgents names no agent: 'nobody'"]
    snake = load_config(written(tmp_path, "b.toml", text.format("_a")), environment={})
    assert ineffective_names(snake, ()) == ["agents.list.0.subagents.allow_agents names no agent: 'nobody'"]


@requirement("config:1")
@pytest.mark.parametrize("name", ["firstByteSeconds", "first_byte_seconds"])
def test_errors_of_a_provider_spell_its_settings_as_the_file_does(tmp_path: Path, name: str) -> None:
    text = f"[providers.my_own]\nbase_url = 'http://127.0.0.1:1/v1'\n{name} = 3\n"
    config = load_config(written(tmp_path, "a.toml", text), environment={})
    (settings,) = provider_settings(config).values()
    assert settings.place("my_own", "first_byte_seconds") == f"providers.my_own.{name}"
    assert settings.place("my_own", "base_url") == "providers.my_own.base_url"


@requirement("flow:1")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('level = "confidential"', "Did you mean 'CONFIDENTIAL'"),
        ('level = "SECRET"', "The levels are PUBLIC"),
        ('level = "PUBLIC"\nperson = "ann"', "person:<id>"),
        ('compartments = ["x"]', "is required"),
    ],
)
def test_a_classification_that_is_not_written_exactly_names_its_place(tmp_path: Path, setting: str, said: str) -> None:
    text = f'[[agents.list]]\nid = "main"\n[agents.list.classification]\n{setting}\n'
    with pytest.raises(Invalid, match=re.escape(said)) as refused:
        load_config(written(tmp_path, "antiphon.toml", text), environment={})
    assert refused.value.code == "invalid_config"
    assert "classification" in refused.value.message


@requirement("flow:1")
def test_an_unknown_compartment_names_its_place(tmp_path: Path) -> None:
    text = '[channels.webhook.door]\nsecret = "0123456789abcdef"\n[channels.webhook.door.classification]\n'
    text += 'level = "INTERNAL"\ncompartments = ["finanse"]\n'
    config = load_config(written(tmp_path, "antiphon.toml", text), environment={})
    assert config.names_compartments
    with pytest.raises(Invalid, match=r"channels.webhook.door.classification.compartments.*Did you mean 'finance'"):
        read_settings(config, "webhook", Compartments(("finance",)))
    (webhook,) = read_settings(config, "webhook", Compartments(("finance", "finanse")))
    assert webhook.classification == Classification(Level.INTERNAL, 0b10)


CLEARANCES = {
    "channels.webhook.door": 'secret = "0123456789abcdef"\n',
    "providers.openai": "",
    "agents.defaults.mcp_servers.files": 'command = "files"\n',
    "tools.run_command": "",
}
"""The places that have a clearance, with what else they need."""


@requirement("flow:1", "flow:7")
@pytest.mark.parametrize("place", CLEARANCES)
def test_a_clearance_names_its_place_where_it_is_wrong(tmp_path: Path, place: str) -> None:
    def read(setting: str) -> Config:
        text = f"[{place}]\n{CLEARANCES[place]}[{place}.clearance]\n{setting}\n"
        return load_config(written(tmp_path, "antiphon.toml", text), environment={})

    for setting, said in (
        ('level = "confidential"', "Did you mean 'CONFIDENTIAL'"),
        ('level = "PUBLIC"\nperson = "ann"', "person:<id>"),
        ('level = "PUBLIC"\nintegrity = "trusted"', "integrity"),
        ('compartments = ["x"]', "is required"),
    ):
        with pytest.raises(Invalid, match=re.escape(said)) as refused:
            read(setting)
        assert refused.value.code == "invalid_config" and "clearance" in refused.value.message
    config = read('level = "INTERNAL"\ncompartments = ["finanse"]')
    assert config.names_compartments
    with pytest.raises(Invalid, match=r"clearance.compartments.*Did you mean 'finance'"):
        config.rules(Compartments(("finance",)))
        mcp_settings(tmp_path, config, Compartments(("finance",)))


@requirement("flow:7")
def test_clearances_go_to_the_sinks_that_they_name(tmp_path: Path) -> None:
    text = "".join(f'[{place}]\n{more}[{place}.clearance]\nlevel = "INTERNAL"\n' for place, more in CLEARANCES.items())
    config = load_config(written(tmp_path, "antiphon.toml", text), environment={})
    internal = Classification(Level.INTERNAL, person=PEOPLE)
    sinks = config.rules().sinks
    assert (sinks.of_provider("openai"), sinks.of_provider("ollama")) == (internal, EVERYTHING)
    assert sinks.of_commands(PUBLIC) == internal
    (server,) = mcp_settings(tmp_path, config)
    assert server.clearance == internal
    door, other = (DeliveryContext(channel="webhook", to="x", account_id=name) for name in ("door", "other"))
    ann = Classification(Level.RESTRICTED, person="person:ann")
    assert sinks.of_place(door, ann) == Classification(Level.INTERNAL, person="person:ann")
    assert sinks.of_place(other, ann) == Classification(Level.PUBLIC, person="person:ann")
    assert sinks.of_place(door, None) == PUBLIC
    assert config.rules().sinks.of_commands(PUBLIC) == internal
    unset = load_config(written(tmp_path, "other.toml", ""), environment={}).rules().sinks
    assert unset.of_commands(PUBLIC) == Classification(Level.PUBLIC, person=PEOPLE)


@requirement("config:1")
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("name", "text"), [("antiphon.toml", AS_TOML), ("antiphon.json5", SEEDED)])
def test_a_byte_order_mark_and_the_line_ends_of_any_editor_are_read(
    tmp_path: Path, name: str, text: str, ends: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", ends).encode())
    (tmp_path / "plain").mkdir()
    plain = written(tmp_path / "plain", name, text)
    assert load_config(file, environment={}) == load_config(plain, environment={})


@requirement("config:1")
@pytest.mark.parametrize("name", ["antiphon.toml", "antiphon.json5"])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        ('# Überall\nmodel = "x"\n'.encode("utf-16"), " looks like UTF-16. Save it as UTF-8."),
        ("# x\n".encode("utf-16-le"), " looks like UTF-16. Save it as UTF-8."),
        (
            "# für\n".encode() + "# x\n# für\n".encode("latin-1"),
            ", line 3: byte 0xFC belongs to another encoding. Save the whole file as UTF-8.",
        ),
        (b"\xef\xbb\xbf# \xff\n", ", line 1: byte 0xFF belongs to another encoding. Save the whole file as UTF-8."),
        (
            b"\xef\xbb\xbf# a\n\xef\xbb\xbf# b\n",
            ", line 2: an invisible byte order mark (U+FEFF) stands there, as between two files that were joined. "
            "Remove it.",
        ),
    ],
)
def test_a_file_in_another_encoding_is_refused_with_the_place(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(Invalid) as refused:
        load_config(file, environment={})
    assert refused.value.message.endswith(f"{str(file)!r}{told}")
