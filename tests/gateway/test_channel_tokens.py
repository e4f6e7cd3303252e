"""The token of a channel: confined to the sessions of its namespace, and speaking for senders there."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Denied, Invalid
from antiphon.domain.person import Identity
from antiphon.domain.session_ids import RESERVED_NAMESPACES, parse_namespace
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, until_indexed
from tests.gateway.served import Json, Served, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ROOM, ELSEWHERE, PREFIXED = "telegram:room-7", "api:elsewhere", "telegramx:room-7"
CHANNEL: Mapping[str, Any] = {"kind": "channel", "platform": "telegram"}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", {"code": ""})["code"]


@asynccontextmanager
async def channel(served: Served, namespace: str = "telegram", **said: object) -> AsyncGenerator[httpx.AsyncClient]:
    answer = await served.client.post("/tokens", json={"namespace": namespace, **said})
    assert answer.status_code == 201, answer.text
    async with new_client(served.url, answer.json()["token"]) as client:
        yield client


async def say(client: httpx.AsyncClient, session: str, sender: object, text: str = "hello") -> httpx.Response:
    body = {"text": text} if sender is None else {"text": text, "sender": sender}
    return await client.post(f"/sessions/{session}/messages?wait={SECONDS}", json=body)


def person_of(platform_id: str) -> str:
    return Identity(channel="telegram", account="default", platform_id=platform_id).person_id


@requirement("access:2")
async def test_the_token_of_a_channel_names_its_namespace_and_reads_and_writes_at_most(open_home: OpenHome) -> None:
    async with serve(open_home) as served:

        async def refused(**body: object) -> tuple[int, str]:
            return code_of(await served.client.post("/tokens", json=body))

        for namespace in ("main", "cron", "node-7", "api", "webhook", "Telegram", "telegram:", "a b"):
            assert await refused(namespace=namespace) == (400, "invalid_namespace"), namespace
        assert await refused(namespace="telegram", scopes=["sessions.read", "admin"]) == (400, "invalid_request")
        assert await refused(namespace="telegram", scopes=["approvals"]) == (400, "invalid_request")
        assert await refused(namespace="telegram", personId="owner") == (400, "invalid_request")
        assert await refused(scopes=["sessions.read"]) == (400, "invalid_request"), "no namespace at all"
        async with channel(served, name="bot"), channel(served, scopes=["sessions.read"]) as reader:
            assert code_of(await reader.post("/sessions", json={"sessionId": ROOM})) == (403, "scope_missing")
            listed = (await served.client.get("/tokens")).json()["tokens"]
            shown = [(row["kind"], row["namespace"], row["scopes"], row.get("name")) for row in listed]
            assert shown == [
                ("channel", "telegram", ["sessions.read", "sessions.write"], "bot"),
                ("channel", "telegram", ["sessions.read"], None),
            ]
            assert all("personId" not in row for row in listed)
            assert (await served.client.delete(f"/tokens/{listed[1]['id']}")).status_code == 204
            assert code_of(await reader.get("/sessions")) == (401, "bad_token")


@requirement("access:2")
def test_no_channel_gets_a_namespace_of_other_sessions() -> None:
    for namespace in RESERVED_NAMESPACES:
        with pytest.raises(Invalid):
            parse_namespace(namespace)
    for namespace in ("telegram", "my_bot-2", "7"):
        assert parse_namespace(namespace) == namespace


@requirement("access:2", "keys:7")
async def test_nobody_makes_a_session_or_a_token_of_peers(open_home: OpenHome) -> None:
    """Other people's agents get these for themselves: `agent:<client>:peer:<name>`, and `peer:<client>-<id>`."""
    peers = {"kind": "channel", "platform": "peer"}
    async with serve(open_home) as served:
        for namespace in ("peer", "claude", "codex", "gemini", "opencode", "mcp"):
            answer = await served.client.post("/tokens", json={"namespace": namespace})
            assert code_of(answer) == (400, "invalid_namespace"), namespace
        for body in (
            {"sessionId": "peer:claude-1"},
            {"key": "agent:main:peer:one"},
            {"key": "agent:main:peer:direct:one"},
            {"key": "agent:main:main", "sessionId": "peer:claude-1"},
            {"source": peers},
            {"key": "agent:main:main", "source": peers},
        ):
            answer = await served.client.post("/sessions", json=body)
            assert code_of(answer) in {(403, "reserved"), (400, "invalid_request")}, (body, answer.text)
        with pytest.raises(Denied, match="reserved"):
            await served.app.services.sessions.open(OWNER, served.app.services.sessions.target("peer:claude-1"))
        assert (await served.client.get("/sessions")).json()["sessions"] == []
        assert [each for each in (await served.client.get("/tokens")).json()["tokens"] if "namespace" in each] == []


