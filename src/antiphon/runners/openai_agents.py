"""Runs agents of the OpenAI Agents SDK as turns: their model calls are kept steps, their function tools recorded calls.

    antiphon.Agent("support", runner=OpenAIAgents(agents.Agent("support")))

What needs an approval pauses the SDK's run, whose state is kept beside the log. Contract: foreign_agents 1.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    Handoff,
    LocalShellTool,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    ShellTool,
    Tool,
    ToolApprovalItem,
    Usage,
)
from agents.exceptions import ModelBehaviorError, UserError
from agents.tool_context import ToolContext
from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent
from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from antiphon.agents.runners.turn import Turn
from antiphon.domain.errors import Invalid
from antiphon.runners.openai_session import LoggedSession, digest_of

EFFECTS: Final = ("writes", "leaves")
"""What a function tool does of which no other effects are named."""
_UNRECORDED: Final = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)
_RESPONSE: Final = TypeAdapter(ModelResponse)
_USAGE: Final = TypeAdapter(Usage)


class OpenAIAgents:
    """A runner of one agent, and of those that it hands over to."""

    def __init__(
        self,
        agent: Agent[Any],
        *,
        context: Callable[[Turn], Any] = lambda _: None,
        config: RunConfig | None = None,
        effects: Mapping[str, Collection[str]] | None = None,
        streams: bool = True,
    ) -> None:
        """`context` makes the SDK's context of a turn; `effects` are those of function tools, by name.

        Traces, which the SDK sends to OpenAI, are off unless `config` says otherwise.
        """
        self._agent, self._context, self.streams = agent, context, streams
        self.config = config or RunConfig(tracing_disabled=True)
        self.effects = effects or {}

    async def __call__(self, turn: Turn) -> str:
        session, context = LoggedSession(turn), self._context(turn)
        recording = _Recording(self, turn, session)
        agent = await recording.agent(self._agent, context)
        config = replace(self.config, model=None)  # each agent has its model already
        given: Any = await recording.resume(agent, context) or await session.fresh()
        while True:
            result = await Runner.run(agent, given, context=context, run_config=config, session=session)
            if not result.interruptions:
                break
            given = result.to_state()
            for item in result.interruptions:
                await recording.decide(given, item)
            await recording.pause(given)
        if session.kept.get("paused"):
            await session.keep(paused=None)
        output = result.final_output
        return output if isinstance(output, str) else to_json(output).decode()


class _Recording:
    """Makes agents do what they do by a turn."""

    def __init__(self, runner: OpenAIAgents, turn: Turn, session: LoggedSession) -> None:
        self._runner, self.turn, self._session = runner, turn, session
        self.streams = runner.streams
        self.steps = 0
        """How many model calls are behind it."""
        self._made: dict[int, Agent[Any]] = {}

    async def agent(self, agent: Agent[Any], context: Any) -> Agent[Any]:
        """The agent with recorded tools and a model whose answers are kept; so are those to which it hands over."""
        if id(agent) in self._made:
            return self._made[id(agent)]
        config, model = self._runner.config, self._runner.config.model or agent.model
        found = model if isinstance(model, Model) else config.model_provider.get_model(model)
        own = [*await agent.get_mcp_tools(RunContextWrapper(context)), *agent.tools]
        taken = {tool.name for tool in own}
        offered = [self._offered(each) for each in self.turn.tools if each["name"] not in taken]
        settings = agent.model_settings
        if settings.include_usage is None:
            settings = replace(settings, include_usage=True)
        kept = _KeptModel(found, self)
        tools = [*map(self._recorded, own), *offered]
        made = agent.clone(model=kept, model_settings=settings, mcp_servers=[], tools=tools)
        self._made |= {id(agent): made, id(made): made}
        made.handoffs = [await self._handoff(each, context) for each in agent.handoffs]
        return made

    async def _handoff(self, target: Agent[Any] | Handoff[Any, Any], context: Any) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(target, Agent):
            return await self.agent(target, context)

        async def invoke(wrapper: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            return await self.agent(await target.on_invoke_handoff(wrapper, arguments), context)

        return replace(target, on_invoke_handoff=invoke)

    def _recorded(self, tool: Tool) -> Tool:
        if isinstance(tool, _UNRECORDED):
            said = f"Tool would run here without a record: {tool.name!r}. Make it a function tool."
            raise Invalid(said, code="unsupported")
        if not isinstance(tool, FunctionTool):  # it runs at the provider
            return tool

        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            async def run(given: dict[str, Any]) -> object:
                answer = tool.on_invoke_tool(context, json.dumps(given))
                return to_jsonable_python(await asyncio.wait_for(answer, tool.timeout_seconds))

            effects = self._runner.effects.get(tool.name, EFFECTS)
            ask = context.is_tool_approved(tool.name, context.tool_call_id) is True  # by `decide`
            return await self._call(tool.name, context, arguments, run=run, effects=effects, ask=ask)

        return replace(tool, on_invoke_tool=invoke, timeout_seconds=None)

    def _offered(self, described: Mapping[str, Any]) -> FunctionTool:
        """A tool of the session."""
        name, description, schema = described["name"], described["description"], described["parameters"]

        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            return await self._call(name, context, arguments)

        return FunctionTool(name, description, schema, invoke, strict_json_schema=False)

    async def _call(self, name: str, context: ToolContext[Any], arguments: str, **how: Any) -> str:
        given: object = None
        with suppress(ValueError):
            given = json.loads(arguments or "{}")
        if not isinstance(given, dict):
            return "The arguments are no JSON object."
        key = f"{self.steps}/{context.tool_call_id}"
        return (await self.turn.call(name, cast("dict[str, Any]", given), key=key, **how)).text

    async def decide(self, state: RunState[Any, Any], item: ToolApprovalItem) -> None:
        """Lets a function tool go on, whose record asks for its yes; of what runs at the provider a person is asked."""
        if not any(made.name == item.agent.name for made in self._made.values()):
            said = f"Tool needs a yes inside an agent that is used as a tool: {item.name!r}. Hand over instead."
            raise Invalid(said, code="nested_approval")
        if getattr(item.raw_item, "type", "") == "function_call":
            return state.approve(item)
        answer = await self.turn.ask(f"Allow {item.name} {item.arguments}?")
        return state.approve(item) if answer.is_yes else state.reject(item, rejection_message=answer.note)

    async def pause(self, state: RunState[Any, Any]) -> None:
        """Keeps how far the SDK's run has come."""
        text, of = state.to_string(context_serializer=lambda _: {}), await self._digest()
        await self._session.keep(paused={"of": of, "steps": self.steps, "state": text})

    async def resume(self, agent: Agent[Any], context: Any) -> RunState[Any, Any] | None:
        """The run as `pause` kept it; None if it was another turn's, or a message joined since."""
        paused = self._session.kept.get("paused")
        if paused is None or paused["of"] != await self._digest():
            return None
        with suppress(UserError):  # an agent that is not found again: from the beginning, by the records
            state = await RunState.from_string(agent, paused["state"], context_override=context)
            self.steps = paused["steps"]
            return state
        return None

    async def _digest(self) -> str:
        return digest_of(await self.turn.messages("responses"))


