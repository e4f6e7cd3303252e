"""What persons, tokens and open streams are shown of classified sessions: event by event, and no trace of the rest."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delay import Delta
from antiphon.domain.ids import RunId
from antiphon.domain.message import text_content
from antiphon.domain.session import NOWHERE
from antiphon.engine.sessions.inbox import Envelope
from antiphon.feed.follow import Permit
from antiphon.gateway.sse import event_view
from antiphon.policy.reach import Grant
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.gateway.served import Json, Served, following, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DESK = "agent:main:api:desk"
CANARY = "canary-7f3a"
AGENTS: Json = {"agents": {"list": [{"id": "main"}]}, "access": {"roles": {"user": {"agents": ["main"]}}}}


def ledger() -> str:
    """Reads the books."""
    return f"the books: {CANARY}"


def burn() -> str:
    """Fails with what it read."""
    raise RuntimeError(f"the books burn: {CANARY}")


PARTS = Parts(
    tools=[
        tool(ledger, name="books", effects=["reads"], classification={"level": "CONFIDENTIAL"}),
        tool(burn, name="burn", effects=["reads"], classification={"level": "CONFIDENTIAL"}),
    ]
)
BOOKS = to_call("books")


async def token_for(served: Served, **said: Any) -> str:
    answer = await served.client.post("/tokens", json=said)
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


async def let_in(served: Served, person: str, key: str) -> None:
    """The person takes part in the session from now on."""
    sessions = served.app.services.sessions
    principal = (await served.app.services.people.get(OWNER, person)).person.principal
    await sessions.open(principal, sessions.target(key), place=NOWHERE)


@asynccontextmanager
async def with_ann(
    open_home: OpenHome, parts: Parts = PARTS, **settings: Any
) -> AsyncGenerator[tuple[Served, httpx.AsyncClient]]:
    """A gateway, and Ann, a user who takes part in the desk."""
    async with serve(open_home, {**AGENTS, **settings}, parts) as served:
        assert (await served.client.post("/people", json={"name": "Ann"})).status_code == 201
        await served.open(DESK)
        await let_in(served, "ann", DESK)
        async with new_client(served.url, await token_for(served, personId="ann")) as ann:
            yield served, ann


async def clear(served: Served, person: str, clearance: Json | None) -> Json:
    answer = await served.client.patch(f"/people/{person}", json={"clearance": clearance})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def texts(client: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await client.get(f"/sessions/{DESK}/history", params={"limit": 1000, "includeTools": "1", **query})
    assert answer.status_code == 200, answer.text
    return ["".join(part.get("text", "") for part in each["content"]) for each in answer.json()["messages"]]


PLACES = {
    "history": f"/sessions/{DESK}/history?includeTools=1",
    "up to": f"/sessions/{DESK}/history?upTo=100",
    "transcript": f"/sessions/{DESK}/transcript",
    "row": f"/sessions/{DESK}",
    "rows": "/sessions",
    "tree": f"/sessions/{DESK}/tree",
    "trees": "/tree",
    "who": "/who",
    "search": f"/search?q={CANARY}",
    "runs": "/runs",
    "page": f"/page?session={DESK}",
    "page's list": "/page/sessions",
    "page's search": f"/page/sessions?search={CANARY}",
    "page's head": f"/page/header?session={DESK}",
    "page's entries": f"/page/older?session={DESK}&before=100",
    "page between": f"/page/between?session={DESK}&after=0&until=100",
}
SILENT = {"up to", "who", "page's head"}
"""Places that hold no word of the desk's last answer, whoever asks."""


async def told(client: httpx.AsyncClient, run_id: str) -> dict[str, str]:
    """Every answer about the desk that could hold what it says."""
    places = {**PLACES, "run": f"/runs/{run_id}", "run waited for": f"/runs/{run_id}?wait=0"}
    found: dict[str, str] = {}
    for name, path in places.items():
        answer = await client.get(path)
        assert answer.status_code == 200, (name, answer.text)
        found[name] = answer.text
    return found


