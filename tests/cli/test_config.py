import json
import re
from pathlib import Path

import pytest

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving

pytestmark = requirement("config:1")


def test_the_schema_names_every_section(home: Path) -> None:
    done = antiphon("config", "schema", home=home)
    schema = json.loads(done.stdout)
    assert done.returncode == 0
    assert {"gateway", "agents", "providers", "limits", "session", "log"} <= schema["properties"].keys()
    limits = schema["$defs"]["LimitsSection"]["properties"]
    assert [name for name, setting in limits.items() if not setting.get("description")] == []


def test_a_configuration_is_checked_without_starting_anything(home: Path) -> None:
    assert antiphon_json("config", "check", home=home) == {"ok": True, "file": None}
    home.mkdir()
    (home / "antiphon.toml").write_text("[runs]\nmaxConcurrent = 0\n")
    done = antiphon("config", "check", home=home)
    assert done.returncode == 2
    assert "line 2" in done.stderr and "runs.maxConcurrent" in done.stderr


def test_names_of_tools_and_agents_that_there_are_not_are_warned_of(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(
        'tools.subagents.tools = ["sessions_list", "nope"]\n'
        '[agents.defaults.subagents]\nallow_agents = ["*", "main", "nobody"]\n'
    )
    told = [
        "tools.subagents.tools.allow names no session tool: 'nope'",
        "agents.defaults.subagents.allow_agents names no agent: 'nobody'",
    ]
    assert antiphon_json("config", "check", home=home)["warnings"] == told
    shown = antiphon("config", "check", home=home)
    assert shown.returncode == 0 and all(text in shown.stdout for text in told)
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    found = [check for check in checks if check["name"] == "setting"]
    assert [(check["status"], check["detail"]) for check in found] == [("warning", text) for text in told]
    assert all(check["remedy"] for check in found)


def write(home: Path, text: str, name: str = "antiphon.toml") -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[agents.defaults]\nmodel = "nobody:gpt"\n', "line 2: agents.defaults.model: Model unknown: 'nobody:gpt'"),
        ('[[agents.list]]\nid = "a"\n\nmodel = "gpt"\n', "line 4: agents.list.0.model: Model is unknown: 'gpt'"),
        ('[providers.mine]\nbase_url = "localhost:8080/v1"\n', "line 2: providers.mine.base_url: needs an address"),
        ('[providers.mine]\nbaseUrl = "ftp://host/v1"\n', "line 2: providers.mine.baseUrl: needs an address"),
        ('[channels.webhook.a]\nurl = "host"\n', "line 2: channels.webhook.a.url: needs an address"),
        ('[agents.defaults.mcp_servers.a]\nurl = "x"\n', "line 2: agents.defaults.mcp_servers.a.url: needs an address"),
        ('[gateway]\nhost = "http://localhost"\n', "line 2: gateway.host: 'http://localhost' is no host"),
        ('[gateway]\nhost = "localhost:80"\n', "line 2: gateway.host: 'localhost:80' is no host"),
        ('[gateway]\nhost = ""\n', "line 2: gateway.host: '' is no host"),
        ("[gateway]\nport = 70000\n", "line 2: gateway.port: Input should be less than or equal to 65535"),
        ('[gateway]\nallowedHosts = ["a.example", "https://b.example"]\n', "line 2: gateway.allowedHosts.1: "),
    ],
)
def test_a_model_or_an_address_that_cannot_be_used_is_refused_with_its_line(home: Path, text: str, told: str) -> None:
    write(home, text)
    done = antiphon("config", "check", home=home)
    assert done.returncode == 2
    assert told in done.stderr and str(home / "antiphon.toml") in done.stderr


def test_a_model_that_a_variable_names_is_refused_with_the_variable(home: Path) -> None:
    write(home, '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n')
    assert antiphon("config", "check", home=home, env={"ANTIPHON_MODEL": "mine:m"}).returncode == 0
    done = antiphon("config", "check", home=home, env={"ANTIPHON_MODEL": "other:m"})
    assert done.returncode == 2
    assert "Environment variable ANTIPHON_MODEL: agents.defaults.model: Model unknown" in done.stderr


