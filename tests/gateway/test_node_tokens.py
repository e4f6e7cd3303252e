"""The token of a node: it posts to the session of that node, and does nothing else."""

import httpx
import pytest

from antiphon.domain.machine_identities import identity_of_node
from antiphon.domain.person import PersonId, PersonRole
from antiphon.store import people
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import find_session, read_log
from tests.gateway.served import Json, Served, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

AGENTS: Json = {"agents": {"list": [{"id": "main"}, {"id": "porter"}]}}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def new_token(served: Served, **said: object) -> Json:
    answer = await served.client.post("/tokens", json=said)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def say(client: httpx.AsyncClient, session: str, text: str = "hello", **said: object) -> httpx.Response:
    return await client.post(f"/sessions/{session}/messages?wait={SECONDS}", json={"text": text, **said})


@requirement("keys:1", "keys:4", "keys:7", "access:2", "sessions:1")
async def test_a_node_posts_to_its_own_session_as_a_guest(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        row = await new_token(served, nodeId="kitchen", agentId="porter", name="thermometer", days=1)
        guest = identity_of_node("kitchen").person_id
        shown = {name: row[name] for name in ("kind", "sessionKey", "personId", "scopes", "name")}
        assert shown == {
            "kind": "node",
            "sessionKey": "node-kitchen",
            "personId": guest,
            "scopes": ["sessions.write"],
            "name": "thermometer",
        }
        session = await find_session(served.app, "node-kitchen")
        assert (session.agent_id, session.id.partition(":")[0], session.message_count) == ("porter", "node", 0)
        assert (session.source.kind, session.source.trigger_id) == ("node", "kitchen")
        listed = (await served.client.get("/tokens")).json()["tokens"]
        assert listed == [{name: value for name, value in row.items() if name != "token"}]
        person = (await served.client.get(f"/people/{guest}")).json()
        assert (person["name"], person["role"]) == ("node kitchen", PersonRole.GUEST)
        async with new_client(served.url, row["token"]) as node:
            answer = await say(node, "node-kitchen", "21 degrees", messageId="m-1")
            assert (answer.json()["status"], answer.json()["reply"]) == ("ok", "echo: 21 degrees")
            again = await say(node, "node-kitchen", "21 degrees", messageId="m-1")
            assert again.json()["runId"] == answer.json()["runId"]
        (event,) = [event for event in await read_log(served.app, "node-kitchen") if event.type == "user_message"]
        assert event.actor == f"person:{guest}"
        assert (await served.client.get("/sessions/node-kitchen")).json()["kind"] == "node"


@requirement("access:2", "answers:2")
async def test_the_token_of_a_node_does_nothing_else(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        for key in ("node-attic", "main"):
            await served.open(key)
        row = await new_token(served, nodeId="kitchen")
        await new_token(served, nodeId="cellar")
        await served.post("node-cellar", "words of the owner")
        async with new_client(served.url, row["token"]) as node:
            run = (await say(node, "node-kitchen")).json()["runId"]
            id = (await find_session(served.app, "node-kitchen")).id
            others = ("node-attic", "node-cellar", "main", "agent:main:main", "node-nobody", "node-kitchen:x", id)
            told = {other: await say(node, other) for other in others}
            assert {code_of(answer) for answer in told.values()} == {(404, "not_found")}
            alike = {answer.text.replace(other, "NAME") for other, answer in told.items()}
            assert len(alike) == 1, "what there is and what there is not look alike"
            assert (await say(node, "Node-kitchen")).json()["error"]["code"] == "invalid_key"
            asked: list[tuple[str, str, Json | None]] = [
                ("GET", "/sessions", None),
                ("GET", "/sessions/node-kitchen", None),
                ("GET", "/sessions/node-kitchen/history", None),
                ("GET", f"/runs/{run}", None),
                ("POST", f"/runs/{run}/cancel", {}),
                ("POST", "/sessions/node-kitchen/messages?append=1", {"text": "x"}),
                ("POST", "/sessions/node-kitchen/reset", {}),
                ("POST", "/sessions", {"key": "node-kitchen"}),
                ("POST", "/tools/session_status", {"arguments": {}}),
                ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
                ("POST", "/tokens", {"nodeId": "kitchen"}),
                ("GET", "/openapi.json", None),
                ("GET", "/no/such/place", None),
            ]
            for method, path, body in asked:
                answer = await node.request(method, path, json=body)
                assert code_of(answer) == (403, "token_bound"), (method, path)
            assert code_of(await say(node, "node-kitchen", deliver=True)) == (403, "forbidden")
            assert code_of(await say(node, "node-kitchen", sender={"id": "7"})) == (400, "invalid_message")


@requirement("access:2")
async def test_a_node_loses_its_token_when_it_is_revoked_replaced_suspended_or_its_session_deleted(
    open_home: OpenHome,
) -> None:
    async with serve(open_home) as served:
        first, second = [await new_token(served, nodeId="kitchen") for _ in range(2)]
        async with new_client(served.url, first["token"]) as node, new_client(served.url, second["token"]) as other:
            assert (await say(node, "node-kitchen")).status_code == 200
            assert (await served.client.delete(f"/tokens/{first['id']}")).status_code == 204
            assert code_of(await say(node, "node-kitchen")) == (401, "bad_token")
            assert (await say(other, "node-kitchen")).status_code == 200
            rotated = (await served.client.post(f"/tokens/{second['id']}/rotate")).json()["token"]
            assert code_of(await say(other, "node-kitchen")) == (401, "bad_token")
        async with new_client(served.url, rotated) as node:
            person = f"/people/{second['personId']}"
            await served.client.post(f"{person}/suspend", json={})
            assert code_of(await say(node, "node-kitchen")) == (403, "suspended")
            await served.client.post(f"{person}/resume", json={})
            assert (await say(node, "node-kitchen")).status_code == 200
            assert (await served.client.delete("/sessions/node-kitchen")).status_code == 200
            assert code_of(await say(node, "node-kitchen")) == (401, "bad_token")
            assert (await served.client.get("/tokens")).json()["count"] == 0


@requirement("access:2", "keys:4")
async def test_a_token_for_a_node_that_cannot_be_is_refused_and_leaves_nothing(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:

        async def refused(**body: object) -> tuple[int, str]:
            return code_of(await served.client.post("/tokens", json=body))

        for id in ("..", "a:b", "Kitchen", "k\N{CYRILLIC SMALL LETTER I}tchen", "a b", "-x", "a/b", "x\n"):
            assert await refused(nodeId=id) == (400, "invalid_node"), id
        assert await refused(nodeId="x" * 65) == (422, "invalid_request")
        assert await refused(nodeId="kitchen", namespace="telegram") == (400, "invalid_request")
        assert await refused(nodeId="kitchen", scopes=["sessions.read"]) == (400, "invalid_request")
        assert await refused(personId="owner", agentId="main") == (400, "invalid_request")
        assert await refused(nodeId="kitchen", agentId="nobody") == (400, "unknown_agent")
        assert (await served.client.get("/sessions")).json()["count"] == 0
        await new_token(served, nodeId="kitchen", agentId="porter")
        assert await refused(nodeId="kitchen", agentId="main") == (409, "agent_mismatch")
        await new_token(served, nodeId="kitchen")
        assert (await served.client.get("/tokens")).json()["count"] == 2
        await served.client.post("/people", json={"name": "Ann"})
        person = await new_token(served, personId="ann")
        async with new_client(served.url, person["token"]) as ann:
            assert code_of(await ann.post("/tokens", json={"nodeId": "attic"})) == (403, "scope_missing")


@requirement("access:2", "access:3")
async def test_a_node_that_was_merged_into_its_owner_once_still_posts_to_its_session_alone(
    open_home: OpenHome,
) -> None:
    async with serve(open_home) as served:
        await served.open("main")
        row = await new_token(served, nodeId="kitchen")
        await served.app.database.run(people.merge, row["personId"], PersonId("owner"))
        async with new_client(served.url, row["token"]) as node:
            assert code_of(await say(node, "main")) == (404, "not_found")
            assert (await say(node, "node-kitchen")).status_code == 200
