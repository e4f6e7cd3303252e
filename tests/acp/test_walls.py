"""Harnesses within walls: what they see, reach and keep, and what ends them."""

import json
import os
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from antiphon.acp import kept_home, walls
from antiphon.acp.kept_home import open_fresh_home
from antiphon.acp.run_tools import HOST
from antiphon.acp.walls import PROVIDER_PORT
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from antiphon.engine.sessions.workspaces import HOMES_NAME, Workspace
from tests.acp.real import (
    CLAUDE_AGENT,
    CODEX_AGENT,
    KEY,
    RealHarness,
    asked_of_model,
    fake_model,
    needs_harnesses,
)
from tests.acp.stage import TALKING, asked, decide, effects, live_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.people import guest
from tests.story import telling

pytestmark = pytest.mark.anyio
ADA = guest("ada")


def settings(*flags: str, **more: Any) -> dict[str, Any]:
    """A harness all of whose sessions have walls."""
    command = [sys.executable, "-S", str(TALKING), *flags]
    section = {"command": command, "mode": "ask", "keeps": ["native-*.json"], "sandbox": {"mode": "all"}}
    return {"acp": {"agents": {"coder": {**section, **more}}}}


@requirement("foreign_agents:2")
async def test_within_walls_it_answers_keeps_its_home_and_asks(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings()) as story:
        coder = await story.opens("one", agent="coder")
        assert (await coder.answers("!say hello")).reply == "hello", (await coder.runs())[0].error
        run_id = await coder.hears("!ask touch it", "!say done")
        await decide(story, await asked(story))
        assert (await story.end_of(run_id)).reply == "touch it: yes. done"
        log = await coder.log()
    assert effects(home) == ["touch it"]
    assert not [event for event in log if event.type == "error"], "its session went on"
    [kept] = home.glob("workspaces/coder/homes/*/*/native-*.json")
    assert len(json.loads(kept.read_text())["prompts"]) == 2


async def test_what_a_run_leaves_in_its_home_is_not_there_in_the_next_one(open_home: OpenHome, home: Path) -> None:
    planted = (".claude/settings.json", ".profile", "kept/a.txt", "kept/folder.txt/inner", "kept/x/y/b.txt", "not.json")
    keeps = ["native-*.json", "kept/**/*.txt"]
    async with telling(open_home, **settings(keeps=keeps)) as story:
        coder = await story.opens("one", agent="coder")
        lines = "\n".join(f"!writes {name} planted" for name in planted)
        assert (await coder.answers(lines, "!reads")).reply == json.dumps(sorted(planted))
        run = await coder.answers("!reads")
        assert run.reply == json.dumps(["kept/a.txt", "kept/x/y/b.txt"]), run.error
        assert not [event for event in await coder.log() if event.type == "error"], "its session went on"
        [only] = home.glob("workspaces/coder/homes/*/*")
        assert len(json.loads(next(only.glob("native-*.json")).read_text())["prompts"]) == 2


async def test_links_that_a_run_leaves_in_its_home_lead_nowhere(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(keeps=["native-*.json", "kept/*"])) as story:
        coder = await story.opens("one", agent="coder")
        await coder.answers("!say hello")
        [first] = home.glob("workspaces/coder/homes/*/*")
        (first / "kept").symlink_to(home.parent)
        (first / "native-link.json").symlink_to(home / "antiphon.db")
        (home.parent / "mine.txt").write_text("mine")
        run = await coder.answers("!reads")
        assert run.reply == "[]", run.error
    assert (home.parent / "mine.txt").read_text() == "mine"


async def test_a_guest_has_a_harness_within_walls(open_home: OpenHome, home: Path) -> None:
    section = settings()["acp"]["agents"]["coder"] | {"sandbox": {"mode": "off"}}
    async with telling(open_home, acp={"agents": {"coder": section}}) as story:
        coder = await story.opens("one", agent="coder")
        await coder.admits(ADA)
        run = await coder.answers("!env", principal=ADA)
    assert run.status is RunStatus.OK, run.error
    assert json.loads(run.reply or "")["HOME"] == "/home/agent"


