"""The process dies before or after each step of taking something in; the platform then gives it again."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.errors import Unavailable
from antiphon.domain.inbound import InboundFile
from antiphon.engine.chats.reception import Reception
from antiphon.store.arrivals import ArrivalOutcome
from antiphon.store.database import Database, Named, Query, Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import Lobby, lobby

pytestmark = pytest.mark.anyio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
MOST_STEPS = 20
KEY = "agent:main:telegram:direct:42"


class Death(Exception):
    """Stands for the end of the process: nothing is done after it."""


class DyingDatabase:
    """Dies at that moment: 0 before its first step, 1 after it, 2 before the second, and so on."""

    def __init__(self, database: Database, moment: int) -> None:
        self._database = database
        self._left = moment
        self.has_died = False

    @property
    def failure(self) -> Unavailable | None:
        return self._database.failure

    @property
    def trouble(self) -> Unavailable | None:
        return self._database.trouble

    def _pass(self) -> None:
        if self._left == 0:
            self.has_died = True
            raise Death
        self._left -= 1

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        self._pass()
        result = await self._database.run(unit, *arguments, sessions=sessions)
        self._pass()
        return result

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        self._pass()
        result = await self._database.read(query, *arguments)
        self._pass()
        return result

    async def close(self) -> None:
        await self._database.close()


def dying(scene: Lobby, moment: int) -> DyingDatabase:
    """The reception works on a database that dies then."""
    database = DyingDatabase(scene.app.database, moment)
    services = scene.app.services
    scene.reception = Reception(database, scene.rules, scene.app.workspaces, clock=services.clock)
    return database


async def until_it_lives(scene: Lobby, *, sender: str, text: str, files: tuple[InboundFile, ...] = ()) -> None:
    """The message is given again after each death, until a moment comes in which nothing dies."""
    for moment in range(MOST_STEPS):
        database = dying(scene, moment)
        try:
            await scene.hears(sender, text, id=f"{text}-{moment}", files=files)
        except Death:
            dying(scene, 10 * MOST_STEPS)
            again = await scene.hears(sender, text, id=f"{text}-{moment}", files=files)
            third = await scene.hears(sender, text, id=f"{text}-{moment}", files=files)
            assert third.is_repeated and third.posted == again.posted
        if not database.has_died:
            assert moment > 2
            dying(scene, 10 * MOST_STEPS)
            return
    raise AssertionError("it dies for ever")


@requirement("channels:1")
@pytest.mark.parametrize("has_file", [False, True])
async def test_a_message_is_stored_once_whenever_the_process_dies(open_home: OpenHome, has_file: bool) -> None:
    files = (InboundFile(name="a.txt", data=b"text", kind="document"),) if has_file else ()
    async with lobby(open_home, access=ChannelAccess.PUBLIC) as scene:
        await until_it_lives(scene, sender="42", text="hello", files=files)
        stored = await scene.rows("SELECT COUNT(*), COUNT(DISTINCT message_id) FROM arrivals WHERE outcome = 'posted'")
        assert stored[0][0] == stored[0][1] == len(await scene.messages(KEY)) > 2


@requirement("channels:1", "access:3")
async def test_a_stranger_gets_one_code_whenever_the_process_dies(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await until_it_lives(scene, sender="42", text="hello")
        assert await scene.count("pairings") == len(await scene.told("42")) == 1
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"))
        assert admitted.posted is not None
        assert await scene.messages(KEY) == ["hello"]
        assert (await scene.hears("42", "and more")).outcome is ArrivalOutcome.POSTED


@requirement("channels:1")
async def test_a_command_is_carried_out_once_whenever_the_process_dies(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner("42")
        before = len(await scene.told("42"))
        await until_it_lives(scene, sender="42", text="/session new")
        commands = await scene.rows("SELECT COUNT(*) FROM arrivals WHERE platform_id LIKE '/session new-%'")
        chats = await scene.rows("SELECT COUNT(*) FROM sessions WHERE key LIKE 'agent:main:main:chat:%'")
        assert commands == chats == [(len(await scene.told("42")) - before,)]
