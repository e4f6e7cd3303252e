"""The agent: a model that looks up and refunds the orders of one shop, as a graph of LangGraph."""

from typing import Any, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import SecretStr

import antiphon
from antiphon.runners.langgraph import RecordedModel, messages_of, record_calls, run_graph
from tenants.settings import Settings
from tenants.shops import Shop

INSTRUCTIONS = "You are the clerk of a shop. Look orders up before you speak of them."


def clerk_of(tenant: str, shop: Shop, settings: Settings) -> antiphon.Agent:
    """The tenant's own agent: it has the tools of its shop, and no others."""
    graph = _graph(shop, settings)

    async def answer(turn: antiphon.Turn) -> str:
        values = await run_graph(graph, turn, {"messages": await messages_of(turn)}, speakers=["ask"])
        return values["messages"][-1].text

    return antiphon.Agent(tenant, runner=answer, instructions=INSTRUCTIONS)


def _graph(shop: Shop, settings: Settings) -> Any:
    chat = ChatOpenAI(model=settings.model, base_url=settings.model_url, api_key=SecretStr(settings.model_key))
    model: Runnable[Any, AIMessage] = RecordedModel(model=chat).bind_tools([shop.find_order, shop.refund])

    async def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def has_calls(state: MessagesState) -> str:
        return "tools" if cast("AIMessage", state["messages"][-1]).tool_calls else END

    effects = {"find_order": ["reads"], "refund": ["spends"]}  # what spends needs a yes
    builder: Any = cast("Any", StateGraph)(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([shop.find_order, shop.refund], awrap_tool_call=record_calls(effects)))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", has_calls)
    builder.add_edge("tools", "ask")
    return builder.compile()