@requirement("access:2", "answers:5")
async def test_a_loud_sender_does_not_use_up_the_share_of_the_channel(open_home: OpenHome) -> None:
    settings = {"limits": {"guest": {"requestsPerMinute": 60, "burst": 2}}}
    parts = Parts(clock=ManualClock())
    async with serve(open_home, settings, parts) as served, channel(served) as bot:
        await bot.post("/sessions", json={"sessionId": ROOM})
        loud = [(await say(bot, ROOM, {"id": "eve"})).status_code for _ in range(30)]
        assert loud == [200] * 2 + [429] * 28
        assert [(await say(bot, ROOM, {"id": id})).status_code for id in ("bob", "ann")] == [200, 200]


@requirement("access:2", "access:3", "keys:4")
async def test_a_channel_speaks_for_each_sender_with_that_persons_rights(open_home: OpenHome) -> None:
    async with serve(open_home) as served, channel(served) as bot:
        opened = await bot.post("/sessions", json={"sessionId": ROOM})
        assert (opened.status_code, opened.json()["sessionId"]) == (201, ROOM)
        assert (await say(bot, ROOM, {"id": "42", "name": "Eve"})).json()["status"] == "ok"
        eve = (await served.client.get(f"/people/{person_of('42')}")).json()
        assert (eve["name"], eve["role"]) == ("Eve", "guest")
        (identity,) = eve["identities"]
        assert identity.pop("seenAt") and identity == {"channel": "telegram", "account": "default", "platformId": "42"}
        renamed = await say(bot, ROOM, {"id": "42", "name": "Adam"})
        assert renamed.json()["status"] == "ok"
        people = (await served.client.get("/people")).json()
        assert people["count"] == 2, "a name does not make a person"

        await served.client.post("/people", json={"name": "Ann"})
        await say(bot, ROOM, {"id": "7"})
        assert (await served.client.post(f"/people/{person_of('7')}/merge", json={"into": "ann"})).status_code == 200
        run_id = (await say(bot, ROOM, {"id": "7"})).json()["runId"]
        events = (await served.client.get(f"/sessions/{ROOM}/transcript")).text
        assert '"actor":"person:ann"' in events and f'"actor":"person:{person_of("42")}"' in events
        assert (await bot.get(f"/runs/{run_id}")).json()["status"] == "ok"
        assert (await served.client.post("/people/ann/suspend", json={})).status_code == 200
        assert code_of(await say(bot, ROOM, {"id": "7"})) == (403, "suspended")
        for unreadable in ("", "4\0", "4\n", "4" * 201):
            assert (await say(bot, ROOM, {"id": unreadable})).status_code == 422
        assert (await say(bot, ROOM, {"id": "99", "name": "A\nB]\0"})).json()["status"] == "ok"
        assert "\n" not in (await served.client.get(f"/people/{person_of('99')}")).json()["name"]
        for sender in (None, "Eve"):
            assert code_of(await say(bot, ROOM, sender)) == (400, "invalid_message")
        for asked in (served.client, bot):
            body = {"text": "x", "sender": {"id": "42", "role": "owner"}}
            assert (await asked.post(f"/sessions/{ROOM}/messages", json=body)).status_code == 422
        assert code_of(await say(served.client, ROOM, {"id": "42"})) == (400, "invalid_message"), (
            "nobody else names one"
        )


