"""LangGraph's `AsyncSqliteSaver` under the smallest graph of messages. Runs in the environment `langgraph`."""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from bench.peers.work import serve

NODE = "agent"


class LanggraphStore:
    def __init__(self, saver: AsyncSqliteSaver) -> None:
        self._saver = saver
        builder = StateGraph(MessagesState)
        builder.add_node(NODE, lambda state: state)
        builder.add_edge(START, NODE)
        self._graph = builder.compile(checkpointer=saver)

    async def open_session(self, name: str) -> None:
        """A thread begins with its first message."""

    async def close_session(self, name: str) -> None:
        """A thread holds nothing open."""

    async def append(self, name: str, text: str) -> None:
        await self.fill(name, [text])

    async def fill(self, name: str, texts: Sequence[str]) -> None:
        """One checkpoint."""
        messages = [HumanMessage(text) for text in texts]
        await self._graph.aupdate_state(_config(name), {"messages": messages}, as_node=NODE)

    async def read(self, name: str, limit: int) -> list[BaseMessage]:
        """The saver gives a thread's whole state; the limit is applied to that."""
        state = await self._graph.aget_state(_config(name))
        return state.values["messages"][-limit:]

    def texts(self, page: list[BaseMessage]) -> list[str]:
        return [str(message.content) for message in page]

    async def pragma(self, name: str) -> str:
        async with self._saver.conn.execute(f"PRAGMA {name}") as rows:
            row = await rows.fetchone()
        assert row is not None
        return str(row[0])


def _config(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


@asynccontextmanager
async def open_store(directory: Path, variant: str) -> AsyncGenerator[LanggraphStore]:
    async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        yield LanggraphStore(saver)


if __name__ == "__main__":
    serve(open_store)
