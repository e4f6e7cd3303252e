"""Approval requests over HTTP and at the command line, and what streams and rows say of them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Integrity, Level
from antiphon.domain.message import text_content
from antiphon.engine.sessions.inbox import Envelope
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_send
from tests.gateway.served import Json, Served, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:api:desk"
CALL = to_call("wipe", name="old")


def wipe(name: str) -> str:
    """Deletes."""
    return f"wiped {name}"


@asynccontextmanager
async def desk(open_home: OpenHome) -> AsyncGenerator[Served]:
    async with serve(open_home, parts=Parts(tools=[tool(wipe, effects=["deletes"])])) as served:
        await served.open(KEY)
        yield served


async def asked(served: Served, text: str = CALL) -> tuple[Json, Json]:
    """What posting answered, and the request that follows from it."""
    posted = (await served.client.post(f"/sessions/{KEY}/messages", json={"text": text})).json()
    with anyio.fail_after(SECONDS):
        while not (found := (await served.client.get("/approvals", params={"status": "pending"})).json())["count"]:
            await anyio.sleep(0.01)
    return posted, found["approvals"][0]


async def decide(served: Served, approval: Json, body: Json) -> Any:
    return await served.client.post(f"/approvals/{approval['approvalId']}", json=body)


@requirement("approvals:3", "gateway:4", "list:2")
async def test_a_request_is_listed_decided_once_and_waited_for(open_home: OpenHome) -> None:
    async with desk(open_home) as served:
        posted, approval = await asked(served)
        assert approval["sessionKey"] == KEY and approval["runId"] == posted["runId"]
        assert approval["status"] == "pending" and approval["principal"] == "person:owner"
        (call,) = approval["calls"]
        assert (call["callId"], call["tool"], call["arguments"]) == ("1", "wipe", '{"name":"old"}')
        run = (await served.client.get(f"/runs/{posted['runId']}")).json()
        assert (run["status"], run["approvalId"]) == ("awaiting_approval", approval["approvalId"])
        (row,) = (await served.client.get("/sessions")).json()["sessions"]
        assert (row["status"], row["pendingApprovals"]) == ("awaiting_approval", 1)
        (busy,) = (await served.client.get("/who")).json()["sessions"]
        assert (busy["run"]["status"], busy["pendingApprovals"]) == ("awaiting_approval", 1)
        path = f"/approvals/{approval['approvalId']}"
        assert (await served.client.get(path, params={"wait": 0})).json() == approval
        waited: list[Json] = []
        answers: list[Any] = []

        async def wait() -> None:
            waited.append((await served.client.get(path, params={"wait": SECONDS / 2})).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            answers.append(await decide(served, approval, {"decision": "once", "note": "go on"}))
        assert answers[0].status_code == 200 and answers[0].json()["status"] == "decided"
        assert waited[0]["calls"][0]["decision"] == "once" and waited[0]["decidedBy"] == "person:owner"
        assert waited[0]["decidedByName"] == "owner"
        run = (await served.client.get(f"/runs/{posted['runId']}", params={"wait": SECONDS})).json()
        assert (run["status"], run["reply"]) == ("ok", "wiped old") and "approvalId" not in run
        late = await decide(served, approval, {"decision": "deny"})
        assert late.status_code == 409 and late.json()["error"]["code"] == "approval_decided"
        (row,) = (await served.client.get("/sessions")).json()["sessions"]
        assert "pendingApprovals" not in row and row["status"] == "idle"


@requirement("approvals:3")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"decision": "once", "decisions": [{"callId": "1", "decision": "deny"}]}, 400, "invalid_request"),
        ({"decision": "ever"}, 422, "invalid_request"),
        ({"decision": "always", "fields": ["other"]}, 400, "invalid_always"),
        ({"decision": "once", "fields": ["name"]}, 400, "invalid_always"),
        ({"decisions": []}, 400, "unknown_call"),
        ({"decisions": [{"callId": "2", "decision": "once"}]}, 400, "unknown_call"),
        ({"decisions": [{"callId": "1", "decision": "once"}] * 2}, 400, "invalid_request"),
        ({"decision": "once", "note": "x" * 5_000}, 413, "note_too_large"),
    ],
)
async def test_a_wrong_decision_is_refused_and_decides_nothing(
    open_home: OpenHome, body: Json, status: int, code: str
) -> None:
    async with desk(open_home) as served:
        _, approval = await asked(served)
        answer = await decide(served, approval, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert (await served.client.get(f"/approvals/{approval['approvalId']}")).json() == approval
        missing = await served.client.post("/approvals/appr_none", json={"decision": "once"})
        assert missing.status_code == 404


@requirement("approvals:3")
async def test_a_token_of_a_session_decides_nothing(open_home: OpenHome) -> None:
    async with desk(open_home) as served:
        _, approval = await asked(served)
        token = (await served.client.post("/tokens", json={"sessionKey": KEY})).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        path = f"/approvals/{approval['approvalId']}"
        answer = await served.client.post(path, json={"decision": "once"}, headers=headers)
        assert answer.status_code == 403
        assert (await served.client.get(path)).json()["status"] == "pending"


@requirement("approvals:4", "gateway:1")
async def test_a_follower_sees_the_request_and_the_decision(open_home: OpenHome) -> None:
    async with desk(open_home) as served:
        _, approval = await asked(served)
        await decide(served, approval, {"decision": "deny", "note": "keep it"})
        with anyio.fail_after(SECONDS):
            path = f"/sessions/{KEY}/history"
            text = ""
            async with served.client.stream("GET", path, params={"follow": 1, "after": 0}) as stream:
                async for piece in stream.aiter_text():
                    text += piece
                    if text.count("event: approval") == 2:
                        break
        assert "approval_requested" in text and "approval_resolved" in text and "keep it" in text


@requirement("approvals:5", "gateway:4")
async def test_the_result_of_an_approved_call_from_outside_is_waited_for_at_its_request(open_home: OpenHome) -> None:
    async with desk(open_home) as served:
        call: Json = {"sessionKey": KEY, "arguments": {"name": "old"}}
        headers = {"Idempotency-Key": "k"}
        asking = (await served.client.post("/tools/wipe", json=call, headers=headers)).json()
        assert asking["status"] == "pending"
        path = f"/approvals/{asking['approvalId']}"
        waited: list[Json] = []

        async def wait() -> None:
            waited.append((await served.client.get(path, params={"wait": SECONDS / 2})).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await served.client.post(path, json={"decision": "once"})
        assert waited[0]["status"] == "decided" and waited[0]["result"]["result"] == "wiped old"
        again = (await served.client.post("/tools/wipe", json=call, headers=headers)).json()
        assert again == waited[0]["result"]


@requirement("approvals:3", "gateway:4")
async def test_what_is_allowed_always_is_listed_and_revoked(open_home: OpenHome) -> None:
    async with desk(open_home) as served:
        _, approval = await asked(served)
        body = {"decisions": [{"callId": "1", "decision": "always", "fields": ["name"]}]}
        assert (await decide(served, approval, body)).json()["calls"][0]["decision"] == "always"
        (standing,) = (await served.client.get("/standing-approvals")).json()["standingApprovals"]
        assert (standing["tool"], standing["fields"], standing["arguments"]) == ("wipe", ["name"], '{"name":"old"}')
        assert (standing["principal"], standing["createdBy"]) == ("person:owner", "person:owner")
        call: Json = {"sessionKey": KEY, "arguments": {"name": "old"}}
        assert (await served.client.post("/tools/wipe", json=call)).json()["result"] == "wiped old"
        path = f"/standing-approvals/{standing['standingId']}"
        assert (await served.client.delete(path)).json() == standing
        assert (await served.client.delete(path)).status_code == 404
        assert (await served.client.get("/standing-approvals")).json() == {"count": 0, "standingApprovals": []}
        assert (await served.client.post("/tools/wipe", json=call)).json()["status"] == "pending"


@requirement("approvals:1", "flow:2")
async def test_deciders_see_what_a_call_was_made_of(open_home: OpenHome) -> None:
    """Nothing is said of an owner's public words."""
    level: Json = {"level": "CONFIDENTIAL"}
    async with serve(open_home, parts=Parts(tools=[tool(wipe, effects=["deletes"], clearance=level)])) as served:
        await served.open(KEY)
        _, approval = await asked(served)
        assert "classification" not in approval
        await decide(served, approval, {"decision": "deny"})
        target = served.app.services.sessions.target(KEY)
        envelope = Envelope(classification=Classification(Level.CONFIDENTIAL, integrity=Integrity.UNTRUSTED))
        await served.app.services.inbox.post(OWNER, target, text_content(CALL), envelope=envelope)
        _, approval = await asked(served, "hello")
        assert approval["classification"] == {**level, "integrity": "untrusted"}