@requirement("access:2", "answers:2")
async def test_a_channel_sees_and_changes_only_sessions_of_its_namespace(open_home: OpenHome) -> None:
    async with serve(open_home) as served, channel(served) as bot:
        for session in (ELSEWHERE, PREFIXED, "discord:room"):
            assert (await served.client.post("/sessions", json={"sessionId": session})).status_code == 201
            await served.post(session, "words elsewhere")
        assert (await bot.post("/sessions", json={"sessionId": ROOM})).status_code == 201
        await say(bot, ROOM, {"id": "42"}, "words here")
        await until_indexed(served.app)

        def keys(answer: httpx.Response) -> list[str]:
            return [row["key"] for row in answer.json()["sessions"]]

        room = f"agent:main:{ROOM}"
        assert keys(await bot.get("/sessions")) == [room]
        found = (await bot.get("/search?q=words")).json()
        assert {message["sessionKey"] for message in found["messages"]} == {room}
        assert {run["sessionKey"] for run in (await bot.get("/runs")).json()["runs"]} == {room}
        tree = (await bot.get("/tree")).text
        assert room in tree and "elsewhere" not in tree and "telegramx" not in tree and "discord" not in tree

        for session in (ELSEWHERE, PREFIXED, "main", "telegram:nobody"):
            told = {code_of(await bot.request(*asked)) for asked in _asked_of(session)}
            assert told == {(404, "not_found")}, session
            assert code_of(await say(bot, session, {"id": "42"})) == (404, "not_found")
        assert (await served.client.get(f"/people/{person_of('43')}")).status_code == 404

        outside = [
            await bot.post("/sessions", json=body)
            for body in (
                {"sessionId": ELSEWHERE},
                {"sessionId": "api:free"},
                {"key": "agent:main:main"},
                {"key": "agent:main:discord:group:free"},
                {"sessionId": PREFIXED},
                {},
            )
        ]
        assert {answer.content for answer in outside} == {outside[0].content}
        assert code_of(outside[0]) == (403, "forbidden")
        classified = {"sessionId": "telegram:secret", "clearance": {"level": "INTERNAL"}}
        assert code_of(await bot.post("/sessions", json=classified)) == (403, "forbidden")


def _asked_of(session: str) -> list[tuple[str, str]]:
    reads = [("GET", f"/sessions/{session}{rest}") for rest in ("", "/history", "/events", "/transcript", "/tree")]
    return [*reads, ("POST", f"/sessions/{session}/cancel"), ("POST", f"/sessions/{session}/reset")]


@requirement("access:2", "sessions:3", "keys:7")
async def test_what_a_channel_opens_stays_in_its_namespace(open_home: OpenHome) -> None:
    async with serve(open_home) as served, channel(served) as bot, channel(served, "discord") as other:
        group: Json = {"key": "agent:main:telegram:group:g1", "metadata": {"telegram_chat_id": "1"}}
        opened = (await bot.post("/sessions", json=group)).json()
        assert opened["sessionId"].startswith("telegram:") and opened["metadata"] == {"telegram_chat_id": "1"}
        again = (await bot.post("/sessions", json={**group, "metadata": {"topic": "tea"}})).json()
        assert again["metadata"] == {"telegram_chat_id": "1", "topic": "tea"}
        assert code_of(await other.post("/sessions", json={**group, "metadata": {"topic": "no"}})) == (403, "forbidden")
        assert (await served.client.get(f"/sessions/{group['key']}")).json()["metadata"]["topic"] == "tea"

        await bot.post("/sessions", json={"sessionId": ROOM})
        await say(bot, ROOM, {"id": "42"})
        assert (await bot.post(f"/sessions/{ROOM}/reset", json={})).status_code == 200
        present = (await bot.get(f"/sessions/agent:main:{ROOM}")).json()
        assert present["sessionId"] != ROOM and present["sessionId"].startswith("telegram:")
        assert code_of(await bot.delete(f"/sessions/agent:main:{ROOM}")) == (403, "forbidden")
        assert code_of(await bot.get("/who")) == (403, "forbidden")
        assert code_of(await bot.get("/approvals")) == (403, "scope_missing")
