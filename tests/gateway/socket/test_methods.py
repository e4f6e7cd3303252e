"""Requests over the WebSocket: the same answers as over HTTP."""

import pytest

from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import serve
from tests.gateway.socket.speaking import speaking
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@requirement("gateway:2")
async def test_operations_answer_by_their_name(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        assert (speaker.hello["protocol"], speaker.hello["principal"]) == (1, "person:owner")
        row = await speaker.call("sessions.create", key="api:chat")
        assert row == (await served.client.get("/sessions/api:chat")).json()
        posted = await speaker.call("chat.send", key="api:chat", text="hello")
        ended = await speaker.call("agent.wait", runId=posted["runId"], timeoutMs=10_000)
        assert (ended["status"], ended["reply"]) == ("ok", "echo: hello")
        assert (
            await speaker.call("chat.history", key="api:chat")
            == (await served.client.get("/sessions/api:chat/history")).json()
        )


@requirement("gateway:3")
async def test_a_subscriber_gets_each_message_once_and_resumes(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with speaking(served) as speaker:
            subscribed = await speaker.call("sessions.messages.subscribe", key="api:chat")
            assert subscribed == {"subscribed": True, "key": "agent:main:api:chat", "seq": 1}
            seq = await served.append("api:chat", "one")
            event = await speaker.event()
            assert (event["event"], event["seq"], event["payload"]["messageSeq"]) == ("session.message", seq, seq)
        last = await served.append("api:chat", "two")
        async with speaking(served) as speaker:
            await speaker.call("sessions.messages.subscribe", key="api:chat", after=seq)
            assert (await speaker.event())["seq"] == last


@requirement("gateway:3")
async def test_a_list_brings_its_rows_and_then_each_message_and_change(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open("api:chat")
        listed = await speaker.call("sessions.subscribe")
        assert [row["key"] for row in listed["sessions"]] == ["agent:main:api:chat"]
        await speaker.call("runs.subscribe")
        await speaker.call("approvals.subscribe")
        seq = await served.append("api:chat", "one")
        message = await speaker.event()
        changed = await speaker.event()
        assert (message["event"], message["seq"]) == ("session.message", seq)
        assert changed["event"] == "sessions.changed"
        assert (changed["payload"]["phase"], changed["payload"]["messageSeq"]) == ("message", seq)
        await served.open("api:new")
        created = await speaker.event()
        assert (created["payload"]["sessionKey"], created["payload"]["phase"]) == ("agent:main:api:new", "created")
        await served.post("api:new", "hello")
        run = await speaker.event("runs.changed")
        assert run["payload"]["run"]["sessionKey"] == "agent:main:api:new"
        await served.client.delete("/sessions/api:new")
        while (changed := await speaker.event("sessions.changed"))["payload"]["phase"] != "deleted":
            assert "session" in changed["payload"]
        assert changed["payload"]["sessionKey"] == "agent:main:api:new"


@requirement("gateway:2", "sessions:7")
async def test_deleting_has_its_answers(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open("api:chat")
        await speaker.call("chat.send", key="main", text="hello", wait=SECONDS)
        assert (await speaker.ask("sessions.delete", key="main"))["error"]["type"] == "conflict"
        assert (await speaker.ask("sessions.delete", key="api:nobody"))["error"]["code"] == "not_found"
        assert await speaker.call("sessions.delete", key="api:chat") == {"ok": True, "deleted": True}


@requirement("gateway:2")
async def test_a_session_is_resolved_by_one_of_its_names(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        row = await speaker.call("sessions.create", key="api:chat", label="ours")
        for name in ({"key": "api:chat"}, {"sessionId": row["sessionId"]}, {"label": "ours"}):
            assert await speaker.call("sessions.resolve", **name) == row
        for wrong in ({}, {"key": "api:chat", "label": "ours"}):
            assert (await speaker.ask("sessions.resolve", **wrong))["error"]["code"] == "invalid_request"
        for unknown in ({"key": "api:nobody"}, {"label": "nobody"}):
            assert (await speaker.ask("sessions.resolve", **unknown))["error"]["code"] == "not_found"
        await speaker.call("sessions.create", key="api:other", label="ours")
        assert (await speaker.ask("sessions.resolve", label="ours"))["error"]["code"] == "ambiguous_label"


@requirement("gateway:2", "gateway:4")
async def test_creating_has_its_answers(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        other = await speaker.ask("sessions.create", key="agent:main:api:x", agentId="other")
        assert other["error"]["type"] == "invalid_request"
        assert (await speaker.call("sessions.create"))["key"].startswith("agent:main:api:")
        for field in ("parent", "message"):
            refused = await speaker.ask("sessions.create", key="api:x", **{field: "x"})
            assert refused["error"]["code"] == "invalid_request"


@requirement("gateway:2", "sessions:1")
async def test_rows_bring_previews(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await speaker.call("chat.send", key="main", text="hello", wait=SECONDS)
        (row,) = (await speaker.call("sessions.list"))["sessions"]
        assert row["preview"] == "echo: hello"


@requirement("gateway:2", "gateway:1")
async def test_a_page_of_history_has_its_bounds(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open("api:chat")
        *_, last = [await served.append("api:chat", "x" * 1024 * 1024) for _ in range(7)]
        page = await speaker.call("chat.history", key="api:chat", limit=1000)
        assert page["droppedMessages"] is True and page["messages"][-1]["seq"] == last
        assert len(page["messages"]) == 5


@requirement("gateway:2", "runs:2")
async def test_sending_answers_before_the_model_is_called(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        assert (await speaker.ask("chat.send", key="main", text=""))["error"]["code"] == "empty_message"
        sent = await speaker.call("chat.send", key="main", text="!sleep 3600", messageId="m")
        assert sent["triggered"] is True and "status" not in sent
        assert await speaker.call("chat.send", key="main", text="!sleep 3600", messageId="m") == sent
        changed = await speaker.ask("chat.send", key="main", text="other", messageId="m")
        assert changed["error"]["type"] == "conflict"
        assert (await speaker.call("chat.abort", key="main"))["runId"] == sent["runId"]
        ended = await speaker.call("agent.wait", runId=sent["runId"], timeoutMs=int(SECONDS * 1000))
        assert ended["status"] == "cancelled"
        assert (await speaker.call("agent", text="hello", wait=SECONDS))["reply"] == "echo: hello"


@requirement("gateway:2")
async def test_sending_refuses_what_the_policy_denies(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await speaker.call("sessions.create", key="api:chat")
        await speaker.call("sessions.patch", key="api:chat", sendPolicy="deny")
        http = await served.client.post("/sessions/api:chat/messages", json={"text": "x"})
        assert (await speaker.ask("chat.send", key="api:chat", text="x"))["error"] == http.json()["error"]
        assert http.status_code == 403
