"""Names of sessions and endings of runs above a reader: no list, no filter and no answer tells of them."""

import json
from typing import Any

import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.engine.sessions.sessions import SessionAttributes
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, wait_at
from tests.engine.gates import Gates
from tests.gateway.served import Json, Served
from tests.gateway.test_clearances import CANARY, DESK, PARTS, clear, let_in, with_ann

pytestmark = pytest.mark.anyio

VAULT = "agent:main:api:vault"
SECRET = Classification(Level.CONFIDENTIAL)


async def open_vault(served: Served) -> None:
    """A session whose name was made of secret data, and in which Ann takes part."""
    sessions = served.app.services.sessions
    await sessions.open(
        OWNER, sessions.target(VAULT), attributes=SessionAttributes(label=f"the {CANARY}", taint=SECRET)
    )
    await let_in(served, "ann", VAULT)


async def got(client: httpx.AsyncClient, path: str, **query: Any) -> Json:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@requirement("flow:3", "flow:8", "search:1")
async def test_no_filter_finds_a_session_by_a_name_that_is_above_the_reader(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await open_vault(served)
        for client, found in ((served.client, 1), (ann, 0)):
            assert len((await got(client, "/sessions", label=f"the {CANARY}"))["sessions"]) == found
            assert len((await got(client, "/sessions", search=CANARY))["sessions"]) == found
            assert len((await got(client, "/sessions", search="vault"))["sessions"]) == 1  # by its key
            assert len((await got(client, "/search", q=CANARY))["sessions"]) == found
        await clear(served, "ann", {"level": "CONFIDENTIAL"})
        assert len((await got(ann, "/sessions", search=CANARY))["sessions"]) == 1


@requirement("flow:3", "flow:4")
async def test_no_filter_tells_how_a_run_ended_that_is_above_the_reader(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await served.post(DESK, "hello")
        failed = await served.post(DESK, f"{to_call('books')}\n!fail {CANARY}")

        async def found(client: httpx.AsyncClient, *status: str) -> list[str]:
            answer = await got(client, "/runs", status=list(status))
            return [run["runId"] for run in answer["runs"]]

        assert await found(served.client, "error") == [failed["runId"]]
        assert await found(ann, "error") == await found(ann, "timeout", "cancelled") == []
        assert failed["runId"] in await found(ann, "ok") and len(await found(ann, "ok")) == 2
        assert len(await found(ann, "ok", "error", "queued")) == 2
        assert await found(ann, "queued", "running") == []


@requirement("flow:3", "flow:8")
async def test_who_is_at_work_does_not_name_a_session_whose_name_is_above_the_reader(open_home: OpenHome) -> None:
    gates = Gates()
    async with with_ann(open_home, Parts(tools=[gates.tool, *PARTS.tools])) as (served, ann):
        await open_vault(served)
        sent = await served.client.post(f"/sessions/{VAULT}/messages", json={"text": wait_at("door")})
        assert sent.status_code == 200, sent.text
        await gates.until_reached("door")
        whole, shown = [json.dumps(await got(client, "/who")) for client in (served.client, ann)]
        assert CANARY in whole and VAULT in whole
        assert CANARY not in shown and VAULT in shown
        for path in ("/tree", f"/sessions/{VAULT}/tree", "/sessions", f"/sessions/{VAULT}"):
            assert CANARY not in json.dumps(await got(ann, path)), path
        gates.open("door")
