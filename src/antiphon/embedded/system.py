"""Antiphon inside a Python program. Contract: cli 1.

async with antiphon.open("./app") as app:
    session = await app.sessions.open("customer-42")
    run = await session.post("Hello", message_id="m-1")
    print((await run.wait()).reply)
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

import anyio
from msgspec.structs import replace

from antiphon.app import open_app
from antiphon.backends import name_holder
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.code_agents import AgentInCode
from antiphon.config.sources import find_config_file, load_config
from antiphon.configured import ToolFunction
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import AgentId, RunId
from antiphon.domain.keys import parse_agent_id
from antiphon.embedded.approvals import ApprovalHandles
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.deliveries import DeliveryHandles
from antiphon.embedded.lease import Lease
from antiphon.embedded.memory import NoteHandles
from antiphon.embedded.runs import RunHandle, RunHandles
from antiphon.embedded.sessions import SessionHandles
from antiphon.embedded.tasks import TaskHandles
from antiphon.embedded.tools import Tools
from antiphon.engine.policy_checks import CodeCheck
from antiphon.engine.views.activities import Work
from antiphon.engine.views.costs import CostReport
from antiphon.engine.views.search import HitPage, NamedSessions

logger = logging.getLogger(__name__)

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
        self.approvals = ApprovalHandles(lease)
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


class ProgramHome:
    """What `antiphon.open` returns: `async with` it, once. It may be left in another task than it was entered in.

    A task of its own holds the system, so that its tasks begin and end in one place, wherever the program is.
    """

    def __init__(self, home: Path, config: Config, parts: Parts) -> None:
        self._home = home
        self._config = config
        self._parts = parts
        self._left = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Antiphon:
        # Only a database of its own belongs to one opener.
        own = {self._home.resolve()} if self._config.database.url is None else set[Path]()
        if own & _OPEN_HOMES or self._holder is not None:
            raise Conflict(
                f"Home is already open in this program: {str(self._home)!r}. Open it once and share what "
                "`antiphon.open` returned.",
                code="home_open",
            )
        _OPEN_HOMES.update(own)
        opened: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(opened), name="antiphon")
        self._holder.add_done_callback(lambda _: _OPEN_HOMES.difference_update(own))
        try:
            await asyncio.wait((opened, self._holder), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._holder.cancel()
            await self._ended()
            raise
        if not opened.done():
            opened.cancel()
            self._holder.result()
        return Antiphon(opened.result())

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Drains and closes. Raises the error by which the system failed, unless the block raised one itself."""
        assert self._holder is not None
        self._left.set()
        await self._ended()
        if error is None and not self._holder.cancelled():
            self._holder.result()

    async def _ended(self) -> None:
        """Returns once the system is closed; a program that is cancelled meanwhile ends it at once."""
        assert self._holder is not None
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait((self._holder,))
        except asyncio.CancelledError:
            self._holder.cancel()
            await asyncio.wait((self._holder,))
            raise

    async def _hold(self, opened: "asyncio.Future[Lease]") -> None:
        lease: Lease | None = None
        try:
            async with open_app(self._home, self._config, self._parts) as app:
                lease = Lease(app)
                if self._config.database.url is None:
                    name_holder(self._home, app.services.clock)
                if opened.done():  # nobody waits any more
                    return
                opened.set_result(lease)
                try:
                    await self._left.wait()
                except BaseException:
                    lease.fail()  # its cause is known once all has ended
                    raise
                finally:
                    lease.close()
                    app.services.hub.close()
        except BaseExceptionGroup as group:
            raise _failed(lease, _only_of(group)) from None
        except BaseException as error:
            raise _failed(lease, error) from None
        finally:
            if lease is not None:
                lease.end_waits()


def open_embedded(
    home: str | Path | None = None,
    *,
    config: str | Path | Config | None = None,
    agents: Sequence[AgentInCode] = (),
    tools: Sequence[ToolFunction] = (),
    checks: Sequence[CodeCheck] = (),
    parts: Parts | None = None,
) -> AbstractAsyncContextManager[Antiphon]:
    """A running system on a home directory, which is created if it does not exist.

    `config` is a configuration or a file with one; without it, `antiphon.toml` in the home is used if it exists.
    `agents` are added to the configured ones. `checks` are asked where rules are (`antiphon.check`). An exception of
    the block is raised as itself. The block may be entered and left in different tasks of one asyncio loop, as
    fixtures and notebooks do. Entering it raises `StoreUnusable`, also if a gateway uses the home, and `Conflict`
    (`home_open`) if this program has opened it already.
    """
    directory = Path(home) if home is not None else Path("antiphon-home")
    settings = config if isinstance(config, Config) else _load(directory, config)
    if agents:
        listed = settings.agents.model_copy(update={"list": (*settings.agents.list, *agents)})
        settings = settings.model_copy(update={"agents": listed})
    own = parts or Parts(tools=tools, checks=checks)
    runners = {AgentId(each.id): each.function for each in agents if each.function is not None}
    return ProgramHome(directory, settings, replace(own, runners={**own.runners, **runners}))


def _failed(lease: Lease | None, cause: BaseException) -> BaseException:
    if lease is not None:
        lease.fail(cause)
        logger.error("Antiphon was closed by an error", exc_info=cause, extra={"action": "app_failed"})
    return cause


def _only_of(error: BaseException) -> BaseException:
    """The one exception inside groups of one; else the group."""
    match error:
        case BaseExceptionGroup(exceptions=[inside]):
            return _only_of(cast(BaseException, inside))
        case _:
            return error


def _load(home: Path, named: str | Path | None) -> Config:
    return load_config(find_config_file(home, None if named is None else Path(named)))
