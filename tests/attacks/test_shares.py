"""Nobody takes more than their share: of places for runs, of requests, of sessions and of what is stored."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from antiphon.building import Parts
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.attacks.house import House, open_house
from tests.claims import requirement
from tests.engine.stage import HeldRunner, ManualClock
from tests.gateway.served import Json
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio
EVES = "agent:main:cli:eves"
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst(Attempt):
    """The same request again and again, without a pause."""

    method: str
    path: str
    body: Any


def burst(door: Door, what: str, method: str, path: str, body: Any) -> Burst:
    return Burst(attacker=Attacker.BOUND_TOKEN, door=door, what=what, method=method, path=path, body=body)


CALL: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
BURSTS = rows(
    burst(Door.HTTP, "lists", "POST", "/tools/sessions_list", {"arguments": {}}),
    burst(Door.HTTP, "sends", "POST", "/tools/sessions_send", {"arguments": {"sessionKey": "x", "message": "y"}}),
    burst(Door.HTTP, "spawns", "POST", "/tools/sessions_spawn", {"arguments": {"task": " "}}),
    burst(Door.HTTP, "searches", "POST", "/tools/sessions_search", {"arguments": {"query": "a"}}),
    burst(Door.HTTP, "tools that there are not", "POST", "/tools/nothing", {"arguments": {}}),
    burst(Door.HTTP, "arguments that are none", "POST", "/tools/sessions_list", {"arguments": 7}),
    burst(Door.HTTP, "bodies that are no JSON", "POST", "/tools/sessions_list", b"{"),
    burst(Door.MCP, "calls", "POST", "/mcp", CALL),
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncGenerator[House]:
    limits = {"guest": {"requestsPerMinute": 60, "burst": 5, "sessions": 3, "storedBytes": 1_000, "queuedRuns": 2}}
    async with open_house(tmp_path_factory.mktemp("shares") / "home", limits=limits) as house:
        await house.served.open(EVES)
        yield house


@requirement("answers:5")
@pytest.mark.parametrize("attempt", BURSTS)
async def test_a_bound_token_has_a_share_of_requests(house: House, attempt: Burst) -> None:
    key = f"agent:main:cli:{attempt.what.replace(' ', '-').lower()}"
    await house.served.open(key)
    headers = {"Authorization": f"Bearer {await house.token(key)}", "Accept": "application/json, text/event-stream"}

    async def ask() -> httpx.Response:
        if isinstance(attempt.body, bytes):
            headers["Content-Type"] = "application/json"
            return await house.nobody.request(attempt.method, attempt.path, content=attempt.body, headers=headers)
        return await house.nobody.request(attempt.method, attempt.path, json=attempt.body, headers=headers)

    answers = [await ask() for _ in range(7)]
    statuses = [answer.status_code for answer in answers]
    assert 429 not in statuses[:5] and statuses[5:] == [429, 429], statuses
    error = answers[-1].json()["error"]
    assert (error["type"], error["code"], answers[-1].headers["retry-after"]) == ("rate_limited", "rate_limited", "1")
    owner = await house.served.client.post("/tools/sessions_list", json={"sessionKey": key, "arguments": {}})
    assert owner.status_code == 200
    house.clock.pass_time(_SECOND)
    assert (await ask()).status_code != 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoard(Attempt):
    """A guest's messages, of which the last is one too many."""

    messages: Callable[[int], Json]
    allowed: int
    status: int
    code: str
    queued: int
    """How many runs may wait."""


def hoard(what: str, messages: Callable[[int], Json], allowed: int, status: int, code: str, queued: int = 2) -> Hoard:
    return Hoard(
        attacker=Attacker.GUEST,
        door=Door.WEBHOOK,
        what=what,
        messages=messages,
        allowed=allowed,
        status=status,
        code=code,
        queued=queued,
    )


HOARDS = rows(
    hoard("messages without a pause", lambda number: {"text": f"m{number}"}, 5, 429, "rate_limited", 10),
    hoard("threads without end", lambda number: {"text": "m", "threadId": f"t{number}"}, 3, 403, "guest_sessions"),
    hoard("texts without end", lambda _: {"text": "x" * 400}, 2, 403, "guest_bytes"),
    hoard("one text beyond the share", lambda _: {"text": "x" * 1_001}, 0, 403, "guest_bytes"),
    hoard(
        "wide letters, counted in bytes",
        lambda _: {"text": "\u4e2d" * 334},
        0,
        403,
        "guest_bytes",
    ),
    hoard("runs that wait", lambda _: {"text": "!sleep 30"}, 3, 429, "guest_runs"),
)


@requirement("access:1", "answers:5")
@pytest.mark.parametrize("attempt", HOARDS)
async def test_a_guest_hoards_nothing(tmp_path_factory: pytest.TempPathFactory, attempt: Hoard) -> None:
    guest = {"requestsPerMinute": 60, "burst": 5, "sessions": 3, "storedBytes": 1_000, "queuedRuns": attempt.queued}
    limits = {"guest": guest}
    runner = HeldRunner()
    clock = ManualClock()
    parts = Parts(clock=clock, runner=runner)
    async with open_house(tmp_path_factory.mktemp("hoard") / "home", parts, limits=limits) as house:
        for number in range(attempt.allowed):
            fields = attempt.messages(number)
            answer = await house.ring("eve", fields.pop("text"), f"m-{number}", **fields)
            assert answer.status_code == 202, answer.text
            await runner.until_begun(1)
        fields = attempt.messages(attempt.allowed)
        refused = await house.ring("eve", fields.pop("text"), "last", **fields)
        assert (refused.status_code, refused.json()["error"]["code"]) == (attempt.status, attempt.code), refused.text
        assert (refused.status_code == 429) == ("retry-after" in refused.headers)
        runner.release_all()
        assert (await house.served.post("main", "x" * 2_000))["status"] == "ok"


@requirement("runs:1")
async def test_a_crowd_of_guests_leaves_the_owner_a_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    runner = HeldRunner()
    parts = Parts(clock=ManualClock(), runner=runner)
    home = tmp_path_factory.mktemp("crowd") / "home"
    async with open_house(home, parts, runs={"maxConcurrent": 4}) as house:
        for number in range(12):
            assert (await house.ring(f"guest{number}", "hello", f"m-{number}")).status_code == 202
        await runner.until_begun(1)
        with anyio.fail_after(SECONDS):
            posted = (await house.served.client.post("/sessions/main/messages", json={"text": "mine"})).json()
            while posted["runId"] not in runner.begun:
                await runner.until_begun(len(runner.begun) + 1)
        assert runner.most_at_once <= 4
        runner.release_all()


def test_the_table_holds_no_row_twice() -> None:
    names = [row.id for row in (*BURSTS, *HOARDS)]
    assert len(set(names)) == len(names)
