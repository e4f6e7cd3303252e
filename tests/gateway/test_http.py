"""Every route over real HTTP: shapes, status codes, repetitions, and what hostile bodies do."""

import base64
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionId
from antiphon.gateway.responses import response_to
from antiphon.store import events as log
from antiphon.store.database import Transaction
from antiphon.testing import Call, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner
from tests.gateway.served import TOKEN, Json, Served, following, new_client, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

CHAT = "/sessions/api:chat"
POSTS = f"{CHAT}/messages"
MISSING = "Session not found: {!r}. `sessions list` shows the sessions that you may see."


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    async with serve(open_home) as served:
        yield served


@pytest.fixture
async def chat(served: Served) -> Served:
    await served.open("api:chat")
    return served


def error(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, type and code; the shape is the one of all errors."""
    body: Json = answer.json()
    assert set(body) == {"ok", "error"} and body["ok"] is False
    assert set(body["error"]) == {"type", "message", "code"} and body["error"]["message"]
    return answer.status_code, body["error"]["type"], body["error"]["code"]


def assert_no_nulls(text: str) -> None:
    """What is absent is left out."""
    assert re.findall(r'"\w+":\s*null', text) == []


@requirement("gateway:4", "sessions:1", "answers:4")
async def test_a_session_is_made_once_and_shown_as_a_row(served: Served) -> None:
    body = {"key": "api:chat", "label": "L", "metadata": {"a": 1}, "source": {"kind": "api", "platform": "web"}}
    made = await served.client.post("/sessions", json=body)
    again = await served.client.post("/sessions", json={"key": "api:chat", "metadata": {"b": [2]}})
    assert (made.status_code, again.status_code) == (201, 200)
    row: Json = again.json()
    times = ("updatedAt", "createdAt", "startedAt", "interactedAt")
    assert {name: row[name] for name in row if name not in (*times, "sessionId")} == {
        "key": "agent:main:api:chat",
        "kind": "other",
        "channel": "unknown",
        "agentId": "main",
        "source": {"kind": "api", "platform": "web", "type": "direct", "interactive": True},
        "label": "L",
        "status": "idle",
        "model": "offline",
        "contextTokens": 0,
        "totalTokens": 0,
        "messageCount": 0,
        "turnCount": 0,
        "lastSeq": 2,
        "systemSent": False,
        "abortedLastRun": False,
        "transcriptPath": "/sessions/api:chat/transcript",
        "metadata": {"a": 1, "b": [2]},
    }
    assert all(type(row[name]) is int and row[name] > 1_600_000_000_000 for name in times)
    for name in ("api:chat", "agent:main:api:chat", row["sessionId"], quote(row["sessionId"], safe="")):
        assert (await served.client.get(f"/sessions/{name}")).json() == row
    assert_no_nulls(again.text)


@requirement("gateway:4", "keys:4")
async def test_names_in_addresses_are_encoded_once_more(served: Served) -> None:
    key = "agent:main:direct:a%2Fb"
    row = (await served.client.post("/sessions", json={"key": key})).json()
    assert row["key"] == key
    found = await served.client.get("/sessions/agent:main:direct:a%252Fb")
    assert found.json() == row
    assert (await served.client.get(row["transcriptPath"])).status_code == 200
    assert error(await served.client.get("/sessions/agent:main:direct:a%2Fb"))[0] in (400, 404)
    for name in ("global", "unknown", "current", "parent", "no%20such", "%00", "%ff", "a" * 2000):
        assert error(await served.client.get(f"/sessions/{name}"))[0] in (400, 404), name


@requirement("gateway:4", "sessions:4")
async def test_main_comes_into_being_by_its_first_message(served: Served) -> None:
    assert error(await served.client.get("/sessions/main")) == (404, "not_found", "not_found")
    posted = await served.post("main", "hi")
    assert posted["sessionKey"] == "agent:main:main"
    assert (await served.client.get("/sessions/main")).json()["key"] == "agent:main:main"


@requirement("gateway:4")
async def test_a_session_may_be_named_by_an_id(served: Served) -> None:
    made = await served.client.post("/sessions", json={"sessionId": "cli:work"})
    assert (made.status_code, made.json()["sessionId"]) == (201, "cli:work")
    assert (await served.client.get("/sessions/cli:work")).json()["key"] == made.json()["key"]
    both = {"key": "api:x", "sessionId": "cli:x"}
    assert error(await served.client.post("/sessions", json=both)) == (400, "invalid_request", "invalid_request")
    drawn = [(await served.client.post("/sessions", json={})).json()["key"] for _ in range(2)]
    assert drawn[0] != drawn[1] and all(key.startswith("agent:main:api:") for key in drawn)


@requirement("answers:2", "gateway:1", "sessions:7")
async def test_what_never_was_and_what_was_deleted_get_the_same_bytes(chat: Served) -> None:
    requests: list[tuple[str, str, Json | None]] = [
        ("GET", "", None),
        ("PATCH", "", {"label": "x"}),
        ("DELETE", "", None),
        ("POST", "/messages", {"text": "x"}),
        ("POST", "/messages?append=1", {"text": "x"}),
        ("POST", "/messages?stream=1", {"text": "x"}),
        ("POST", "/reset", None),
        ("POST", "/cancel", None),
        ("POST", "/fork", {}),
        ("GET", "/history", None),
        ("GET", "/history?follow=1", None),
        ("GET", "/history?follow=1&after=1", None),
        ("GET", "/events", None),
        ("GET", "/transcript", None),
    ]
    bodies = set[bytes]()
    for name in ("api:gone", "api:none"):
        if name == "api:gone":
            await chat.open(name)
            await chat.append(name, "x")
            assert (await chat.client.delete(f"/sessions/{name}")).json() == {"ok": True, "deleted": True}
        for method, rest, body in requests:
            answer = await chat.client.request(method, f"/sessions/{name}{rest}", json=body)
            assert error(answer) == (404, "not_found", "not_found"), (method, rest)
            assert answer.json()["error"]["message"] == MISSING.format(name)
            bodies.add(answer.content.replace(name.encode(), b"*"))
    assert len(bodies) == 1


@requirement("gateway:4", "sessions:2")
async def test_a_patch_changes_what_it_names_and_null_unsets(chat: Served) -> None:
    changes = {
        "label": "L",
        "displayName": "D",
        "description": "what",
        "model": "offline",
        "thinkingLevel": "low",
        "verboseLevel": "on",
        "sendPolicy": "deny",
    }
    row = (await chat.client.patch(CHAT, json=changes)).json()
    assert {name: row[name] for name in changes} == changes
    row = (await chat.client.patch(CHAT, json={"label": None, "model": None})).json()
    assert "label" not in row and row["model"] == "offline" and row["displayName"] == "D"
    assert (await chat.client.patch(CHAT, json={})).json() == row
    assert error(await chat.client.patch(CHAT, json={"model": "nowhere:x"})) == (
        400,
        "invalid_request",
        "unknown_model",
    )
    assert (await chat.client.patch(CHAT, json={"label": " All ", "displayName": " D "})).json()["label"] == "All"
    for name in ("label", "displayName"):
        for text in (" ", "a\nb", "a\u2028b", "a\x1bb", "a\u202eb"):
            answer = await chat.client.patch(CHAT, json={name: text})
            assert error(answer)[0] == 422 and name in answer.text, (name, text)
    assert error(await chat.client.post("/sessions", json={"key": "api:forged", "label": "a\nb"}))[0] == 422
    for bad in ({"spawnedBy": "x"}, {"key": "x"}, {"description": "x" * 81}, {"sendPolicy": "maybe"}):
        assert error(await chat.client.patch(CHAT, json=bad))[0] == 422, bad


@requirement("gateway:4", "sessions:7")
async def test_sessions_that_must_stay_are_conflicts(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with serve(open_home, parts=Parts(runner=runner)) as served:
        await served.open("main")
        await served.open("agent:main:telegram:group:-1")
        await served.open("api:busy")
        posted = (await served.client.post("/sessions/api:busy/messages", json={"text": "x"})).json()
        await runner.until_begun(1)
        codes = [
            error(await served.client.delete(f"/sessions/{name}"))
            for name in ("main", "agent:main:telegram:group:-1", "api:busy")
        ]
        assert codes == [(409, "conflict", code) for code in ("main_session", "group_session", "session_busy")]
        busy = {"text": "y", "queueMode": "reject"}
        answer = await served.client.post("/sessions/api:busy/messages", json=busy)
        assert error(answer) == (409, "conflict", "session_busy")
        runner.release(posted["runId"])


@requirement("gateway:4", "sessions:1")
async def test_lists_are_newest_first_and_their_pages_meet(served: Served) -> None:
    for number in range(7):
        await served.open(f"api:s{number}")
    await served.append("api:s2", "newest")
    seen: list[str] = []
    cursor: Json = {}
    while True:
        page = (await served.client.get("/sessions", params={"limit": 3, **cursor})).json()
        assert page["count"] == len(page["sessions"]) <= 3
        seen += [row["key"].rpartition(":")[2] for row in page["sessions"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen[0] == "s2" and sorted(seen) == [f"s{number}" for number in range(7)]
    found = (await served.client.get("/sessions?search=s3")).json()
    assert [row["key"] for row in found["sessions"]] == ["agent:main:api:s3"]
    assert (await served.client.get("/sessions?kinds=main")).json() == {"count": 0, "sessions": []}


@requirement("answers:5")
@pytest.mark.parametrize(
    "query",
    [
        "cursor=x",
        "cursor=" + base64.urlsafe_b64encode(b"[1e999, 1]").decode(),
        "cursor=" + base64.urlsafe_b64encode(b"[" * 40_000).decode(),
        "cursor=" + base64.urlsafe_b64encode(b"%s.1" % (b"9" * 30)).decode(),
        "cursor=" + base64.urlsafe_b64encode(b"\xff.1").decode(),
        "cursor=" + base64.urlsafe_b64encode(b"{}").decode(),
        "cursor=%F0%9F%8E%88",
        "activeMinutes=99999999999999999999",
        "activeMinutes=-1",
        "limit=99999999999999999999999",
        "kinds=nonsense",
        "agentId=nobody",
        "search=%00",
        "search=%25_%5C",
    ],
)
async def test_no_query_of_a_list_makes_the_gateway_fail(chat: Served, query: str) -> None:
    answer = await chat.client.get(f"/sessions?{query}")
    assert answer.status_code == 200 or error(answer)[0] in (400, 422), answer.text


@requirement("answers:3", "answers:5")
@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        (
            "GET",
            "/runs?sessionKey=nope",
            "sessionKey: unknown parameter. Known here: session, status, kept, limit, before",
        ),
        (
            "GET",
            "/sessions?include_inactive=1",
            "include_inactive: unknown parameter. Known here: limit, kinds, agentId",
        ),
        ("GET", "/tree?depth=1&limit=1&level=2", "level: unknown parameter. Known here: roots, limit, includeInactive"),
        ("GET", f"{CHAT}/history?before=1", "before: unknown parameter. Known here: limit, cursor, upTo, includeTools"),
        ("GET", "/runs/x?timeout=1", "timeout: unknown parameter. Known here: wait"),
        ("GET", f"{CHAT}?x", "x: unknown parameter. Known here: none"),
        ("DELETE", f"{CHAT}?force=1", "force: unknown parameter"),
        ("GET", "/deliveries?x=1", "x: unknown parameter"),
        ("GET", "/tools?session=main", "session: unknown parameter. Known here: sessionKey"),
        ("GET", "/tokens?x=1", "x: unknown parameter"),
        ("POST", "/auth/link?x=1", "x: unknown parameter"),
    ],
)
async def test_a_parameter_that_the_route_does_not_know_is_refused(
    chat: Served, method: str, path: str, told: str
) -> None:
    answer = await chat.client.request(method, path)
    assert error(answer) == (422, "invalid_request", "invalid_request")
    assert told in answer.json()["error"]["message"]
    assert (await chat.client.get(CHAT)).status_code == 200


@requirement("answers:5")
@pytest.mark.parametrize("cursor", ["x", "-1", "²", "9" * 5000, "seq:", "1e3", "٣"])
async def test_cursors_that_are_no_numbers_are_refused(chat: Served, cursor: str) -> None:
    assert error(await chat.client.get(f"{CHAT}/history", params={"cursor": cursor})) == (
        400,
        "invalid_request",
        "invalid_cursor",
    )
    if cursor == "٣":
        return
    header = {b"Last-Event-ID": cursor.encode("latin-1")}
    for path in ("events", "history?follow=1"):
        answer = await chat.client.get(f"{CHAT}/{path}", headers=header)
        assert error(answer) == (400, "invalid_request", "invalid_cursor")


@requirement("gateway:4", "sessions:4", "runs:2", "runs:3")
async def test_a_message_is_answered_at_once_or_after_its_run(chat: Served) -> None:
    at_once = await chat.client.post(POSTS, json={"text": "hi", "messageId": "m-1"})
    posted = at_once.json()
    assert at_once.status_code == 200
    assert posted == {
        "sessionKey": "agent:main:api:chat",
        "messageId": "m-1",
        "seq": 2,
        "runId": posted["runId"],
        "triggered": True,
    }
    assert await chat.post("api:chat", "hi", messageId="m-1") == {**posted, "status": "ok", "reply": "echo: hi"}
    failed = await chat.post("api:chat", "!fail badly")
    assert (failed["status"], failed["code"], failed["error"]) == ("error", "model_server_error", "badly")
    shown = (await chat.client.get(f"/runs/{posted['runId']}")).json()
    assert set(shown) == {
        *("runId", "sessionKey", "status", "createdAt", "startedAt", "endedAt", "reply", "usage", "model")
    }
    assert shown["status"] == "ok" and set(shown["usage"]) >= {"inputTokens", "outputTokens", "cachedTokens", "steps"}
    assert_no_nulls(json.dumps(shown))


@requirement("gateway:4", "runs:3", "runs:5")
async def test_waits_end_without_ending_the_run_and_cancelling_repeats(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with serve(open_home, parts=Parts(runner=runner)) as served:
        await served.open("api:chat")
        answer = (await served.client.post(f"{POSTS}?wait=0.01", json={"text": "hi"})).json()
        assert answer["status"] == "timeout" and "reply" not in answer
        address = f"/runs/{answer['runId']}"
        waited = (await served.client.get(f"{address}?wait=0.01")).json()
        assert waited["status"] == "timeout" and "endedAt" not in waited
        await runner.until_begun(1)
        assert (await served.client.get(address)).json()["status"] == "running"
        assert (await served.client.get(CHAT)).json()["status"] == "running"
        queued = (await served.client.post(POSTS, json={"text": "next"})).json()["runId"]
        cancelled = (await served.client.post(f"/runs/{queued}/cancel")).json()
        assert (cancelled["status"], cancelled["code"]) == ("cancelled", "cancelled")
        assert (await served.client.post(f"/runs/{queued}/cancel")).json() == cancelled
        assert (await served.client.post(f"{CHAT}/cancel")).json() == {
            "ok": True,
            "cancelled": True,
            "below": 0,
            "runId": answer["runId"],
        }
        ended = (await served.client.get(f"{address}?wait={SECONDS}")).json()
        assert (ended["status"], ended["reply"]) == ("cancelled", "partial ")
        assert (await served.client.post(f"{CHAT}/cancel")).json() == {"ok": True, "cancelled": False, "below": 0}
        assert (await served.client.get(CHAT)).json()["abortedLastRun"] is True
        runs = (await served.client.get("/runs", params={"session": "api:chat"})).json()
        assert [run["runId"] for run in runs["runs"]] == [queued, answer["runId"]] and runs["count"] == 2
        older = (await served.client.get("/runs", params={"before": queued, "status": "cancelled"})).json()
        assert [run["runId"] for run in older["runs"]] == [answer["runId"]]
        for missing in ("/runs/run_none", "/runs/run_none?wait=1"):
            assert error(await served.client.get(missing)) == (404, "not_found", "not_found")
        assert error(await served.client.get(f"{address}?wait=nan"))[0] == 422
        assert error(await served.client.get("/runs?status=unknown"))[0] == 422
        assert error(await served.client.get("/runs?session=api:none"))[0] == 404


@requirement("runs:3", "gateway:4")
async def test_a_repeated_message_is_answered_at_once_if_its_run_is_over(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        await served.post("api:chat", "hello", messageId="m")
        for wait in ("0", "0.0001"):
            again = await served.client.post(f"{POSTS}?wait={wait}", json={"text": "hello", "messageId": "m"})
            assert (again.json()["status"], again.json()["reply"]) == ("ok", "echo: hello")


@requirement("runs:5", "gateway:4")
async def test_a_client_that_goes_away_does_not_cancel_its_run(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with serve(open_home, parts=Parts(runner=runner)) as served:
        await served.open("api:chat")
        for number, query in enumerate((f"wait={SECONDS}", "stream=1"), 1):
            with anyio.move_on_after(SECONDS):
                async with new_client(served.url, TOKEN) as client, anyio.create_task_group() as tasks:

                    async def post(client: httpx.AsyncClient = client, query: str = query) -> None:
                        async with client.stream("POST", f"{POSTS}?{query}", json={"text": query}):
                            await anyio.sleep_forever()

                    tasks.start_soon(post)
                    await runner.until_begun(number)
                    tasks.cancel_scope.cancel()
            (run,) = (await served.client.get("/runs?status=running")).json()["runs"]
            runner.release(run["runId"])
            ended = (await served.client.get(f"/runs/{run['runId']}?wait={SECONDS}")).json()
            assert ended["status"] == "ok"


@requirement("gateway:4", "sessions:5")
async def test_appending_stores_and_never_runs(chat: Served) -> None:
    body = {"text": "said before", "role": "assistant", "occurredAt": 1_700_000_000_123, "messageId": "old"}
    appended = (await chat.client.post(f"{POSTS}?append=1", json=body)).json()
    assert appended == {"sessionKey": "agent:main:api:chat", "messageId": "old", "seq": 2, "triggered": False}
    assert (await chat.client.post(f"{POSTS}?append=1", json=body)).json() == appended
    (message,) = await chat.messages("api:chat")
    assert message == {
        "seq": 2,
        "messageId": "old",
        "role": "assistant",
        "content": [{"type": "text", "text": "said before"}],
        "createdAt": 1_700_000_000_123,
        "provenance": {"kind": "synthetic"},
    }
    assert (await chat.client.get("/runs")).json() == {"count": 0, "runs": []}
    for field in ({"role": "assistant"}, {"occurredAt": 1}):
        assert error(await chat.client.post(POSTS, json={"text": "x", **field})) == (
            400,
            "invalid_request",
            "invalid_message",
        )


@requirement("sessions:4")
async def test_a_storm_of_one_message_stores_it_once_and_answers_all_alike(chat: Served) -> None:
    answers: list[Json] = []
    start = anyio.Event()

    async def post() -> None:
        await start.wait()
        answer = await chat.client.post(f"{POSTS}?wait={SECONDS}", json={"text": "hi", "messageId": "m"})
        answers.append(answer.json())

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(post)
        start.set()
    assert len(answers) == 50 and all(answer == answers[0] for answer in answers)
    assert answers[0]["reply"] == "echo: hi"
    assert [message["role"] for message in await chat.messages("api:chat")] == ["user", "assistant"]
    assert (await chat.client.get("/runs")).json()["count"] == 1
    other = await chat.client.post(POSTS, json={"text": "other", "messageId": "m"})
    assert error(other) == (409, "conflict", "message_id_reused")


@requirement("gateway:4", "sessions:6")
async def test_a_reset_begins_anew_and_the_old_life_stays_readable(chat: Served) -> None:
    await chat.post("api:chat", "old")
    before = (await chat.client.get(CHAT)).json()
    after = (await chat.client.post(f"{CHAT}/reset")).json()
    assert after["key"] == before["key"] and after["sessionId"] != before["sessionId"]
    assert await chat.messages(before["key"]) == []
    assert [message["role"] for message in await chat.messages(before["sessionId"])] == ["user", "assistant"]


@requirement("keys:6", "gateway:4")
async def test_an_ended_id_reads_its_own_incarnation_everywhere(chat: Served) -> None:
    await chat.post("api:chat", "old")
    before = (await chat.client.get(CHAT)).json()
    key, ended = before["key"], before["sessionId"]
    present = (await chat.client.post(f"{CHAT}/reset")).json()
    await chat.post(key, "new")
    row = (await chat.client.get(f"/sessions/{ended}")).json()
    assert row["sessionId"] == ended and row["transcriptPath"] == f"/sessions/{ended}/transcript"
    assert row["lastSeq"] == before["lastSeq"] < present["lastSeq"]
    assert {"messageCount", "turnCount", "contextTokens", "preview", "description"}.isdisjoint(row)
    shown = (await chat.client.get(f"/sessions/{key}")).json()
    assert shown["sessionId"] == present["sessionId"] and shown["messageCount"] == 2
    for name, session_id, text in ((ended, ended, "old"), (key, present["sessionId"], "new")):
        page = (await chat.client.get(f"/sessions/{name}/history")).json()
        assert page["sessionId"] == session_id and page["sessionKey"] == key
        assert [message["content"][0]["text"] for message in page["messages"]] == [text, f"echo: {text}"]
        answer = await chat.client.get(f"/sessions/{name}/transcript")
        assert {json.loads(line)["sessionId"] for line in answer.text.splitlines()} == {session_id}
    old_path = await chat.client.get(before["transcriptPath"])
    assert {json.loads(line)["sessionId"] for line in old_path.text.splitlines()} == {ended}


@requirement("keys:6", "gateway:1")
async def test_following_an_ended_id_brings_its_events_and_no_others(chat: Served) -> None:
    await chat.post("api:chat", "old")
    before = (await chat.client.get(CHAT)).json()
    key, ended = before["key"], before["sessionId"]
    await chat.client.post(f"{CHAT}/reset")
    await chat.post(key, "new")
    page = (await chat.client.get(f"/sessions/{ended}/history")).json()
    row = (await chat.app.services.sessions.get(OWNER, chat.app.services.sessions.target(key))).session.row

    async def late(tx: Transaction) -> None:
        """A result that comes for the ended incarnation, as after a reset."""
        event = NewEvent(type=EventType.ERROR, actor="system", classification=PUBLIC, data={"code": "late"})
        addition = log.Addition(incarnation=SessionId(ended), events=[event], at_ms=0)
        await log.append(tx, row, addition)

    async with following(chat.client, f"/sessions/{ended}/events") as stream:
        seen = [await stream.next() for _ in range(before["lastSeq"])]
        assert [sent.id for sent in seen] == [*range(1, before["lastSeq"] + 1)]
        await chat.post(key, "newer")
        await chat.app.database.run(late, sessions=(row,))
        assert (await stream.next()).event == "error"
    async with following(chat.client, f"/sessions/{ended}/history?follow=1") as stream:
        first = await stream.next()
        assert first.event == "history" and first.data == page
        await chat.post(key, "newest")
        await chat.app.database.run(late, sessions=(row,))
    async with following(chat.client, f"/sessions/{ended}/events", last_id=before["lastSeq"]) as stream:
        assert [(await stream.next()).event for _ in range(2)] == ["error", "error"]


@requirement("gateway:4", "sessions:8")
async def test_a_fork_has_the_log_up_to_its_number(chat: Served) -> None:
    await chat.post("api:chat", "one")
    first = (await chat.messages("api:chat"))[-1]
    await chat.post("api:chat", "two")
    forked = await chat.client.post(f"{CHAT}/fork", json={"seq": first["seq"]})
    assert forked.status_code == 201
    texts = [message["content"][0]["text"] for message in await chat.messages(forked.json()["key"])]
    assert texts == ["one", "echo: one"]
    whole = await chat.client.post(f"{CHAT}/fork")
    assert len(await chat.messages(whole.json()["key"])) == 4
    for seq in (0, -1, 10**20, 1_000_000):
        assert error(await chat.client.post(f"{CHAT}/fork", json={"seq": seq}))[0] in (400, 409, 422), seq


@requirement("history:1", "history:2", "gateway:1")
async def test_pages_of_history_meet_while_messages_are_appended(chat: Served) -> None:
    for number in range(20):
        await chat.append("api:chat", str(number))
    page = (await chat.client.get(f"{CHAT}/history?limit=6")).json()
    assert set(page) == {
        "sessionKey",
        "sessionId",
        "messages",
        "hasMore",
        "truncated",
        "droppedMessages",
        "contentTruncated",
        "contentRedacted",
        "bytes",
        "nextCursor",
    }
    seen = [message["seq"] for message in page["messages"]]
    while page["hasMore"]:
        await chat.append("api:chat", "more")
        page = (await chat.client.get(f"{CHAT}/history", params={"limit": 6, "cursor": page["nextCursor"]})).json()
        seen = [message["seq"] for message in page["messages"]] + seen
    assert seen == [*range(2, 22)] and "nextCursor" not in page
    assert len((await chat.client.get(f"{CHAT}/history?limit=0")).json()["messages"]) == 1


@requirement("history:3")
async def test_a_page_holds_six_mebibytes_and_drops_the_oldest(chat: Served) -> None:
    for number in range(4):
        parts = [{"type": "text", "text": f"{number}" * 1_000_000}] * 2
        answer = await chat.client.post(f"{CHAT}/messages?append=1", json={"content": parts})
        assert answer.status_code == 200
    page = (await chat.client.get(f"{CHAT}/history")).json()
    assert [message["seq"] for message in page["messages"]] == [3, 4, 5]
    assert (page["hasMore"], page["truncated"], page["droppedMessages"]) == (True, True, True)
    rest = (await chat.client.get(f"{CHAT}/history", params={"cursor": page["nextCursor"]})).json()
    assert [message["seq"] for message in rest["messages"]] == [2] and rest["hasMore"] is False


@requirement("gateway:4", "events:1")
async def test_the_transcript_is_one_event_a_line(chat: Served) -> None:
    await chat.post("api:chat", "one\ntwo")
    answer = await chat.client.get(f"{CHAT}/transcript")
    assert answer.headers["content-type"] == "application/jsonl"
    events = [json.loads(line) for line in answer.content.splitlines()]
    assert [event["type"] for event in events] == [
        "session_started",
        "user_message",
        "run_started",
        "assistant_message",
        "run_finished",
    ]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]
    assert_no_nulls(answer.text)


@requirement("gateway:4")
async def test_health_is_open_and_the_description_is_not(served: Served) -> None:
    async with new_client(served.url) as stranger:
        assert (await stranger.get("/health")).json() == {"ok": True}
        ready = (await stranger.get("/ready")).json()
        stalls = ready.pop("stalls")
        assert ready == {"ok": True, "workers": 1, "configuredAlike": True}
        assert 0 <= stalls["p999Ms"] <= stalls["longestMs"]
        assert error(await stranger.get("/openapi.json"))[0] == 401
    description = (await served.client.get("/openapi.json")).json()
    assert {"/sessions", "/sessions/{key}/messages", "/runs/{run_id}", "/health"} <= set(description["paths"])


@requirement("answers:5")
async def test_a_store_that_is_not_able_is_503_with_a_time_to_try_again(chat: Served) -> None:
    chat.app.services.health.begin_drain()
    answer = await chat.client.get("/ready")
    assert error(answer) == (503, "unavailable", "draining")
    assert int(answer.headers["retry-after"]) > 0
    assert (await chat.client.get("/health")).status_code == 200


@requirement("answers:5", "gateway:4")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", CHAT, {"GET", "PATCH", "DELETE"}),
        ("DELETE", "/sessions", {"GET", "POST"}),
        ("GET", POSTS, {"POST"}),
        ("POST", f"{CHAT}/history", {"GET"}),
        ("POST", "/runs", {"GET"}),
        ("DELETE", "/runs/x/cancel", {"POST"}),
        ("POST", "/health", {"GET"}),
    ],
)
async def test_a_method_that_is_not_there_is_405_and_the_answer_names_those_that_are(
    chat: Served, method: str, path: str, allowed: set[str]
) -> None:
    answer = await chat.client.request(method, path)
    assert error(answer) == (405, "method_not_allowed", "method_not_allowed")
    assert answer.headers["allow"].split(", ") == sorted({*allowed, *(("HEAD",) if "GET" in allowed else ())})


@requirement("gateway:4", "answers:5")
async def test_every_address_that_is_read_answers_head_without_a_body(chat: Served) -> None:
    """Also with a stream: that is not begun. Where `GET` is refused, so is `HEAD`."""
    await chat.client.post(POSTS, json={"text": "hello"})
    for path in HEADS:
        is_endless = "follow" in path or path.endswith("/events")
        read = None if is_endless else await chat.client.get(path)
        asked = await chat.client.head(path)
        assert asked.content == b""
        assert asked.status_code == (200 if read is None else read.status_code), path
        if read is not None and "content-length" in read.headers:
            assert asked.headers["content-type"] == read.headers["content-type"]
    for path in ("/health", "/ready", "/", "/sessions"):
        asked = await chat.client.head(path, headers={"Authorization": ""})
        assert asked.status_code == (401 if path == "/sessions" else 200), path


HEADS = (
    *("/health", "/ready", "/", "/page", "/static/page.css", "/sessions", "/agents", "/tools", "/tasks", "/runs"),
    *("/metrics", "/openapi.json", "/search?query=x", CHAT, f"{CHAT}/history", f"{CHAT}/history?follow=1"),
    *(f"{CHAT}/transcript", f"{CHAT}/events", "/sessions/api:nowhere", "/nothing", "/ws"),
)


@requirement("answers:5")
async def test_an_address_that_is_none_is_404_in_the_same_shape(served: Served) -> None:
    for path in ("/nothing", "/sessions/a/b/c", "/sessions/api:x/checkpoint/x"):
        assert error(await served.client.get(path))[:2] == (404, "not_found")


@requirement("answers:5", "gateway:5")
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b'{"text": "x"}', "text/plain", 415),
        (b'{"text": "x"}', "", 415),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[]", "application/json", 422),
        (b"null", "application/json", 422),
        (b'{"text": 1}', "application/json", 422),
        (b'{"text": "x", "unknown": 1}', "application/json", 422),
        (b'{"text": "x", "\\ud800": 1}', "application/json", 400),
        (b'{"text": "\\ud800"}', "application/json", 400),
        (b'{"text": "x", "sender": "\\ud800"}', "application/json", 400),
        (b'{"text": "x", "messageId": "\\ud800"}', "application/json", 400),
        (b'{"text": "x", "messageId": ""}', "application/json", 400),
        (b'{"text": "x", "messageId": "\\u0000"}', "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"text": "x", "content": []}', "application/json", 400),
        (b'{"content": []}', "application/json", 400),
        (b'{"content": [{"type": "image", "mimeType": "image/png", "data": "%"}]}', "application/json", 400),
        ('{"content": [{"type": "image", "mimeType": "image/png", "data": "é"}]}'.encode(), "application/json", 400),
        (b'{"text": "x", "occurredAt": 1e400}', "application/json", 422),
        (b'{"text": "x", "queueMode": "never"}', "application/json", 422),
    ],
)
async def test_a_body_that_is_wrong_is_refused_in_one_shape(chat: Served, body: bytes, kind: str, status: int) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = await chat.client.post(POSTS, content=body, headers=headers)
    assert error(answer)[0] == status
    assert await chat.messages("api:chat") == []


@requirement("answers:5", "gateway:5")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not JSON"),
        (b"[" * 1200, "nested too deeply"),
        (b'{"text": %s}' % (b"[" * 1200 + b"]" * 1200), "nested too deeply"),
        ('{"text": "é"}'.encode("latin-1"), "not UTF-8, byte 11 is 0xe9"),
        (b'{"text": %s}' % (b"9" * 5000), "too many digits"),
    ],
)
async def test_a_body_that_no_reader_of_json_takes_is_told_with_what_is_wrong(
    chat: Served, body: bytes, told: str
) -> None:
    for path in (POSTS, "/sessions", "/tools/sessions_spawn", "/tokens"):
        answer = await chat.client.post(path, content=body, headers={"Content-Type": "application/json"})
        if error(answer)[0] == 422:  # what does not fit is seen before what is wrong behind it
            assert len(answer.json()["error"]["message"]) < 400
        else:
            assert error(answer) == (400, "invalid_request", "not_json")
            assert told in answer.json()["error"]["message"]


@requirement("answers:5", "sessions:3")
@pytest.mark.parametrize(
    "metadata",
    [
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"a": %s}' % (b"9" * 4000),
    ],
)
async def test_metadata_that_no_answer_could_show_is_not_taken(served: Served, metadata: bytes) -> None:
    body = b'{"key": "api:odd", "metadata": %s}' % metadata
    answer = await served.client.post("/sessions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201 or error(answer)[0] in (400, 422)
    for path in ("/sessions", "/sessions/api:odd", "/"):
        assert (await served.client.get(path)).status_code in (200, 404)


@requirement("gateway:5", "answers:5")
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_413_before_it_is_parsed(chat: Served, chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"{" * 1_000_000

    headers = {"Content-Type": "application/json"}
    content = pieces() if chunked else b"{" * 10_000_000
    answer = await chat.client.post(POSTS, content=content, headers=headers)
    assert error(answer) == (413, "too_large", "body_too_large")
    async with new_client(chat.url) as stranger:
        answer = await stranger.post(POSTS, content=b"{" * 10_000_000, headers=headers)
        assert error(answer)[0] == 401
    assert (await chat.client.get("/health")).status_code == 200


@requirement("gateway:4", "events:3")
@pytest.mark.parametrize(
    "text",
    [
        "a\x00b",
        "\u202eabc\u202c שלום مرحبا",
        "e\u0301\u200d🏳️‍🌈",
        "\r\nx\t\u2028\u2029\x85",
        "x" * 1_000_000,
        "\ufeffx",
        " x ",
    ],
    ids=["NUL", "right to left", "clusters", "line ends", "large", "mark", "space"],
)
async def test_any_text_comes_back_as_it_was(chat: Served, text: str) -> None:
    content: Sequence[Json] = [{"type": "text", "text": text}]
    await chat.append("api:chat", text)
    assert [message["content"] for message in await chat.messages("api:chat")] == [content]
    lines = (await chat.client.get(f"{CHAT}/transcript")).content.split(b"\n")
    assert json.loads(lines[1])["message"]["content"] == content


@requirement("gateway:4", "events:3")
async def test_pictures_go_in_and_come_out(chat: Served) -> None:
    data = base64.b64encode(b"\x89PNG" * 10).decode()
    content: list[Json] = [{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": data}]
    answer = await chat.client.post(f"{POSTS}?append=1", json={"content": content})
    assert answer.status_code == 200
    (message,) = await chat.messages("api:chat")
    assert message["content"] == [content[0], {**content[1], "bytes": 40}]


@requirement("events:3")
@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000, '{"a": 1e999}', "{", '{"a": %s}' % ("9" * 5000)]
)
async def test_whatever_a_model_calls_a_tool_with_history_can_be_shown(open_home: OpenHome, arguments: str) -> None:
    script = [Reply(calls=[Call(name="gone", arguments=arguments)]), Reply(text="ok")]
    async with fake_provider(script) as fake:
        agents = {"defaults": {"model": "fake:m"}}
        settings: Json = {"agents": agents, "providers": {"fake": {"base_url": fake.base_url}}}
        async with serve(open_home, settings) as served:
            await served.open("api:chat")
            assert (await served.post("api:chat", "go"))["status"] == "ok"
            calls: list[Any] = (await served.messages("api:chat", includeTools=1))[1]["content"]
            assert [call["name"] for call in calls] == ["gone"]
            assert (await served.client.get(f"{CHAT}/transcript")).status_code == 200
            answer = await served.client.get("/?session=api:chat")
            assert answer.status_code == 200


async def test_each_home_is_an_author_of_its_own(tmp_path: Path) -> None:
    authors: list[str] = []
    for name in ("one", "two", "one"):

        def open_home(config: Config, parts: Parts | None, home: Path = tmp_path / name) -> Any:
            return open_app(home, config, parts)

        async with serve(open_home) as gateway:
            authors += re.findall('data-author="([0-9a-f]{16})"', (await gateway.client.get("/page")).text)
    assert len(authors) == 3 and len(set(authors)) == 2 and authors[0] == authors[2]


@requirement("answers:5")
async def test_a_request_for_which_there_is_no_memory_is_to_be_sent_again() -> None:
    answer = response_to(MemoryError(), {"path": "/sessions"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    error = json.loads(bytes(answer.body))["error"]
    assert (error["code"], "memory" in error["message"]) == ("out_of_memory", True)
