"""What is open ends with what it was let in by, in every process. Contract: access 2."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import anyio
import httpx
import pytest

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.clock import SystemClock
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.domain.session import NOWHERE
from antiphon.engine.access.credentials import CredentialEnding, Credentials
from antiphon.engine.access.people import People
from antiphon.store.database import Database
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import TOKEN, Json, Sent, Served, Stream, following, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:api:chat"
SHORT_LIFE = timedelta(seconds=5)
"""Of a token; shorter than any wait."""
STREAMS = {
    "history": f"/sessions/{KEY}/history?follow=1",
    "events": f"/sessions/{KEY}/events",
}
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two gateways on one database, where that can be shared; else one, twice."""

    here: Served
    there: Served


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def pair(database_section: DatabaseSection, tmp_path: Path, clock: ManualClock) -> AsyncGenerator[Pair]:
    settings = {"gateway": {"drain_seconds": 0}, "tools": {"sessions": {"visibility": "agent"}}}
    config = Config.model_validate(settings).model_copy(update={"database": database_section})

    def opener(name: str) -> OpenHome:
        def open_it(_: Any, parts: Parts | None = None) -> Any:
            return open_app(tmp_path / name, config, parts)

        return open_it

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(serve(opener("here"), parts=Parts(clock=clock)))
        await here.open(KEY)
        there = here
        if database_section.url is not None:
            there = await stack.enter_async_context(serve(opener("there"), parts=Parts(clock=clock)))
        yield Pair(here=here, there=there)


@asynccontextmanager
async def signed_in(pair: Pair) -> AsyncGenerator[tuple[httpx.AsyncClient, str]]:
    """A browser of the other gateway, and its id."""
    code = (await pair.here.client.post("/auth/link")).json()["code"]
    async with new_client(pair.there.url) as browser:
        answer: Json = (await browser.post("/auth/exchange", json={"code": code})).json()
        browser.headers["Antiphon-Page"] = answer["pageSecret"]
        browser.headers["Origin"] = pair.there.url
        yield browser, answer["browserId"]


async def until_open(served: Served, count: int) -> None:
    with anyio.fail_after(SECONDS):
        while served.app.services.credentials.open_requests != count:
            await anyio.sleep(0.01)


async def until_waiting(served: Served, count: int) -> None:
    """Until so many requests have been admitted and wait: one whose person is removed before is refused for that."""
    with anyio.fail_after(SECONDS):
        while served.app.services.waits.count != count:
            await anyio.sleep(0.01)


async def end_of(stream: Stream) -> Sent:
    *_, last = await stream.rest()
    return last


Ends = Callable[[Pair, httpx.AsyncClient, str], Awaitable[object]]


async def sign_out(pair: Pair, browser: httpx.AsyncClient, id: str) -> None:
    assert (await browser.post("/auth/sign-out")).status_code == 204


async def revoke(pair: Pair, browser: httpx.AsyncClient, id: str) -> None:
    assert (await pair.here.client.delete(f"/tokens/{id}")).status_code == 204


async def rotate(pair: Pair, browser: httpx.AsyncClient, id: str) -> None:
    assert (await pair.here.client.post("/tokens/rotate")).status_code == 200


@requirement("access:2", "gateway:6")
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("ends", [sign_out, revoke, rotate])
async def test_a_browsers_streams_end_with_its_sign_in(pair: Pair, ends: Ends, stream: str) -> None:
    async with (
        signed_in(pair) as (browser, id),
        following(browser, STREAMS[stream], last_id=0 if stream == "page" else None) as followed,
        following(pair.here.client, STREAMS["events"]) as of_owner,
    ):
        await followed.next()
        await ends(pair, browser, id)
        last = await end_of(followed)
        assert (last.event, last.data) == ("end", {"reason": "revoked"})
        assert (await browser.get("/sessions")).status_code == 401
        if ends is rotate:
            assert (await end_of(of_owner)).event == "end"
        else:
            await pair.here.append(KEY, "still there")
            assert (await of_owner.until("message_appended", "user_message"))[-1].data


