"""Tools of MCP servers, offered to agents. Contract: foreign_tools 1."""

import json
import logging
import re
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import chain, islice
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, structs

from antiphon.agents.model import ToolSchema
from antiphon.agents.null_arguments import without_nulls
from antiphon.agents.toolset import Foreign, Tool, ToolContext, ToolOutput, Toolset, ToolSource, hash_of_tool
from antiphon.clock import Clock, SystemClock
from antiphon.domain.agent import Effect
from antiphon.domain.classification import UNTRUSTED, Classification
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import AgentId
from antiphon.domain.message import JsonObject
from antiphon.domain.nearness import nearest
from antiphon.domain.tool_review import UNREVIEWED, Reviewed
from antiphon.mcp.connection import ServerConnection
from antiphon.mcp.labels import classification_by_label
from antiphon.mcp.lenient import UNREADABLE
from antiphon.mcp.results import cut, text_of_result
from antiphon.mcp.settings import ServerSettings, arguments_in
from antiphon.policy.tool_effects import Hints, propose_effects

if TYPE_CHECKING:
    from mcp.types import Tool as ListedTool

logger = logging.getLogger(__name__)

SEPARATOR = "__"
MOST_UNLISTED = 10
"""How many settings that name no tool of a server are told."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every provider accepts."""
MAX_DESCRIPTION = 4_000
MAX_SCHEMA_BYTES = 64 * 1024
MAX_TOOLS = 500


class LeftOut(Struct, frozen=True):
    """A tool that a server offers and no agent gets."""

    server: str
    tool: str
    reason: str


class McpTool:
    """One tool of a server. Implements `Tool`."""

    def __init__(self, connection: ServerConnection, tool: str, schema: ToolSchema, hints: Hints) -> None:
        settings = connection.settings
        self._connection = connection
        self._tool = tool
        self._schema = schema
        self._effects = settings.declared_effects(tool) or UNREVIEWED
        self._foreign = Foreign(
            source=f"mcp:{settings.name}",
            tool=tool,
            sha256=hash_of_tool(schema, settings.origin, structs.asdict(hints)),
            proposed=propose_effects(tool, hints),
            is_declared=settings.declared_effects(tool) is not None,
            reviewed=self._reviewed,
        )
        self._routes = connection.settings.routes_of(tool, schema.parameters)
        self._made_of = connection.settings.classification.distrusted()

    def _reviewed(self, review: Reviewed) -> "McpTool":
        """What the settings declare counts, whatever was confirmed."""
        found = copy(self)
        found._effects = self._effects if self._foreign.is_declared else review.effects
        found._foreign = structs.replace(self._foreign, is_confirmed=review.is_confirmed)
        return found

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    @property
    def effects(self) -> frozenset[Effect]:
        return self._effects

    @property
    def carries_secret(self) -> bool:
        """Whether the settings give its server a variable or a header, which are secrets."""
        return bool(self._connection.settings.env or self._connection.settings.headers)

    @property
    def is_idempotent(self) -> bool:
        return self._effects <= {Effect.READS}

    @property
    def classification(self) -> Classification:
        return self._made_of

    @property
    def clearance(self) -> Classification | None:
        return self._connection.settings.clearance

    @property
    def routes(self) -> tuple[str, ...] | None:
        return self._routes

    @property
    def foreign(self) -> Foreign | None:
        return self._foreign

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        try:
            result = await self._connection.call(self._tool, without_nulls(arguments, self._schema.parameters))
        except Unavailable as error:
            return _failure(error.code, error.message, self._made_of)
        text, settings = text_of_result(result), self._connection.settings
        made_of = classification_by_label(settings, result.meta)
        if result.is_error:
            return _failure("mcp_tool_failed", settings.masked(text) or "The tool gives no details.", made_of)
        return ToolOutput(text, classification=made_of)


