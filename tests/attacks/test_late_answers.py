"""A call from outside is under way while its session rises above the client, and something else happens to it."""

from dataclasses import dataclass
from datetime import timedelta

import anyio
import httpx
import pytest

from antiphon.building import Parts
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock
from tests.gateway.served import Json, new_client
from tests.gateway.test_clearances import BOOKS, CANARY, DESK, PARTS, token_for, with_ann
from tests.gateway.test_hidden_outcomes import LOW, PEER, call
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class Late(Attempt):
    """What happens to the calling session before the reply comes."""

    rises: bool = True
    is_reset: bool = False
    is_deleted: bool = False


LATE = [
    Late(attacker=Attacker.BOUND_TOKEN, door=Door.HTTP, what="the peer alone rises", rises=False),
    Late(attacker=Attacker.BOUND_TOKEN, door=Door.HTTP, what="it is reset to nothing after the rise", is_reset=True),
    Late(attacker=Attacker.BOUND_TOKEN, door=Door.HTTP, what="it is deleted and opened again", is_deleted=True),
]


@requirement("flow:3", "tools:1")
@pytest.mark.parametrize("waited", [0, 2], ids=["at once", "once rights are read anew"])
@pytest.mark.parametrize("attempt", rows(*LATE))
async def test_a_reply_above_the_client_never_comes(open_home: OpenHome, attempt: Late, waited: int) -> None:
    gates, clock = Gates(), ManualClock()
    settings: Json = {"tools": {"sessions": {"visibility": "agent"}}}
    parts = Parts(tools=[gates.tool, *PARTS.tools], clock=clock)
    async with with_ann(open_home, parts, **settings) as (served, _):
        await served.open(PEER)
        bound = await token_for(served, sessionKey=DESK, clearance=LOW)
        answers: list[httpx.Response] = []

        async def ask(client: httpx.AsyncClient) -> None:
            asked: Json = {"sessionKey": PEER, "message": f"{wait_at('door')}\n{BOOKS}"}
            answers.append(await call(client, "sessions_send", "one", timeoutSeconds=int(SECONDS), **asked))

        async with new_client(served.url, bound) as program, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, program)
            await gates.until_reached("door")
            if attempt.rises:
                await served.post(DESK, BOOKS)
            if attempt.is_reset:
                assert (await served.client.post(f"/sessions/{DESK}/reset", json={})).is_success
            if attempt.is_deleted:
                assert (await served.client.delete(f"/sessions/{DESK}")).is_success
                await served.open(DESK)
            clock.pass_time(timedelta(seconds=waited))
            gates.open("door")
        (answer,) = answers
        assert CANARY not in answer.text
