"""Harnesses within walls: what they see, reach and keep, and what ends them."""

import json
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from tests.acp.real import CLAUDE_AGENT, KEY, fake_model, needs_harnesses
from tests.acp.stage import TALKING, asked, decide, effects, live_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.people import guest
from tests.story import telling

pytestmark = pytest.mark.anyio
ADA = guest("ada")


def settings(*flags: str, **more: Any) -> dict[str, Any]:
    """A harness all of whose sessions have walls."""
    section = {"command": [sys.executable, "-S", str(TALKING), *flags], "mode": "ask", "sandbox": {"mode": "all"}}
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
    [kept] = home.glob("workspaces/coder/homes/*/native-*.json")
    assert len(json.loads(kept.read_text())["prompts"]) == 2


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


@needs_harnesses
async def test_claude_code_works_within_walls(open_home: OpenHome, home: Path, tmp_path: Path) -> None:
    with fake_model(tmp_path / "model") as model:
        command = CLAUDE_AGENT.command(model, tmp_path)
        env = {name: value for name, value in command.env.items() if name.startswith(("CLAUDE", "DIS"))}
        section = {"command": [*command.argv], "mode": CLAUDE_AGENT.mode, "env": env, "provider": "anthropic"}
        given = {"anthropic": {"base_url": model, "api_key": KEY}}
        acp = {"agents": {"coder": {**section, "sandbox": {"mode": "all"}}}}
        async with telling(open_home, providers=given, acp=acp) as story:
            coder = await story.opens("one", agent="coder")
            run_id = await coder.hears(CLAUDE_AGENT.writes)
            await decide(story, await asked(story))
            run = await story.end_of(run_id)
            assert run.status is RunStatus.OK, run.error
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
