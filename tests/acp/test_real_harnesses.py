"""Claude Code, Codex and Gemini CLI as they are, on loopback alone: what the harnesses of others do indeed."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.harness import Harness, HarnessLimits, NativeSession, open_harness
from antiphon.acp.permissions import PermissionRequest, PermissionVerdict
from antiphon.acp.turn import HarnessTurn
from antiphon.acp.updates import CalledTool, SaidText, Update
from tests.acp.harnesses import group_of
from tests.acp.real import (
    CLAUDE_AGENT,
    CODEX_AGENT,
    GEMINI,
    HARNESSES,
    KEY,
    RealHarness,
    asked_of_model,
    fake_model,
    needs_harnesses,
)
from tests.waiting import at_least

pytestmark = [pytest.mark.anyio, needs_harnesses]

LIMITS = HarnessLimits(start_seconds=at_least(120), answer_seconds=at_least(120), cancel_seconds=at_least(60))
each_harness = pytest.mark.parametrize("real", HARNESSES, ids=lambda real: real.name)


@asynccontextmanager
async def running(real: RealHarness, place: Path, model: str) -> AsyncGenerator[Harness]:
    """The harness; nothing of it is left afterwards."""
    async with open_harness(real.command(model, place), LIMITS) as harness:
        yield harness
    assert group_of(harness.pid) == []


async def new(harness: Harness, real: RealHarness, place: Path) -> NativeSession:
    session = await harness.new_session(place / "workspace", mode=real.mode)
    assert session.mode == real.mode
    return session


async def asked_in(turn: HarnessTurn) -> PermissionRequest:
    """The first request of the turn."""
    async for told in turn:
        if isinstance(told, PermissionRequest):
            return told
    raise AssertionError("it did not ask")


async def rest_of(turn: HarnessTurn) -> list[Update]:
    return [told async for told in turn if not isinstance(told, PermissionRequest)]


def text_of(told: list[Update]) -> str:
    return "".join(each.text for each in told if isinstance(each, SaidText))


@each_harness
async def test_it_answers_asks_obeys_and_can_be_cancelled(real: RealHarness, tmp_path: Path) -> None:
    made = tmp_path / "workspace/made.txt"
    with fake_model(tmp_path) as model:
        async with running(real, tmp_path, model) as harness:
            assert harness.info.version and harness.capabilities.load and harness.capabilities.mcp_http
            session = await new(harness, real, tmp_path)

            turn = harness.prompt(session.id, ["!say hello there"])
            assert "hello there" in text_of(await rest_of(turn))
            assert turn.stop_reason == "end_turn" and turn.usage is not None
            assert (turn.usage.total.input, turn.usage.total.output) == (10, 5)

            turn = harness.prompt(session.id, [real.writes])
            asked = await asked_in(turn)
            assert "echo made > made.txt" in str(asked.tool_call) and not made.exists()
            assert await asked.answer(PermissionVerdict.REJECT)
            await rest_of(turn)
            # Codex takes a refusal for the end of the turn: its model does not hear of it.
            assert turn.stop_reason == ("cancelled" if real is CODEX_AGENT else "end_turn") and not made.exists()

            turn = harness.prompt(session.id, [real.writes])
            again = await asked_in(turn)
            assert again.tool_call == asked.tool_call and again.call_id != asked.call_id
            await harness.cancel(session.id)
            await rest_of(turn)
            assert turn.stop_reason == "cancelled" and not made.exists()

            turn = harness.prompt(session.id, [real.writes])
            asked = await asked_in(turn)
            assert await asked.answer(PermissionVerdict.ALLOW)
            calls = [told for told in await rest_of(turn) if isinstance(told, CalledTool)]
            assert calls[-1].status == "completed" and calls[-1].id == asked.call_id
            assert turn.stop_reason == "end_turn" and made.read_text() == "made\n"

            turn = harness.prompt(session.id, ["!stall"])
            await harness.cancel(session.id)
            await rest_of(turn)
            assert turn.stop_reason == "cancelled"

            with pytest.raises(HarnessError, match="its modes are") as refusal:
                await harness.new_session(tmp_path / "workspace", mode="asks-always")
            assert refusal.value.code == HarnessCode.UNASKED and KEY not in str(refusal.value.last_lines)


@pytest.mark.parametrize("real", [CLAUDE_AGENT, CODEX_AGENT], ids=lambda real: real.name)
async def test_it_is_killed_while_it_asks_and_goes_on_in_the_next_process(real: RealHarness, tmp_path: Path) -> None:
    made = tmp_path / "workspace/made.txt"
    with fake_model(tmp_path) as model:
        async with running(real, tmp_path, model) as harness:
            session = await new(harness, real, tmp_path)
            await rest_of(harness.prompt(session.id, ["!say the word is heron"]))
            asked = await asked_in(harness.prompt(session.id, [real.writes]))
        assert not asked.is_open and not await asked.answer(PermissionVerdict.ALLOW) and not made.exists()

        async with running(real, tmp_path, model) as harness:
            loaded = await harness.load_session(session.id, tmp_path / "workspace", mode=real.mode)
            assert loaded.mode == real.mode and loaded.replayed >= 2
            turn = harness.prompt(session.id, [f"Go on: the call was allowed.\n{real.writes}"])
            again = await asked_in(turn)
            assert again.tool_call == asked.tool_call, "the same is asked in the same words"
            assert await again.answer(PermissionVerdict.ALLOW)
            await rest_of(turn)
            assert made.read_text() == "made\n" and "the word is heron" in asked_of_model(tmp_path)[-1]

        async with running(real, tmp_path, model) as harness:
            resumed = await harness.resume_session(session.id, tmp_path / "workspace", mode=real.mode)
            assert resumed.mode == real.mode and resumed.replayed == 0
            assert "still here" in text_of(await rest_of(harness.prompt(session.id, ["!say still here"])))
            with pytest.raises(HarnessError) as refusal:
                await harness.load_session("01a22e7c-f0b7-72d1-b847-ca9869a26b13", tmp_path, mode=real.mode)
            assert refusal.value.code == HarnessCode.NOT_RESUMED


async def test_gemini_offers_to_load_what_it_has_lost(tmp_path: Path) -> None:
    with fake_model(tmp_path) as model:
        async with running(GEMINI, tmp_path, model) as harness:
            session = await new(harness, GEMINI, tmp_path)
            await rest_of(harness.prompt(session.id, ["!say first"]))
        async with running(GEMINI, tmp_path, model) as harness:
            assert harness.capabilities.load and not harness.capabilities.resume
            with pytest.raises(HarnessError) as refusal:
                await harness.load_session(session.id, tmp_path / "workspace", mode=GEMINI.mode)
            assert refusal.value.code == HarnessCode.NOT_RESUMED
            anew = await new(harness, GEMINI, tmp_path)
            assert "second" in text_of(await rest_of(harness.prompt(anew.id, ["!say second"])))


CLAUDE_SETTINGS = {
    "permissions": {"allow": ["Bash"]},
    "enableAllProjectMcpServers": True,
    "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked.txt"}]}]},
}
SERVERS = {"mcpServers": {"x": {"command": "touch", "args": ["started.txt"]}}}


@pytest.mark.parametrize("real", [CLAUDE_AGENT, GEMINI], ids=lambda real: real.name)
async def test_no_file_of_the_workspace_makes_it_act_unasked(real: RealHarness, tmp_path: Path) -> None:
    with fake_model(tmp_path) as model:
        command = real.command(model, tmp_path)
        workspace = command.cwd
        files = {
            ".claude/settings.json": CLAUDE_SETTINGS,
            ".claude/settings.local.json": CLAUDE_SETTINGS,
            ".mcp.json": SERVERS,
            ".gemini/settings.json": {**SERVERS, "tools": {"allowed": ["run_shell_command"]}},
        }
        for name, content in files.items():
            (workspace / name).parent.mkdir(exist_ok=True)
            (workspace / name).write_text(json.dumps(content))
        before = sorted(workspace.rglob("*"))
        async with open_harness(command, LIMITS) as harness:
            session = await harness.new_session(workspace, mode=real.mode)
            turn = harness.prompt(session.id, [real.writes])
            await (await asked_in(turn)).answer(PermissionVerdict.REJECT)
            await rest_of(turn)
        if real is CLAUDE_AGENT:
            async with open_harness(command, LIMITS) as harness:
                await harness.load_session(session.id, workspace, mode=real.mode)
                turn = harness.prompt(session.id, [real.writes])
                await (await asked_in(turn)).answer(PermissionVerdict.REJECT)
                await rest_of(turn)
        assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize("file", [".codex/config.toml", ".codex/rules/any.rules"])
async def test_codex_is_refused_where_files_of_the_project_make_it_act_unasked(file: str, tmp_path: Path) -> None:
    command = CODEX_AGENT.command("http://127.0.0.1:9", tmp_path)
    inner = command.cwd / "inner"
    inner.mkdir()
    async with open_harness(command, LIMITS) as harness:
        (command.cwd / file).parent.mkdir(parents=True)
        (command.cwd / file).touch()
        assert (await harness.new_session(inner, mode=CODEX_AGENT.mode)).mode, "it is in no repository with the file"
        (command.cwd / ".git").mkdir()
        for place in (command.cwd, inner):
            with pytest.raises(HarnessError, match="unasked; move it away") as refusal:
                await harness.new_session(place, mode=CODEX_AGENT.mode)
            assert refusal.value.code == HarnessCode.UNASKED
        assert (await harness.new_session(inner, mode=None)).mode is None
