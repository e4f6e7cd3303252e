"""Claude Code and Codex as agents of a gateway that is killed: spawned, asked, decided after a restart, announced."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing.lives import Life, MortalGateway
from antiphon.testing.ports import free_port
from tests.acp.real import CLAUDE_AGENT, CODEX_AGENT, RealHarness, fake_model, needs_harnesses
from tests.acp.test_kill_points import Owner
from tests.claims import requirement

pytestmark = needs_harnesses
LOOKS = {"claude": "mcp__antiphon__files", "codex": "mcp__antiphon::files"}
"""What each calls our tool `files`."""


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    found = MortalGateway("antiphon.acp.harness_runner")
    yield found
    found.close()


@requirement("foreign_agents:2", "spawn:6")
@pytest.mark.parametrize("real", [CLAUDE_AGENT, CODEX_AGENT], ids=lambda real: real.name)
def test_a_spawned_harness_is_killed_while_it_asks_and_its_result_comes_all_the_same(
    gateway: MortalGateway, tmp_path: Path, real: RealHarness
) -> None:
    home = tmp_path / "antiphon"
    home.mkdir(mode=0o700)
    with fake_model(tmp_path) as model:
        command = real.command(model, tmp_path)
        harness: dict[str, Any] = {"command": [*command.argv], "mode": real.mode, "env": {**command.env}}
        tree: dict[str, Any] = {
            "acp": {"agents": {"coder": harness}},
            "agents": {"defaults": {"subagents": {"allow_agents": ["coder"]}}},
        }
        owner = Owner(gateway, Life(home=str(home), settings=tree, port=free_port()))
        try:
            looks = f'!call {LOOKS[real.name]} {{"action": "list"}}'
            task = "\n".join((looks, real.writes, "!say it is made"))
            owner.asks("POST", "/sessions", key="agent:main:cli:boss")
            spawned = owner.asks(
                "POST",
                "/tools/sessions_spawn",
                sessionKey="agent:main:cli:boss",
                arguments={"task": task, "agentId": "coder", "runtime": "acp"},
            )
            assert spawned.get("status") == "accepted", spawned
            [approval] = owner.sees(owner.open)  # both ask before they call a tool of ours, too
            assert "files" in approval["calls"][0]["arguments"]
            owner.asks("POST", f"/approvals/{approval['approvalId']}", decision="once")
            [approval] = owner.sees(owner.open)
            assert approval["calls"][0]["executor"] == "client"
            assert "echo made > made.txt" in approval["calls"][0]["arguments"]
            gateway.kill()
            owner.asks("GET", "/health")
            note = f"go\n{real.writes}\n!say it is made\n"
            owner.asks("POST", f"/approvals/{approval['approvalId']}", decision="once", note=note)
            owner.sees(owner.is_over)
            [run] = [run for run in owner.runs() if run["runId"] == spawned["runId"]]
            child = spawned["childSessionKey"].replace(":", "%3A")
            log = owner.asks("GET", f"/sessions/{child}/history?includeTools=true")["messages"]
            told = owner.asks("GET", "/sessions/agent%3Amain%3Acli%3Aboss/history")["messages"]
        finally:
            gateway.kill()
    assert (run["status"], run["reply"]) == ("ok", "it is made"), run
    results = [each for each in log if each["role"] == "toolResult"]
    assert [each["toolName"] for each in results if "provenance" not in each] == ["files"], json.dumps(log)[:3000]
    assert [each for each in results if each.get("provenance", {}).get("kind") == "harness"]
    [made] = home.glob("workspaces/coder/*/made.txt")
    assert made.read_text() == "made\n"
    assert "it is made" in json.dumps(told)
