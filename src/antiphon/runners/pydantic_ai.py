"""Runs agents of pydantic-ai as turns: their model requests are kept steps, their tools recorded calls.

    antiphon.Agent("support", runner=PydanticAI(pydantic_ai.Agent("openai:gpt-5")))

It is an engine for pydantic-ai's durable execution. Contract: foreign_agents 1.
"""

from base64 import b64decode
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from pydantic_ai import messages
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    ModelRequestId,
    RoleBasedOperationConfig,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolApproved
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_json, to_jsonable_python

from antiphon.agents.runners.turn import ToolReply, Turn
from antiphon.domain.errors import Invalid

EFFECTS: Final = ("writes", "leaves")
"""What a tool does whose `metadata` names no `effects`."""
_SIGNALS: Final[dict[type[Exception], str]] = {
    ModelRetry: "model_retry",
    ToolFailed: "tool_failed",
    ApprovalRequired: "approval_required",
    CallDeferred: "call_deferred",
}
"""What a tool raises for pydantic-ai, and the code under which the call's record has it."""


class PydanticAI:
    """A runner of one agent."""

    def __init__(
        self, agent: AbstractAgent[Any, Any], *, deps: Callable[[Turn], Any] | None = None, streams: bool = True
    ) -> None:
        """`deps` makes the dependencies of a turn. A model that cannot stream needs `streams=False`."""
        self._agent, self._deps, self._streams = agent, deps, streams

    async def __call__(self, turn: Turn) -> str:
        taken = set[str]()
        for toolset in self._agent.toolsets:
            toolset.apply(lambda leaf: taken.update(getattr(leaf, "tools", ())))
        offered = session_tools(turn, taken)
        result = await self._agent.run(
            message_history=history(await turn.messages("parts")),
            deps=None if self._deps is None else self._deps(turn),
            run_id=turn.run_id,
            toolsets=[offered],
            capabilities=[TurnDurability(turn, offered, name=self._agent.name or "agent", streams=self._streams)],
        )
        return result.output if isinstance(result.output, str) else to_json(result.output).decode()