class AbsentTools:
    """Stands for all tools of a server that is unavailable now. Implements `Tool`."""

    def __init__(self, server: str, problem: Unavailable) -> None:
        self._problem = problem
        self._schema = ToolSchema(
            name=server,
            # The problem is told where it is asked for: it may hold words of the server, and this stands in the prompt.
            description=f"Tools whose names begin with {server + SEPARATOR!r} are not available now.",
            parameters={"type": "object"},
        )

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    @property
    def effects(self) -> frozenset[Effect]:
        return frozenset({Effect.READS})

    @property
    def is_idempotent(self) -> bool:
        return True

    @property
    def classification(self) -> Classification:
        return UNTRUSTED

    @property
    def clearance(self) -> Classification | None:
        return None

    @property
    def routes(self) -> tuple[str, ...] | None:
        return None

    @property
    def foreign(self) -> Foreign | None:
        return None

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        return _failure(self._problem.code, self._problem.message, UNTRUSTED)


class McpTools:
    """The tools that agents may call: this program's, and those of the agent's servers. Implements `ToolSource`."""

    def __init__(self, own: ToolSource, settings: Iterable[ServerSettings], clock: Clock) -> None:
        self._own = own
        self._connections: dict[AgentId, list[ServerConnection]] = {}
        self._told: set[LeftOut] = set()
        for server in settings:
            self._connections.setdefault(server.agent_id, []).append(ServerConnection(server, clock))

    async def run(self) -> None:
        """Keeps the connections open, until cancelled. Each is opened when first needed."""
        async with anyio.create_task_group() as tasks:
            for connection in self._all():
                tasks.start_soon(connection.run)

    async def tools_for(self, agent_id: AgentId) -> Toolset:
        """Waits for servers up to their deadlines; a server that does not answer is listed as absent."""
        own = await self._own.tools_for(agent_id)
        connections = self._connections.get(agent_id, [])
        if not connections:
            return own
        listings = dict[ServerConnection, Sequence[Tool] | AbsentTools]()
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(self._list, connection, own, listings)
        tools = list[Tool]()
        absent = dict[str, Tool]()
        for connection in connections:
            match listings[connection]:
                case AbsentTools() as stand_in:
                    absent[connection.settings.name + SEPARATOR] = stand_in
                case found:
                    tools += found
        return own.joined(tools, absent)

    async def _list(
        self, connection: ServerConnection, own: Toolset, listings: dict[ServerConnection, Sequence[Tool] | AbsentTools]
    ) -> None:
        try:
            listed = await connection.tools()
        except Unavailable as error:
            listings[connection] = AbsentTools(connection.settings.name, error)
            return
        listings[connection], left_out = tools_of(connection, listed, own)
        self._tell_unlisted(connection.settings, listed)
        for tool in left_out:
            if tool not in self._told:
                self._told.add(tool)
                logger.warning(
                    "MCP tool is left out",
                    extra={"action": "mcp_tool_left_out", "server": tool.server, "tool": tool.tool[:200]}
                    | {"reason": tool.reason},
                )

    def _tell_unlisted(self, server: ServerSettings, listed: "Iterable[ListedTool]") -> None:
        """Tells once which settings name a tool that the server does not have."""
        for problem in unlisted(server, listed):
            if (told := LeftOut(server.name, "", problem)) not in self._told:
                self._told.add(told)
                extra = {"action": "setting_ineffective", "setting": problem, "server": server.name}
                logger.warning("Setting has no effect", extra=extra)

    def _all(self) -> Iterable[ServerConnection]:
        for connections in self._connections.values():
            yield from connections


