"""Tools of a real MCP server, as agents get them."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import Effect
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Run
from antiphon.testing import Reply, fake_provider
from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, open_with_provider, post
from tests.gateway.served import serve
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-that-must-not-leak"


UNASKED = {"untrusted": "allow"}
"""Nobody has reviewed the tools of these servers, so each call would ask. `test_reviews` has that."""


def stdio(directory: Path, **settings: Any) -> dict[str, Any]:
    """The configuration of the test server as a program."""
    return {
        "command": sys.executable,
        "args": ["-m", "tests.mcp.program", str(directory)],
        "cwd": str(ROOT),
        "env": {"THING_KEY": SECRET},
        "timeout_seconds": 20,
    } | settings


def config_with(**servers: dict[str, Any]) -> Config:
    agents = {"defaults": {"mcp_servers": servers}}
    return Config.model_validate({"agents": agents, "flow": UNASKED, "gateway": {"drain_seconds": 0}})


def lines(directory: Path, name: str) -> list[str]:
    path = directory / name
    return path.read_text().splitlines() if path.exists() else []


async def ask(app: App, name: str, text: str) -> Run:
    """Posts and waits for the end of the run, which may have to start a server."""
    posted = await post(app, name, text, message_id=app.services.ids.new("m"))
    assert posted.run_id is not None
    run = await app.services.waits.wait(posted.run_id, timedelta(seconds=PROCESS_SECONDS))
    assert run is not None
    return run


def answer(run: Run) -> dict[str, Any]:
    assert run.reply is not None
    return json.loads(run.reply)


@requirement("foreign_tools:1")
async def test_an_agent_calls_the_tools_of_its_server_and_failures_are_told_plainly(
    open_home: OpenHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path))) as app:
            assert lines(tmp_path, "starts") == [], "no server is started before it is wanted"
            assert (await ask(app, "main", '!call things__add {"a": 2, "b": 3}')).reply == "5"
            assert (await ask(app, "main", "!call things__sessions_list {}")).reply == "not yours"
            assert "sessions" in answer(await ask(app, "main", "!call sessions_list {}"))
            big = (await ask(app, "main", "!call things__big {}")).reply
            assert big is not None and len(big) < 51_000 and "50000 of 200000 characters" in big
            huge = answer(await ask(app, "main", '!call things__huge {"megabytes": 30}'))
            assert (huge["status"], huge["code"]) == ("error", "mcp_tool_failed") and "larger than 4 MiB" in huge[
                "error"
            ]
            mixed = (await ask(app, "main", "!call things__mixed {}")).reply
            assert mixed == "[image, image/png, 4 bytes]".join(["two parts\n", '\n{"parts":2}'])
            failed = answer(await ask(app, "main", "!call things__fail {}"))
            assert (failed["status"], failed["code"]) == ("error", "mcp_tool_failed")
            assert failed["error"] == "no such thing for ***"
            wrong = answer(await ask(app, "main", '!call things__add {"a": "many"}'))
            assert (wrong["status"], wrong["code"]) == ("error", "mcp_tool_failed")
            assert answer(await ask(app, "main", "!call things__nothing {}"))["code"] == "unknown_tool"
            assert len(lines(tmp_path, "starts")) == 1
    left_out = {getattr(record, "tool", "") for record in caplog.records if record.message.endswith("is left out")}
    assert left_out == {"a" * 70, "bad name"}
    assert SECRET not in caplog.text


async def test_a_server_that_hangs_and_one_that_dies_cost_their_call_alone(open_home: OpenHome, tmp_path: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path, timeout_seconds=15))) as app:
            assert (await ask(app, "main", '!call things__add {"a": 1, "b": 1}')).reply == "2"
            hung = answer(await ask(app, "main", "!call things__hang {}"))
            assert (hung["status"], hung["code"]) == ("error", "mcp_timeout")
            assert (await ask(app, "main", '!call things__add {"a": 1, "b": 2}')).reply == "3"
            assert len(lines(tmp_path, "starts")) == 1
            died = answer(await ask(app, "main", "!call things__die {}"))
            assert (died["status"], died["code"]) == ("error", "mcp_unavailable")
            assert (await ask(app, "main", '!call things__add {"a": 1, "b": 3}')).reply == "4"
            assert len(lines(tmp_path, "starts")) == 2
            assert lines(tmp_path, "calls").count("die") == 1, "what may have been done is not done again"


async def test_a_server_that_keeps_failing_is_tried_less_and_less_often(open_home: OpenHome, tmp_path: Path) -> None:
    clock = ManualClock()
    failing = {"command": "/bin/sh", "args": ["-c", f"echo >> {tmp_path}/starts; exit 1"], "timeout_seconds": 10}
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=failing), Parts(clock=clock)) as app:

            async def starts_after(*, seconds: float) -> int:
                clock.pass_time(timedelta(seconds=seconds))
                for _ in range(2):
                    assert (await ask(app, "main", "hello")).reply == "echo: hello"
                return len(lines(tmp_path, "starts"))

            assert [await starts_after(seconds=seconds) for seconds in (0, 0, 1, 1, 1, 2, 2)] == [2, 2, 3, 3, 4, 4, 5]
            told = answer(await ask(app, "main", "!call things__add {}"))["error"]
            assert "Antiphon tries again in 8 s." in told


async def test_a_server_that_was_killed_while_idle_is_started_again(open_home: OpenHome, tmp_path: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path))) as app:
            assert (await ask(app, "main", '!call things__add {"a": 1, "b": 1}')).reply == "2"
            os.kill(int(lines(tmp_path, "starts")[0]), signal.SIGKILL)
            replies = [(await ask(app, "main", '!call things__add {"a": 1, "b": 2}')).reply for _ in range(2)]
            assert replies[-1] == "3"
            assert replies[0] == "3" or json.loads(replies[0] or "")["code"] == "mcp_unavailable"


async def test_leaving_the_home_ends_the_server(open_home: OpenHome, tmp_path: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path))) as app:
            await ask(app, "main", '!call things__add {"a": 1, "b": 1}')
            process = int(lines(tmp_path, "starts")[0])
            os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_an_agent_answers_while_its_server_cannot_be_reached(
    open_home: OpenHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {
        "absent": {"command": str(tmp_path / "no-such-program"), "env": {"THING_KEY": SECRET}},
        "deaf": {"url": f"http://127.0.0.1:1/{SECRET}", "headers": {"Authorization": SECRET}, "timeout_seconds": 5},
        "silent": {"command": "/bin/sleep", "args": ["60"], "timeout_seconds": 1},
        "things": stdio(tmp_path),
    }
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(**servers)) as app:
            assert (await ask(app, "main", "hello")).reply == "echo: hello"
            assert (await ask(app, "main", '!call things__add {"a": 2, "b": 2}')).reply == "4"
            for server in ("absent", "deaf", "silent"):
                told = answer(await ask(app, "main", f"!call {server}__anything {{}}"))
                assert (told["status"], told["code"]) == ("error", "mcp_unavailable")
                assert repr(server) in told["error"] and SECRET not in told["error"]
    assert SECRET not in caplog.text


async def test_the_model_is_told_of_a_server_that_cannot_be_reached(open_home: OpenHome) -> None:
    servers = {"gone": {"command": "/no/such/program"}}
    async with fake_provider([Reply(text="noted")]) as fake:
        async with open_with_provider(open_home, fake, agents__defaults__mcp_servers=servers) as app:
            assert (await ask(app, "main", "hello")).reply == "noted"
        assert "'gone__' are not available" in json.dumps(fake.requests[0].body)


async def test_agents_have_their_own_servers_and_what_policy_allows(open_home: OpenHome, tmp_path: Path) -> None:
    settings = {
        "flow": UNASKED,
        "agents": {
            "list": [
                {"id": "one", "mcp_servers": {"things": stdio(tmp_path, tools=["add"])}},
                {"id": "two"},
                {"id": "three", "mcp_servers": {"things": stdio(tmp_path)}, "tools": {"allow": ["things__big"]}},
            ]
        },
    }
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(Config.model_validate(settings)) as app:

            async def code(agent: str, tool: str) -> str | None:
                reply = (await ask(app, f"agent:{agent}:main", f"!call things__{tool} {{}}")).reply or ""
                return json.loads(reply)["code"] if reply.startswith("{") else None

            assert await code("one", "add") == "mcp_tool_failed"
            assert await code("one", "big") == "unknown_tool"
            assert await code("two", "add") == "unknown_tool"
            assert await code("three", "add") == "unknown_tool"
            assert await code("three", "big") is None


async def test_effects_are_as_declared_and_cautious_where_nothing_is_said(open_home: OpenHome, tmp_path: Path) -> None:
    server = stdio(tmp_path, effects={"add": ["reads"], "*": ["writes"]})
    plain = stdio(tmp_path)
    config = config_with(things=server, plain=plain)
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config) as app:
            tools = await app.mcp_tools.tools_for(AgentId("main"))
            found = {name: tools.find(name) for name in ("things__add", "things__big", "plain__add")}
            effects = {name: tool.effects for name, tool in found.items() if tool is not None}
            assert effects == {
                "things__add": {Effect.READS},
                "things__big": {Effect.WRITES},
                "plain__add": {Effect.WRITES, Effect.LEAVES},
            }
            assert [tool.is_idempotent for tool in found.values() if tool is not None] == [True, False, False]


@requirement("approvals:3")
async def test_routes_are_as_the_settings_name_them_and_unknown_where_one_is_no_argument(
    open_home: OpenHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"add": ["a"], "big": [], "huge": ["megabyte"], "hang": ["x"], "adds": ["a"]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path, routes=routes))) as app:
            tools = await app.mcp_tools.tools_for(AgentId("main"))
            found = {name: tools.find(f"things__{name}") for name in ("add", "big", "huge", "hang", "die")}
            assert {name: tool.routes for name, tool in found.items() if tool is not None} == {
                "add": ("a",),
                "big": (),
                **dict.fromkeys(("huge", "hang", "die")),
            }
    assert {getattr(each, "setting", "") for each in caplog.records if each.message == "Setting has no effect"} == {
        "mcp_servers.things.routes names no tool of MCP server 'things': 'adds'; did you mean 'add'?",
        "mcp_servers.things.routes names no argument of the tool 'huge': 'megabyte'; did you mean 'megabytes'?",
        "mcp_servers.things.routes names no argument of the tool 'hang': 'x'",
    }


async def test_a_tool_whose_name_is_taken_is_left_out(
    open_home: OpenHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def things__add() -> str:
        """Ours."""
        return "ours"

    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config_with(things=stdio(tmp_path)), Parts(tools=[things__add])) as app:
            assert (await ask(app, "main", "!call things__add {}")).reply == "ours"
    reasons = [getattr(record, "reason", "") for record in caplog.records if getattr(record, "tool", "") == "add"]
    assert reasons == ["the name 'things__add' is taken"]


@contextmanager
def http_server(directory: Path, port: int) -> Generator[None]:
    command = [sys.executable, "-m", "tests.mcp.program", str(directory), str(port)]
    with ending(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)):
        yield


async def listening(port: int) -> None:
    while True:
        try:
            await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
        except OSError:
            await anyio.sleep(0.05)
        else:
            return


async def test_a_server_over_http_is_called_and_found_again_after_it_was_away(
    open_home: OpenHome, tmp_path: Path
) -> None:
    port = free_port()
    config = config_with(things={"url": f"http://127.0.0.1:{port}/mcp", "timeout_seconds": 10})
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config) as app:
            with http_server(tmp_path, port):
                await listening(port)
                assert (await ask(app, "main", '!call things__add {"a": 2, "b": 3}')).reply == "5"
                huge = answer(await ask(app, "main", '!call things__huge {"megabytes": 30}'))
                assert huge["code"] == "mcp_tool_failed" and "larger than 4 MiB" in huge["error"]
                assert (await ask(app, "main", '!call things__add {"a": 3, "b": 3}')).reply == "6"
            away = answer(await ask(app, "main", '!call things__add {"a": 2, "b": 4}'))
            assert (away["status"], away["code"]) == ("error", "mcp_unavailable")
            with http_server(tmp_path, port):
                await listening(port)
                while (reply := (await ask(app, "main", '!call things__add {"a": 2, "b": 5}')).reply) != "7":
                    assert json.loads(reply or "")["code"] == "mcp_unavailable"
                    await anyio.sleep(0.2)


@requirement("foreign_tools:1", "approvals:1")
async def test_names_of_a_servers_tools_are_judged_once_it_has_listed_them(
    open_home: OpenHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They never stop the start: the server may be away, or get the tool later."""
    config = Config.model_validate(
        {
            "agents": {"defaults": {"mcp_servers": {"things": stdio(tmp_path)}}},
            "flow": UNASKED,
            "tools": {"approval": {"require": ["effect:deletes", "things__ad"], "people": ["mcp:things__addd"]}},
            "gateway": {"drain_seconds": 0},
        }
    )
    caplog.set_level(logging.WARNING)
    with anyio.fail_after(PROCESS_SECONDS):
        async with open_home(config) as app:
            assert not [each for each in caplog.records if each.message == "Setting has no effect"]
            for _ in range(2):
                assert (await ask(app, "main", '!call things__add {"a": 2, "b": 3}')).reply == "5"
    told = [getattr(each, "setting", "") for each in caplog.records if each.message == "Setting has no effect"]
    server = "names no tool of MCP server 'things'"
    assert told == [
        f"tools.approval.require {server}: 'ad'; did you mean 'add'?",
        f"tools.approval.people {server}: 'addd'; did you mean 'add'?",
    ]


