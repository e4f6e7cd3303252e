"""Answers of calls from outside that come late: what the session holds by then decides, and what the tool brought."""

from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock
from tests.gateway.served import Json, new_client
from tests.gateway.test_clearances import BOOKS, CANARY, DESK, PARTS, token_for, with_ann
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

PEER = "agent:main:api:peer"
LOW = {"level": "PUBLIC"}
SCOPES = ["sessions.read", "sessions.write", "admin"]


async def call(client: httpx.AsyncClient, tool: str, key: str, **arguments: Any) -> httpx.Response:
    return await client.post(
        f"/tools/{tool}",
        json={"sessionKey": DESK, "arguments": arguments},
        headers={"Idempotency-Key": key},
    )


@requirement("flow:3", "flow:4", "tools:1")
@pytest.mark.parametrize("waited", [0, 2], ids=["at once", "once its rights are read anew"])
async def test_a_reply_that_comes_after_the_caller_rose_does_not_go_to_a_client_below(
    open_home: OpenHome, waited: int
) -> None:
    gates, clock = Gates(), ManualClock()
    settings: Json = {"tools": {"sessions": {"visibility": "agent"}}}
    parts = Parts(tools=[gates.tool, *PARTS.tools], clock=clock)
    async with with_ann(open_home, parts, **settings) as (served, _):
        await served.open(PEER)
        bound = await token_for(served, sessionKey=DESK, clearance=LOW)
        answers: list[httpx.Response] = []

        async def ask(client: httpx.AsyncClient) -> None:
            message = f"{wait_at('door')}\n{BOOKS}"
            answers.append(
                await call(
                    client, "sessions_send", "one", sessionKey=PEER, message=message, timeoutSeconds=int(SECONDS)
                )
            )

        async with new_client(served.url, bound) as program, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, program)
            await gates.until_reached("door")
            await served.post(DESK, BOOKS)
            clock.pass_time(timedelta(seconds=waited))
            gates.open("door")
        (answer,) = answers
        assert CANARY not in answer.text
        assert answer.json().get("status") == "withheld"


@requirement("flow:3", "flow:7", "approvals:5")
async def test_the_outcome_of_an_approved_call_does_not_go_to_a_client_below(open_home: OpenHome) -> None:
    settings: Json = {"tools": {"approval": {"require": ["books"]}}}
    async with with_ann(open_home, PARTS, **settings) as (served, _):
        bound = await token_for(served, sessionKey=DESK, clearance=LOW)
        async with new_client(served.url, bound) as program:
            asked = (await call(program, "books", "one")).json()
            assert asked["status"] == "pending", asked
            id = asked["approvalId"]
            path = f"/approvals/{id}"
            done = await served.client.post(path, json={"decision": "once"})
            assert done.status_code == 200, done.text
            with anyio.fail_after(SECONDS):
                while (answer := await call(program, "books", "one")).json()["status"] == "pending":
                    await anyio.sleep(0.01)
        assert CANARY not in answer.text
        assert answer.json().get("status") == "withheld"


def record(text: str) -> str:
    """Records something."""
    return f"recorded {text}"


@requirement("flow:3", "tools:1")
async def test_the_answer_of_an_earlier_call_does_not_go_to_a_client_below(open_home: OpenHome) -> None:
    bring = tool(record, name="bring", classification={"level": "CONFIDENTIAL"})
    keep = tool(record, name="keep", clearance={"level": "CONFIDENTIAL"})
    async with with_ann(open_home, Parts(tools=[bring, keep, *PARTS.tools])) as (served, _):
        bound = await token_for(served, sessionKey=DESK, clearance=LOW)
        async with new_client(served.url, bound) as program:
            await call(served.client, "bring", "one", text=CANARY)
            await served.post(DESK, BOOKS)
            kept = (await call(served.client, "keep", "two", text=CANARY)).json()
            assert kept["result"] == f"recorded {CANARY}", kept
            assert (await served.client.post(f"/sessions/{DESK}/reset", json={})).status_code == 200
            await call(served.client, "keep", "three", text="fish")
            told = [
                (await call(program, name, key, text=text)).json()
                for name, key, text in (("bring", "one", CANARY), ("keep", "two", CANARY), ("keep", "three", "fish"))
            ]
        assert told == [{"status": "withheld"}, {"status": "withheld"}, {"status": "ok", "result": "recorded fish"}]


@requirement("flow:3", "tools:1")
async def test_a_repetition_by_somebody_cleared_has_the_answer_that_was_withheld_at_first(open_home: OpenHome) -> None:
    bring = tool(record, name="bring", classification={"level": "CONFIDENTIAL"})
    async with with_ann(open_home, Parts(tools=[bring])) as (served, _):
        bound = await token_for(served, sessionKey=DESK, clearance=LOW)
        async with new_client(served.url, bound) as program:
            assert (await call(program, "bring", "one", text="fish")).json() == {"status": "withheld"}
        assert (await call(served.client, "bring", "one", text="fish")).json()["result"] == "recorded fish"
