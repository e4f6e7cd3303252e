"""Tokens that are bound to a session: what they reach, and how they end."""

from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from antiphon.app import gateway_app
from antiphon.building import Parts
from antiphon.gateway.guard import Guard
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import Served, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:cli:bound"
OTHER = "agent:main:cli:other"


async def create(served: Served, **fields: Any) -> dict[str, Any]:
    await served.open(KEY)
    await served.open(OTHER)
    answer = await served.client.post("/tokens", json={"sessionKey": KEY} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def call(client: httpx.AsyncClient, tool: str, **body: Any) -> httpx.Response:
    return await client.post(f"/tools/{tool}", json=body)


@requirement("access:2")
async def test_a_bound_token_calls_tools_as_its_session_and_as_no_other(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        token = (await create(served))["token"]
        async with new_client(served.url, token) as bound:
            for body in ({}, {"sessionKey": KEY}, {"sessionKey": "cli:bound"}):
                status = (await call(bound, "session_status", **body)).json()
                assert status["sessionKey"] == KEY
                listed = (await call(bound, "sessions_list", **body)).json()
                assert [row["key"] for row in listed["sessions"]] == [KEY]
            assert code(await call(bound, "session_status", sessionKey=OTHER)) == (403, "token_bound")
            assert code(await call(bound, "session_status", sessionKey="cli:other")) == (403, "token_bound")
            assert code(await call(bound, "session_status", sessionKey="cli:nobody")) == (403, "token_bound")
            assert code(await call(bound, "session_status", sessionKey="main")) == (403, "token_bound")
            hidden = (await call(bound, "sessions_history", arguments={"sessionKey": OTHER})).json()
            missing = (await call(bound, "sessions_history", arguments={"sessionKey": OTHER.replace("r", "x")})).json()
            assert hidden["status"] == missing["status"] == "not_found"
        assert code(await call(served.client, "session_status")) == (400, "session_missing")


@requirement("access:2", "tools:1")
async def test_a_bound_token_sees_what_its_session_sees(open_home: OpenHome) -> None:
    async with serve(open_home, {"tools": {"sessions": {"visibility": "agent"}}}) as served:
        token = (await create(served))["token"]
        async with new_client(served.url, token) as bound:
            listed = (await call(bound, "sessions_list")).json()
            assert {row["key"] for row in listed["sessions"]} >= {KEY, OTHER}


@requirement("access:2")
async def test_a_bound_token_reaches_no_other_route(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        token = (await create(served))["token"]
        guard = gateway_app(served.app, "ant_unused")
        assert isinstance(guard, Guard)
        asked = 0
        async with new_client(served.url, token) as bound:
            for method, path in sorted(routes_of(guard)):
                if method == "POST" and path in ("/mcp", "/tools/{name}"):
                    continue
                answer = await bound.request(method, path.replace("{", "").replace("}", ""), json={})
                assert answer.status_code == 403, (method, path)
                assert method == "HEAD" or answer.json()["error"]["code"] == "token_bound"
                asked += 1
        assert asked > 30


def routes_of(guard: Guard) -> set[tuple[str, str]]:
    """Method and path of everything that is served to callers who must be known, and of some that is not served."""
    found = {("GET", "/no-such-route"), ("GET", "/tools/session_status")}
    return found | {
        (method, address.path)
        for address in guard.addresses
        for method, endpoint in address.endpoints.items()
        if not endpoint.is_open
    }


@requirement("access:2")
async def test_a_token_ends_by_revocation_expiry_and_with_its_session(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        tokens = [await create(served, name=f"number {number}") for number in range(2)]
        tokens.append(await create(served, days=1))
        listed = (await served.client.get("/tokens")).json()
        assert {row["id"] for row in listed["tokens"]} == {token["id"] for token in tokens}
        assert not any("token" in row or "hash" in row for row in listed["tokens"])
        expiries: dict[str, int | None] = {row["id"]: row.get("expiresAt") for row in listed["tokens"]}
        assert expiries == {token["id"]: token.get("expiresAt") for token in tokens}
        assert tokens[2]["expiresAt"] == tokens[2]["createdAt"] + 86_400_000

        async def works(token: dict[str, Any]) -> bool:
            async with new_client(served.url, token["token"]) as bound:
                answer = await call(bound, "session_status")
                assert answer.status_code == 200 or code(answer) == (401, "bad_token")
                return answer.status_code == 200

        assert [await works(token) for token in tokens] == [True, True, True]
        wrong = tokens[0] | {"token": tokens[0]["token"][:-1] + ("1" if tokens[0]["token"][-1] == "0" else "0")}
        assert not await works(wrong)
        assert (await served.client.delete(f"/tokens/{tokens[0]['id']}")).status_code == 204
        assert code(await served.client.delete(f"/tokens/{tokens[0]['id']}")) == (404, "not_found")
        clock.pass_time(timedelta(days=1))
        assert [await works(token) for token in tokens] == [False, True, False]
        assert (await served.client.delete(f"/sessions/{KEY}")).status_code in (200, 204)
        assert not await works(tokens[1])
        await served.open(KEY)
        assert not await works(tokens[1]), "the new session of that key is another one"
        assert (await served.client.get("/tokens")).json()["count"] == 0


async def test_tokens_are_hashed_at_rest(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        secret = (await create(served))["token"]

        async def stored(query: Any) -> str:
            return repr(await query.fetch_all("SELECT * FROM tokens"))

        text = await served.app.database.read(stored)
        assert secret.rpartition("_")[0] in text and secret.rpartition("_")[2] not in text


async def test_tokens_are_for_sessions_that_exist_and_for_the_owner(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        missing = await served.client.post("/tokens", json={"sessionKey": "agent:main:cli:nobody"})
        assert code(missing) == (404, "not_found")
        token = (await create(served))["token"]
        async with new_client(served.url, token) as bound:
            with anyio.fail_after(SECONDS):
                assert code(await bound.post("/tokens", json={"sessionKey": KEY})) == (403, "token_bound")
