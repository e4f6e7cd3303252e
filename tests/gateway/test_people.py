"""What people see and may do over HTTP, by their role: invited, signed in, changed, removed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.session import NOWHERE
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import Json, Served, new_client, serve

pytestmark = pytest.mark.anyio

AGENTS = {"agents": {"list": [{"id": "main"}, {"id": "helper"}, {"id": "secret"}]}}
PRIVATE, SHARED = "agent:main:api:private", "agent:main:api:shared"


async def invite(served: Served, name: str, **said: object) -> Json:
    answer = await served.client.post("/people", json={"name": name, **said})
    assert answer.status_code == 201, answer.text
    return answer.json()


@asynccontextmanager
async def signed_in(served: Served, code: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser that redeemed the code."""
    async with new_client(served.url) as browser:
        answer = await browser.post("/auth/exchange", json={"code": code})
        assert answer.status_code == 200, answer.text
        browser.headers["Antiphon-Page"] = answer.json()["pageSecret"]
        browser.headers["Origin"] = served.url
        yield browser


async def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@requirement("access:1", "access:4")
async def test_an_invited_user_sees_their_own_sessions_and_opens_new_ones_with_their_agents(
    open_home: OpenHome,
) -> None:
    settings = {**AGENTS, "access": {"roles": {"user": {"agents": ["helper"]}}}}
    async with serve(open_home, settings) as served:
        for key in (PRIVATE, SHARED):
            await served.open(key)
            await served.append(key, f"words of {key}")
        invited = await invite(served, "Ann", agents=["main"])
        assert invited["person"]["personId"] == "ann" and invited["expiresInSeconds"] == 24 * 3600
        sessions = served.app.services.sessions
        ann = (await served.app.services.people.get(OWNER, "ann")).person.principal
        async with signed_in(served, invited["code"]) as browser:
            page = await browser.get("/page")
            assert page.status_code == 200 and "no session yet" in page.text and "private" not in page.text
            await sessions.open(ann, sessions.target(SHARED), place=NOWHERE)
            assert [row["key"] for row in (await browser.get("/sessions")).json()["sessions"]] == [SHARED]
            page = await browser.get("/page")
            assert "words of agent:main:api:shared" in page.text and "private" not in page.text
            assert "Change model" not in page.text and 'data-action="browsers"' not in page.text
            assert 'data-agent="helper"' in page.text and 'data-agent="secret"' not in page.text
            assert (await code_of(await browser.get(f"/sessions/{PRIVATE}"))) == (404, "not_found")
            assert (await browser.get("/search?q=private")).json()["messages"] == []
            for agent in ("main", "helper"):
                made = await browser.post("/sessions", json={"agentId": agent})
                assert made.status_code == 201 and made.json()["key"].startswith(f"agent:{agent}:api:")
                posted = await browser.post(f"/sessions/{made.json()['key']}/messages?wait=60", json={"text": "hi"})
                assert posted.json()["status"] == "ok"
                assert (await browser.post(f"/sessions/{made.json()['key']}/reset", json={})).status_code == 200
            secret = "agent:secret:api:shared"
            await served.open(secret)
            await sessions.open(ann, sessions.target(secret), place=NOWHERE)
            assert (await browser.post(f"/sessions/{SHARED}/fork", json={})).status_code == 201
            assert (await code_of(await browser.post(f"/sessions/{secret}/fork", json={}))) == (403, "agent_not_open")
            for body, code in (
                ({"agentId": "secret"}, "agent_not_open"),
                ({"key": "agent:main:api:chosen"}, "forbidden"),
                ({"agentId": "main", "clearance": {"level": "INTERNAL"}}, "forbidden"),
            ):
                assert (await code_of(await browser.post("/sessions", json=body))) == (403, code), body
            for method, path, body in (
                ("GET", "/people", None),
                ("POST", "/people", {"name": "Eve"}),
                ("POST", "/people/ann/role", {"role": "owner"}),
                ("GET", "/tokens", None),
                ("POST", "/auth/link", {}),
                ("GET", "/deliveries", None),
                ("PATCH", f"/sessions/{SHARED}", {"model": "offline"}),
                ("PATCH", f"/sessions/{SHARED}", {"clearance": None}),
                ("PATCH", f"/sessions/{SHARED}", {"sendPolicy": "deny"}),
            ):
                answer = await browser.request(method, path, json=body)
                assert (await code_of(answer)) == (403, "forbidden"), (method, path)
            assert (await browser.get(f"/sessions/{PRIVATE}")).content.replace(b"private", b"nothing") == (
                await browser.get("/sessions/agent:main:api:nothing")
            ).content