@requirement("gateway:4", "tools:1")
async def test_the_list_of_tools_has_those_of_servers_with_their_server(open_home: OpenHome, tmp_path: Path) -> None:
    """All for owners; for a session those that its runs have; for others without a session only this program's."""
    agents = {
        "list": [
            {"id": "main", "mcp_servers": {"things": stdio(tmp_path)}},
            {"id": "bare"},
        ]
    }
    async with serve(open_home, {"agents": agents}) as served:

        async def listed(query: str = "", **headers: str) -> dict[str, str | None]:
            answer = await served.client.get(f"/tools{query}", headers=headers)
            return {tool["name"]: tool.get("server") for tool in answer.json()["tools"]}

        every = await listed()
        assert every["things__add"] == "things" and every["sessions_list"] is None
        for key in ("agent:main:api:x", "agent:bare:api:x"):
            await served.app.services.sessions.open(OWNER, served.app.services.sessions.target(key))
        assert (await listed("?sessionKey=agent:main:api:x"))["things__add"] == "things"
        assert "things__add" not in await listed("?sessionKey=agent:bare:api:x")
        ben = (await served.app.services.people.invite(OWNER, "Ben", PersonRole.USER)).person
        made = await served.client.post("/tokens", json={"personId": ben.id, "scopes": ["sessions.read"]})
        other = await listed(Authorization=f"Bearer {made.json()['token']}")
        assert "sessions_list" in other and "things__add" not in other