def test_an_address_that_this_machine_does_not_have_is_warned_of(home: Path) -> None:
    write(home, '[gateway]\nhost = "192.0.2.1"\n')
    (warning,) = antiphon_json("config", "check", home=home)["warnings"]
    assert "gateway.host: this machine cannot listen on 192.0.2.1:7464" in warning


def test_settings_that_the_running_gateway_did_not_read_make_a_restart_due(home: Path, tmp_path: Path) -> None:
    settings = "[runs]\nmax_concurrent = 3\n[gateway]\ndrain_seconds = 1\n"
    write(home, settings)
    with serving(home):
        assert antiphon_json("config", "check", home=home)["restartDue"] is False
        write(home, "# only a comment, and another order\n[gateway]\ndrain_seconds = 1\n[runs]\nmax_concurrent = 3\n")
        assert antiphon_json("config", "check", home=home)["restartDue"] is False
        write(home, settings + '[[flow.rules]]\nid = "a"\nhook = "PRE_OUTPUT"\naction = "BLOCK"\n')
        assert antiphon_json("config", "check", home=home)["restartDue"] is False  # rules count without one
        write(home, settings.replace("3", "4"))
        changed = antiphon_json("config", "check", home=home)
        assert changed["ok"] is True and changed["restartDue"] is True
        assert re.fullmatch(r"the running gateway \(process \d+\) still uses .* restart it .*", changed["warnings"][0])
        checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
        assert [check["status"] for check in checks if check["name"] == "running settings"] == ["warning"]
        write(tmp_path, settings, "other.toml")
        other = antiphon("config", "check", "--config", tmp_path / "other.toml", home=home)
        assert f"was started with {str(home / 'antiphon.toml')!r}" in " ".join(other.stdout.split())
    with serving(home):
        assert antiphon_json("config", "check", home=home)["restartDue"] is False


LACKING = """\
[channels.webhook.door]
secret_env = "DOOR_SECRET"

[channels.webhook.gate]
secret = "short"

[channels.telegram]
token_env = "BOT_TOKEN"

[providers.mine]
base_url = "http://127.0.0.1:1/v1"
api_key_env = "MINE_KEY"
"""


def test_a_missing_key_of_an_agents_model_is_warned_of_once_with_its_place(home: Path) -> None:
    write(
        home, '[agents.defaults]\nmodel = "openai:gpt-5"\n[[agents.list]]\nid = "main"\n[[agents.list]]\nid = "two"\n'
    )
    (told,) = antiphon_json("config", "check", home=home)["warnings"]
    assert "line 2: agents.defaults.model: Key missing for provider 'openai'" in told and "OPENAI_API_KEY" in told
    assert "warnings" not in antiphon_json("config", "check", home=home, env={"OPENAI_API_KEY": "key"})


def test_what_a_start_lacks_is_warned_of_with_its_place(home: Path) -> None:
    write(home, LACKING)
    told = antiphon_json("config", "check", home=home)["warnings"]
    assert [re.sub(r"^Configuration '[^']+', ", "", text).partition(". ")[0] for text in told] == [
        "line 2: Webhook has no usable secret: channels.webhook.door needs one (variable DOOR_SECRET)",
        "line 4: Webhook has no usable secret: channels.webhook.gate needs one of 16 characters or more (secret)",
        "line 7: Telegram has no usable token: the variable BOT_TOKEN is not set",
        "line 12: providers.mine.api_key_env names a variable that is not set: 'MINE_KEY'",
    ]
    shown = antiphon("config", "check", home=home)
    assert shown.returncode == 0 and shown.stdout.count("Warning: ") == 4
    there = {"DOOR_SECRET": "x" * 32, "BOT_TOKEN": "7001:abcdefghijklmnop", "MINE_KEY": "key"}
    (told,) = antiphon_json("config", "check", home=home, env=there)["warnings"]
    assert "channels.webhook.gate" in told
    write(home, "")
    (told,) = antiphon_json("config", "check", home=home, env={"ANTIPHON_TELEGRAM_TOKEN": "nonsense"})["warnings"]
    assert told.startswith(
        "Environment variable ANTIPHON_TELEGRAM_TOKEN: Telegram has no usable token: it does not hold one. "
    )


