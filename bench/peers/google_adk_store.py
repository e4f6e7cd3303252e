"""Google ADK's `DatabaseSessionService` on an SQLite file. Runs in the environment `google-adk`."""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, Part

from bench.peers.work import serve

APP, USER = "bench", "owner"


class GoogleAdkStore:
    def __init__(self, service: DatabaseSessionService) -> None:
        self._service = service
        self._sessions: dict[str, Session] = {}

    async def open_session(self, name: str) -> None:
        self._sessions[name] = await self._service.create_session(app_name=APP, user_id=USER, session_id=name)

    async def close_session(self, name: str) -> None:
        del self._sessions[name]

    async def append(self, name: str, text: str) -> None:
        event = Event(author="user", content=Content(role="user", parts=[Part(text=text)]))
        await self._service.append_event(self._sessions[name], event)

    async def fill(self, name: str, texts: Sequence[str]) -> None:
        for text in texts:
            await self.append(name, text)

    async def read(self, name: str, limit: int) -> Session:
        newest = GetSessionConfig(num_recent_events=limit)
        session = await self._service.get_session(app_name=APP, user_id=USER, session_id=name, config=newest)
        assert session is not None
        return session

    def texts(self, page: Session) -> list[str]:
        return [part.text or "" for event in page.events if event.content for part in event.content.parts or ()]

    async def make_session(self, name: str, text: str) -> None:
        """Without the message: the list reads none."""
        await self.open_session(name)

    async def list_newest(self, limit: int) -> int:
        """The service gives all sessions, oldest first, and takes no limit."""
        every = await self._service.list_sessions(app_name=APP, user_id=USER)
        return len(every.sessions[-limit:])

    async def pragma(self, name: str) -> str:
        async with self._service.db_engine.connect() as connection:
            return str((await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one())


@asynccontextmanager
async def open_store(directory: Path, variant: str) -> AsyncGenerator[GoogleAdkStore]:
    async with DatabaseSessionService(f"sqlite+aiosqlite:///{directory / 'sessions.db'}") as service:
        yield GoogleAdkStore(service)


if __name__ == "__main__":
    serve(open_store)
