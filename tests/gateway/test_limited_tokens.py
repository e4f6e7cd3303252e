"""An owner's token with a clearance learns from no operation what is above that clearance. Contract: flow 3."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState
from antiphon.domain.classification import Classification, Level
from antiphon.domain.session import DeliveryContext
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.engine.deliveries.outbox import name_of
from antiphon.gateway.operations.table import TABLE
from antiphon.store.database import Transaction
from antiphon.store.deliveries import NewDelivery, insert
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.gateway.asking import filled, request_of
from tests.gateway.served import Json, Served, new_client, serve
from tests.gateway.test_clearances import token_for
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

CANARY = "canary-5d21c7"
LEVEL: Json = {"level": "CONFIDENTIAL"}
SECRET = Classification(Level.CONFIDENTIAL)
DESK = "agent:main:api:desk"
STREAMS = ("sessions.events",)
"""Other tests follow them."""
LEAST_TOLD = 10
"""So many operations that only read tell the canary to an owner who may read everything."""
LAST = ("sessions.reset", "sessions.delete", "tokens.rotate-owner", "people.remove")
"""They end what the others ask about."""


def books() -> str:
    """Reads the books."""
    return CANARY


def burn(page: str) -> str:
    """Burns a page."""
    raise RuntimeError(f"burnt {page}")


PARTS = Parts(
    tools=[
        tool(books, effects=["reads"], classification=LEVEL),
        tool(burn, effects=["deletes"], classification=LEVEL, clearance=LEVEL),
    ],
    channels=[FakeChannel()],
)
SETTINGS: Json = {"agents": {"list": [{"id": "main", "classification": LEVEL}]}}


async def pending(served: Served) -> str:
    """The id of the open request."""
    with anyio.fail_after(SECONDS):
        while True:
            found = (await served.client.get("/approvals", params={"status": ApprovalState.PENDING.value})).json()
            if found["approvals"]:
                return found["approvals"][0]["approvalId"]
            await anyio.sleep(0.01)


async def keep_back(served: Served) -> str:
    """The id of a text that may not go to its place."""
    session = (await served.app.services.sessions.get(OWNER, served.app.services.sessions.target(DESK))).session

    async def store(tx: Transaction) -> str:
        delivery = NewDelivery(
            name=name_of("kept back"),
            session=session.row,
            incarnation=session.id,
            run_id=None,
            place=DeliveryContext(channel=NAME, to="x"),
            text=CANARY,
            made_of=SECRET,
        )
        return await insert(tx, delivery, served.app.services.clock.now_ms())

    delivery = await served.app.database.run(store, sessions=(session.row,))
    with anyio.fail_after(SECONDS):
        await served.app.deliverer.wait_idle()
    return delivery


@asynccontextmanager
async def vault(open_home: OpenHome) -> AsyncGenerator[tuple[Served, Json, httpx.AsyncClient]]:
    """A home with the canary wherever it can stand, the names of what holds it, and a client that may read nothing."""
    async with serve(open_home, SETTINGS, PARTS) as served:
        await served.open(DESK)
        ids: Json = {"key": DESK, "sessionKey": DESK, "deliveryId": await keep_back(served)}
        for text in (to_call("books"), f"!say {CANARY}", f"!fail {CANARY}"):
            ids["runId"] = (await served.post(DESK, text))["runId"]
        names = {"label": CANARY, "displayName": CANARY, "description": CANARY}
        (await served.client.patch(f"/sessions/{DESK}", json=names)).raise_for_status()
        spawn = {"sessionKey": DESK, "arguments": {"task": f"!say {CANARY}", "label": f"{CANARY} two"}}
        (await served.client.post("/tools/sessions_spawn", json=spawn)).raise_for_status()
        for page in (CANARY, f"{CANARY} two"):
            posted = await served.client.post(f"/sessions/{DESK}/messages", json={"text": to_call("burn", page=page)})
            ids["approvalId"] = await pending(served)
            if page == CANARY:
                decision = {"decision": "always", "note": CANARY}
                (await served.client.post(f"/approvals/{ids['approvalId']}", json=decision)).raise_for_status()
                await served.client.get(f"/runs/{posted.json()['runId']}", params={"wait": SECONDS})
        standing = (await served.client.get("/standing-approvals")).json()["standingApprovals"]
        ids["standingId"] = standing[0]["standingId"]
        token = await token_for(
            served, personId="owner", clearance={"level": "PUBLIC"}, scopes=[scope.value for scope in ALL_SCOPES]
        )
        async with new_client(served.url, token) as client:
            yield served, ids, client


@requirement("flow:3", "access:2", "approvals:3")
async def test_no_operation_tells_a_limited_token_what_is_above_it(open_home: OpenHome) -> None:
    async with vault(open_home) as (served, ids, client):
        asked: dict[str, Any] = {
            "includeTools": True,
            "limit": 100,
            "name": "sessions_history",
            "arguments": {"sessionKey": DESK, "includeTools": True},
        }
        told: list[str] = []
        for operation in sorted(TABLE.values(), key=lambda each: each.name in LAST):
            if operation.name in STREAMS:
                continue
            params = filled(operation, **ids, **asked)
            if operation.http.method == "GET":
                whole = await served.client.send(request_of(served.client, operation, params))
                told += [operation.name] * (CANARY in whole.text)
            answer = await client.send(request_of(client, operation, params))
            assert CANARY not in answer.text, (operation.name, answer.text)
        assert len(told) >= LEAST_TOLD, "else nothing was hidden"


@requirement("approvals:3", "answers:2")
async def test_what_is_allowed_always_is_hidden_from_a_limited_token(open_home: OpenHome) -> None:
    async with vault(open_home) as (served, ids, client):
        path = "/standing-approvals"
        assert (await client.get(path)).json()["count"] == 0
        told = [(await client.delete(f"{path}/{id}")).text.replace(id, "ID") for id in (ids["standingId"], "always_0")]
        assert told[0] == told[1]
        assert (await served.client.get(path)).json()["count"] == 1
