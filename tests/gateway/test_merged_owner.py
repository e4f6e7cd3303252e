"""The home's own owner was merged into another owner: what is open by the home's token ends with that one's rights."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock
from tests.gateway.served import Json, Served, following, new_client, serve
from tests.gateway.test_revocation import until_open
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:api:chat"


async def merge_owner(served: Served) -> None:
    """The owner is Ann from now on; Ben is another owner."""
    people = served.app.services.people
    for name in ("Ann", "Ben"):
        await people.invite(OWNER, name, PersonRole.OWNER)
    await people.merge(OWNER, "owner", "ann")


@asynccontextmanager
async def by_link(served: Served) -> AsyncGenerator[httpx.AsyncClient]:
    code = (await served.client.post("/auth/link")).json()["code"]
    async with new_client(served.url) as browser:
        answer: Json = (await browser.post("/auth/exchange", json={"code": code})).json()
        browser.headers["Antiphon-Page"] = answer["pageSecret"]
        browser.headers["Origin"] = served.url
        yield browser


@asynccontextmanager
async def by_new_token(served: Served) -> AsyncGenerator[httpx.AsyncClient]:
    assert (await served.client.post("/tokens/rotate")).status_code == 200
    async with new_client(served.url, (served.app.home / "owner.token").read_text("ascii").strip()) as client:
        yield client


async def suspend(served: Served) -> None:
    people = served.app.services.people
    ben = (await people.get(OWNER, "ben")).person.principal
    await people.suspend(ben, "ann")


async def demote(served: Served) -> None:
    people = served.app.services.people
    ben = (await people.get(OWNER, "ben")).person.principal
    await people.change_role(ben, "ann", PersonRole.USER)


@requirement("access:1", "access:2")
@pytest.mark.parametrize("let_in", [by_link, by_new_token])
@pytest.mark.parametrize("changes", [suspend, demote])
async def test_streams_that_were_let_in_after_the_merge_end_with_the_rights(
    open_home: OpenHome,
    let_in: Callable[[Served], AbstractAsyncContextManager[httpx.AsyncClient]],
    changes: Callable[[Served], Awaitable[None]],
) -> None:
    async with serve(open_home) as served:
        await served.open(KEY)
        await merge_owner(served)
        async with let_in(served) as client, following(client, f"/sessions/{KEY}/events") as followed:
            await followed.next()
            await changes(served)
            *_, last = await followed.rest()
            assert (last.event, last.data) == ("end", {"reason": "revoked"})


@requirement("access:1", "access:2")
@pytest.mark.parametrize("let_in", [by_link, by_new_token])
@pytest.mark.parametrize("changes", [suspend, demote])
async def test_a_wait_tells_nothing_to_a_survivor_who_has_lost_the_rights(
    open_home: OpenHome,
    let_in: Callable[[Served], AbstractAsyncContextManager[httpx.AsyncClient]],
    changes: Callable[[Served], Awaitable[None]],
) -> None:
    gates, answers = Gates(), list[httpx.Response]()
    async with serve(open_home, parts=Parts(tools=[gates.tool])) as served:
        await served.open(KEY)
        await merge_owner(served)
        async with let_in(served) as client:

            async def wait(run: RunId) -> None:
                answers.append(await client.get(f"/runs/{run}", params={"wait": SECONDS}))

            services = served.app.services
            ben = (await services.people.get(OWNER, "ben")).person.principal
            words = text_content(wait_at("end", "private words"))
            run_id = (await services.inbox.post(ben, services.sessions.target(KEY), words)).run_id
            assert run_id is not None
            await gates.until_reached("end")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, run_id)
                await until_open(served, 1)
                await changes(served)
                await services.credentials.sweep()  # what a gateway does every half second
                gates.open("end")
    assert "private words" not in answers[0].text, answers[0].text


@requirement("access:1", "access:2")
async def test_a_browser_of_a_suspended_survivor_is_let_in_nowhere(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(KEY)
        await merge_owner(served)
        async with by_link(served) as browser:
            await suspend(served)
            assert (await browser.get(f"/sessions/{KEY}")).status_code == 401


@requirement("access:1", "access:2")
async def test_the_homes_token_of_a_suspended_person_is_refused_before_what_it_asks_is_looked_at(
    open_home: OpenHome,
) -> None:
    async with serve(open_home, parts=Parts(clock=ManualClock())) as served:
        await merge_owner(served)
        people = served.app.services.people
        ben = (await people.get(OWNER, "ben")).person.principal

        async def post() -> str:
            return (await served.client.post("/tokens", content=b"no JSON")).json()["error"]["code"]

        assert await post() == "not_json"
        await people.suspend(ben, "ann")
        assert await post() == "suspended", "what was known before is not trusted"
        await people.resume(ben, "ann")
        assert await post() == "not_json", "what was known of a suspended person is not trusted"


@requirement("access:1", "access:2")
async def test_a_request_that_begins_after_a_change_of_rights_is_not_ended_by_it(open_home: OpenHome) -> None:
    gates, answers = Gates(), list[httpx.Response]()
    async with serve(open_home, parts=Parts(tools=[gates.tool], clock=ManualClock())) as served:
        await served.open(KEY)
        services = served.app.services
        ann = (await services.people.invite(OWNER, "Ann", PersonRole.OWNER)).person.principal
        posted = await served.client.post(f"/sessions/{KEY}/messages", json={"text": wait_at("end", "words")})
        await gates.until_reached("end")  # the gateway remembers the home's token, and no time passes
        await services.people.change_role(ann, "owner", PersonRole.USER)
        await services.people.change_role(ann, "owner", PersonRole.OWNER)

        async def wait() -> None:
            answers.append(await served.client.get(f"/runs/{posted.json()['runId']}", params={"wait": SECONDS}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until_open(served, 1)
            await services.credentials.sweep()
            gates.open("end")
    assert answers[0].json()["reply"] == "words", answers[0].text
