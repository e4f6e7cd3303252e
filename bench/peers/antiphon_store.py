"""Antiphon itself, through the use cases that its embedded API and its gateway call."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content, text_of
from antiphon.domain.targets import NamedTarget
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.engine.views.history import HistoryPage
from antiphon.store.database import Transaction
from bench.peers.work import serve


class AntiphonStore:
    def __init__(self, app: App) -> None:
        self._app = app
        self._targets: dict[str, NamedTarget] = {}

    async def open_session(self, name: str) -> None:
        sessions = self._app.services.sessions
        opened = await sessions.open(OWNER, sessions.target(f"api:{name}"))
        self._targets[name] = NamedTarget(opened.session.key, None)

    async def close_session(self, name: str) -> None:
        del self._targets[name]

    async def append(self, name: str, text: str) -> None:
        await self._app.services.inbox.append(OWNER, self._targets[name], text_content(text))

    async def fill(self, name: str, texts: Sequence[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for text in texts:
                tasks.create_task(self.append(name, text))

    async def read(self, name: str, limit: int) -> HistoryPage:
        return await self._app.services.history.page(OWNER, self._targets[name], limit=limit)

    def texts(self, page: HistoryPage) -> list[str]:
        return [text_of(event.message.content) for event in page.events if event.message is not None]

    async def make_session(self, name: str, text: str) -> None:
        await self.open_session(name)
        await self.append(name, text)

    async def list_newest(self, limit: int) -> int:
        page = await self._app.services.sessions.list(OWNER, SessionFilter(), limit=limit)
        return len(page.sessions)

    async def pragma(self, name: str) -> str:
        return await self._app.database.run(_pragma, name)


async def _pragma(tx: Transaction, name: str) -> str:
    row = await tx.fetch_one(f"PRAGMA {name}")
    assert row is not None
    return str(row[0])


@asynccontextmanager
async def open_store(directory: Path, variant: str) -> AsyncGenerator[AntiphonStore]:
    """The variant is SQLite's `synchronous`."""
    async with open_app(directory / "home", Config(), Parts(synchronous=variant)) as app:
        yield AntiphonStore(app)


if __name__ == "__main__":
    serve(open_store)
