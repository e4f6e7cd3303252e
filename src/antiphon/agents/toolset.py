"""Tools as a run sees them: a name, a schema, declared effects, one call. Contract: foreign_tools 1, flow 10."""

import functools
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Protocol, cast, get_type_hints, runtime_checkable

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from antiphon.agents.model import ToolSchema
from antiphon.agents.null_arguments import without_nulls
from antiphon.agents.text import bounded_text
from antiphon.domain.agent import Effect, ToolProfile
from antiphon.domain.approval import DerivedField, hash_of_text
from antiphon.domain.classification import NO_COMPARTMENTS, PEOPLE, PUBLIC, Classification, from_wire
from antiphon.domain.errors import AntiphonError, Invalid
from antiphon.domain.ids import AgentId, RunId
from antiphon.domain.message import MAX_TEXT_BYTES, NO_USAGE, JsonObject, JsonValue, Usage
from antiphon.domain.nearness import nearest
from antiphon.domain.run import Run
from antiphon.domain.tool_review import ConfirmedTool, Reviewed, review_of
from antiphon.engine.access.caller import Caller, CallingRun
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.rules import Rules
from antiphon.incoming import Misfit, bounded, check_arguments, problems_of, shortened
from antiphon.policy.decision import Deny
from antiphon.policy.patterns import matches_any
from antiphon.policy.rights import may_call
from antiphon.policy.session_tools import SESSION_TOOLS, allowed_session_tools
from antiphon.policy.shipped_tools import RUN_COMMAND, USE_WORKSPACE, is_offered
from antiphon.policy.standing import Standing
from antiphon.policy.tool_effects import Hints, propose_effects

logger = logging.getLogger(__name__)

MAX_FAILURE_LENGTH = 2_000
"""Characters of an exception's text."""


class ToolRaised(Exception):
    """Stands in the log for what a function raised: its type and its place, without its text. Contract: flow 7."""


class ToolOutput(Struct, frozen=True):
    """The result of a call; failures are data for the model."""

    text: str
    is_error: bool = False
    classification: Classification = PUBLIC
    """What the result adds to the caller's context. Contract: flow 2."""
    usage: Usage = NO_USAGE
    """What models used for it; the run counts it as its own."""


class ToolContext:
    """For tools that need the caller; never made from arguments. Contract: answers 3."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    @property
    def call_id(self) -> str:
        """Stays the same when a call is repeated after a crash; a key for idempotent effects."""
        return self.caller.call_id

    @property
    def run_context(self) -> CallingRun:
        """Raises `Invalid` for a call from outside a run."""
        if self.caller.run is None:
            raise Invalid("Tool needs a run, but the call comes from outside one.", code="no_run")
        return self.caller.run

    @property
    def run(self) -> Run:
        return self.run_context.run

    async def wait(self, run_id: RunId, timeout: timedelta) -> Run | None:
        """The run once it has ended, None on time-out. While this run waits, it takes no slot."""
        return await self.run_context.wait_run(run_id, timeout)


class Foreign(Struct, frozen=True, kw_only=True):
    """What an owner reviews of a tool that others wrote. Contract: flow 10."""

    source: str
    """`mcp:<server>` or `package:<package>`."""
    tool: str
    """Its name there."""
    sha256: str
    """Of its source and all its words; a tool of another hash is another tool."""
    proposed: frozenset[Effect]
    """What its name and its server's hints suggest that it does."""
    is_declared: bool = False
    """Whether the settings say what it does."""
    is_confirmed: bool = False
    """Whether an owner has read it."""
    reviewed: "Callable[[Reviewed], Tool]"
    """The tool, as reviews say."""
    beside: str = ""
    """What else makes it up, beyond its name, its words and its effects."""


class Tool(Protocol):
    """A function that an agent may call.

    - `call` does not raise for bad arguments or a failure: it returns a `ToolOutput` that says so.
    - A tool that is not idempotent is never called again when its outcome is unknown.
    """

    @property
    def schema(self) -> ToolSchema: ...

    @property
    def effects(self) -> frozenset[Effect]: ...

    @property
    def is_idempotent(self) -> bool: ...

    @property
    def classification(self) -> Classification:
        """What its results are declared to be made of."""
        ...

    @property
    def clearance(self) -> Classification | None:
        """What calls may carry to it; None for the default of `policy.sinks`."""
        ...

    @property
    def routes(self) -> tuple[str, ...] | None:
        """Its arguments that say where to or how much; None if it does not tell, so that each of them may."""
        ...

    @property
    def foreign(self) -> Foreign | None:
        """None for a tool whose words and effects its author vouches for."""
        ...

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput: ...


