"""Tokens of programs that act as persons: scopes, expiry, last use, rotation, and what ends them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import AnyOperation
from antiphon.gateway.operations.table import TABLE
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.asking import filled, request_of
from tests.gateway.served import Json, Served, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

OWN, OTHER = "agent:main:api:own", "agent:main:api:other"


async def invite(served: Served, name: str = "Ann", role: str = "user") -> str:
    answer = await served.client.post("/people", json={"name": name, "role": role, "agents": ["main"]})
    assert answer.status_code == 201, answer.text
    return answer.json()["person"]["personId"]


async def create(client: httpx.AsyncClient, person: str, **fields: Any) -> Json:
    answer = await client.post("/tokens", json={"personId": person, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@requirement("access:2", "access:1")
async def test_a_persons_token_acts_as_that_person(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(OTHER)
        ann = await invite(served)
        token = await create(served.client, ann, name="laptop")
        assert (token["kind"], token["personId"], token["scopes"]) == (
            "person",
            ann,
            ["sessions.read", "sessions.write"],
        )
        async with new_client(served.url, token["token"]) as client:
            made = (await client.post("/sessions", json={"agentId": "main"})).json()
            posted = await client.post(f"/sessions/{made['key']}/messages?wait={SECONDS}", json={"text": "hi"})
            assert posted.json()["status"] == "ok"
            assert [row["key"] for row in (await client.get("/sessions")).json()["sessions"]] == [made["key"]]
            assert code(await client.get(f"/sessions/{OTHER}")) == (404, "not_found")
            assert code(await client.get("/tokens")) == (403, "scope_missing")
        admin = await create(served.client, ann, scopes=[each.value for each in TokenScope])
        async with new_client(served.url, admin["token"]) as client:
            assert code(await client.get("/tokens")) == (403, "forbidden"), "a scope gives no right"


@requirement("access:2", "access:5")
@pytest.mark.parametrize("scope", TokenScope)
async def test_every_operation_needs_its_scope(open_home: OpenHome, scope: TokenScope) -> None:
    async with serve(open_home) as served:
        token = await create(served.client, "owner", scopes=[scope.value])
        async with new_client(served.url, token["token"]) as client:
            for operation in TABLE.values():
                if operation.scope is not None:
                    refused = await _is_refused(client, operation)
                    assert refused == (operation.scope is not scope), operation.name
            for path, needed in (("/page", TokenScope.READ), ("/openapi.json", TokenScope.READ)):
                assert ((await client.get(path)).status_code == 403) == (scope is not needed), path
            tools = await client.post("/mcp", json={}, headers={"Antiphon-Session": "main"})
            assert (tools.status_code == 403) == (scope is not TokenScope.ADMIN)


async def _is_refused(client: httpx.AsyncClient, operation: AnyOperation) -> bool:
    async with client.stream("GET", "/health"):
        pass
    answer = await client.send(request_of(client, operation, filled(operation)), stream=True)
    if answer.status_code != 403:
        await answer.aclose()
        return False
    await answer.aread()
    return answer.json()["error"]["code"] == "scope_missing"


DECLARED: Mapping[str, Any] = {
    "headers": {"Antiphon-Scopes": "admin", "X-Scopes": "admin", "Scope": "admin", "Antiphon-Principal": "owner"},
}


@requirement("access:2", "answers:3")
async def test_scopes_that_a_caller_claims_count_for_nothing(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        token = await create(served.client, "owner")
        async with new_client(served.url, token["token"]) as client:
            assert code(await client.get("/people", **DECLARED)) == (403, "scope_missing")
            for query in ("scopes=admin", "scope=admin", "principal=person:owner", "access_token=x"):
                answer = await client.get(f"/people?{query}")
                assert code(answer) == (403, "scope_missing"), query
                assert (await client.get(f"/sessions?{query}")).status_code == 422, query
            body = {"text": "hi", "scopes": ["admin"]}
            assert (await client.post("/sessions/main/messages", json=body)).status_code == 422


@requirement("access:2")
async def test_no_token_has_more_scopes_than_the_credential_that_makes_it(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        whole = await create(served.client, "owner", scopes=[each.value for each in TokenScope])
        admin = await create(served.client, "owner", scopes=["admin"])
        async with new_client(served.url, admin["token"]) as client:
            before = (await served.client.get("/people")).json(), (await served.client.get("/tokens")).json()["count"]
            for method, path, body in (
                ("POST", "/tokens", {"personId": "owner"}),
                ("POST", "/tokens", {"personId": "owner", "scopes": ["admin", "approvals"]}),
                ("POST", f"/tokens/{whole['id']}/rotate", None),
                ("POST", "/auth/link", {}),
                ("POST", "/people", {"name": "Eve", "role": "owner"}),
            ):
                answer = await client.request(method, path, json=body)
                assert code(answer) == (403, "scope_beyond_maker"), (path, answer.text)
            after = (await served.client.get("/people")).json(), (await served.client.get("/tokens")).json()["count"]
            assert before == after
            assert (await create(client, "owner", scopes=["admin"]))["scopes"] == ["admin"]
            unknown = await client.post("/tokens", json={"personId": "owner", "scopes": ["root"]})
            assert code(unknown) == (400, "unknown_scope") and "'root'" in unknown.text
        async with new_client(served.url, whole["token"]) as client:
            assert (await client.get("/sessions")).status_code == 200, "what was refused changed nothing"


@requirement("access:2")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scopes": ["admin"]},
        {"personId": "owner", "sessionKey": "main"},
        {"sessionKey": "main", "scopes": ["admin"]},
        {"personId": "owner", "scopes": []},
        {"personId": "owner", "days": 0},
    ],
)
async def test_a_token_is_for_a_person_or_for_a_session(open_home: OpenHome, body: Json) -> None:
    async with serve(open_home) as served:
        answer = await served.client.post("/tokens", json=body)
        assert answer.status_code in (400, 422) and answer.json()["error"]["code"] == "invalid_request"
        assert (await served.client.get("/tokens")).json()["count"] == 0
        assert code(await served.client.post("/tokens", json={"personId": "nobody"})) == (404, "not_found")


@requirement("access:2")
async def test_a_rotated_token_has_a_new_secret_and_the_old_one_is_refused_at_once(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(OWN)
        for fields in ({"personId": "owner"}, {"sessionKey": OWN}):
            old = (await served.client.post("/tokens", json=fields)).json()
            answer = await served.client.post(f"/tokens/{old['id']}/rotate")
            new = answer.json()
            assert new["id"] == old["id"] and new["token"] != old["token"]
            for secret, status in ((old["token"], 401), (new["token"], 200)):
                async with new_client(served.url, secret) as client:
                    asked = (
                        await client.post("/tools/session_status", json={})
                        if "sessionKey" in fields
                        else await client.get("/sessions")
                    )
                    assert asked.status_code == status
        assert code(await served.client.post("/tokens/tok_none/rotate")) == (404, "not_found")


@requirement("access:2")
async def test_last_use_and_expiry_are_listed(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        token = await create(served.client, "owner", name="ci", days=30)
        assert token["expiresAt"] == token["createdAt"] + 30 * 86_400_000

        async def listed() -> Json:
            (row,) = (await served.client.get("/tokens")).json()["tokens"]
            assert "token" not in row
            return row

        async def until_used_at(at_ms: int) -> None:
            with anyio.fail_after(SECONDS):
                while (await listed()).get("lastUsedAt") != at_ms:
                    await anyio.sleep(0.02)

        assert "lastUsedAt" not in await listed()
        async with new_client(served.url, token["token"]) as client:
            clock.pass_time(timedelta(minutes=2))
            assert (await client.get("/sessions")).status_code == 200
            await until_used_at(clock.now_ms())
            used_at = clock.now_ms()
            clock.pass_time(timedelta(seconds=30))
            assert (await client.get("/sessions")).status_code == 200
            await served.app.services.credentials.note_uses()
            assert (await listed())["lastUsedAt"] == used_at, "at most once a minute"
            clock.pass_time(timedelta(seconds=31))
            assert (await client.get("/sessions")).status_code == 200
            await until_used_at(clock.now_ms())
            clock.pass_time(timedelta(days=30))
            assert code(await client.get("/sessions")) == (401, "bad_token")
        assert (await served.client.get("/tokens")).json()["count"] == 0


@requirement("access:1", "access:2")
async def test_a_token_follows_its_person(open_home: OpenHome) -> None:
    """Promoted, demoted, suspended, merged and removed: the same token, other rights at the next request."""
    async with serve(open_home) as served:
        await served.open(OTHER)
        ann = await invite(served)
        await invite(served, "Ben", "owner")
        every = [each.value for each in TokenScope]
        token, bens = await create(served.client, ann, scopes=every), await create(served.client, "ben", scopes=every)
        async with new_client(served.url, token["token"]) as client:

            async def sees() -> int:
                return (await client.get(f"/sessions/{OTHER}")).status_code

            async def change(act: str, **body: str) -> None:
                answer = await served.client.post(f"/people/{ann}/{act}", json=body)
                assert answer.status_code == 200, answer.text

            assert await sees() == 404
            await change("role", role="owner")
            assert await sees() == 200
            await change("role", role="guest")
            assert await sees() == 404
            assert code(await client.get("/sessions")) == (403, "forbidden")
            await change("suspend")
            for path in ("/sessions", f"/sessions/{OTHER}", "/tools", "/openapi.json", "/tokens"):
                assert code(await client.get(path)) == (403, "suspended"), path
            await change("resume")
            await change("merge", into="ben")
            assert await sees() == 200
        assert (await served.client.delete("/people/ben")).status_code == 204
        for secret in (token["token"], bens["token"]):
            async with new_client(served.url, secret) as client:
                assert code(await client.get("/sessions")) == (401, "bad_token")


@requirement("access:2")
async def test_a_bound_token_ends_with_its_maker_and_does_no_more_than_they_may(open_home: OpenHome) -> None:
    """An owner makes a token for a session, is demoted, suspended, removed: each at the next call."""
    async with serve(open_home) as served:
        await served.open(OWN)
        ann = await invite(served, role="owner")
        hers = await create(served.client, ann, scopes=["admin", "sessions.write"])
        async with new_client(served.url, hers["token"]) as client:
            bound = (await client.post("/tokens", json={"sessionKey": OWN})).json()
            assert bound["personId"] == ann
            await client.post(f"/sessions/{OWN}/messages?append=1", json={"text": "hello"})
        async with new_client(served.url, bound["token"]) as client:

            async def call(tool: str) -> httpx.Response:
                return await client.post(f"/tools/{tool}", json={})

            assert (await call("agents_list")).status_code == 200
            assert (await served.client.post(f"/people/{ann}/role", json={"role": "guest"})).status_code == 200
            assert (await call("agents_list")).status_code in (403, 404)
            assert (await served.client.post(f"/people/{ann}/suspend", json={})).status_code == 200
            assert code(await call("session_status")) == (403, "suspended")
            assert (await served.client.delete(f"/people/{ann}")).status_code == 204
            assert code(await call("session_status")) == (401, "bad_token")


@requirement("access:2", "channels:4")
async def test_a_command_needs_the_scopes_of_what_it_does(open_home: OpenHome) -> None:
    every = [scope.value for scope in TokenScope]
    async with serve(open_home) as served:
        await served.open(OWN)
        usual = await create(served.client, "owner", scopes=["sessions.read", "sessions.write"])
        almost = await create(served.client, "owner", scopes=every[:-1])
        narrow = await create(served.client, "owner", scopes=every, clearance={"level": "INTERNAL"})
        full = await create(served.client, "owner", scopes=every)

        async def says(token: Json, text: str) -> httpx.Response:
            async with new_client(served.url, token["token"]) as client:
                return await client.post(f"/sessions/{OWN}/command", json={"text": text})

        for text in ("/approve app_1", "/approve app_1 always", "/deny app_1", "/link"):
            assert code(await says(usual, text)) == (403, "scope_missing"), text
        assert code(await says(almost, "/LINK ")) == (403, "scope_missing")
        assert code(await says(narrow, "/link")) == (403, "clearance_beyond_maker")
        assert "not found" in (await says(almost, "/approve app_1")).json()["answer"]
        assert "Your code is" in (await says(full, "/link")).json()["answer"]
        assert (await says(usual, "/status")).json()["isCommand"]