@asynccontextmanager
async def signed_in_as(pair: Pair, role: PersonRole) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser of a person `ann`, who takes part in the chat, at the other gateway."""
    services = pair.here.app.services
    invited = await services.people.invite(OWNER, "Ann", role)
    await services.sessions.open(invited.person.principal, services.sessions.target(KEY), place=NOWHERE)
    async with new_client(pair.there.url) as browser:
        answer: Json = (await browser.post("/auth/exchange", json={"code": invited.code})).json()
        browser.headers["Antiphon-Page"] = answer["pageSecret"]
        browser.headers["Origin"] = pair.there.url
        yield browser


async def promote(people: People) -> None:
    await people.change_role(OWNER, "ann", PersonRole.OWNER)


async def demote(people: People) -> None:
    await people.change_role(OWNER, "ann", PersonRole.GUEST)


@requirement("access:1", "access:2")
@pytest.mark.parametrize("stream", ["history", "events"])
@pytest.mark.parametrize("changes", [promote, demote])
async def test_a_persons_streams_end_when_their_rights_change(
    pair: Pair, clock: ManualClock, changes: Callable[[People], Awaitable[None]], stream: str
) -> None:
    async with signed_in_as(pair, PersonRole.USER) as browser, following(browser, STREAMS[stream]) as followed:
        await followed.next()
        await changes(pair.here.app.services.people)
        last = await end_of(followed)
        assert (last.event, last.data) == ("end", {"reason": "revoked"})
        clock.pass_time(timedelta(seconds=1))
        async with following(browser, STREAMS[stream]) as again:
            await again.next()


@requirement("access:1", "access:2")
async def test_a_suspended_person_is_let_in_nowhere(pair: Pair) -> None:
    async with signed_in_as(pair, PersonRole.USER) as browser, following(browser, STREAMS["events"]) as followed:
        await followed.next()
        people = pair.here.app.services.people
        await people.suspend(OWNER, "ann")
        last = await end_of(followed)
        assert (last.event, last.data) == ("end", {"reason": "revoked"})
        assert (await browser.get(f"/sessions/{KEY}")).status_code == 401
        await people.resume(OWNER, "ann")
        assert (await browser.get(f"/sessions/{KEY}")).status_code == 200
        await people.remove(OWNER, "ann")
        assert (await browser.get(f"/sessions/{KEY}")).status_code == 401


@requirement("access:1", "access:2", "approvals:3")
@pytest.mark.parametrize("end", ["revoked", "signed out", "suspended", "demoted", "removed", "merged"])
async def test_all_that_a_person_has_open_ends_in_every_gateway(pair: Pair, end: str) -> None:
    """Streams and waits by a token and by a browser, at the gateway that is told and at the other one.

    No event comes meanwhile that could wake them.
    """
    services = pair.here.app.services
    posted = (await pair.here.client.post(f"/sessions/{KEY}/messages", json={"text": "!sleep 3600"})).json()
    ended: list[str] = []

    async def follow(client: httpx.AsyncClient) -> None:
        async with following(client, STREAMS["events"]) as followed:
            last = await end_of(followed)
            assert (last.event, last.data) == ("end", {"reason": "revoked"})
        ended.append("stream")

    async def wait(client: httpx.AsyncClient) -> None:
        answer = await client.get(f"/runs/{posted['runId']}?wait=600")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "credential_ended")
        ended.append("wait")

    async with signed_in_as(pair, PersonRole.OWNER) as browser, AsyncExitStack() as stack:
        token, secret = await services.tokens.create_for_person(OWNER, "ann", life=timedelta(days=1))
        here, there = [
            await stack.enter_async_context(new_client(served.url, secret)) for served in (pair.here, pair.there)
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        leaving = {"revoked": [here, there], "signed out": [browser]}.get(end, [here, there, browser])
        for client in leaving:
            tasks.start_soon(follow, client)
            tasks.start_soon(wait, client)
        for served in (pair.here, pair.there):
            clients = sum(str(client.base_url).rstrip("/") == served.url for client in leaving)
            await until_open(served, 2 * clients)
            await until_waiting(served, clients)
        match end:
            case "revoked":
                await services.tokens.revoke(OWNER, token.id)
            case "signed out":
                assert (await browser.post("/auth/sign-out")).status_code == 204
            case "suspended":
                await services.people.suspend(OWNER, "ann")
            case "demoted":
                await services.people.change_role(OWNER, "ann", PersonRole.GUEST)
            case "removed":
                await services.people.remove(OWNER, "ann")
            case _:
                await services.people.invite(OWNER, "Ben", PersonRole.USER)
                await services.people.merge(OWNER, "ann", "ben")
    assert sorted(ended) == ["stream"] * len(leaving) + ["wait"] * len(leaving)


async def test_a_browser_that_expires_while_it_follows_is_told(pair: Pair, clock: ManualClock) -> None:
    async with signed_in(pair) as (browser, _), following(browser, STREAMS["events"]) as followed:
        await followed.next()
        clock.pass_time(timedelta(days=8))
        last = await end_of(followed)
        assert (last.event, last.data) == ("end", {"reason": "expired"})


@requirement("access:2")
async def test_a_replaced_owners_token_ends_streams_and_waits_in_every_gateway(pair: Pair, clock: ManualClock) -> None:
    posted = (await pair.here.client.post(f"/sessions/{KEY}/messages", json={"text": "!sleep 3600"})).json()
    statuses: list[tuple[int, str]] = []

    async def wait(method: str, path: str, body: Json | None = None) -> None:
        answer = await pair.there.client.request(method, path, json=body)
        statuses.append((answer.status_code, answer.json()["error"]["code"]))

    with anyio.fail_after(SECONDS):
        async with (
            following(
                pair.there.client, f"/sessions/{KEY}/messages?stream=1", body={"text": "!sleep 3600"}
            ) as streamed,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(wait, "GET", f"/runs/{posted['runId']}?wait=600")
            tasks.start_soon(wait, "POST", f"/sessions/{KEY}/messages?wait=600", {"text": "later"})
            await until_open(pair.there, 3)
            assert (await pair.here.client.post("/tokens/rotate")).status_code == 200
            assert (await end_of(streamed)).data == {"reason": "revoked"}
    assert statuses == [(401, "credential_ended")] * 2
    clock.pass_time(timedelta(seconds=1))
    assert (await pair.there.client.get("/sessions")).status_code == 401
    assert (await pair.here.client.get("/sessions")).status_code == 401
    token = (pair.here.app.home / "owner.token").read_text("ascii").strip()
    for served in (pair.here, pair.there):
        async with new_client(served.url, token) as owner:
            assert (await owner.get("/sessions")).status_code == 200


@requirement("access:2")
@pytest.mark.parametrize("end", ["revoked", "rotated", "expired", "demoted"])
async def test_a_persons_tokens_streams_and_waits_end_with_it(pair: Pair, end: str, clock: ManualClock) -> None:
    """In the other gateway too; the same token serves again after a demotion, with the rights that are left."""
    services = pair.here.app.services
    await services.people.invite(OWNER, "Ann", PersonRole.OWNER)
    token, secret = await services.tokens.create_for_person(OWNER, "ann", life=SHORT_LIFE)
    posted = (await pair.here.client.post(f"/sessions/{KEY}/messages", json={"text": "!sleep 3600"})).json()
    answers: list[httpx.Response] = []

    async def wait(client: httpx.AsyncClient) -> None:
        answers.append(await client.get(f"/runs/{posted['runId']}?wait=600"))

    with anyio.fail_after(SECONDS):
        async with (
            new_client(pair.there.url, secret) as client,
            following(client, STREAMS["events"]) as followed,
            anyio.create_task_group() as tasks,
        ):
            await followed.next()
            tasks.start_soon(wait, client)
            await until_open(pair.there, 2)
            await until_waiting(pair.there, 1)
            match end:
                case "revoked":
                    await services.tokens.revoke(OWNER, token.id)
                case "rotated":
                    await services.tokens.rotate(OWNER, token.id)
                case "expired":
                    clock.pass_time(SHORT_LIFE)
                case _:
                    await services.people.change_role(OWNER, "ann", PersonRole.GUEST)
            reason = "expired" if end == "expired" else "revoked"
            assert (await end_of(followed)).data == {"reason": reason}
    assert [answer.json()["error"]["code"] for answer in answers] == ["credential_ended"]
    async with new_client(pair.there.url, secret) as client:
        again = await client.get(f"/sessions/{KEY}")
        assert again.status_code == (404 if end == "demoted" else 401)


@requirement("access:2")
@pytest.mark.parametrize("end", ["revoked", "session deleted", "expired"])
@pytest.mark.parametrize("door", ["/tools/sessions_send", "/mcp"])
async def test_a_bound_tokens_calls_in_flight_end_with_it(pair: Pair, door: str, end: str, clock: ManualClock) -> None:
    await pair.here.open("api:holder")
    services = pair.here.app.services
    holder = services.sessions.target("agent:main:api:holder")
    token, secret = await services.tokens.create(OWNER, holder, life=SHORT_LIFE)
    arguments = {"sessionKey": KEY, "message": "!sleep 3600", "timeoutSeconds": 600}
    call: Json = {"arguments": arguments}
    if door == "/mcp":
        params = {"name": "sessions_send", "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    outcomes: list[object] = []

    async def ask(bound: httpx.AsyncClient) -> None:
        try:
            answer = await bound.post(door, json=call, headers={"Accept": "application/json, text/event-stream"})
            outcomes.append((answer.status_code, "credential_ended" in answer.text))
        except httpx.TransportError:
            outcomes.append("cut")

    with anyio.fail_after(SECONDS):
        async with new_client(pair.there.url, secret) as bound, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, bound)
            while not (await pair.here.client.get("/runs", params={"session": KEY})).json()["runs"]:
                await anyio.sleep(0.01)
            match end:
                case "revoked":
                    await pair.here.client.delete(f"/tokens/{token.id}")
                case "session deleted":
                    deleted = await pair.here.client.delete("/sessions/agent:main:api:holder")
                    assert deleted.status_code == 200, deleted.text
                case _:
                    clock.pass_time(SHORT_LIFE)
    assert outcomes in ([(401, True)], ["cut"])
    async with new_client(pair.there.url, secret) as bound:
        assert (await bound.post("/tools/session_status", json={})).status_code == 401


@requirement("gateway:1")
async def test_a_deleted_sessions_streams_end_in_every_gateway(pair: Pair) -> None:
    async with following(pair.there.client, STREAMS["events"]) as followed:
        await followed.next()
        assert (await pair.here.client.delete(f"/sessions/{KEY}")).status_code == 200
        assert (await end_of(followed)).data == {"reason": "deleted"}


class CountingDatabase:
    """A database that counts its reads."""

    def __init__(self, database: Database) -> None:
        self.reads = 0
        self.failure = None
        self.trouble = None
        self.run = database.run
        self.close = database.close
        self._database = database

    async def read(self, query: Callable[[Any, *Ts], Any], *arguments: *Ts) -> Any:
        self.reads += 1
        return await self._database.read(query, *arguments)


async def test_all_open_requests_are_looked_up_in_one_statement(pair: Pair) -> None:
    database = CountingDatabase(pair.here.app.database)
    credentials = Credentials(database, SystemClock())
    ended: list[CredentialEnding] = []
    for number in range(2_000):
        credentials.watch(f"credential {number % 400}", 0, ended.append)
    assert (await pair.here.client.get("/tokens")).json()["count"] == 0
    await credentials.sweep()
    assert (database.reads, len(ended), credentials.open_requests) == (1, 2_000, 0)
    await credentials.sweep()
    assert database.reads == 1, "and nothing is read where nothing is open"


async def test_a_home_whose_token_is_not_the_databases_lets_nobody_in_by_it(
    open_home: OpenHome, home: Path, database_section: DatabaseSection
) -> None:
    async with open_home() as app:
        ownership, is_embedded = app.services.ownership, database_section.url is None
        first = await ownership.prepare(is_embedded=is_embedded)
        assert first == (home / "owner.token").read_text("ascii").strip()
        assert await ownership.prepare(is_embedded=is_embedded) == first
        (home / "owner.token").write_text("ant_copied\n", "ascii")
        assert await ownership.prepare(is_embedded=is_embedded) is None
        assert not await ownership.holds("ant_copied", first="ant_copied")
        assert await ownership.holds(first or "", first="ant_copied")
        (home / "owner.token").unlink()
        renewed = await ownership.prepare(is_embedded=is_embedded)
        assert (renewed is not None) is is_embedded, "what homes share is not changed by one that lost its token"
        assert await ownership.holds(first or "", first="") is not is_embedded
        await ownership.rotate(OWNER)
        (home / "owner.token").replace(home / "owner.new")
        (home / "owner.token").write_text("ant_before\n", "ascii")
        newest = (home / "owner.new").read_text("ascii").strip()
        assert await ownership.prepare(is_embedded=is_embedded) == newest, "a crash before the file was replaced"
        assert (home / "owner.token").read_text("ascii").strip() == newest
        assert not await ownership.holds("", first="")


async def test_many_who_replace_the_token_at_once_leave_one_that_is_good(open_home: OpenHome, home: Path) -> None:
    async with serve(open_home) as served:
        clients = [new_client(served.url, TOKEN) for _ in range(8)]

        async def ask(client: httpx.AsyncClient) -> None:
            assert (await client.post("/tokens/rotate")).status_code in (200, 401)

        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(ask, client)
        for client in clients:
            await client.aclose()
        token = (home / "owner.token").read_text("ascii").strip()
        async with new_client(served.url, token) as owner:
            assert (await owner.get("/sessions")).status_code == 200
        assert [path.name for path in home.glob("owner.*")] == ["owner.token"]