@runtime_checkable
class Foreseeing(Protocol):
    """A tool whose calls decide by their own target, which can be known before they begin. Contract: flow 4, 7."""

    async def foresee(self, context: ToolContext, arguments: JsonObject) -> ForeseenCall | None:
        """Whether the words of the call may go to their target now; the unit that carries it out decides the same.

        None for a call that sends no words on, or that is refused whatever its words are made of. Changes nothing.
        """
        ...


@runtime_checkable
class RefusingByTarget(Protocol):
    """A tool whose own refusal of a call can be known before it begins: what it names is missing, say."""

    async def refusal_of(self, context: ToolContext, arguments: JsonObject) -> Deny | None:
        """With the code of the refusal. Changes nothing."""
        ...


@runtime_checkable
class Deriving(Protocol):
    """A tool that says more of a call than its arguments do, and may refuse it before anybody is asked."""

    def derived(self, arguments: JsonObject) -> tuple[DerivedField, ...]:
        """What an owner may fix in place of arguments; nothing of a call that does not fit."""
        ...

    def refuse_asking(self, arguments: JsonObject) -> AntiphonError | None:
        """Why the call would fail whatever a person said."""
        ...


@runtime_checkable
class AlwaysAsked(Protocol):
    """A tool whose calls are questions: each waits for a person's answer. Contract: foreign_agents 1."""

    def question_of(self, arguments: JsonObject) -> str:
        """What the person is asked, in plain sentences."""
        ...


@runtime_checkable
class ByAgent(Protocol):
    """A tool that is another one for each agent."""

    async def for_agent(self, agent_id: AgentId) -> "Tool | None":
        """As the agent has it now; None if it does not have it."""
        ...


@runtime_checkable
class ByArguments(Protocol):
    """A tool whose effects depend on the arguments of a call. Itself it has the effects of all calls."""

    def for_call(self, arguments: JsonObject) -> "Tool":
        """The tool with the effects of this call."""
        ...


def tool_with(tool: Tool, arguments: JsonObject) -> Tool:
    """The tool with the effects of a call with these arguments."""
    return tool.for_call(arguments) if isinstance(tool, ByArguments) else tool


@runtime_checkable
class RunningPrograms(Protocol):
    """A tool that runs programs in the session's workspace, as `run_command` does."""

    @property
    def runs_program(self) -> bool: ...


def is_command(tool: Tool) -> bool:
    """Whether calls of the tool run a program in the session's workspace, of which their results are then made."""
    return tool.schema.name == RUN_COMMAND or (isinstance(tool, RunningPrograms) and tool.runs_program)


def uses_workspace(tool: Tool) -> bool:
    """Whether calls of the tool read or leave data in the session's workspace. Contract: flow 8."""
    return is_command(tool) or tool.schema.name in USE_WORKSPACE


def hash_of_tool(schema: ToolSchema, *beside: object) -> str:
    """Of a tool's name, description and schema, and of what else makes it up."""
    return hash_of_text(json.dumps([schema.name, schema.description, schema.parameters, *beside], sort_keys=True))


class DeclaredFunction(Struct, frozen=True):
    """A Python function and its effects on the world; made by `tool`."""

    function: Callable[..., Any]
    name: str
    effects: frozenset[Effect]
    is_idempotent: bool
    classification: Classification = PUBLIC
    """The classification of its results."""
    clearance: Classification | None = None
    """What calls may carry to it; None for the default."""
    routes: tuple[str, ...] | None = None
    """Its parameters that say where to or how much; None if that is not declared."""
    package: str | None = None
    """The installed package that offers it and does not declare what it does; None for any other function."""


def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effects: Collection[str] = ("writes",),
    is_idempotent: bool = False,
    classification: Mapping[str, JsonValue] | None = None,
    clearance: Mapping[str, JsonValue] | None = None,
    routes: Collection[str] | None = None,
) -> DeclaredFunction:
    """Declares a function's effects on the world, for policy and recovery, and the classification of its results.

    `effects` are of `reads, writes, leaves, deletes, spends, configures`; a function that only reads may run beside
    others and may be repeated. An idempotent function is repeated after a crash in the middle of it.
    `classification` is like `{"level": "CONFIDENTIAL", "integrity": "untrusted"}`; public and trusted unless given.
    `clearance`, like `{"level": "INTERNAL"}`, is what calls may carry to it. Unless given, a function that only reads
    takes anything, and any other takes data up to its `classification`.
    `routes` names the parameters that say where to or how much, such as a recipient or an amount; `[]` if none does.
    Unless given, every parameter may.
    """
    declared = frozenset(Effect(effect) for effect in effects)
    only_reads = declared <= {Effect.READS}
    made_of = PUBLIC if classification is None else from_wire(classification, NO_COMPARTMENTS)
    taken = None if clearance is None else from_wire({"person": PEOPLE, **clearance}, NO_COMPARTMENTS)
    return DeclaredFunction(
        function,
        name or function.__name__,
        declared,
        is_idempotent or only_reads,
        made_of,
        clearance=taken,
        routes=None if routes is None else tuple(routes),
    )


