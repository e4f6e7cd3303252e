"""Our tools, as the SDK's own client and others get them."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from antiphon.agents.toolset import ToolContext
from antiphon.agents.toolset import tool as declared
from antiphon.building import Parts
from tests.claims import requirement
from tests.cli.program import antiphon, environment, on_terminal, serving
from tests.conftest import OpenHome
from tests.gateway.served import TOKEN, Served, serve
from tests.waiting import PROCESS_SECONDS, SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:cli:outside"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "sessions_history": {"sessionKey": "current"},
    "sessions_search": {"query": "words"},
    "sessions_send": {"sessionKey": "main", "message": "hello", "timeoutSeconds": 0},
    "sessions_spawn": {"task": "look"},
    "sessions_wait": {"runIds": ["run_none"], "mode": "any", "timeoutSeconds": 0},
    "subagents": {"action": "list"},
}
"""What tools need that cannot be called without arguments."""


@asynccontextmanager
async def connected(url: str, headers: dict[str, str], *, mode: str = "auto") -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False, verify=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def bearer(token: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} | headers


async def bound_token(served: Served) -> dict[str, Any]:
    await served.open(KEY)
    answer = await served.client.post("/tokens", json={"sessionKey": KEY})
    return answer.json()


def answer_of(result: CallToolResult) -> dict[str, Any]:
    """The tool's object, which text and structured content tell alike."""
    assert isinstance(result.content[0], TextContent) and len(result.content) == 1
    assert json.loads(result.content[0].text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content


async def use_every_tool(client: Client, key: str) -> None:
    """Calls each tool that is offered; its answer is an object, and an error only where its status says so."""
    tools = (await client.list_tools()).tools
    assert {"sessions_list", "sessions_history", "session_status"} <= {tool.name for tool in tools}
    for tool in tools:
        assert tool.input_schema["type"] == "object" and tool.description
        result = await client.call_tool(tool.name, ARGUMENTS.get(tool.name, {}))
        answer = answer_of(result)
        assert result.is_error == (answer.get("status") in ("error", "forbidden", "not_found", "timeout"))
    status = answer_of(await client.call_tool("session_status", {}))
    assert status["sessionKey"] == key
    assert key in [row["key"] for row in answer_of(await client.call_tool("sessions_list", {}))["sessions"]]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_is_served_over_http_to_a_token_bound_to_a_session(open_home: OpenHome, mode: str) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            token = (await bound_token(served))["token"]
            async with connected(f"{served.url}/mcp", bearer(token), mode=mode) as client:
                await use_every_tool(client, KEY)


async def test_failures_are_data_and_unknown_parameters_are_refused(open_home: OpenHome) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            token = (await bound_token(served))["token"]
            async with connected(f"{served.url}/mcp", bearer(token)) as client:
                for tool, arguments, code in (
                    ("no_such_tool", {}, "unknown_tool"),
                    ("session_status", {"caller": "main"}, "invalid_arguments"),
                ):
                    result = await client.call_tool(tool, arguments)
                    assert result.is_error
                    assert (answer_of(result)["status"], answer_of(result)["code"]) == ("error", code)


@pytest.mark.parametrize("way", ["header", "query"])
async def test_the_owner_names_the_session_and_nobody_acts_as_none(open_home: OpenHome, way: str) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            await served.open(KEY)
            url = f"{served.url}/mcp" + (f"?session={KEY}" if way == "query" else "")
            headers = bearer(TOKEN) | ({"Antiphon-Session": KEY} if way == "header" else {})
            async with connected(url, headers) as client:
                await use_every_tool(client, KEY)


async def test_what_acts_as_no_session_is_refused_in_the_common_shape(open_home: OpenHome) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            token = (await bound_token(served))["token"]
            for headers, status, code in (
                ({}, 401, "token_missing"),
                (bearer("nonsense"), 401, "bad_token"),
                (bearer(TOKEN), 400, "session_missing"),
                (bearer(token) | {"Antiphon-Session": "main"}, 403, "token_bound"),
                (bearer(token) | {"Antiphon-Session": KEY.partition("agent:main:")[2]}, 200, None),
                (bearer(token) | {"Origin": "http://elsewhere.example"}, 403, "origin_not_allowed"),
                (bearer(token) | {"Host": "elsewhere.example"}, 403, "host_not_allowed"),
            ):
                async with httpx2.AsyncClient(headers=headers, trust_env=False, verify=False, timeout=SECONDS) as http:
                    answer = await http.post(f"{served.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
                    assert answer.status_code == status, answer.text
                    assert code is None or answer.json()["error"]["code"] == code
            answer = await served.client.get("/mcp")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@requirement("access:2")
async def test_a_revoked_token_is_refused_on_a_connection_that_is_open(open_home: OpenHome) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            token = await bound_token(served)
            async with connected(f"{served.url}/mcp", bearer(token["token"])) as client:
                assert not (await client.call_tool("session_status", {})).is_error
                assert (await served.client.delete(f"/tokens/{token['id']}")).status_code == 204
                with pytest.raises(Exception, match="error response"):
                    await client.call_tool("session_status", {})


async def test_the_same_idempotency_key_reaches_the_tool_as_the_same_call(open_home: OpenHome) -> None:
    seen: list[str] = []

    def note(context: ToolContext) -> str:
        """Notes who calls."""
        seen.append(context.call_id)
        return "noted"

    with anyio.fail_after(SECONDS):
        async with serve(open_home, parts=Parts(tools=[declared(note, effects=["reads"])])) as served:
            token = (await bound_token(served))["token"]
            async with connected(f"{served.url}/mcp", bearer(token)) as client:
                for key in ("once", "once", "twice"):
                    await client.call_tool("note", {}, meta={"antiphon/idempotencyKey": key})
    assert seen[0] == seen[1] != seen[2]


def test_mcp_is_loaded_with_the_first_request_alone(home: Path) -> None:
    code = (
        "import sys, anyio\n"
        "from pathlib import Path\n"
        "from antiphon.app import gateway_app, open_app\n"
        "from antiphon.config.config import Config\n"
        "async def main():\n"
        "    async with open_app(Path(sys.argv[1]), Config()) as app:\n"
        "        gateway_app(app, 'ant_x')\n"
        "anyio.run(main)\n"
        "print([name for name in ('mcp', 'mcp_types', 'httpx2') if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, str(home)]
    answer = subprocess.run(
        command, env=environment({}), capture_output=True, text=True, check=False, timeout=PROCESS_SECONDS
    )
    assert answer.stdout == "[]\n", answer.stderr


def program(home: Path, session: str = "main") -> StdioServerParameters:
    variables = environment({"ANTIPHON_HOME": str(home)})
    return StdioServerParameters(command=sys.executable, args=["-m", "antiphon", "mcp", "--as", session], env=variables)


@requirement("cli:1")
async def test_the_command_serves_every_tool_with_a_gateway_and_without(home: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        async with Client(program(home)) as client:
            await use_every_tool(client, "agent:main:main")
        with serving(home):
            async with Client(program(home)) as client:
                await use_every_tool(client, "agent:main:main")


async def test_the_command_goes_on_with_a_gateway_that_was_started_anew(home: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        with serving(home) as first:
            async with Client(program(home)) as client:
                assert not (await client.call_tool("session_status", {})).is_error
                first.stop()
                with serving(home):
                    assert not (await client.call_tool("session_status", {})).is_error


async def test_the_command_outlives_the_other_one_whose_gateway_it_used(home: Path) -> None:
    with anyio.fail_after(PROCESS_SECONDS), on_terminal("chat", home=home) as terminal:
        terminal.expect("> ")
        async with Client(program(home)) as client:
            assert not (await client.call_tool("session_status", {})).is_error
            terminal.type("/quit\n")
            assert await anyio.to_thread.run_sync(terminal.wait) == 0
            assert not (await client.call_tool("session_status", {})).is_error


def test_the_command_refuses_a_session_that_does_not_exist(home: Path) -> None:
    answer = antiphon("mcp", "--as", "cli:nobody", home=home)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert "Session not found" in answer.stderr


@requirement("tools:1")
async def test_a_client_that_goes_away_gets_the_answer_of_its_call_by_the_key(open_home: OpenHome) -> None:
    calls, begun, released = list[str](), anyio.Event(), anyio.Event()

    async def record(text: str) -> str:
        """Records."""
        calls.append(text)
        begun.set()
        await released.wait()
        return "recorded"

    meta: Any = {"antiphon/idempotencyKey": "k"}
    async with serve(open_home, None, Parts(tools=[declared(record)])) as served:
        token = (await bound_token(served))["token"]
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                async with connected(f"{served.url}/mcp", bearer(token)) as client:
                    await client.call_tool("record", {"text": "x"}, meta=meta)

            tasks.start_soon(leave)
            await begun.wait()
            tasks.cancel_scope.cancel()
        released.set()
        async with connected(f"{served.url}/mcp", bearer(token)) as client:
            again = await client.call_tool("record", {"text": "x"}, meta=meta)
        assert (again.structured_content, calls) == ({"status": "ok", "result": "recorded"}, ["x"])
