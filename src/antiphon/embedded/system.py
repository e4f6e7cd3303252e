"""Antiphon inside a Python program. Contract: cli 1.

async with antiphon.open("./app") as app:
    session = await app.sessions.open("customer-42")
    run = await session.post("Hello", message_id="m-1")
    print((await run.wait()).reply)
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.agents import AgentSection
from antiphon.config.sources import find_config_file, load_config
from antiphon.configured import ToolFunction
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import RunId
from antiphon.domain.keys import parse_agent_id
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.deliveries import DeliveryHandles
from antiphon.embedded.lease import Lease
from antiphon.embedded.memory import NoteHandles
from antiphon.embedded.runs import RunHandle, RunHandles
from antiphon.embedded.sessions import SessionHandles
from antiphon.embedded.tasks import TaskHandles
from antiphon.embedded.tools import Tools
from antiphon.engine.views.activities import Work
from antiphon.engine.views.costs import CostReport
from antiphon.engine.views.search import HitPage, NamedSessions

FOUND = 20
_OPEN_HOMES: set[Path] = set()
"""Of this process, with a database of their own."""


class Antiphon:
    """A running system in this process."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.sessions = SessionHandles(lease)
        self.runs = RunHandles(lease)
        self.deliveries = DeliveryHandles(lease)
        self.memory = NoteHandles(lease)
        self.tasks = TaskHandles(lease)
        self.tools = Tools(lease)

    @property
    def app(self) -> App:
        """The parts of the system, which may change between versions."""
        return self._lease.app

    @checked
    def run(self, run_id: str) -> RunHandle:
        """The run of that id, as in `RunHandle.id`; also a run of an earlier process."""
        return RunHandle(self._lease, RunId(run_id))

    @checked
    async def search(self, query: str, *, limit: int = FOUND, before: int | None = None) -> HitPage:
        """Messages that contain all words, newest first; `before` is `next` of the previous page."""
        return await self._lease.services.search.messages(OWNER, query, limit=rows(limit), before=before)

    @checked
    async def search_names(self, query: str, *, limit: int = FOUND) -> NamedSessions:
        """Sessions with all words in their names or keys, newest first."""
        return await self._lease.services.search.sessions(OWNER, query, limit=rows(limit))

    @checked
    async def who(self, *, limit: int = 100) -> Work:
        """The sessions with an unfinished run, and the processes."""
        return await self._lease.services.activities.now(OWNER, limit=rows(limit, least=0))

    @checked
    async def costs(self, *, days: int = 30, agent_id: str | None = None) -> CostReport:
        """What runs used on so many UTC days, the present one being the last; of one agent, if one is named."""
        only = None if agent_id is None else parse_agent_id(agent_id)
        return await self._lease.services.costs.read(OWNER, days=min(max(days, 1), 366), agent_id=only)


@asynccontextmanager
async def open_embedded(
    home: str | Path | None = None,
    *,
    config: str | Path | Config | None = None,
    agents: Sequence[AgentSection] = (),
    tools: Sequence[ToolFunction] = (),
    parts: Parts | None = None,
) -> AsyncGenerator[Antiphon]:
    """A running system on a home directory, which is created if it does not exist.

    `config` is a configuration or a file with one; without it, `antiphon.toml` in the home is used if it exists.
    `agents` are added to the configured ones. An exception of the block is raised as itself. Raises `StoreUnusable`,
    also if a gateway uses the home, and `Conflict` (`home_open`) if this program has opened it already.
    """
    directory = Path(home) if home is not None else Path("antiphon-home")
    settings = config if isinstance(config, Config) else _load(directory, config)
    if agents:
        listed = settings.agents.model_copy(update={"list": (*settings.agents.list, *agents)})
        settings = settings.model_copy(update={"agents": listed})
    # Only a database of its own belongs to one opener.
    own = {directory.resolve()} if settings.database.url is None else set[Path]()
    if own & _OPEN_HOMES:
        raise Conflict(
            f"Home is already open in this program: {str(directory)!r}. Open it once and share what "
            "`antiphon.open` returned.",
            code="home_open",
        )
    _OPEN_HOMES.update(own)
    failure: BaseException | None = None
    try:
        async with open_app(directory, settings, parts or Parts(tools=tools)) as app:
            lease = Lease(app)
            try:
                yield Antiphon(lease)
            except (GeneratorExit, anyio.get_cancelled_exc_class()):
                raise
            except BaseException as error:
                failure = error  # raised below: inside, the task groups would wrap it
            finally:
                lease.close()
                app.services.hub.close()
        app.services.waits.close()
    except BaseExceptionGroup as group:
        raise _only_of(group) from None
    finally:
        _OPEN_HOMES.difference_update(own)
    if failure is not None:
        raise failure


def _only_of(error: BaseException) -> BaseException:
    """The one exception inside groups of one; else the group."""
    match error:
        case BaseExceptionGroup(exceptions=[inside]):
            return _only_of(cast(BaseException, inside))
        case _:
            return error


def _load(home: Path, named: str | Path | None) -> Config:
    return load_config(find_config_file(home, None if named is None else Path(named)))