class TurnDurability(BaseDurabilityCapability[Any]):
    """Carries out what an agent does during one turn."""

    engine_spec: ClassVar = DurabilityEngineSpec(
        engine_name="Antiphon",
        durable_unit_noun="step",
        durable_container_noun="turn",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset(),  # all tools are recorded alike, as calls
    )

    def __init__(self, turn: Turn, offered: FunctionToolset[Any], *, name: str, streams: bool) -> None:
        super().__init__(name=name, event_stream_handler=self._say if streams else None)
        self._turn, self._offered = turn, offered

    @property
    def in_durable_context(self) -> bool:
        return True

    def get_durable_operation_backend(self) -> "_TurnSteps":
        return _TurnSteps(self._turn, self.name)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _RecordedTools(super().get_wrapper_toolset(toolset) or toolset, self._turn, self._offered)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Lets calls through that need a yes, for which their record asks; results from outside are asked of people."""
        results = DeferredToolResults(approvals={part.tool_call_id: ToolApproved() for part in requests.approvals})
        for part in requests.calls:
            question = f"{part.tool_name} {part.args_as_json_str()}: say its result in the note of your answer."
            answer = await self._turn.ask(question)
            results.calls[part.tool_call_id] = answer.note or ("done" if answer.is_yes else "denied")
        return results

    async def _say(self, _: RunContext[Any], events: AsyncIterable[messages.AgentStreamEvent]) -> None:
        async for event in events:
            match event:
                case (
                    messages.PartStartEvent(part=messages.TextPart(content=text))
                    | messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text))
                ):
                    self._turn.say(text)
                case _:
                    pass


class _TurnSteps(JournalCallableOperationBackend[None]):
    """Keeps what operations return."""

    def __init__(self, turn: Turn, name: str) -> None:
        config = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)
        super().__init__(agent_name=name, config=config)
        self._turn = turn

    async def execute(
        self, *, operation_id: DurableOperationId, name: str, body: Callable[[], Awaitable[object]], **_: object
    ) -> object:
        if isinstance(operation_id, EventStreamHandlerId):
            return await body()
        asks = isinstance(operation_id, ModelRequestId)
        return await self._turn.step(name, (lambda: self._request(body)) if asks else body)

    async def _request(self, body: Callable[[], Awaitable[object]]) -> object:
        payload = await body()
        response: messages.ModelResponse = JSON_CODEC.load(messages.ModelResponse, payload)
        model, usage, cost = response.model_name or "unknown", response.usage, None
        with suppress(AssertionError, LookupError, ValueError):  # nobody knows its price
            cost = float(response.cost().total_price)
        read, cached, written = usage.input_tokens, usage.cache_read_tokens, usage.output_tokens
        await self._turn.usage(model=model, input=read, output=written, cached=cached, cost=cost)
        return payload


@dataclass
class _RecordedTools(WrapperToolset[Any]):
    """The agent's tools, each call under a record of the turn."""

    turn: Turn
    offered: FunctionToolset[Any]
    """Tools of the session, which record their calls themselves."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> object:
        if name in self.offered.tools:
            return await super().call_tool(name, tool_args, ctx, tool)

        async def run(arguments: dict[str, Any]) -> object:
            validated = tool.args_validator.validate_json(to_json(arguments), context=ctx.validation_context)
            try:
                value = await self.wrapped.call_tool(name, validated, ctx, tool)
            except (ModelRetry, ToolFailed, ApprovalRequired, CallDeferred) as signal:
                raise Invalid(str(signal), code=_SIGNALS[type(signal)]) from None
            return to_jsonable_python(value.return_value if isinstance(value, messages.ToolReturn) else value)

        effects = (tool.tool_def.metadata or {}).get("effects", EFFECTS)
        return _result(await self.turn.call(name, tool_args, run=run, effects=effects, ask=ctx.tool_call_approved))


def session_tools(turn: Turn, taken: Collection[str] = ()) -> FunctionToolset[Any]:
    """The tools of the turn's session, without those whose names are taken."""

    def offered(described: Mapping[str, Any]) -> Tool[Any]:
        async def call(**arguments: Any) -> object:
            return _result(await turn.call(described["name"], arguments))

        return Tool[Any].from_schema(call, described["name"], described["description"], described["parameters"])

    return FunctionToolset([offered(each) for each in turn.tools if each["name"] not in taken], id="antiphon")


def _result(reply: ToolReply) -> object:
    """The reply as a tool of pydantic-ai gives it. Raises what the tool raised."""
    if not reply.is_error:
        return reply.value
    said = cast("dict[str, str]", reply.value) if isinstance(reply.value, dict) else {}
    match said.get("code"):
        case "model_retry":
            raise ModelRetry(said["error"])
        case "approval_required":
            raise ApprovalRequired
        case "call_deferred":
            raise CallDeferred
        case _:
            raise ToolFailed(said.get("error") or reply.text)


def history(given: Iterable[Mapping[str, Any]]) -> list[messages.ModelMessage]:
    """Messages of a turn, in the form `parts`, as pydantic-ai has them."""
    made: list[messages.ModelMessage] = []
    for message in given:
        role, parts = message["role"], message["parts"]
        if role == "assistant":
            made.append(messages.ModelResponse([_said(part) for part in parts]))
        else:
            made.append(messages.ModelRequest([_heard(role, part) for part in parts]))
    return made


def _said(part: Mapping[str, Any]) -> messages.TextPart | messages.ToolCallPart:
    if part["type"] == "text":
        return messages.TextPart(part["text"])
    return messages.ToolCallPart(part["name"], part["arguments"], part["id"])


def _heard(role: str, part: Mapping[str, Any]) -> messages.ModelRequestPart:
    if role == "system":
        return messages.SystemPromptPart(part["text"])
    if role == "tool":
        return messages.ToolReturnPart(part["name"], part["text"], part["id"])
    if part["type"] == "text":
        return messages.UserPromptPart(part["text"])
    return messages.UserPromptPart([messages.BinaryContent(b64decode(part["data"]), media_type=part["mediaType"])])