@requirement("flow:11", "approvals:3")
async def test_a_release_is_read_whole_and_answered_once(open_home: OpenHome) -> None:
    level: Json = {"level": "CONFIDENTIAL"}
    settings: Json = {"tools": {"sessions": {"visibility": "agent"}}}
    parts = Parts(tools=[tool(wipe, name="books", effects=["reads"], classification=level)])
    async with serve(open_home, settings, parts) as served:
        await served.open(KEY)
        await served.open("agent:main:api:peer")
        words = "Dinner is at eight.\n!say REPLY_SKIP"
        text = f"{to_call('books', name='x')}\n{to_send(words, sessionKey='agent:main:api:peer')}"
        posted, approval = await asked(served, text)
        (call,) = approval["calls"]
        assert call["release"] == {
            "mayStand": False,
            "whose": "Not for everyone",
            "to": "session agent:main:api:peer",
            "text": words,
            "sha256": call["release"]["sha256"],
        }
        refused = await decide(served, approval, {"decision": "always"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_always")
        assert (await decide(served, approval, {"decision": "once"})).status_code == 200
        assert (await decide(served, approval, {"decision": "once"})).status_code == 409
        ended = (await served.client.get(f"/runs/{posted['runId']}", params={"wait": 10})).json()
        assert json.loads(ended["reply"])["status"] == "ok"