async def streamed(client: httpx.AsyncClient, last: str, kind: str = "events") -> str:
    """All that a stream of the desk's log sends, up to the message with that text."""
    found: list[str] = []
    async with following(
        client, f"/sessions/{DESK}/{kind}{'?follow=1&includeTools=1' if kind == 'history' else ''}"
    ) as stream:
        while not found or last not in found[-1]:
            found.append(json.dumps((await stream.next()).data))
    return "\n".join(found)


@requirement("flow:3", "flow:8")
async def test_a_person_reads_a_session_that_rose_event_by_event(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await served.post(DESK, "hello")
        read = await served.post(DESK, BOOKS)
        assert CANARY in read["reply"]
        with anyio.fail_after(SECONDS):
            while CANARY not in (await served.client.get(PLACES["search"])).text:
                await anyio.sleep(0.01)
        whole, shown = await told(served.client, read["runId"]), await told(ann, read["runId"])
        assert {name for name, text in whole.items() if CANARY not in text} <= SILENT
        assert [name for name, text in shown.items() if CANARY in text] == []
        assert await texts(ann) == ["hello", "echo: hello", BOOKS, ""]
        run = (await ann.get(f"/runs/{read['runId']}")).json()
        assert run.keys() == {"runId", "sessionKey", "status", "createdAt", "withheld"} and run["withheld"] is True
        row, owners = (await ann.get(f"/sessions/{DESK}")).json(), (await served.client.get(f"/sessions/{DESK}")).json()
        assert "preview" not in row and row["description"] == "hello" and row["totalTokens"] == 0
        assert CANARY in owners["preview"] and owners["totalTokens"] > 0
        await served.append(DESK, "the end")
        assert (await ann.get(f"/sessions/{DESK}")).json()["preview"] == "the end"
        for kind in ("events", "history"):
            assert CANARY in await streamed(served.client, "the end", kind)
            seen = await streamed(ann, "the end", kind)
            assert CANARY not in seen and "CONFIDENTIAL" not in seen and "echo: hello" in seen
        assert (await clear(served, "ann", {"level": "CONFIDENTIAL"}))["clearance"] == {"level": "CONFIDENTIAL"}
        cleared = await told(ann, read["runId"])
        at_least = {"history", "transcript", "search", "run", "run waited for", "runs", "page", "page between"}
        assert {name for name, text in cleared.items() if CANARY in text} >= at_least
        assert CANARY in await streamed(ann, "the end")
        assert "clearance" not in await clear(served, "ann", None)
        assert CANARY not in await streamed(ann, "the end")


@requirement("flow:3", "flow:4")
async def test_answers_that_wait_are_withheld_whole(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        for asked in (BOOKS, to_call("burn"), f"{BOOKS}\n!fail {CANARY}"):
            answer = await ann.post(f"/sessions/{DESK}/messages?wait={SECONDS}", json={"text": asked})
            assert answer.json().items() >= {"status": "ok", "withheld": True}.items(), asked
            assert not answer.json().keys() & {"reply", "error", "code"}
            body = {"text": asked}
            async with following(ann, f"/sessions/{DESK}/messages?stream=1", body=body) as stream:
                events = await stream.until("run")
            assert events[-1].data == {"runId": events[0].data["runId"], "status": "ok", "withheld": True}
            assert CANARY not in json.dumps([event.data for event in events[1:] if event.data.get("role") != "user"])
            await clear(served, "ann", {"level": "CONFIDENTIAL"})
            answer = await ann.post(f"/sessions/{DESK}/messages?wait={SECONDS}", json={"text": asked})
            assert CANARY in answer.text and "withheld" not in answer.json()
            await clear(served, "ann", None)


@requirement("flow:3")
async def test_an_open_stream_follows_a_clearance_that_changes(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await clear(served, "ann", {"level": "CONFIDENTIAL"})
        async with following(ann, f"/sessions/{DESK}/events") as stream:
            await served.post(DESK, BOOKS)
            seen = await stream.until("run_finished")
            assert CANARY in json.dumps([event.data for event in seen])
            await clear(served, "ann", {"level": "INTERNAL"})
            await served.post(DESK, BOOKS)
            await served.append(DESK, "the end")
            rest = await stream.rest()  # its credential has other rights than when it began
            assert CANARY not in json.dumps([event.data for event in rest])
        assert CANARY not in await streamed(ann, "the end")


@requirement("flow:3", "access:2")
async def test_a_token_reads_no_more_than_its_clearance(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, _):
        read = await served.post(DESK, BOOKS)
        await served.append(DESK, "the end")
        created = await served.client.post(
            "/tokens",
            json={"personId": "owner", "scopes": ["sessions.read", "admin"], "clearance": {"level": "INTERNAL"}},
        )
        assert created.json()["clearance"] == {"level": "INTERNAL", "person": "people"}
        async with new_client(served.url, created.json()["token"]) as program:
            shown = await told(program, read["runId"])
            assert [name for name, text in shown.items() if CANARY in text] == []
            assert CANARY not in await streamed(program, "the end")
            refused = (
                ("POST", "/tokens", {"personId": "owner", "scopes": ["sessions.read"]}),
                (
                    "POST",
                    "/tokens",
                    {"personId": "owner", "scopes": ["sessions.read"], "clearance": {"level": "RESTRICTED"}},
                ),
                ("POST", "/tokens", {"sessionKey": DESK}),
                ("PATCH", "/people/ann", {"clearance": {"level": "CONFIDENTIAL"}}),
            )
            for method, path, body in refused:
                answer = await program.request(method, path, json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "clearance_beyond_maker"), body
            lesser = {"personId": "owner", "scopes": ["sessions.read"], "clearance": {"level": "PUBLIC"}}
            assert (await program.post("/tokens", json=lesser)).status_code == 201
        rows = (await served.client.get("/tokens")).json()["tokens"]
        assert [row["clearance"]["level"] for row in rows if "clearance" in row] == ["INTERNAL", "PUBLIC"]


@requirement("flow:3", "access:2")
async def test_a_session_with_data_above_a_caller_answers_no_calls_of_theirs(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, _):
        scopes = ["sessions.read", "sessions.write", "admin"]
        bound = await token_for(served, sessionKey=DESK, clearance={"level": "PUBLIC"})
        async with (
            new_client(served.url, await token_for(served, personId="ann", scopes=scopes)) as ann,
            new_client(served.url, bound) as program,
        ):
            body = {"sessionKey": DESK, "arguments": {"sessionKey": "current"}}
            for client in (ann, program):
                assert (await client.post("/tools/sessions_history", json=body)).json().get("messages") == []
            await served.post(DESK, BOOKS)
            for client in (ann, program):
                answer = await client.post("/tools/sessions_history", json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_cleared"), answer.text
            await clear(served, "ann", {"level": "CONFIDENTIAL"})
            assert CANARY in (await ann.post("/tools/sessions_history", json=body)).text


@requirement("flow:1", "flow:3")
async def test_a_clearance_names_levels_and_compartments_that_exist(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, _):
        for clearance, code in (
            ({"level": "confidential"}, "invalid_level"),
            ({"level": "SECRET"}, "invalid_level"),
            ({"level": "INTERNAL", "compartments": ["health"]}, "unknown_compartment"),
            ({"level": "INTERNAL", "person": "person:bo"}, "invalid_classification"),
            ({"level": "INTERNAL", "person": "bo"}, "invalid_classification"),
        ):
            answer = await served.client.patch("/people/ann", json={"clearance": clearance})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), clearance
        for clearance, code in (
            ({"level": "internal"}, "invalid_level"),
            ({"level": "INTERNAL", "compartments": ["health"]}, "unknown_compartment"),
        ):
            answer = await served.client.post("/tokens", json={"personId": "ann", "clearance": clearance})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), clearance
        assert (await served.client.post("/compartments", json={"name": "health"})).status_code == 200
        everybodys = {"level": "INTERNAL", "compartments": ["health"], "person": "people"}
        assert (await clear(served, "ann", everybodys))["clearance"] == everybodys
        shown = (await served.client.get("/people")).json()["people"]
        assert [person["clearance"] for person in shown if "clearance" in person] == [everybodys]


@requirement("flow:2", "flow:3")
async def test_a_piece_of_a_reply_is_as_secret_as_its_prompt(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, _):
        services = served.app.services
        ann = (await services.people.get(OWNER, "ann")).person.principal
        found = await services.sessions.get(ann, services.sessions.target(DESK))
        view = event_view(services.names)
        async with services.hub.follow(
            Permit(found.grant), found.session.last_seq, view, on_stall=lambda: None
        ) as reader:
            for piece, made_of in ((CANARY, Classification(Level.CONFIDENTIAL)), ("plain", PUBLIC)):
                delta = Delta(RunId("run_1"), found.session.last_seq, piece, made_of)
                services.hub.publish_delta(found.session.row, delta)
            with anyio.fail_after(SECONDS):
                frame = await reader.next()
        assert b"plain" in frame and CANARY.encode() not in frame


@requirement("flow:3")
async def test_an_open_stream_decides_anew_once_rights_have_changed(open_home: OpenHome) -> None:
    """Before it sends anything more, and not only when its credential is looked at."""
    async with with_ann(open_home) as (served, _):
        services = served.app.services
        await clear(served, "ann", {"level": "CONFIDENTIAL"})
        ann = (await services.people.get(OWNER, "ann")).person.principal
        target = services.sessions.target(DESK)
        found = await services.sessions.get(ann, target)

        async def decide() -> Grant:
            return (await services.sessions.get(ann, target)).grant

        await served.post(DESK, BOOKS)
        view = event_view(services.names)
        following_it = services.hub.follow(
            Permit(found.grant, decide), found.session.last_seq, view, on_stall=lambda: None
        )
        async with following_it as reader:
            await clear(served, "ann", None)
            await served.append(DESK, "the end")
            seen = b""
            with anyio.fail_after(SECONDS):
                while b"the end" not in seen:
                    seen += await reader.next()
        assert CANARY.encode() not in seen and b"call books" in seen


@requirement("flow:1")
async def test_a_merged_persons_data_is_the_survivors(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await served.client.post("/people", json={"name": "Anna"})
        inbox, target = served.app.services.inbox, served.app.services.sessions.target(DESK)
        route = Classification(Level.PUBLIC, person="person:anna")
        await inbox.post(OWNER, target, text_content(f"hers: {CANARY}"), envelope=Envelope(classification=route))
        assert CANARY not in (await ann.get(PLACES["history"])).text
        assert (await served.client.post("/people/anna/merge", json={"into": "ann"})).status_code == 200
        assert CANARY in (await ann.get(PLACES["history"])).text


@requirement("flow:1", "flow:3")
async def test_messages_and_events_name_their_compartments(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, _):
        await served.client.post("/compartments", json={"name": "health"})
        inbox, target = served.app.services.inbox, served.app.services.sessions.target(DESK)
        route = Classification(Level.INTERNAL, 1)
        posted = await inbox.post(OWNER, target, text_content("a pill"), envelope=Envelope(classification=route))
        assert posted.run_id is not None
        await served.app.services.waits.wait(posted.run_id, timedelta(seconds=SECONDS))
        named = {"level": "INTERNAL", "compartments": ["health"], "integrity": "trusted"}
        messages = await served.messages(DESK)
        assert [each.get("classification") for each in messages] == [named, named]
        transcript = (await served.client.get(f"/sessions/{DESK}/transcript")).text.splitlines()
        ended = next(event for event in map(json.loads, transcript) if event["type"] == "run_finished")
        assert ended["classification"] == named
        await served.append(DESK, "the end")
        assert '"health"' in await streamed(served.client, "the end")


@requirement("flow:7")
async def test_logs_and_states_of_the_gateway_hold_no_content(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with with_ann(open_home) as (served, ann):
        for asked in (BOOKS, to_call("burn"), f"{BOOKS}\n!fail {CANARY}"):
            for client in (served.client, ann):
                await client.post(f"/sessions/{DESK}/messages?wait={SECONDS}", json={"text": asked})
        for path in ("/health", "/ready"):
            assert CANARY not in (await served.client.get(path)).text
    assert [
        record for record in caplog.records if CANARY in str(vars(record)) and record.name.startswith("antiphon")
    ] == []
