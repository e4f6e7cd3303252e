"""The OpenAI Agents SDK's sessions in an SQLite file. Runs in the environment `openai-agents`."""
# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agents import SQLiteSession, TResponseInputItem
from agents.extensions.memory import AdvancedSQLiteSession

from bench.peers.work import serve


class OpenaiAgentsStore:
    def __init__(self, path: Path, variant: str) -> None:
        self._path = path
        self._variant = variant
        self._sessions: dict[str, SQLiteSession] = {}

    async def open_session(self, name: str) -> None:
        if self._variant == "AdvancedSQLiteSession":
            session = AdvancedSQLiteSession(session_id=name, db_path=self._path, create_tables=True)
        else:
            session = SQLiteSession(name, self._path)
        self._sessions[name] = session

    async def close_session(self, name: str) -> None:
        self._sessions.pop(name).close()

    async def append(self, name: str, text: str) -> None:
        await self._sessions[name].add_items([{"role": "user", "content": text}])

    async def fill(self, name: str, texts: Sequence[str]) -> None:
        await self._sessions[name].add_items([{"role": "user", "content": text} for text in texts])

    async def read(self, name: str, limit: int) -> list[TResponseInputItem]:
        return await self._sessions[name].get_items(limit)

    def texts(self, page: list[TResponseInputItem]) -> list[str]:
        return [str(item.get("content")) for item in page]

    async def pragma(self, name: str) -> str:
        session = next(iter(self._sessions.values()))

        def read() -> str:
            return str(session._get_connection().execute(f"PRAGMA {name}").fetchone()[0])

        return await asyncio.to_thread(read)


@asynccontextmanager
async def open_store(directory: Path, variant: str) -> AsyncGenerator[OpenaiAgentsStore]:
    """The variant is the name of the session's class."""
    yield OpenaiAgentsStore(directory / "sessions.db", variant)


if __name__ == "__main__":
    serve(open_store)