def tools_of(
    connection: ServerConnection, listed: "Iterable[ListedTool]", own: Toolset
) -> tuple[list[Tool], list[LeftOut]]:
    """The server's tools under their prefixed names, and the tools left out, with the reason."""
    settings = connection.settings
    taken: set[str] = set()
    tools: list[Tool] = []
    left_out: list[LeftOut] = []
    for tool in listed:
        if settings.tools is not None and tool.name not in settings.tools:
            continue
        name = f"{settings.name}{SEPARATOR}{tool.name}"
        reason = _reason_against(tool, name)
        if reason is None and (name in taken or own.find(name) is not None):
            reason = f"the name {name!r} is taken"
        if reason is None and len(tools) >= MAX_TOOLS:
            reason = f"the server has more than {MAX_TOOLS} tools"
        if reason is not None:
            left_out.append(LeftOut(settings.name, tool.name, reason))
            continue
        taken.add(name)
        description = cut(tool.description or tool.title or "", MAX_DESCRIPTION)
        schema = ToolSchema(name=name, description=description, parameters=tool.input_schema)
        tools.append(McpTool(connection, tool.name, schema, _hints_of(tool)))
    return tools, left_out


def _hints_of(tool: "ListedTool") -> Hints:
    said = tool.annotations
    if said is None:
        return Hints()
    return Hints(reads_only=said.read_only_hint, destroys=said.destructive_hint, reaches_out=said.open_world_hint)


def unlisted(server: ServerSettings, listed: "Iterable[ListedTool]") -> list[str]:
    """The settings that name a tool or an argument which the server does not have, at most ten of them."""
    tools = {tool.name: tool for tool in listed}
    unknown = (
        f"{setting} names no tool of MCP server {server.name!r}: {_hinted(name, tools)}"
        for name, setting in server.named.items()
        if name not in tools
    )
    no_arguments = (
        f"mcp_servers.{server.name}.routes names no argument of the tool {tool[:80]!r}: {_hinted(route, arguments)}"
        for tool, routes in server.routes.items()
        if tool in tools
        for arguments in [arguments_in(tools[tool].input_schema)]
        for route in routes
        if route not in arguments
    )
    return list(islice(chain(unknown, no_arguments), MOST_UNLISTED))


def _hinted(name: str, known: Iterable[str]) -> str:
    near = nearest(name, sorted(known))
    return f"{name[:80]!r}" if near is None else f"{name[:80]!r}; did you mean {near!r}?"


class ServerReport(Struct, frozen=True, kw_only=True):
    """The result of checking a server."""

    tools: int = 0
    foreign: tuple[Foreign, ...] = ()
    """What owners review of them."""
    left_out: tuple[LeftOut, ...] = ()
    unlisted: tuple[str, ...] = ()
    """The settings that name a tool which it does not have."""
    problem: str | None = None
    """Why the server cannot be used; None if it can."""


async def look_at_servers(settings: Sequence[ServerSettings], own: Toolset) -> list[ServerReport]:
    """One report for each server, in order. Asks all of them concurrently, then disconnects."""
    reports = [ServerReport()] * len(settings)

    async def look(index: int) -> None:
        connection = ServerConnection(settings[index], SystemClock())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            try:
                listed = await connection.tools()
                tools, left_out = tools_of(connection, listed, own)
                reports[index] = ServerReport(
                    tools=len(tools),
                    foreign=tuple(tool.foreign for tool in tools if tool.foreign is not None),
                    left_out=tuple(left_out),
                    unlisted=tuple(unlisted(settings[index], listed)),
                )
            except Unavailable as error:
                reports[index] = ServerReport(problem=error.message)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for index in range(len(settings)):
            tasks.start_soon(look, index)
    return reports


def _reason_against(tool: "ListedTool", name: str) -> str | None:
    if tool.meta and (unreadable := tool.meta.get(UNREADABLE)):
        return str(unreadable)
    if not _NAME.fullmatch(name):
        return "its prefixed name is longer than 64 characters, or not of letters, digits, '_' and '-'"
    if len(json.dumps(tool.input_schema)) > MAX_SCHEMA_BYTES:
        return f"its schema is larger than {MAX_SCHEMA_BYTES} bytes"
    return None


def _failure(code: str, message: str, made_of: Classification) -> ToolOutput:
    return ToolOutput(
        json.dumps({"status": "error", "code": code, "error": message}, ensure_ascii=False),
        is_error=True,
        classification=made_of,
    )
