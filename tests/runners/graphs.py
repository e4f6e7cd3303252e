"""Graphs of LangGraph whose agents tests run and kill."""

import asyncio
from collections.abc import Awaitable, Callable
from tempfile import TemporaryDirectory
from typing import Any, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import SecretStr

from antiphon import Turn
from antiphon.runners.langgraph import RecordedModel, current_turn, messages_of, record_calls, run_graph
from antiphon.testing import Call, FakeRequest, Reply, run_fake_provider
from tests.runners.lives import Life, effect, live

Answer = Callable[[Turn], Awaitable[str]]


def chat(url: str) -> RecordedModel:
    return RecordedModel(
        model=ChatOpenAI(model="fake-model", base_url=url, api_key=SecretStr("x"), stream_usage=True, max_retries=0)
    )


def new_graph(schema: Any, **settings: Any) -> Any:
    """A builder; its types are known in part only."""
    return StateGraph(schema, **settings)


def looping(life: Life) -> Answer:
    """Two parallel nodes that each make a call; then a model that has tools called, one that deletes among them."""

    def side(name: str) -> Any:
        async def node(_: MessagesState) -> dict[str, Any]:
            async def prepare(given: Any) -> str:
                effect(life, f"prepare {given['side']}")
                return "prepared"

            reply = await current_turn().call("prepare", {"side": name}, run=prepare)
            assert reply.text == "prepared" or reply.is_error
            return {}

        return node

    def note(text: str) -> str:
        """Notes it."""
        effect(life, f"note {text}")
        return f"noted {text}"

    def wipe(name: str) -> str:
        """Deletes it."""
        effect(life, f"wipe {name}")
        return f"wiped {name}"

    model = chat(life.model_url).bind_tools([note, wipe])

    async def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def after(state: MessagesState) -> str:
        return "tools" if cast("AIMessage", state["messages"][-1]).tool_calls else END

    builder = new_graph(MessagesState)
    builder.add_node("left", side("left"))
    builder.add_node("right", side("right"))
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([note, wipe], awrap_tool_call=record_calls({"wipe": ["deletes"]})))
    for name in ("left", "right"):
        builder.add_edge(START, name)
    builder.add_edge(["left", "right"], "ask")
    builder.add_conditional_edges("ask", after)
    builder.add_edge("tools", "ask")
    graph = builder.compile()

    async def answer(turn: Turn) -> str:
        values = await run_graph(graph, turn, {"messages": await messages_of(turn)}, speakers=["ask"])
        return values["messages"][-1].text

    return answer


def script(request: FakeRequest) -> Reply:
    """Two notes with equal arguments, a deletion, and an answer."""
    said = request.messages
    begun = max(index for index, message in enumerate(said) if message["role"] == "user")
    done = [str(message["content"]) for message in said[begun:] if message["role"] == "tool"]
    match len(done):
        case 0 | 1:
            return Reply(calls=[Call(name="note", arguments='{"text": "it"}')])
        case 2:
            return Reply(calls=[Call(name="wipe", arguments='{"name": "old"}')])
        case _:
            return Reply(text=["Done: ", done[-1], "."])


def warm() -> None:
    with run_fake_provider(script) as fake, TemporaryDirectory() as directory:
        asyncio.run(live(Life(home=f"{directory}/home", agent=f"{__name__}:looping", model_url=fake.base_url)))
