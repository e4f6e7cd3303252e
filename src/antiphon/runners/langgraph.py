"""Runs a graph of LangGraph as a turn: `run_graph`, `record_calls`, `RecordedModel`. Contract: foreign_agents 1."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableBinding, RunnableConfig
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt
from pydantic import ConfigDict

from antiphon.agents.runners.turn import Turn
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject
from antiphon.runners.langgraph_saver import THREAD, TaskTurn, TurnSaver

Execute = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
_SAVER: ContextVar[TurnSaver] = ContextVar("turn_saver")


def current_turn() -> Turn:
    """The turn that the graph carries out; for nodes and tools that are not recorded."""
    return TaskTurn(_SAVER.get())


async def messages_of(turn: Turn) -> list[BaseMessage]:
    """The conversation as Antiphon's log has it, in place of what the graph kept of it."""
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *convert_to_messages(await turn.messages("openai"))]


async def ask_person(turn: Turn, asked: Interrupt) -> object:
    """The choice or the note of who said yes to the interrupt, else True; False for a no."""
    value = cast("Any", asked).value
    given = cast("dict[str, Any]", value if isinstance(value, dict) and "question" in value else {"question": value})
    question = given["question"]
    words = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
    answer = await turn.ask(words, choices=given.get("choices", ()), key=asked.id)
    return (answer.choice or answer.note or True) if answer.is_yes else False


async def run_graph(
    graph: Pregel[Any, Any, Any, Any],
    turn: Turn,
    given: object,
    *,
    config: RunnableConfig | None = None,
    speakers: Collection[str] = (),
    ask: Callable[[Turn, Interrupt], Awaitable[object]] = ask_person,
) -> dict[str, Any]:
    """Runs the graph on its input, or on from where an earlier attempt stopped, and returns its values.

    What models write in the nodes `speakers` is shown as they write it. Interrupts are resumed with what `ask` returns.
    """
    saver = TurnSaver(turn, str(await turn.step("begin graph", lambda: uuid4().hex)))
    _SAVER.set(saver)
    runnable = cast("Any", graph).copy({"checkpointer": saver})
    settings = cast("dict[str, Any]", config or {})
    thread = {**settings, "configurable": {**settings.get("configurable", {}), "thread_id": THREAD}}
    feed = None if saver.goes_on else given
    while True:
        saver.counts.clear()  # nodes that interrupted begin again
        written = runnable.astream(feed, thread, stream_mode="messages", durability="sync")
        async for message, about in cast("AsyncIterator[tuple[BaseMessage, dict[str, Any]]]", written):
            if isinstance(message, AIMessage) and message.text and about["langgraph_node"] in speakers:
                turn.say(message.text)
        state = await runnable.aget_state(thread)
        if not (state.interrupts or state.next):
            return state.values
        answers = {asked.id: await ask(turn, asked) for asked in state.interrupts}
        feed = Command(resume=answers) if answers else None


def record_calls(
    effects: Mapping[str, Collection[str]] | None = None, *, unrecorded: Collection[str] = ()
) -> Callable[[ToolCallRequest, Execute], Awaitable[ToolMessage | Command[Any]]]:
    """For `ToolNode(…, awrap_tool_call=)`: has the turn carry out its calls, by the node's tools or the session's.

    `effects` says what the node's tools do, as for `Turn.call`. Tools that interrupt, make calls themselves or return
    a `Command` must be `unrecorded`.
    """

    async def recorded(request: ToolCallRequest, execute: Execute) -> ToolMessage | Command[Any]:
        call, saver = request.tool_call, _SAVER.get()
        if (name := call["name"]) in unrecorded:
            return await execute(request)

        async def own(arguments: JsonObject) -> object:
            try:
                result = await execute(request.override(tool_call={**call, "args": arguments}))
            except GraphBubbleUp:
                result = None
            if not isinstance(result, ToolMessage):
                raise Invalid(f"Tool interrupts or commands: {name!r}. Name it as unrecorded.", code="tool_failed")
            if result.status == "error":
                raise Invalid(str(result.text), code="tool_failed")
            return cast("object", result.content)

        key = await saver.key(f"{name} {call['id']}")
        does = (effects or {}).get(name, ("writes", "leaves"))
        reply = await saver.turn.call(name, call["args"], key=key, run=own if request.tool else None, effects=does)
        status = "error" if reply.is_error else "success"
        return ToolMessage(content=reply.text, name=name, tool_call_id=call["id"], status=status)

    return recorded


class RecordedModel(BaseChatModel):
    """A chat model whose answers are steps of the turn: one that is stored is not asked for again."""

    model_config = ConfigDict(hide_input_in_errors=True)
    model: BaseChatModel

    @property
    def _llm_type(self) -> str:
        return "antiphon-recorded"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        return self.bind(**cast("RunnableBinding[Any, Any]", self.model.bind_tools(tools, **settings)).kwargs)

    async def _agenerate(self, messages: list[BaseMessage], *given: Any, **settings: Any) -> ChatResult:
        saver, told = _SAVER.get(), settings.pop("run_manager", None)

        async def answer() -> JsonObject:
            whole: AIMessageChunk | None = None
            async for chunk in self.model.astream(messages, {"tags": [TAG_NOSTREAM]}, **settings):
                if told is not None:
                    await told.on_llm_new_token(str(chunk.text), chunk=ChatGenerationChunk(message=chunk))
                whole = chunk if whole is None else cast("AIMessageChunk", whole + chunk)
            assert whole is not None
            if used := whole.usage_metadata:
                name = str(whole.response_metadata.get("model_name") or type(self.model).__name__)
                cached = used.get("input_token_details", {}).get("cache_read", 0)
                counts = {"input": used["input_tokens"], "output": used["output_tokens"], "cached": cached}
                await saver.turn.usage(model=name, **counts)
            return message_chunk_to_message(whole).model_dump(mode="json")

        kept = await saver.turn.step("model", answer, key=await saver.key("model"))
        return ChatResult(generations=[ChatGeneration(message=AIMessage.model_validate(kept))])

    def _generate(self, messages: list[BaseMessage], *given: Any, **settings: Any) -> ChatResult:
        raise NotImplementedError("Ask the model by `ainvoke` in an async node: its answer is a step of the turn.")