async def test_it_sees_nothing_of_the_home_and_nothing_of_its_user(open_home: OpenHome, home: Path) -> None:
    (home.parent / "secret.txt").write_text("secret")
    hidden = [home / "antiphon.db", home.parent / "secret.txt", Path.home() / ".bashrc", Path("/etc/shadow")]
    paths = [*map(str, hidden)]
    async with telling(open_home, **settings()) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers(f"!looks {json.dumps(paths)}")
    assert run.reply == json.dumps([False] * len(paths)), run.error


async def test_its_network_is_empty_but_for_our_tools(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings()) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers("!tools", "!reaches 1.1.1.1 80", "!tool session_status {}")
        said = "".join(await coder.texts())
    assert run.status is RunStatus.OK, run.error
    assert "sessions_send" in said and "unreachable" in said and str(run.id) in said


async def test_too_much_memory_ends_it(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(sandbox={"mode": "all", "memory_mb": 64})) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers("!eat 100")
    assert (run.status, run.code) == (RunStatus.ERROR, "acp_ended") and "memory" in (run.error or ""), run.error


class Provider(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        shown = {"path": self.path, "key": self.headers["x-api-key"], "other": self.headers["x-other"], "body": body}
        answer = json.dumps(shown).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def provider() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_it_reaches_its_provider_with_a_key_that_it_never_has(
    open_home: OpenHome, home: Path, provider: str
) -> None:
    key = "sk-of-the-provider"
    section = settings(provider="anthropic")
    given = {"anthropic": {"base_url": f"{provider}/api", "api_key": key}}
    async with telling(open_home, providers=given, **section) as story:
        coder = await story.opens("one", agent="coder")
        asked = json.loads((await coder.answers("!fetch /v1/messages?a=b")).reply or "{}")
        assert asked == {"path": "/api/v1/messages?a=b", "key": key, "other": "kept", "body": '{"a": 1}'}
        assert (await coder.answers("!fetch /../admin")).reply == "status 400"
        for beyond in ("/v1/files", "/v1/messages/batches", "/v1/organizations/users", "/v1/messages%2Fbatches", "/"):
            assert (await coder.answers(f"!fetch {beyond}")).reply == "status 403", beyond
        assert key not in ((await coder.answers("!env")).reply or "")


def walled(real: RealHarness, model: str, place: Path) -> dict[str, Any]:
    """The settings of a home with the real program within walls."""
    command = real.command(model, place)
    mine = ("CLAUDE_CODE", "DISABLE", "CODEX_PATH")
    env = {name: value for name, value in command.env.items() if name.startswith(mine)}
    provider, address = ("anthropic", model) if real is CLAUDE_AGENT else ("openai", f"{model}/v1")
    more: dict[str, Any] = {}
    if real is CODEX_AGENT:
        loopback = {"name": "it", "base_url": f"http://{HOST}:{PROVIDER_PORT}", "env_key": "OPENAI_API_KEY"}
        config = {"model": "fake", "model_provider": "it", "model_providers": {"it": {**loopback, **RESPONSES}}}
        env |= {"CODEX_CONFIG": json.dumps(config), "INITIAL_AGENT_MODE": "agent-full-access"}
        more = {"unattended": True}
    section = {"command": [*command.argv], "mode": real.mode, "env": env, "provider": provider, **more}
    return {
        "providers": {provider: {"base_url": address, "api_key": KEY}},
        "acp": {"agents": {"coder": {**section, "sandbox": {"mode": "all"}}}},
    }


RESPONSES = {"wire_api": "responses"}
PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": (".claude/settings.json", {"permissions": {"allow": ["Bash"]}}),
    "codex": (".codex/rules/any.rules", {}),
}