class FunctionTool:
    """A Python function as a tool: arguments from its signature, description from its docstring."""

    def __init__(self, declared: DeclaredFunction) -> None:
        self._function = declared.function
        self._declared = declared
        self._context_parameter, self._arguments = _signature(declared)
        _check_routes(declared, self._arguments)
        parameters: Any = self._arguments.model_json_schema()
        parameters.pop("title", None)
        self._schema = ToolSchema(
            name=declared.name, description=inspect.getdoc(declared.function) or "", parameters=parameters
        )
        self._foreign = None if declared.package is None else self._reviewable(declared.package)

    def _reviewable(self, package: str) -> Foreign:
        source, name = f"package:{package}", self._declared.name
        return Foreign(
            source=source,
            tool=name,
            sha256=hash_of_tool(self._schema, source),
            proposed=propose_effects(name, Hints()),
            reviewed=self._reviewed,
        )

    def _reviewed(self, review: Reviewed) -> "FunctionTool":
        found = copy(self)
        only_reads = review.effects <= {Effect.READS}
        found._declared = replace(self._declared, effects=review.effects, is_idempotent=only_reads)
        found._foreign = None if self._foreign is None else replace(self._foreign, is_confirmed=review.is_confirmed)
        return found

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    @property
    def effects(self) -> frozenset[Effect]:
        return self._declared.effects

    @property
    def is_idempotent(self) -> bool:
        return self._declared.is_idempotent

    @property
    def classification(self) -> Classification:
        made_of = self._declared.classification
        return made_of if self._foreign is None or self._foreign.is_confirmed else made_of.distrusted()

    @property
    def clearance(self) -> Classification | None:
        return self._declared.clearance

    @property
    def routes(self) -> tuple[str, ...] | None:
        return self._declared.routes

    @property
    def foreign(self) -> Foreign | None:
        return self._foreign

    def classified(self, made_of: Classification) -> "FunctionTool":
        """The same function; its results are made of `made_of` too."""
        joined = self._declared.classification.join(made_of)
        return (
            self
            if joined == self._declared.classification
            else FunctionTool(replace(self._declared, classification=joined))
        )

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        output = await self._carry_out(context, arguments)
        return replace(output, classification=self.classification)

    async def _carry_out(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        try:
            check_arguments(arguments)
            parsed = self._arguments.model_validate(without_nulls(arguments, self._schema.parameters))
        except ValidationError as error:
            return ToolOutput(_explain(error), is_error=True)
        except Misfit as error:
            return ToolOutput(_misfit(str(error)), is_error=True)
        values = {name: getattr(parsed, name) for name in type(parsed).model_fields}
        if self._context_parameter is not None:
            values[self._context_parameter] = context
        try:
            return ToolOutput(bounded_text(await _text(await _invoke(self._function, values))))
        except AntiphonError as error:
            return ToolOutput(_failure(error.code, error.message), is_error=True)
        except Exception as error:  # the model sees any exception of the function; the run goes on
            said = f"{type(error).__name__}: {await to_thread.run_sync(_said, error)}"
            run = context.caller.run
            logger.exception(
                "Tool failed",
                # Its own text may hold what the call was made of, which no log has.
                exc_info=ToolRaised(type(error).__name__).with_traceback(error.__traceback__),
                extra={"action": "tool_failed", "tool": self._schema.name, "run_id": run and run.run.id},
            )
            return ToolOutput(_failure("tool_failed", said), is_error=True)


async def _invoke(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        awaitable: Awaitable[Any] = function(**values)
        return await awaitable
    return await to_thread.run_sync(functools.partial(function, **values))


def _signature(declared: DeclaredFunction) -> tuple[str | None, type[BaseModel]]:
    """The name of the parameter that takes the `ToolContext`, and a model of the others."""
    hints = get_type_hints(declared.function, include_extras=True)
    context_parameter = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(declared.function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is None:
            raise Invalid(
                f"Tool has a parameter without a type: {parameter.name!r} of {declared.name!r}. "
                f"Write its type, such as `{parameter.name}: str`.",
                code="invalid_tool",
            )
        if hint is ToolContext:
            context_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Invalid(f"Tool takes a variable number of arguments: {declared.name!r}. Name each one.")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, default)
    return context_parameter, create_model(
        declared.name, __config__=ConfigDict(extra="forbid", hide_input_in_errors=True), **fields
    )


def _check_routes(declared: DeclaredFunction, arguments: type[BaseModel]) -> None:
    """Raises `Invalid` for a name that a call cannot give: approvals would then fix nothing by it."""
    known = list(arguments.model_fields)
    for name in declared.routes or ():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"its parameters are: {', '.join(known) or 'none'}."
            raise Invalid(
                f"Tool names a route that is none of its parameters: {name[:80]!r} of {declared.name!r}; {hint}",
                code="invalid_tool",
            )


def _said(error: Exception) -> str:
    """The text of the exception, up to a readable length; some exceptions have none."""
    try:
        return shortened(str(error), MAX_FAILURE_LENGTH)
    except Exception:  # the function's own code produces the text
        return "it has no text"


async def _text(value: Any) -> str:
    return value if isinstance(value, str) else await to_thread.run_sync(_json, value)


def _json(value: Any) -> str:
    """The value as JSON, or slightly more of its beginning than fits into a message."""
    pieces: list[str] = []
    size = 0
    for piece in _pieces(value):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_TEXT_BYTES:
            break
    return "".join(pieces)


def _pieces(value: Any) -> Iterator[str]:
    """Like `json`, but of texts too long for any message only the beginning."""
    match value:
        case str():
            yield _ENCODER.encode(value[: MAX_TEXT_BYTES + 1])
        case None | bool() | int() | float():
            yield _ENCODER.encode(value)
        case dict():
            start = "{"
            for name, each in cast(dict[Any, Any], value).items():
                yield f"{start}{_name(name)}:"
                yield from _pieces(each)
                start = ","
            yield "}" if start == "," else "{}"
        case list() | tuple():
            start = "["
            for each in cast(Sequence[Any], value):
                yield start
                yield from _pieces(each)
                start = ","
            yield "]" if start == "," else "[]"
        case bytes() if len(value) > MAX_TEXT_BYTES:
            yield from _pieces(value[: MAX_TEXT_BYTES + 1].decode("utf-8", "ignore"))
        case _:
            yield from _pieces(to_jsonable_python(value))


def _name(name: Any) -> str:
    """A member's name; `json` also converts numbers and truth values to names."""
    whole = _ENCODER.encode({name[: MAX_TEXT_BYTES + 1] if isinstance(name, str) else name: 0})
    return whole[1:-3]


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _explain(error: ValidationError) -> str:
    return _misfit(bounded(f"{place or 'arguments'}: {said}" for place, said in problems_of(error)))


def _misfit(problems: str) -> str:
    return _failure("invalid_arguments", f"Arguments do not fit: {problems}")


def _failure(code: str, message: str) -> str:
    return json.dumps({"status": "error", "code": code, "error": message}, ensure_ascii=False)


def reviewed_tool(tool: Tool, confirmed: Sequence[ConfirmedTool]) -> Tool:
    """The tool as owners reviewed it; itself if nobody has to, or nobody did."""
    if (foreign := tool.foreign) is None:
        return tool
    review = review_of(confirmed, foreign.source, foreign.tool, foreign.sha256)
    return tool if review is None else foreign.reviewed(review)


class Toolset:
    """An agent's tools, by name. Raises `Invalid` for two tools of one name."""

    def __init__(
        self,
        tools: Iterable[Tool],
        absent: Mapping[str, Tool] | None = None,
        *,
        from_servers: Collection[str] = frozenset(),
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._from_servers = frozenset(from_servers)
        self._absent = absent or {}
        """By prefix of names: the tools that answer for others that exist but are unavailable now."""
        for entry in tools:
            if entry.schema.name in self._tools:
                raise Invalid(f"Tool name is taken: {entry.schema.name!r}. Rename one of the two tools.")
            self._tools[entry.schema.name] = entry

    def for_session(self, agent_id: AgentId, depth: int, standing: Standing, rules: Rules) -> "Toolset":
        """The tools for a session of the agent at that depth, with the rights of the principal that began the chain.

        Policy decides on session tools, agent settings on others, within the principal's rights. Contract: access 4.
        """
        agent = rules.agents.get(agent_id)
        max_depth = 0 if agent is None else agent.subagents.max_depth
        own = allowed_session_tools(
            agent_id,
            depth,
            max_depth,
            rules=rules.visibility,
            subagent_tools=rules.subagent_tools,
            has_channels=rules.has_channels,
        )
        allowed = () if agent is None else agent.tools
        profile = ToolProfile.FULL if agent is None else agent.profile
        lacked = rules.subagents_lack if depth > 0 else ()
        kept = (
            entry
            for name, entry in self._tools.items()
            if (name in own if name in SESSION_TOOLS else allowed is None or name in allowed)
            and is_offered(name, profile, allowed)
            and may_call(name, standing, rules.role_tools)
            and not (lacked and matches_any(name, lacked))
        )
        named = rules.role_tools.of(standing)
        absent = {
            start: entry
            for start, entry in self._absent.items()
            if (named is None or any(name.startswith(start) for name in named)) and not matches_any(start, lacked)
        }
        return Toolset(kept, absent, from_servers=self._from_servers)

    def with_tool(self, tool: Tool) -> "Toolset":
        """With this one in the place of any other of its name."""
        others = [each for name, each in self._tools.items() if name != tool.schema.name]
        return Toolset([*others, tool], self._absent, from_servers=self._from_servers - {tool.schema.name})

    def that_read(self) -> "Toolset":
        """Those which change nothing: they read here, or fetch what they read. Contract: flow 10."""
        kept = (
            entry
            for entry in self._tools.values()
            if Effect.READS in entry.effects and entry.effects <= {Effect.READS, Effect.LEAVES}
        )
        return Toolset(kept, self._absent, from_servers=self._from_servers)

    async def tools_for(self, agent_id: AgentId) -> "Toolset":
        """The same tools for every agent. Implements `ToolSource`."""
        return self

    def joined(self, tools: Iterable[Tool], absent: Mapping[str, Tool]) -> "Toolset":
        """These tools and those of servers."""
        added = list(tools)
        names = {entry.schema.name for entry in added}
        return Toolset(
            [*self._tools.values(), *added], {**self._absent, **absent}, from_servers=self._from_servers | names
        )

    def is_from_server(self, name: str) -> bool:
        """Whether an MCP server offers the tool."""
        return name in self._from_servers

    def server_of(self, name: str) -> str | None:
        """The MCP server that offers the tool; None for tools of this program."""
        return name.partition("__")[0] if self.is_from_server(name) else None

    def reviewed(self, confirmed: Sequence[ConfirmedTool]) -> "Toolset":
        """Those of others as owners reviewed them."""
        tools = (reviewed_tool(tool, confirmed) for tool in self._tools.values())
        return Toolset(tools, self._absent, from_servers=self._from_servers)

    async def of_agent(self, agent_id: AgentId) -> "Toolset":
        """As the agent has them now."""
        if not any(isinstance(tool, ByAgent) for tool in self._tools.values()):
            return self
        found = [await tool.for_agent(agent_id) if isinstance(tool, ByAgent) else tool for tool in self._tools.values()]
        tools = [tool for tool in found if tool is not None]
        return Toolset(tools, self._absent, from_servers=self._from_servers)

    @property
    def has_unread(self) -> bool:
        """Whether words of others are among them that no owner has confirmed. Notices are this program's own words."""
        return any(tool.foreign is not None and not tool.foreign.is_confirmed for tool in self._tools.values())

    def find(self, name: str) -> Tool | None:
        found = self._tools.get(name)
        return found or next((tool for start, tool in self._absent.items() if name.startswith(start)), None)

    @property
    def tools(self) -> list[Tool]:
        return [*self._tools.values()]

    @property
    def servers_away(self) -> list[str]:
        """The MCP servers that do not answer now."""
        return [start.removesuffix("__") for start in self._absent]

    @property
    def names(self) -> list[str]:
        return sorted(self._tools)

    @property
    def schemas(self) -> list[ToolSchema]:
        return [entry.schema for entry in self._tools.values()]

    @property
    def notices(self) -> list[str]:
        """Notices for the model about tools that are unavailable now."""
        return [entry.schema.description for entry in self._absent.values()]


class ToolSource(Protocol):
    """The source of an agent's tools, before policy decides which of them a session has.

    - `tools_for` is called at the beginning of each run; it may wait, but only with a deadline, and does not raise.
    """

    async def tools_for(self, agent_id: AgentId) -> Toolset: ...
