"""Subscriptions: what comes, to whom, in which order, and that nothing is lost or doubled (P5, P6, P13)."""

import json
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.person import PersonRole
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from antiphon.store.people import NAMES
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.cutting_proxy import cutting_proxy
from tests.gateway.served import TOKEN, Json, Served, serve
from tests.gateway.socket.speaking import CONNECT, Speaker, speaking
from tests.gateway.test_sse import complaints
from tests.shards import shard
from tests.waiting import SECONDS, at_least

pytestmark = pytest.mark.anyio

KEY = "agent:main:api:chat"
CUTS_SECONDS = at_least(600)
"""For thousands of connections, one after the other, in the long form."""


def kinds(events: list[Json]) -> list[str]:
    return [event["event"] for event in events]


async def messages_until(speaker: Speaker, seq: int) -> list[int]:
    """The numbers of the messages up to this one."""
    found = [(await speaker.event("session.message"))["seq"]]
    while found[-1] != seq:
        found.append((await speaker.event("session.message"))["seq"])
    return found


@requirement("gateway:2", "gateway:3")
async def test_names_are_answered_with_the_key_and_what_is_missing_is_not_found(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await speaker.call("chat.send", key="main", text="hello")
        subscribed = await speaker.call("sessions.messages.subscribe", key="main")
        assert (subscribed["subscribed"], subscribed["key"]) == (True, "agent:main:main")
        ended = await speaker.call("sessions.messages.unsubscribe", key="main")
        assert ended == {"subscribed": False, "key": "agent:main:main"}
        for key, code in (("", "invalid_key"), ("api:nobody", "not_found")):
            assert (await speaker.ask("sessions.messages.subscribe", key=key))["error"]["code"] == code


@requirement("gateway:3", "gateway:1")
async def test_an_appended_message_comes_once_to_each_who_follows_it(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as one, speaking(served) as other, speaking(served) as all:
        await served.open(KEY)
        await served.open("api:other")
        await one.call("sessions.messages.subscribe", key=KEY)
        await other.call("sessions.messages.subscribe", key="api:other")
        await all.call("sessions.subscribe")
        await all.call("sessions.messages.subscribe", key=KEY)
        seq = await served.append(KEY, "one", messageId="m")
        message = await one.event()
        assert message["payload"] | {"message": 0} == {
            "sessionKey": KEY,
            "messageId": "m",
            "messageSeq": seq,
            "message": 0,
        }
        assert message["payload"]["message"] == (await served.messages(KEY))[-1]
        last = await served.append("api:other", "end")
        assert (await other.event())["seq"] == last
        assert other.events == []
        seen = [await all.event()]
        while seen[-1]["event"] != "sessions.changed" or seen[-1]["payload"]["sessionKey"] == KEY:
            seen.append(await all.event())
        of_key = [each for each in seen if each["payload"]["sessionKey"] == KEY]
        assert sorted(kinds(of_key)) == ["session.message", "sessions.changed"]
        changed = next(each["payload"] for each in of_key if each["event"] == "sessions.changed")
        assert (changed["phase"], changed["messageId"], changed["messageSeq"]) == ("message", "m", seq)


@requirement("gateway:2", "runs:2")
async def test_pieces_of_a_reply_come_to_those_who_want_them_and_its_usage_to_all(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as eager, speaking(served) as plain:
        await served.open(KEY)
        await eager.call("sessions.messages.subscribe", key=KEY, deltas=True)
        await plain.call("sessions.messages.subscribe", key=KEY)
        posted = await eager.call("chat.send", key=KEY, text="hello there")
        events = [await eager.event() for _ in range(3)]
        while events[-1]["event"] != "session.message":
            events.append(await eager.event())
        assert kinds(events) == ["session.message", *["session.delta"] * (len(events) - 2), "session.message"]
        pieces = [each["payload"] for each in events[1:-1]]
        assert "".join(each["text"] for each in pieces) == "echo: hello there"
        assert {each["runId"] for each in pieces} == {posted["runId"]}
        assert all("seq" not in each for each in events[1:-1])
        assert events[-1]["payload"]["usage"]["steps"] == 1
        assert kinds([await plain.event(), await plain.event()]) == ["session.message"] * 2


@requirement("gateway:3", "approvals:3")
async def test_runs_and_requests_for_approval_come_to_those_who_follow_them(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("runs.subscribe")
        run = (await served.post(KEY, "hello"))["runId"]
        found = [(await speaker.event("runs.changed"))["payload"]["run"]]
        while found[-1]["status"] != "ok":
            found.append((await speaker.event("runs.changed"))["payload"]["run"])
        assert {each["runId"] for each in found} == {run}
        assert found[-1]["reply"] == "echo: hello"
        await speaker.call("runs.unsubscribe")
        await served.post(KEY, "again")
        await speaker.call("sessions.messages.subscribe", key=KEY)
        last = await served.append(KEY, "end")
        assert (await speaker.event())["seq"] == last


@requirement("gateway:3")
async def test_a_run_is_reported_however_many_newer_ones_its_session_has(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        first = (await speaker.call("chat.send", key=KEY, text="!sleep 3600"))["runId"]
        last = first
        for number in range(51):
            last = (await speaker.call("chat.send", key=KEY, text=str(number), queueMode="enqueue"))["runId"]
        await speaker.call("runs.subscribe", limit=1)
        await speaker.call("runs.cancel", runId=first)
        ended: list[str] = []
        while last not in ended:
            run = (await speaker.event("runs.changed"))["payload"]["run"]
            ended += [run["runId"]] if run["status"] in ("ok", "cancelled") else []
        assert first in ended


@requirement("gateway:3")
@pytest.mark.parametrize("method", ["runs.subscribe", "approvals.subscribe"])
async def test_a_filter_that_later_events_would_not_keep_to_is_refused(open_home: OpenHome, method: str) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        for name, value in (("session", KEY), ("status", "pending"), ("before", "run_x")):
            refused = await speaker.ask(method, **{name: value})
            assert (refused["error"]["code"], name in refused["error"]["message"]) == ("invalid_request", True)
        await speaker.call(method, limit=1)


async def _let_in(tx: Transaction, session: SessionRow, principal: str) -> None:
    await rows.add_participant(tx, session, principal)


async def person(served: Served, name: str) -> str:
    """The token of a new user."""
    (await served.client.post("/people", json={"name": name, "agents": ["main"]})).raise_for_status()
    await served.app.services.people.change_role(OWNER, name, PersonRole.USER)
    return (await served.app.services.tokens.create_for_person(OWNER, name, ALL_SCOPES))[1]


@requirement("gateway:3", "answers:2", "access:4")
async def test_a_list_brings_only_what_its_reader_may_see(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        token = await person(served, "ann")
        await served.open("api:hidden")
        await served.open("api:shared")
        services = served.app.services
        found = await services.sessions.get(OWNER, services.sessions.target("api:shared"))
        async with speaking(served, token) as ann, speaking(served) as owner:
            assert (await ann.call("sessions.subscribe"))["sessions"] == []
            await owner.call("sessions.subscribe")
            hidden = await ann.ask("sessions.messages.subscribe", key="api:hidden")
            missing = await ann.ask("sessions.messages.subscribe", key="api:nobody")
            assert str(hidden["error"]).replace("hidden", "nobody") == str(missing["error"])
            await served.append("api:hidden", "secret")
            assert (await owner.event())["payload"]["sessionKey"] == "agent:main:api:hidden"
            await served.app.database.run(_let_in, found.session.row, "person:ann")
            await served.append("api:shared", "hello")
            assert (await ann.event())["payload"]["sessionKey"] == "agent:main:api:shared"
            assert (await ann.event("sessions.changed"))["payload"]["phase"] == "message"
            await served.client.delete("/sessions/api:shared")
            assert (await ann.event())["payload"].items() >= {"phase": "deleted"}.items()


@requirement("gateway:3", "flow:3")
async def test_lists_of_readers_with_different_clearances_are_not_shared(open_home: OpenHome) -> None:
    """The tokens are of one person, so their principals are equal."""
    async with serve(open_home) as served:
        await served.client.post("/sessions", json={"key": KEY, "taint": {"level": "CONFIDENTIAL"}})
        made = await served.client.post("/tokens", json={"personId": "owner", "clearance": {"level": "PUBLIC"}})
        assert made.status_code == 201, made.text
        async with speaking(served) as high, speaking(served, made.json()["token"]) as low:
            await high.call("sessions.subscribe")
            await low.call("sessions.subscribe")
            seq = await served.append(KEY, "canary")
            assert (await high.event("session.message"))["seq"] == seq
            changed = await low.event()
            assert changed["event"] == "sessions.changed"
            assert "canary" not in json.dumps(changed) and "messageSeq" not in changed["payload"]


@requirement("gateway:3", "sessions:6")
async def test_each_kind_of_change_has_its_word(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open("api:first")
        await speaker.call("sessions.subscribe")

        async def phase() -> str:
            return (await speaker.event("sessions.changed"))["payload"]["phase"]

        await served.open(KEY)
        assert await phase() == "created"
        await served.append(KEY, "x")
        assert await phase() == "message"
        await served.client.patch(f"/sessions/{KEY}", json={"label": "name"})
        assert await phase() == "patched"
        await served.client.post(f"/sessions/{KEY}/reset")
        assert await phase() == "reset"
        await served.client.delete(f"/sessions/{KEY}")
        assert await phase() == "deleted"


@requirement("gateway:3")
async def test_a_row_that_leaves_the_list_is_gone_for_its_reader(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.client.post("/sessions", json={"key": KEY, "label": "ours"})
        listed = await speaker.call("sessions.subscribe", label="ours")
        assert listed["count"] == 1
        await served.client.patch(f"/sessions/{KEY}", json={"label": "theirs"})
        gone = await speaker.event()
        assert (gone["payload"]["phase"], gone["payload"]["sessionKey"]) == ("deleted", KEY)
        await served.append(KEY, "unseen")
        await served.client.patch(f"/sessions/{KEY}", json={"label": "ours"})
        assert (await speaker.event("sessions.changed"))["payload"]["session"]["label"] == "ours"


@requirement("gateway:3")
async def test_a_busy_session_is_reported_at_most_four_times_a_second(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        began = anyio.current_time()
        seqs = [await served.append(KEY, str(number)) for number in range(40)]
        received: list[int] = []
        hints = 0
        while not received or received[-1] != seqs[-1]:
            event = await speaker.event()
            if event["event"] == "sessions.changed":
                hints += 1
            else:
                received.append(event["seq"])
        assert received == seqs
        assert hints <= (anyio.current_time() - began) / 0.25 + 2


@pytest.fixture
async def pair(database_section: DatabaseSection, tmp_path: Path) -> AsyncGenerator[tuple[Served, Served]]:
    """Two gateways on one database, where that can be shared; else one, twice."""
    config = Config.model_validate({"gateway": {"drain_seconds": 0}}).model_copy(update={"database": database_section})

    def opener(name: str) -> OpenHome:
        def open_it(_: Any, parts: Parts | None = None) -> Any:
            return open_app(tmp_path / name, config, parts)

        return open_it

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(serve(opener("here")))
        there = here
        if database_section.url is not None:
            there = await stack.enter_async_context(serve(opener("there")))
        yield here, there


@requirement("gateway:1", "gateway:3")
async def test_what_happens_in_another_process_comes_too(pair: tuple[Served, Served]) -> None:
    here, there = pair
    await here.open(KEY)
    async with speaking(there) as speaker:
        await speaker.call("sessions.subscribe")
        await speaker.call("runs.subscribe")
        seq = await here.append(KEY, "one")
        assert (await speaker.event("session.message"))["seq"] == seq
        await here.open("api:new")
        while (changed := (await speaker.event("sessions.changed"))["payload"])["sessionKey"] == KEY:
            pass
        assert changed["phase"] == "created"
        run = (await here.post(KEY, "hello"))["runId"]
        assert (await speaker.event("runs.changed"))["payload"]["run"]["runId"] == run


@requirement("gateway:1", "gateway:3", "gateway:5")
async def test_a_thousand_cuts_at_any_byte_neither_lose_nor_double_a_message(
    open_home: OpenHome, is_soak: bool, request: pytest.FixtureRequest
) -> None:
    if "postgres" in request.node.name and not is_soak:
        pytest.skip("what is cut is the connection; the long form cuts it on both databases")
    cuts = shard().share(100_000) if is_soak else 1_000
    chance = random.Random(shard().seed(5))
    async with serve(open_home) as served:
        await served.open(KEY)
        received = [1]
        with anyio.fail_after(CUTS_SECONDS * (100 if is_soak else 1)):
            async with (
                cutting_proxy(served.port, lambda: chance.randrange(150, 6_000)) as proxy,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(_keep_appending, served)
                while proxy.cuts < cuts:
                    await _receive(proxy.port, received)
                tasks.cancel_scope.cancel()
        last = await served.append(KEY, "the end")
        async with speaking(served) as speaker:
            await speaker.call("sessions.messages.subscribe", key=KEY, after=received[-1])
            received += await messages_until(speaker, last)
        assert complaints(received[1:], [message["seq"] for message in await everything(served)]) == []


async def everything(served: Served) -> list[Json]:
    transcript = await served.client.get(f"/sessions/{KEY}/transcript")
    events: list[Json] = [json.loads(line) for line in transcript.text.splitlines()]
    return [event for event in events if "message" in event]


async def _keep_appending(served: Served) -> None:
    number = 0
    while True:
        number += 1
        await served.append(KEY, "x" * (number * 37 % 400 + 1))
        await anyio.sleep(0.005)


async def _receive(port: int, received: list[int]) -> None:
    """One connection, until it is cut. Messages count from the moment their frame is complete."""
    try:
        url = f"ws://127.0.0.1:{port}/ws"
        async with connect(url, compression=None, proxy=None, close_timeout=0, open_timeout=SECONDS) as socket:
            for method, params in (
                ("connect", CONNECT | {"token": TOKEN}),
                ("sessions.messages.subscribe", {"key": KEY, "after": received[-1]}),
            ):
                await socket.send(json.dumps({"type": "req", "id": method, "method": method, "params": params}))
            while True:
                frame = json.loads(await socket.recv())
                if frame["type"] == "event":
                    received.append(frame["seq"])
    except (WebSocketException, OSError, EOFError):
        pass


@requirement("gateway:3")
async def test_those_who_come_together_share_a_snapshot_and_miss_nothing(open_home: OpenHome) -> None:
    async with serve(open_home) as served, AsyncExitStack() as stack:
        await served.open(KEY)
        speakers = [await stack.enter_async_context(speaking(served)) for _ in range(12)]
        last = 1
        rows_of: list[int] = []
        for speaker in speakers:
            listed = await speaker.call("sessions.subscribe")
            rows_of.append(listed["sessions"][0]["lastSeq"])
            last = await served.append(KEY, "x")
        for speaker, known in zip(speakers, rows_of, strict=True):
            while known < last:
                event = await speaker.event("session.message")
                assert event["seq"] <= known + 1, "one was missed"
                known = max(known, event["seq"])


@requirement("gateway:3")
async def test_a_message_on_its_way_through_a_list_comes_once_when_its_session_is_followed_or_no_more(
    open_home: OpenHome,
) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        first = await served.append(KEY, "reported at once")
        assert (await speaker.event("session.message"))["seq"] == first
        second = await served.append(KEY, "reported a little later")
        assert (await speaker.call("sessions.messages.subscribe", key=KEY))["seq"] == second
        assert await messages_until(speaker, second) == [second]
        third = await served.append(KEY, "followed")
        assert await messages_until(speaker, third) == [third]
        fourth = await served.append(KEY, "followed before the list reports it")
        assert await messages_until(speaker, fourth) == [fourth]
        await speaker.call("sessions.messages.unsubscribe", key=KEY)
        fifth = await served.append(KEY, "followed no more")
        assert await messages_until(speaker, fifth) == [fifth]


@requirement("gateway:3")
async def test_what_a_list_brought_comes_not_again_when_its_session_is_followed_from_before(
    open_home: OpenHome,
) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        start = await served.append(KEY, "known")
        await speaker.event("session.message")
        brought = await served.append(KEY, "brought by the list")
        assert await messages_until(speaker, brought) == [brought]
        assert (await speaker.call("sessions.messages.subscribe", key=KEY, after=start - 1))["seq"] == start - 1
        last = await served.append(KEY, "followed")
        assert await messages_until(speaker, last) == [last]
        await speaker.call("sessions.messages.unsubscribe", key=KEY)
        await speaker.call("sessions.messages.subscribe", key=KEY, after=start)
        assert await messages_until(speaker, last) == [brought, last], "asked for again, what is followed comes again"


@requirement("gateway:3")
async def test_what_a_list_brings_while_a_subscription_begins_comes_once(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        refresh, is_brought = served.app.services.names.refresh, anyio.Event()

        async def refresh_late() -> None:
            served.app.services.names.refresh = refresh
            await served.append(KEY, "meanwhile")
            with anyio.fail_after(SECONDS):
                await is_brought.wait()
            await refresh()

        served.app.services.names.refresh = refresh_late
        asked = await speaker.send("sessions.messages.subscribe", {"key": KEY})
        meanwhile = (await speaker.event("session.message"))["seq"]
        is_brought.set()
        assert (await speaker.answer(asked))["payload"]["seq"] < meanwhile
        last = await served.append(KEY, "followed")
        assert await messages_until(speaker, last) == [last]


@requirement("gateway:3")
async def test_two_lists_with_a_session_bring_its_message_once(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        await speaker.call("sessions.subscribe", kinds=["other"])
        first = await served.append(KEY, "one")
        assert await messages_until(speaker, first) == [first]
        last = await served.append(KEY, "two")
        assert await messages_until(speaker, last) == [last]


@requirement("gateway:3")
async def test_a_list_brings_what_the_subscription_to_its_session_leaves_out(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await served.open(KEY)
        await speaker.call("sessions.subscribe")
        await speaker.call("sessions.messages.subscribe", key=KEY)
        await served.post(KEY, "!call sessions_list {}")
        roles: list[str] = []
        while "toolResult" not in roles:
            roles.append((await speaker.event("session.message"))["payload"]["message"]["role"])
        assert roles.count("user") == 1


async def _put_out(tx: Transaction, session: SessionRow, principal: str) -> None:
    await tx.execute("DELETE FROM participants WHERE session = ? AND principal = ?", (session, principal))
    tx.wake(NAMES)


@requirement("access:1", "gateway:3")
async def test_rights_that_change_while_a_subscription_begins_count_from_its_first_event(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        token = await person(served, "ann")
        await served.open(KEY)
        services = served.app.services
        session = (await services.sessions.get(OWNER, services.sessions.target(KEY))).session.row
        await served.app.database.run(_let_in, session, "person:ann")
        refresh = services.names.refresh

        async def refresh_late() -> None:
            services.names.refresh = refresh
            await served.app.database.run(_put_out, session, "person:ann")
            await refresh()

        async with speaking(served, token) as ann:
            services.names.refresh = refresh_late
            assert (await ann.call("sessions.messages.subscribe", key=KEY))["subscribed"]
            await served.append(KEY, "secret")
            assert (await ann.event())["event"] == "session.reset"