@needs_harnesses
@pytest.mark.parametrize("real", [CLAUDE_AGENT, CODEX_AGENT], ids=lambda real: real.name)
async def test_the_real_programs_go_on_within_walls_without_settings_of_the_run_before(
    open_home: OpenHome, home: Path, tmp_path: Path, real: RealHarness
) -> None:
    name, content = PLANTED[real.name]
    write = f"mkdir -p ~/$(dirname {name}) && echo '{json.dumps(content)}' > ~/{name} && echo made > made.txt"
    plants = f"!call {'Bash' if real is CLAUDE_AGENT else 'exec_command'} " + json.dumps(
        {"command": write, "description": "plant it"} if real is CLAUDE_AGENT else {"cmd": write}
    )
    with fake_model(tmp_path / "model") as model:
        async with telling(open_home, **walled(real, model, tmp_path)) as story:
            coder = await story.opens("one", agent="coder")
            run_id = await coder.hears(plants, "!say the word is heron")
            if real is CLAUDE_AGENT:
                await decide(story, await asked(story))
            run = await story.end_of(run_id)
            assert run.status is RunStatus.OK and "heron" in (run.reply or ""), run.error
            assert [*home.glob(f"workspaces/coder/homes/*/*/{name}")], "it is planted"
            run_id = await coder.hears("!say again" if real is CODEX_AGENT else CLAUDE_AGENT.writes)
            if real is CLAUDE_AGENT:
                await decide(story, await asked(story))
            run = await story.end_of(run_id)
            assert run.status is RunStatus.OK, run.error
            assert not [event for event in await coder.log() if event.type == "error"], "its session went on"
            assert not [*home.glob(f"workspaces/coder/homes/*/*/{name}")]
        assert "the word is heron" in asked_of_model(tmp_path / "model")[-1]
        assert KEY not in "".join(path.read_text("utf-8", "replace") for path in home.rglob("*.jsonl"))
    [made] = home.glob("workspaces/coder/*/made.txt")
    assert made.read_text() == "made\n"


async def test_who_is_no_owner_any_more_does_not_go_on_outside_walls(open_home: OpenHome, home: Path) -> None:
    section = settings()["acp"]["agents"]["coder"] | {"sandbox": {"mode": "off"}}
    async with telling(open_home, acp={"agents": {"coder": section}}) as story:
        people = story.app.services.people
        bob = (await people.invite(OWNER, "Bob", PersonRole.USER)).person
        await people.change_role(OWNER, bob.id, PersonRole.OWNER)
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask go on", "!env", principal=bob.principal)
        approval = await asked(story)
        await story.sees(live_of(story), len)
        await people.change_role(OWNER, bob.id, PersonRole.GUEST)
        await decide(story, approval)
        run = await story.end_of(run_id)
    assert run.status is RunStatus.OK, run.error
    assert '"HOME": "/home/agent"' in (run.reply or "")


@pytest.mark.parametrize("line", ["!fills 2000", "!nests 1500", "!shuts 4"], ids=["empty files", "deep", "closed"])
async def test_a_home_counts_whatever_lies_in_it(
    open_home: OpenHome, home: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "HOME_CHECK_SECONDS", 0.1)
    try:
        async with telling(open_home, **settings(sandbox={"mode": "all", "disk_mb": 1})) as story:
            coder = await story.opens("one", agent="coder")
            run = await coder.answers(line)
    finally:  # too deep for those who remove the folders of tests
        Workspace(home / "workspaces", AgentId("coder"), HOMES_NAME).remove()
    assert (run.status, run.code) == (RunStatus.ERROR, "acp_ended") and "HOME" in (run.error or ""), run.error


def test_of_too_much_in_a_home_the_newest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no run leaves so much that the next one passes the limit at once, or takes minutes to start."""
    monkeypatch.setattr(kept_home, "MAX_FILES", 3)
    homes = Workspace(tmp_path / "workspaces", AgentId("coder"), "homes/1-1")
    first = open_fresh_home(homes, ["kept/**"], 100_000)
    (first / "kept").mkdir()
    sizes = {"oldest": 4096, "old": 4096, "giant": 200_000, "new": 4096, "newest": 4096}
    for at, (name, size) in enumerate(sizes.items()):
        (first / "kept" / name).write_bytes(b"x" * size)
        os.utime(first / "kept" / name, (at, at))
    second = open_fresh_home(homes, ["kept/**"], 100_000)
    assert sorted(each.name for each in second.glob("kept/*")) == ["new", "newest"]
    assert [*homes.path.iterdir()] == [second]