@requirement("access:1")
async def test_an_invitation_signs_in_one_browser_once(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        invited = await invite(served, "Ann")
        async with signed_in(served, invited["code"]), new_client(served.url) as other:
            answer = await other.post("/auth/exchange", json={"code": invited["code"]})
            assert (await code_of(answer)) == (403, "bad_code")
        assert (await code_of(await served.client.post("/people", json={"name": "X", "agents": ["nobody"]}))) == (
            400,
            "unknown_agent",
        )
        assert (await served.client.post("/people", json={"name": "X", "role": "king"})).status_code in (400, 422)


@requirement("access:1", "access:4", "gateway:6")
async def test_a_person_gets_another_link_when_theirs_was_used_or_has_expired(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        invited = await invite(served, "Ann")
        clock.step(timedelta(hours=25))
        replaced = await another_code(served, "ann")
        newest = await another_code(served, "ann")
        for code in (invited["code"], replaced):
            async with new_client(served.url) as browser:
                assert (await code_of(await browser.post("/auth/exchange", json={"code": code}))) == (403, "bad_code")
        other = await another_code(served, "ann")
        assert (await code_of(await served.client.post("/auth/exchange", json={"code": newest}))) == (403, "bad_code")
        async with signed_in(served, other) as first, signed_in(served, await another_code(served, "ann")) as second:
            for browser in (first, second):
                assert (await browser.get("/sessions")).status_code == 200
            refused = await second.post("/people/ann/link", json={})
            assert (await code_of(refused)) == (403, "forbidden")


async def another_code(served: Served, person: str) -> str:
    answer = await served.client.post(f"/people/{person}/link", json={})
    assert (answer.status_code, answer.json()["expiresInSeconds"]) == (200, 24 * 3600), answer.text
    return answer.json()["code"]


@requirement("access:1", "access:4")
async def test_nobody_is_signed_in_for_whom_the_page_shows_nothing(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        for name in ("Ann", "Ben", "Eve", "Zoe"):
            await invite(served, name)

        async def refused(path: str, body: Json) -> tuple[int, str]:
            return await code_of(await served.client.post(path, json=body))

        assert await refused("/people", {"name": "Gus", "role": "guest"}) == (409, "cannot_sign_in")
        assert (await served.client.get("/people")).json()["count"] == 5, "nobody was created"
        for act, body in (("ann/role", {"role": "guest"}), ("ben/suspend", {}), ("eve/merge", {"into": "zoe"})):
            assert (await served.client.post(f"/people/{act}", json=body)).status_code == 200
        assert await refused("/people/ann/link", {}) == (409, "cannot_sign_in")
        assert await refused("/people/ben/link", {}) == (409, "cannot_sign_in")
        assert await refused("/people/eve/link", {}) == (409, "merged")
        await served.client.delete("/people/zoe")
        for person in ("zoe", "nobody"):
            assert await refused(f"/people/{person}/link", {}) == (404, "not_found")
        token = (await served.client.post("/tokens", json={"personId": "owner", "scopes": ["admin"]})).json()["token"]
        async with new_client(served.url, token) as narrow:
            answer = await narrow.post("/people/owner/link", json={})
            assert (await code_of(answer)) == (403, "scope_beyond_maker")


@requirement("access:1", "access:4")
async def test_the_page_tells_a_demoted_person_what_to_do(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        invited = await invite(served, "Ann")
        async with signed_in(served, invited["code"]) as browser:
            assert (await browser.get("/page")).status_code == 200
            await served.client.post("/people/ann/role", json={"role": "guest"})
            refused = await browser.get("/page")
            assert await code_of(refused) == (403, "forbidden")
            assert "Ask an owner to make you a user" in refused.json()["error"]["message"]
            await served.client.post("/people/ann/role", json={"role": "user"})
            assert (await browser.get("/page")).status_code == 200


@requirement("gateway:5")
async def test_the_public_address_begins_links_and_is_let_in(open_home: OpenHome) -> None:
    settings = {"gateway": {"public_url": "https://chat.example.org/"}}
    async with serve(open_home, settings) as served:
        assert (await invite(served, "Ann"))["publicUrl"] == "https://chat.example.org/"
        for host, status in (("chat.example.org", 200), ("evil.example.org", 403)):
            assert (await served.client.get("/sessions", headers={"Host": host})).status_code == status


@requirement("access:1")
async def test_only_owners_see_the_processes(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        invited = await invite(served, "Ann", agents=["main"])
        async with signed_in(served, invited["code"]) as browser:
            assert (await browser.get("/who")).json() == {"count": 0, "total": 0, "sessions": [], "processes": []}
        assert len((await served.client.get("/who")).json()["processes"]) == 1


@requirement("access:1")
async def test_a_link_signs_in_the_owner_who_asked_for_it(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        invited = await invite(served, "Ann", role="owner")
        async with signed_in(served, invited["code"]) as first:
            link = (await first.post("/auth/link", json={})).json()
            async with signed_in(served, link["code"]) as second:
                assert (await second.get("/people")).status_code == 200
                suspended = await served.client.post("/people/ann/suspend", json={})
                assert suspended.status_code == 200, suspended.text
                assert (await second.get("/people")).status_code != 200