class _KeptModel(Model):
    """A model whose answers are steps of the turn."""

    def __init__(self, model: Model, recording: _Recording) -> None:
        self._model, self._recording = model, recording

    async def get_response(self, *given: Any, **options: Any) -> ModelResponse:
        recording = self._recording
        kept = await recording.turn.step("model", lambda: self._ask(*given, **options), key=f"model {recording.steps}")
        recording.steps += 1
        return _RESPONSE.validate_python(kept)

    async def _ask(self, *given: Any, **options: Any) -> object:
        how = self._streamed if self._recording.streams else self._model.get_response
        response = await how(*given, **options)
        usage, name = response.usage, str(getattr(self._model, "model", "unknown"))
        read, cached, written = usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens
        if read or written:
            await self._recording.turn.usage(model=name, input=read, output=written, cached=cached)
        return _RESPONSE.dump_python(response, mode="json", exclude_unset=True, warnings=False)

    async def _streamed(self, *given: Any, **options: Any) -> ModelResponse:
        async for event in self._model.stream_response(*given, **options):
            match event:
                case ResponseTextDeltaEvent(delta=text):
                    self._recording.turn.say(text)
                case ResponseCompletedEvent(response=response):
                    usage = {} if response.usage is None else response.usage.model_dump() | {"requests": 1}
                    counted = _USAGE.validate_python(usage)
                    return ModelResponse(output=response.output, usage=counted, response_id=response.id)
                case _:
                    pass
        raise ModelBehaviorError("The model's answer ended before it was whole.")

    def stream_response(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("A turn streams what its models say by itself.")
