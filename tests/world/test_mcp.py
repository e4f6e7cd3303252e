"""MCP servers as they are: what they answer, and what the agent gets of it. After each row the next call works."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import Tool, ToolContext, ToolOutput, Toolset
from antiphon.clock import SystemClock
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.engine.access.caller import Caller
from antiphon.mcp.client import McpTools, look_at_servers
from antiphon.mcp.settings import ServerSettings
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS
from tests.world.mcp_answers import FINE, ODD, PLAIN
from tests.world.mcp_http import RawServer, Refused, raw_server

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parent / "mcp_program.py"
TRANSPORTS = ("stdio", "json", "events")
CONTEXT = ToolContext(
    Caller(session=SessionRow(1), agent_id=AgentId("main"), principal=OWNER, call_id="call", run=None)
)


@dataclass(frozen=True)
class Odd:
    """A call whose answer is odd, and what the model must get of it."""

    name: str
    answer: str
    """The text on the wire; `$id` stands for the id of the request."""
    text: str
    """A part of what the model gets."""
    is_error: bool = False
    before: Sequence[str] = ()
    """Messages that come before it, where the transport has several."""
    transports: Sequence[str] = TRANSPORTS


def result(value: object, **fields: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "ID", "result": value, **fields}).replace('"ID"', "$id")


def content(*blocks: object, **fields: object) -> str:
    return result({"content": list(blocks), **fields})


LOG = '{"level":"info","id":7,"error":"none","message":"called"}'
ANSWERS = [
    Odd("half a surrogate", content({"type": "text", "text": "half \ud83d here"}), "half \ufffd here"),
    Odd("half a surrogate, low", content({"type": "text", "text": "half \udc00 here"}), "half \ufffd here"),
    Odd("a whole surrogate pair", content({"type": "text", "text": "whole \U0001f600"}), "whole \U0001f600"),
    Odd("an escaped backslash before u", content({"type": "text", "text": "path \\ud83d"}), "path \\ud83d"),
    Odd("bytes that are not UTF-8", FINE.replace("fine", "caf\udce9 x"), "caf\ufffd x"),
    Odd("a byte order mark", "\ufeff" + FINE, "fine"),
    Odd("blanks around it", "  " + FINE + "  \r", "fine"),
    Odd("a null result", result(None), ""),
    Odd("a result that is a text", result("done"), "done"),
    Odd("a result that is a list", result(["one", "two"]), "two"),
    Odd("a result that is a number", result(42), "42"),
    Odd("an empty result", result({}), ""),
    Odd("content null", result({"content": None}), ""),
    Odd("content that is a text", result({"content": "plain words"}), "plain words"),
    Odd("content that is one block", result({"content": {"type": "text", "text": "one block"}}), "one block"),
    Odd("the result of the first protocol", result({"toolResult": {"sum": 5}}), '"sum": 5'),
    Odd(
        "content of an unknown kind",
        content({"type": "video", "data": "AA"}, {"type": "text", "text": "after"}),
        "after",
    ),
    Odd("content without a kind", content({"text": "no kind"}), "no kind"),
    Odd("a block that is a text", content("bare"), "bare"),
    Odd("a text that is null", content({"type": "text", "text": None}, {"type": "text", "text": "next"}), "next"),
    Odd("a text that is an object", content({"type": "text", "text": {"a": 1}}), '{"a": 1}'),
    Odd("an image without a kind", content({"type": "image", "data": "QUJDRA=="}), "4 bytes"),
    Odd("an image without data", content({"type": "image", "mimeType": "image/png"}), "image without data"),
    Odd("a resource without an address", content({"type": "resource", "resource": {"text": "inside"}}), "inside"),
    Odd("a resource without content", content({"type": "resource", "resource": {"uri": "x:y"}}), "without content"),
    Odd("a link without a name", content({"type": "resource_link", "uri": "x:y"}), "x:y"),
    Odd("annotations out of range", content({"type": "text", "text": "kept", "annotations": {"priority": 9}}), "kept"),
    Odd("`_meta` that is no object", content({"type": "text", "text": "kept"}, _meta=None), "kept"),
    Odd("`isError` as a text", content({"type": "text", "text": "bad"}, isError="true"), "bad", is_error=True),
    Odd("`isError` null", content({"type": "text", "text": "good"}, isError=None), "good"),
    Odd("structured content that is a list", content(structuredContent=[1, 2]), "[1,2]"),
    Odd("structured content that does not fit its schema", content(structuredContent={"n": "x"}), '"n":"x"'),
    Odd("a field that nobody knows", content({"type": "text", "text": "kept", "new": 1}, later=True), "kept"),
    Odd("`error` null beside a result", FINE[:-1] + ',"error":null}', "fine"),
    Odd("an error that is a text", '{"jsonrpc":"2.0","id":$id,"error":"no luck"}', "no luck", is_error=True),
    Odd(
        "an error without a number",
        '{"jsonrpc":"2.0","id":$id,"error":{"message":"no luck"}}',
        "no luck",
        is_error=True,
    ),
    Odd(
        "a number as a text",
        '{"jsonrpc":"2.0","id":$id,"error":{"code":"E1","message":"no luck"}}',
        "no luck",
        is_error=True,
    ),
    Odd("an error without words", '{"jsonrpc":"2.0","id":$id,"error":{"code":-1}}', "-1", is_error=True),
    Odd("no version", FINE.replace('"jsonrpc":"2.0",', ""), "fine"),
    Odd("the id as a text", FINE.replace("$id", '"$id"'), "fine"),
    Odd("the id as a fraction", FINE.replace("$id", "$id.0"), "fine"),
    Odd(
        "an error with no id", '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"who?"}}', "who?", is_error=True
    ),
    Odd("a batch of one", f"[{FINE}]", "fine"),
    Odd("a number that is not one", content({"type": "text", "text": "kept"}, later=float("nan")), "kept"),
    Odd("nested too deeply", FINE.replace('"fine"', "[" * 3000 + "]" * 3000), "not valid JSON", is_error=True),
    Odd("cut short", FINE[:-9], "not valid JSON", is_error=True),
    Odd(
        "lines of a log before it", FINE, "fine", before=["Listening …", LOG, "[INFO] called", ""], transports=["stdio"]
    ),
    Odd(
        "an answer that nobody asked for",
        FINE,
        "fine",
        before=[FINE.replace("$id", "999")],
        transports=["stdio", "events"],
    ),
    Odd("the answer twice", FINE, "fine", before=[FINE], transports=["stdio", "events"]),
    Odd(
        "a message of another kind",
        FINE,
        "fine",
        before=['{"jsonrpc":"2.0","method":"notifications/unheard_of","params":[1]}'],
        transports=["stdio", "events"],
    ),
]


@dataclass(frozen=True)
class Listed:
    """A listing, the tools that agents get of it, and why the others are left out."""

    name: str
    tools: object
    offered: Sequence[str] = ("odd", "plain")
    left_out: Mapping[str, str] | None = None
    more: Mapping[str, object] | None = None
    """Other fields of the listing."""
    schema: Mapping[str, object] | None = None
    """The arguments that the model sees of `odd`."""


def odd(**fields: object) -> list[object]:
    return [{**ODD, **fields}, PLAIN]


def object_of(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
LISTINGS = [
    Listed(
        "alternatives at the root",
        odd(
            inputSchema={
                "anyOf": [
                    object_of(a=TEXT) | {"required": ["a"]},
                    object_of(a=TEXT, b=NUMBER) | {"required": ["a", "b"]},
                ]
            }
        ),
        schema=object_of(a=TEXT, b=NUMBER) | {"required": ["a"]},
    ),
    Listed(
        "alternatives that differ",
        odd(inputSchema={"oneOf": [object_of(a=TEXT), object_of(a=NUMBER)]}),
        schema=object_of(a={"anyOf": [TEXT, NUMBER]}),
    ),
    Listed(
        "all of several",
        odd(inputSchema={"allOf": [object_of(a=TEXT) | {"required": ["a"]}, object_of(b=TEXT)]}),
        schema=object_of(a=TEXT, b=TEXT) | {"required": ["a"]},
    ),
    Listed(
        "a reference at the root",
        odd(inputSchema={"$ref": "#/$defs/Args", "$defs": {"Args": object_of(a=TEXT)}}),
        schema=object_of(a=TEXT) | {"$defs": {"Args": object_of(a=TEXT)}},
    ),
    Listed("a reference to itself", odd(inputSchema={"$ref": "#"}), ["plain"], {"odd": "too many alternatives"}),
    Listed("references to nowhere", odd(inputSchema={"$ref": "#/$defs/None"}), ["plain"], {"odd": "does not hold"}),
    Listed("no kind", odd(inputSchema={"properties": {"a": TEXT}}), schema=object_of(a=TEXT)),
    Listed("an empty schema", odd(inputSchema={}), schema=object_of()),
    Listed("a schema that is null", odd(inputSchema=None), schema=object_of()),
    Listed("kinds, one of them an object", odd(inputSchema={"type": ["object", "null"]}), schema=object_of()),
    Listed("properties null", odd(inputSchema={"type": "object", "properties": None}), schema=object_of()),
    Listed("a property that is null", odd(inputSchema=object_of(a=None)), schema=object_of(a={})),
    Listed(
        "`required` that is a bool", odd(inputSchema=object_of(a=TEXT) | {"required": True}), schema=object_of(a=TEXT)
    ),
    Listed("a schema of a text", odd(inputSchema={"type": "string"}), ["plain"], {"odd": "not an object"}),
    Listed("a schema that is a text", odd(inputSchema="object"), ["plain"], {"odd": "not an object"}),
    Listed(
        "a schema by its older name",
        list[object](({"name": "odd", "parameters": object_of(a=TEXT)}, PLAIN)),
        schema=object_of(a=TEXT),
    ),
    Listed("a description that is a list", odd(description=["a", "b"])),
    Listed("hints that are texts", odd(annotations={"readOnlyHint": "yes"})),
    Listed("annotations null, icons of no kind", odd(annotations=None, icons="x", execution=1, _meta=[])),
    Listed("an output schema that is a list", odd(outputSchema={"type": "array"})),
    Listed("an output schema that nothing fits", odd(outputSchema=object_of(n=NUMBER) | {"required": ["n"]})),
    Listed("a tool without a name", [{"inputSchema": object_of()}, *odd()], left_out={"tool 1": "no name"}),
    Listed("a tool that is a text", ["odd", *odd()], left_out={"tool 1": "not an object"}),
    Listed("a name with a blank", [{**ODD, "name": "odd one"}, *odd()], left_out={"odd one": "letters"}),
    Listed("one name twice", [ODD, *odd()], left_out={"odd": "is taken"}),
    Listed("tools by their names", {"odd": {}, "plain": {}}),
    Listed("no tools", None, []),
    Listed("a cursor that is empty", odd(), more={"nextCursor": ""}),
    Listed("a cursor that is null", odd(), more={"nextCursor": None}),
    Listed("fields that nobody knows", odd(), more={"ttlMs": -5, "cacheScope": 7, "later": {}}),
]


@asynccontextmanager
async def connected(script: dict[str, Any], transport: str, directory: Path) -> AsyncGenerator[ServerSettings]:
    """A server that answers by the script."""
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    if transport == "stdio":
        path = directory / "script.json"
        path.write_text(json.dumps(script), "utf-8")
        yield replace(settings, command=sys.executable, args=("-S", str(PROGRAM), str(path)))
        return
    async with raw_server(RawServer(script, streams=transport == "events")) as server:
        yield replace(settings, url=server.url)


@asynccontextmanager
async def tools_of(settings: ServerSettings) -> AsyncGenerator[McpTools]:
    class NoTools:
        async def tools_for(self, agent_id: AgentId) -> Toolset:
            return Toolset([])

    mcp = McpTools(NoTools(), [settings], SystemClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mcp.run)
        yield mcp
        tasks.cancel_scope.cancel()


async def find(mcp: McpTools, name: str) -> Tool:
    found = (await mcp.tools_for(AgentId("main"))).find(f"raw__{name}")
    assert found is not None, f"{name} is not offered"
    return found


async def call(mcp: McpTools, name: str) -> ToolOutput:
    return await (await find(mcp, name)).call(CONTEXT, {})


def listing(tools: object, more: Mapping[str, object] | None = None) -> str:
    return result({"tools": tools, **(more or {})})


@requirement("foreign_tools:1")
@pytest.mark.parametrize(
    ("row", "transport"),
    [pytest.param(row, each, id=f"{row.name}, {each}") for row in ANSWERS for each in row.transports],
)
async def test_an_odd_answer_is_read_or_fails_at_once(row: Odd, transport: str, tmp_path: Path) -> None:
    tools = [{**ODD, "outputSchema": object_of(n=NUMBER) | {"required": ["n"]}}, PLAIN]
    script = {"listing": listing(tools), "odd": [*row.before, row.answer]}
    with anyio.fail_after(PROCESS_SECONDS / 2):
        async with connected(script, transport, tmp_path) as settings, tools_of(settings) as mcp:
            output = await call(mcp, "odd")
            assert row.text in output.text and output.is_error is row.is_error
            assert (await call(mcp, "plain")).text == "fine"


@requirement("foreign_tools:1")
@pytest.mark.parametrize("transport", ["stdio", "json"])
@pytest.mark.parametrize("row", LISTINGS, ids=lambda row: row.name)
async def test_one_odd_tool_hides_no_other_and_what_is_left_out_is_said(
    row: Listed, transport: str, tmp_path: Path
) -> None:
    script = {"listing": listing(row.tools, row.more), "odd": [FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with connected(script, transport, tmp_path) as settings:
            async with tools_of(settings) as mcp:
                toolset = await mcp.tools_for(AgentId("main"))
                assert sorted(toolset.names) == [f"raw__{name}" for name in row.offered]
                if row.schema is not None:
                    assert (await find(mcp, "odd")).schema.parameters == row.schema
                for name in row.offered:
                    assert (await call(mcp, name)).text == "fine"
            (report,) = await look_at_servers([settings], Toolset([]))
    assert report.problem is None
    reasons = {tool.tool: tool.reason for tool in report.left_out}
    assert reasons.keys() == (row.left_out or {}).keys()
    assert all(words in reasons[name] for name, words in (row.left_out or {}).items())


NOT_FOUND = '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
NO_SESSION = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}'
LOST = {
    "404, an error": Refused("404 Not Found", "application/json", NOT_FOUND),
    "404, other JSON": Refused("404 Not Found", "application/json", '{"error":"unknown"}'),
    "404, words": Refused("404 Not Found", "text/plain", "Session not found"),
    "404, a page": Refused("404 Not Found", "text/html", "<html><body>404</body></html>"),
    "400, an error": Refused("400 Bad Request", "application/json", NO_SESSION),
    "400, words": Refused("400 Bad Request", "text/plain", "Bad Request: No valid session ID provided"),
    "400, not initialized": Refused(
        "400 Bad Request",
        "application/json",
        NO_SESSION.replace("No valid session ID provided", "Server not initialized"),
    ),
}


@requirement("foreign_tools:1")
@pytest.mark.parametrize("form", LOST)
async def test_a_forgotten_session_gets_the_call_again_once(form: str) -> None:
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    script = {"listing": listing([ODD, PLAIN]), "odd": [FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with (
            raw_server(RawServer(script, refusal=LOST[form])) as server,
            tools_of(replace(settings, url=server.url)) as mcp,
        ):
            assert (await call(mcp, "odd")).text == "fine"
            server.restart()
            assert (await call(mcp, "odd")).text == "fine"
            assert (await call(mcp, "plain")).text == "fine"
    assert server.calls == ["odd", "odd", "plain"]


REFUSALS = {
    "401": Refused("401 Unauthorized", "application/json", '{"error":"invalid_token"}'),
    "403": Refused("403 Forbidden", "text/html", "<html>no</html>"),
    "429": Refused("429 Too Many Requests", "text/plain", "slow down"),
    "500": Refused("500 Internal Server Error", "text/plain", "boom"),
    "503": Refused("503 Service Unavailable", "text/html", "<html>away</html>"),
}


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refused_call_says_the_status_and_the_next_works(status: str) -> None:
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    script = {"listing": listing([ODD, PLAIN]), "odd": [FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with (
            raw_server(RawServer(script, refusal=REFUSALS[status], refuses_calls=True)) as server,
            tools_of(replace(settings, url=server.url)) as mcp,
        ):
            output = await call(mcp, "odd")
            assert output.is_error and f"HTTP {status}" in output.text and "<html>" not in output.text
            assert (await call(mcp, "plain")).text == "fine"
    assert server.calls == ["odd", "plain"], "what may have been done is not done again"


async def test_a_server_that_forgets_every_session_costs_two_tries() -> None:
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    script = {"listing": listing([ODD, PLAIN]), "odd": [FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with (
            raw_server(RawServer(script, refusal=LOST["404, an error"], refuses_calls=True)) as server,
            tools_of(replace(settings, url=server.url)) as mcp,
        ):
            output = await call(mcp, "odd")
            assert output.is_error and "forgets its sessions" in output.text
            assert (await call(mcp, "plain")).text == "fine"
    assert server.calls == ["odd", "odd", "plain"]


CHANGED = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


async def test_tools_that_change_in_a_call_are_offered_next() -> None:
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    script = {"listing": listing([ODD]), "odd": [CHANGED, FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with (
            raw_server(RawServer(script, streams=True)) as server,
            tools_of(replace(settings, url=server.url)) as mcp,
        ):
            assert list((await mcp.tools_for(AgentId("main"))).names) == ["raw__odd"]
            script["listing"] = listing([ODD, PLAIN])
            assert (await call(mcp, "odd")).text == "fine"
            assert (await call(mcp, "plain")).text == "fine"


async def test_tools_that_change_while_they_are_listed_are_listed_again() -> None:
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    script: dict[str, Any] = {"listing": listing([ODD]), "before_listing": CHANGED, "odd": [FINE]}
    with anyio.fail_after(PROCESS_SECONDS):
        async with (
            raw_server(RawServer(script, streams=True)) as server,
            tools_of(replace(settings, url=server.url)) as mcp,
        ):
            assert list((await mcp.tools_for(AgentId("main"))).names) == ["raw__odd"]
            script["listing"] = listing([ODD, PLAIN])
            assert (await call(mcp, "plain")).text == "fine"
