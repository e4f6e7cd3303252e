"""Harnesses in the settings: agents with names of their own, shown as what they are."""

import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.homes.harness_checks import check_harnesses
from antiphon.config.config import Config
from antiphon.domain.agent import AgentRuntime
from antiphon.domain.check_result import Grade
from antiphon.domain.checkpoint import CheckpointRules
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from tests.acp.stage import harness, settings
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.story import telling


def config(name: str = "coder", /, **more: Any) -> Config:
    return Config.model_validate({"acp": {"agents": {name: {"command": ["x"], **more}}}})


@requirement("foreign_agents:2")
def test_a_harness_is_an_agent_without_a_limit_on_its_time_unless_one_is_set() -> None:
    agent = config().rules().agents[AgentId("coder")]
    assert agent.runtime is AgentRuntime.ACP and agent.limits.time is not None and not agent.limits.time
    limited = config(limits={"time_seconds": 60}).rules().agents[AgentId("coder")]
    assert limited.limits.time is not None and limited.limits.time.total_seconds() == 60


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_names_of_clients_are_nobody_elses(name: str) -> None:
    with pytest.raises(Invalid, match="attach themselves"):
        config(name).rules()
    with pytest.raises(Invalid, match="attach themselves"):
        Config.model_validate({"agents": {"list": [{"id": name}]}}).rules()


def test_a_harness_and_a_listed_agent_do_not_share_an_id() -> None:
    listed = {"agents": {"list": [{"id": "coder"}]}, "acp": {"agents": {"coder": {"command": ["x"]}}}}
    with pytest.raises(Invalid, match="two agents"):
        Config.model_validate(listed).rules()
    with pytest.raises(Invalid, match="two agents"):
        config("main").rules()


def test_a_harness_has_the_clearance_of_its_provider_unless_it_has_its_own() -> None:
    providers = {"anthropic": {"clearance": {"level": "INTERNAL"}}}
    section = {"command": ["x"], "provider": "anthropic"}
    tree = {
        "providers": providers,
        "acp": {"agents": {"a": section, "b": {**section, "clearance": {"level": "PUBLIC"}}}},
    }
    agents = Config.model_validate(tree).rules().agents
    a, b = agents[AgentId("a")].clearance, agents[AgentId("b")].clearance
    assert a is not None and b is not None and (a.level.name, b.level.name) == ("INTERNAL", "PUBLIC")
    with pytest.raises(Invalid, match="no provider"):
        config(provider="nobody").rules()


def test_a_session_of_a_harness_looks_back_only_with_a_model_that_is_named() -> None:
    own = config().rules().agents[AgentId("coder")].model
    assert CheckpointRules().model_for(own) is None
    assert CheckpointRules(model="openai:x").model_for(own) == "openai:x"


@pytest.mark.anyio
async def test_every_row_shows_a_harness_and_whether_it_is_unattended(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home, unattended=True)) as story:
        boss, coder = await story.opens("boss"), await story.opens("one", agent="coder")
        listed = await boss.calls("agents_list")
        row = next(each for each in listed["agents"] if each["id"] == "coder")
        status = await coder.calls("session_status")
        for shown in (row, status):
            assert (shown["runtime"], shown["unattended"]) == ("acp", True)
        assert "runtime" not in await boss.calls("session_status")


def test_doctor_starts_each_harness_and_says_whether_it_asks(home: Path) -> None:
    agents = {
        "good": harness(home),
        "free": harness(home, unattended=True),
        "gone": {"command": ["/no/such/program"]},
        "dumb": {"command": [sys.executable, "-c", "pass"]},
    }
    home.mkdir(exist_ok=True)
    found = [*check_harnesses(Config.model_validate({"acp": {"agents": agents}}))]
    assert [each.grade for each in found] == [Grade.OK, Grade.WARNING, Grade.BROKEN, Grade.BROKEN]
    assert "asks in its mode 'ask'" in found[0].detail and "unattended" in found[1].detail


@pytest.mark.parametrize(
    ("name", "file", "content", "said"),
    [
        ("claude-agent-acp", ".claude/settings.json", '{"permissions": {"allow": ["Bash"]}}', "permissions.allow"),
        ("claude-agent-acp", ".claude/settings.json", '{"hooks": {"Stop": []}}', "hooks"),
        ("claude-agent-acp", ".claude/settings.json", "[", "unreadable"),
        ("claude-agent-acp", ".claude/settings.json", '{"permissions": {"allow": ["mcp__antiphon"]}}', None),
        ("claude-agent-acp", ".codex/rules", "", None),
        ("codex-acp", ".codex/rules", "", ".codex/rules"),
    ],
)
def test_doctor_names_settings_by_which_a_harness_does_not_ask(
    home: Path, name: str, file: str, content: str, said: str | None
) -> None:
    section = harness(home, f"named=@agentclientprotocol/{name}")
    settings_file = Path(section["env"]["HOME"]) / file
    settings_file.parent.mkdir(parents=True, exist_ok=True)
    settings_file.write_text(content)
    [found] = check_harnesses(Config.model_validate({"acp": {"agents": {"coder": section}}}))
    assert found.grade is (Grade.OK if said is None else Grade.WARNING)
    assert said is None or said in found.detail