def test_a_program_for_the_password_that_is_not_here_is_warned_of(home: Path) -> None:
    write(home, '[database]\nurl = "postgresql://h/d"\npassword_command = ["no-such-program", "token"]\n')
    (told,) = antiphon_json("config", "check", home=home)["warnings"]
    assert "line 3: database.password_command names a program that cannot be run here: 'no-such-program'" in told
    write(home, '[database]\nurl = "postgresql://h/d"\npassword_command = ["cat", "/nowhere"]\n')
    assert "warnings" not in antiphon_json("config", "check", home=home)


CLASSIFIED = """\
[channels.telegram]
token = "7001:abcdefghijklmnop"
classification = {level = "INTERNAL", compartments = ["health"]}
api_base = "http://127.0.0.1:9"
"""


@requirement("flow:7")
def test_a_channel_whose_messages_are_above_its_clearance_is_warned_of(home: Path) -> None:
    refused = "line 3: channels.telegram.classification is above the clearance: every message is refused"

    def told(text: str) -> list[str]:
        write(home, text)
        return antiphon_json("config", "check", home=home).get("warnings", [])

    (warning,) = told(CLASSIFIED)
    assert refused in warning
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    assert [check["detail"] for check in checks if check["name"] == "setting"] == [warning]
    (warning,) = told(CLASSIFIED + 'clearance = {level = "RESTRICTED"}\n')
    assert refused in warning
    assert told(CLASSIFIED + 'clearance = {level = "INTERNAL", compartments = ["health", "money"]}\n') == []
    door = '[channels.webhook.door]\nsecret = "0123456789abcdef"\nclassification = {level = "INTERNAL"}\n'
    assert told(door) == []  # it only receives
    (warning,) = told(door + 'url = "http://127.0.0.1:1/hook"\n')
    assert "channels.webhook.door.classification is above the clearance" in warning


SEEDED = """\
{
  session: { threadBindings: { enabled: true, idleHours: 24 } },
  channels: { discord: { threadBindings: { enabled: false } } },
}
"""


def test_bindings_of_threads_are_read_also_for_a_channel_without_an_account(home: Path) -> None:
    write(home, SEEDED, "antiphon.json5")
    assert "warnings" not in antiphon_json("config", "check", home=home)
    with serving(home):
        pass
    write(home, "{ channels: { discord: { token: 'x' } } }", "antiphon.json5")
    assert "no usable token" in antiphon("config", "check", home=home).stdout


@requirement("list:2")
def test_rows_name_their_provider_only_for_s0(home: Path) -> None:
    write(home, "")
    antiphon("chat", "-m", "hello", home=home)
    for text in ("", 'compat = "s0"\n'):
        write(home, text)
        listed = antiphon_json("sessions", "list", home=home)["sessions"]
        tooled = antiphon_json("tool", "sessions_list", "--as", "main", "{}", home=home)["sessions"]
        shown = antiphon_json("sessions", "show", "main", home=home)
        for row in (*listed, *tooled, shown):
            assert row.get("provider") == (row["channel"] if text else None)
        assert listed and tooled


@requirement("approvals:1")
def test_a_misspelt_guard_and_a_list_that_drops_its_defaults_are_told_before_the_start(home: Path) -> None:
    write(home, 'tools.approval.require = ["run_comand"]\n')
    refused = antiphon("config", "check", home=home)
    assert refused.returncode == 2
    assert "line 1: tools.approval.require names no tool: 'run_comand'. Did you mean 'run_command'?" in refused.stderr
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    assert [check["status"] for check in checks if check["name"] == "setting"] == ["broken", "warning", "warning"]
    write(home, 'tools.approval.require = ["git_push"]\n')
    told = antiphon_json("config", "check", home=home)["warnings"]
    assert told[0] == "tools.approval.require names no tool: 'git_push'"
    assert told[1].startswith("tools.approval.require names no effect, so it drops its defaults: effect:deletes, ")
