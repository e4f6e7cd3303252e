"""Following a session over HTTP: what comes, in which order, and that nothing is lost on the way (P6, P13)."""

import contextlib
import gc
import json
import logging
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import psutil
import pytest
from msgspec.structs import replace

from antiphon.app import gateway_app
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delay import Delta
from antiphon.domain.ids import RunId
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Found
from antiphon.feed.follow import Hub, Outlet, Permit, Reader, View
from antiphon.feed.local import LocalNotifier
from antiphon.gateway.guard import AsgiApp
from antiphon.gateway.sse import event_view
from antiphon.policy.system import system_grant
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.cutting_proxy import cutting_proxy
from tests.gateway.served import TOKEN, EventParser, Json, Sent, Served, Stream, following, new_client, serve
from tests.waiting import SECONDS, at_least

pytestmark = pytest.mark.anyio

HISTORY = "/sessions/api:chat/history"
FOLLOW = f"{HISTORY}?follow=1"
EVENTS = "/sessions/api:chat/events"
MIB = 1024 * 1024
CUTS_SECONDS = at_least(600)
"""For thousands of connections, one after the other, in the long form."""


def ids(events: Sequence[Sent]) -> list[int]:
    return [sent.id for sent in events if sent.id is not None]


def texts(events: Sequence[Sent]) -> list[str]:
    return [sent.text for sent in events if sent.event == "message"]


def complaints(received: Sequence[int], stored: Sequence[int]) -> list[str]:
    """What is wrong with a delivery: it must be exactly what is stored, in order."""
    found = [f"repeated: {seq}" for seq in sorted(set(received)) if received.count(seq) > 1]
    found += [f"lost: {seq}" for seq in sorted(set(stored) - set(received))]
    found += [f"never stored: {seq}" for seq in sorted(set(received) - set(stored))]
    if list(received) != sorted(received):
        found.append("out of order")
    return found


@requirement("gateway:1")
async def test_following_gives_the_page_and_then_what_happens(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        await served.append("api:chat", "before")
        async with following(served.client, FOLLOW) as stream:
            page = await stream.next()
            assert (page.event, page.id) == ("history", 2)
            assert [message["seq"] for message in page.data["messages"]] == [2]
            assert page.data == (await served.client.get(HISTORY)).json()
            await served.append("api:chat", "after")
            message = await stream.next()
            assert (message.event, message.id, message.text) == ("message", 3, "after")
            assert message.data == (await served.messages("api:chat"))[-1]


@requirement("gateway:1")
async def test_the_accept_header_of_an_event_source_is_enough(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        served.client.headers["Accept"] = "text/event-stream"
        async with following(served.client, HISTORY) as stream:
            assert (await stream.next()).event == "history"


@requirement("gateway:1", "runs:2")
async def test_a_reply_streams_as_deltas_without_ids_before_its_message(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with following(served.client, FOLLOW) as stream:
            await stream.next()
            posted = await served.post("api:chat", "hello there")
            asked, *deltas, answered = [*await stream.until("message"), *await stream.until("message")]
    assert asked.text == "hello there"
    assert [sent.event for sent in deltas] == ["delta"] * len(deltas) and len(deltas) > 1
    assert all(sent.id is None and sent.data["runId"] == posted["runId"] for sent in deltas)
    assert "".join(sent.data["text"] for sent in deltas) == answered.text == "echo: hello there"
    assert answered.id is not None and answered.data["runId"] == posted["runId"]


@requirement("gateway:1")
async def test_pieces_come_behind_the_events_that_they_follow_and_before_their_message(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with following(served.client, f"{EVENTS}?after=0") as stream:
            for _ in range(25):
                await served.post("api:chat", "!stream 3\n!call session_status {}\n!say four five six")
                await stream.until("run_started")
                shown = [("", "")]
                for sent in await stream.until("run_finished"):
                    text = str(sent.data.get("text", ""))
                    if sent.event == shown[-1][0]:
                        shown[-1] = (sent.event, shown[-1][1] + text)
                    else:
                        shown.append((sent.event, text))
                assert shown[1:] == [
                    ("delta", "1 2 3 "),
                    ("assistant_message", ""),
                    ("tool_call", ""),
                    ("tool_result", ""),
                    ("delta", "four five six"),
                    ("assistant_message", ""),
                    ("run_finished", ""),
                ]


@requirement("gateway:1")
async def test_a_piece_waits_for_the_events_that_it_follows(open_home: OpenHome) -> None:
    async with serve(open_home) as served, anyio.create_task_group() as tasks:
        await served.open("api:chat")
        await served.append("api:chat", "two")
        await served.append("api:chat", "three")
        parser = EventParser()
        received: list[Sent] = []
        services = served.app.services
        row = (await services.sessions.get(OWNER, services.sessions.target("api:chat"))).session.row
        hub = Hub(LocalNotifier(), services.hub.read_logs, ManualClock())
        async with hub.follow(
            Permit(system_grant(row)), 1, event_view(services.names), on_stall=lambda: None
        ) as reader:
            hub.publish_delta(row, Delta(RunId("run_1"), 2, "behind two", PUBLIC))
            hub.publish_delta(row, Delta(RunId("run_1"), 3, "behind three", PUBLIC))
            tasks.start_soon(hub.run)
            with anyio.fail_after(SECONDS):
                while len(received) < 4:
                    received += parser.feed(await reader.next())
        assert [sent.id or sent.data["text"] for sent in received] == [2, "behind two", 3, "behind three"]
        tasks.cancel_scope.cancel()


@requirement("gateway:1", "history:2")
async def test_tool_results_are_followed_only_where_they_are_asked_for(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with (
            following(served.client, FOLLOW) as plain,
            following(served.client, f"{FOLLOW}&includeTools=1") as full,
        ):
            await served.post("api:chat", "!call session_status {}")
            last = await served.append("api:chat", "end")
            roles = dict[str, list[str]]()
            for name, stream in (("plain", plain), ("full", full)):
                roles[name] = []
                while (sent := await stream.next()).id != last:
                    if sent.event == "message":
                        roles[name].append(sent.data["role"])
    assert roles == {
        "plain": ["user", "assistant", "assistant"],
        "full": ["user", "assistant", "toolResult", "assistant"],
    }


@requirement("gateway:1")
@pytest.mark.parametrize("by_header", [True, False], ids=["Last-Event-ID", "after"])
async def test_a_cursor_brings_only_what_came_after_it(open_home: OpenHome, by_header: bool) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        for number in range(2, 6):
            await served.append("api:chat", str(number))
        address = FOLLOW if by_header else f"{FOLLOW}&after=3"
        async with following(served.client, address, last_id=3 if by_header else None) as stream:
            assert [(await stream.next()).id for _ in range(2)] == [4, 5]
            await served.append("api:chat", "6")
            assert (await stream.next()).id == 6


@requirement("gateway:1")
async def test_the_header_of_a_reconnect_goes_before_the_cursor_of_the_first_address(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        for number in range(2, 6):
            await served.append("api:chat", str(number))
        async with following(served.client, f"{FOLLOW}&after=1", last_id=4) as stream:
            assert (await stream.next()).id == 5


@requirement("gateway:1", "keys:6")
async def test_a_cursor_that_names_nothing_gets_one_reset_and_the_page(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        await served.append("api:chat", "first life")
        old = await served.append("api:chat", "first life")
        for address, reason in ((f"{FOLLOW}&after=4", "ahead"), (f"{FOLLOW}&after={10**18 - 1}", "ahead")):
            async with following(served.client, address) as stream:
                reset, page = await stream.next(), await stream.next()
                assert (reset.event, reset.data, reset.id) == ("reset", {"reason": reason}, None)
                assert (page.event, page.id) == ("history", old)
        assert (await served.client.delete("/sessions/api:chat")).status_code == 200
        await served.open("api:chat")
        await served.append("api:chat", "second life")
        async with following(served.client, FOLLOW, last_id=old) as stream:
            reset, page = await stream.next(), await stream.next()
            assert (reset.event, page.event) == ("reset", "history")
            assert [message["seq"] for message in page.data["messages"]] == [old + 3]
            await served.append("api:chat", "on")
            assert (await stream.next()).id == old + 4
        async with following(served.client, EVENTS, last_id=old) as stream:
            events = await stream.until("user_message")
            assert [sent.event for sent in events] == ["reset", "session_started", "user_message"]


@requirement("gateway:1", "sessions:7")
async def test_deleting_the_session_resets_and_ends_its_streams(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with following(served.client, FOLLOW) as stream:
            await stream.next()
            await served.client.delete("/sessions/api:chat")
            assert [(sent.event, sent.data) for sent in await stream.rest()] == [("reset", {"reason": "deleted"})]


@requirement("gateway:1", "sessions:6")
async def test_following_goes_on_over_a_reset_of_the_session(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with following(served.client, EVENTS) as stream:
            await served.append("api:chat", "old")
            await served.client.post("/sessions/api:chat/reset")
            await served.append("api:chat", "new")
            events = [*await stream.until("user_message"), *await stream.until("user_message")]
    assert ids(events) == [*range(1, len(events) + 1)]


@requirement("gateway:1", "events:1")
async def test_events_bring_the_whole_log_numbered_from_one(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        await served.post("api:chat", "one")
        async with following(served.client, EVENTS) as stream:
            before = await stream.until("run_finished")
            await served.client.patch("/sessions/api:chat", json={"label": "x"})
            changed = await stream.next()
    assert [sent.event for sent in before] == [
        "session_started",
        "user_message",
        "run_started",
        "assistant_message",
        "run_finished",
    ]
    assert ids([*before, changed]) == [1, 2, 3, 4, 5, 6]
    assert (changed.event, changed.data["type"], changed.data["seq"]) == ("session_changed", "session_changed", 6)
    assert changed.data["data"] == {"phase": "patched", "fields": ["label"]}


@requirement("gateway:4")
async def test_a_post_can_stream_its_own_run_to_the_end(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        await served.post("api:chat", "another run")
        body = {"text": "!call session_status {}\n!say a b", "messageId": "m"}
        async with following(served.client, "/sessions/api:chat/messages?stream=1", body=body) as stream:
            events = await stream.rest()
        async with following(served.client, "/sessions/api:chat/messages?stream=1", body=body) as stream:
            repeated = await stream.rest()
    acknowledged, *steps, end = events
    assert acknowledged.event == "message_ack" and acknowledged.data["triggered"] is True
    run = acknowledged.data["runId"]
    assert [sent.data["role"] for sent in steps if sent.event == "message"] == ["assistant", "toolResult", "assistant"]
    assert "".join(sent.data["text"] for sent in steps if sent.event == "delta") == "a b"
    assert (end.event, end.data) == ("run", {"runId": run, "status": "ok"})
    assert [sent for sent in repeated if sent.event != "delta"] == [sent for sent in events if sent.event != "delta"]


@requirement("gateway:4")
async def test_a_stream_that_begins_late_has_what_its_run_said_before(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        sessions = served.app.services.sessions
        find = sessions.get

        async def get_later(principal: Principal, target: NamedTarget) -> Found:
            sessions.get = find
            async with following(served.client, f"{EVENTS}?after=0") as stream:
                await stream.until("run_finished")
            return await find(principal, target)

        sessions.get = get_later
        body = {"text": "!say a b c"}
        async with following(served.client, "/sessions/api:chat/messages?stream=1", body=body) as stream:
            events = await stream.rest()
    assert "".join(sent.data["text"] for sent in events if sent.event == "delta") == "a b c"


@requirement("gateway:4", "spawn:8")
async def test_a_post_that_yields_streams_to_the_end_of_what_continues_it(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        text = '!call sessions_spawn {"task": "!sleep 0.2\\n!say found"}\n!call sessions_yield {"message": "wait"}'
        body = {"text": text, "messageId": "m"}
        async with following(served.client, "/sessions/api:chat/messages?stream=1", body=body) as stream:
            acknowledged, *steps, end = await stream.rest()
        run = acknowledged.data["runId"]
        messages = [sent.data for sent in steps if sent.event == "message"]
        shown = [(message["role"], message["content"][0].get("text", "")) for message in messages]
        assert shown[-2:] == [("assistant", "wait"), ("assistant", "echo: found")]
        assert (end.event, end.data) == ("run", {"runId": run, "status": "ok"})
        waited = await served.client.get(f"/runs/{run}?wait={SECONDS}")
        assert (waited.json()["reply"], waited.json()["runId"]) == ("echo: found", run)
        first = await served.client.get(f"/runs/{run}")
        assert (first.json()["reply"], first.json()["code"]) == ("wait", "yielded") and first.json()["continuedBy"]


@requirement("gateway:1")
async def test_a_quiet_stream_is_kept_alive_by_comments(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        await served.open("api:chat")
        async with following(served.client, FOLLOW) as stream:
            await stream.next()
            clock.pass_time(timedelta(seconds=16))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_append_once_commented, served, stream)
                assert (await stream.next()).text == "after the comment"
            assert stream.parser.comments == ["keep-alive"]


async def _append_once_commented(served: Served, stream: Stream) -> None:
    while not stream.parser.comments:
        await anyio.lowlevel.checkpoint()
    await served.append("api:chat", "after the comment")


class Poster:
    """Appends messages and posts ones that are answered, until it is told to stop."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.is_stopped = False

    async def run(self, name: str) -> None:
        number = 0
        while not self.is_stopped:
            number += 1
            if number % 10:
                await self._served.append("api:chat", f"{name} {number}")
            else:
                await self._served.post("api:chat", f"!stream 3\n!say {name} {number}")


async def follow_over_cuts(served: Served, address: str, cuts: int, *, seed: int) -> list[int]:
    """The numbers that a client sees which resumes after each cut; at the end it has caught up."""
    chance = random.Random(seed)
    poster = Poster(served)
    received = [0]

    def allowance() -> int:
        return chance.choice((chance.randrange(500), chance.randrange(4000)))

    async with (
        cutting_proxy(served.port, allowance) as proxy,
        new_client(f"http://127.0.0.1:{proxy.port}", TOKEN) as client,
        anyio.create_task_group() as others,
    ):
        if address == EVENTS:
            # Somebody who always keeps up makes the others find their place in a tail that is there already.
            others.start_soon(_read_along, served.client)
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):
                tasks.start_soon(poster.run, name)
            while proxy.cuts < cuts:
                await _receive(client, address, received)
            poster.is_stopped = True
        others.cancel_scope.cancel()
    last = await served.append("api:chat", "the end")
    async with following(served.client, address, last_id=received[-1]) as stream:
        while received[-1] < last:
            received += ids([await stream.next()])
    return received[1:]


async def _read_along(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", EVENTS) as response:
        async for _ in response.aiter_bytes():
            pass


async def _receive(client: httpx.AsyncClient, address: str, received: list[int]) -> None:
    """One connection, until it is cut."""
    parser = EventParser()
    try:
        async with client.stream("GET", address, headers={"Last-Event-ID": str(received[-1])}) as response:
            async for data in response.aiter_bytes():
                received += ids(parser.feed(data))
    except httpx.TransportError:
        pass


async def stored_numbers(served: Served, address: str) -> list[int]:
    transcript = await served.client.get("/sessions/api:chat/transcript")
    events: list[Json] = [json.loads(line) for line in transcript.text.splitlines()]
    return [event["seq"] for event in events if address == EVENTS or "message" in event]


@requirement("gateway:1")
@pytest.mark.parametrize("address", [FOLLOW, EVENTS], ids=["history", "events"])
async def test_a_stream_cut_at_any_byte_resumes_exactly_once(open_home: OpenHome, is_soak: bool, address: str) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        with anyio.fail_after(CUTS_SECONDS):
            received = await follow_over_cuts(served, address, 5000 if is_soak else 250, seed=len(address))
        assert complaints(received, await stored_numbers(served, address)) == []


class BacklogFirstReader(Reader):
    """Gives the backlog, then what another reader brings."""

    def __init__(self, backlog: bytes, live: Reader) -> None:
        self._backlog = backlog
        self._live = live
        self.sending_since = None

    async def next(self) -> bytes:
        backlog, self._backlog = self._backlog, b""
        return backlog or await self._live.next()


class BacklogFirstHub(Hub):
    """Planted fault: reads the backlog, and subscribes then to what is new."""

    def __init__(self, hub: Hub, between: Callable[[], Awaitable[object]]) -> None:
        self._hub = hub
        self._between = between
        self.clock = hub.clock
        self.rights_changed = hub.rights_changed

    @asynccontextmanager
    async def follow(
        self, permit: Permit, after: int, view: View, *, on_stall: Callable[[], None], outlet: Outlet | None = None
    ) -> AsyncGenerator[Reader]:
        session = permit.grant.session
        backlog = (await self._hub.read_logs({session: after}))[session]
        await self._between()
        now = (await self._hub.read_logs({session: after}))[session]
        async with self._hub.follow(permit, now.last_seq, view, on_stall=on_stall) as live:
            yield BacklogFirstReader(b"".join(map(view.encode, backlog.events)), live)


async def test_reading_the_backlog_before_subscribing_is_caught(open_home: OpenHome) -> None:
    async def post_in_between() -> None:
        app = opened[0]
        await app.services.inbox.append(OWNER, app.services.sessions.target("api:chat"), text_content("in between"))

    def build(app: App, token: str) -> AsgiApp:
        opened.append(app)
        hub = BacklogFirstHub(app.services.hub, post_in_between)
        return gateway_app(replace(app, services=replace(app.services, hub=hub)), token)

    opened: list[App] = []
    async with serve(open_home, build=build) as served:
        await served.open("api:chat")
        with anyio.fail_after(SECONDS):
            received = await follow_over_cuts(served, EVENTS, 10, seed=1)
        assert any(found.startswith("lost") for found in complaints(received, await stored_numbers(served, EVENTS)))


def open_deaf(served: Served, address: str) -> socket.socket:
    """A connection that asks for a stream and never reads it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", served.port))
    head = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    client.sendall(head.encode())
    return client


def server_ports(served: Served) -> set[int]:
    """The ports of the clients whose connections the server still holds."""
    connections = psutil.Process().net_connections("tcp")
    return {each.raddr.port for each in connections if each.laddr.port == served.port and each.raddr}


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not condition():
            await anyio.sleep(0.01)


@requirement("gateway:5")
@pytest.mark.parametrize("address", [f"{EVENTS}?after=0", FOLLOW], ids=["events", "history"])
async def test_a_reader_that_never_reads_is_disconnected_and_resumes_without_loss(
    open_home: OpenHome, address: str
) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        await served.open("api:chat")
        for number in range(30):
            await served.append("api:chat", f"{number} " + "x" * 200_000)
        with open_deaf(served, address) as deaf:
            port = deaf.getsockname()[1]
            await until(lambda: is_blocked(served))
            assert port in server_ports(served)
            clock.pass_time(timedelta(seconds=31))
            await until(lambda: port not in server_ports(served))
            deaf.settimeout(SECONDS)
            got = await anyio.to_thread.run_sync(read_to_end, deaf)
        seen = ids(EventParser().feed(body_of(got)))
        async with following(served.client, EVENTS, last_id=0) as stream:
            assert ids([await stream.next() for _ in range(31)]) == [*range(1, 32)]
        assert seen == [*range(1, len(seen) + 1)]


def is_blocked(served: Served) -> bool:
    return any(reader.sending_since is not None for reader in served.app.services.hub.readers)


def body_of(answer: bytes) -> bytes:
    """What came of a chunked body."""
    rest, body = answer.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def read_to_end(client: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            got += data
    return got


@requirement("gateway:5")
async def test_readers_that_never_read_take_less_than_a_mebibyte_each(open_home: OpenHome) -> None:
    readers = 24
    async with serve(open_home) as served, contextlib.AsyncExitStack() as stack:
        await served.open("api:chat")
        for number in range(40):
            await served.append("api:chat", f"{number} " + "x" * 200_000)
        # Who keeps up moves the shared tail on, so that each of the others reads for itself.
        live = await stack.enter_async_context(following(served.client, f"{EVENTS}?after=41"))
        gc.collect()
        before = psutil.Process().memory_info().rss
        for _ in range(readers):
            stack.enter_context(open_deaf(served, f"{EVENTS}?after=0"))
        hub = served.app.services.hub
        await until(lambda: sum(reader.sending_since is not None for reader in hub.readers) == readers)
        for number in range(20):
            await served.append("api:chat", f"{number} " + "x" * 200_000)
        gc.collect()
        # This process also holds what they share, and what the reader that keeps up was given.
        assert psutil.Process().memory_info().rss - before < (readers + 16) * MIB
        async with following(served.client, EVENTS) as stream:
            assert ids([await stream.next() for _ in range(61)]) == [*range(1, 62)]
        assert ids([await live.next() for _ in range(20)]) == [*range(42, 62)]


@requirement("gateway:1")
async def test_two_hundred_readers_of_one_session_get_everything(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        got: list[list[int]] = []
        ready = anyio.Event()
        waiting: list[None] = []

        async def read() -> None:
            async with following(served.client, EVENTS) as stream:
                seen = ids([await stream.next()])
                waiting.append(None)
                if len(waiting) == 200:
                    ready.set()
                while seen[-1] < 21:
                    seen += ids([await stream.next()])
                got.append(seen)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(read)
            await ready.wait()
            for number in range(20):
                tasks.start_soon(served.append, "api:chat", str(number))
    assert got == [[*range(1, 22)]] * 200


@requirement("gateway:5")
async def test_stopping_ends_streams_at_once_and_in_good_order(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(SECONDS):
        async with serve(open_home) as served:
            await served.open("api:chat")
            client = new_client(served.url, TOKEN)
            requests = [client.build_request("GET", address) for address in (FOLLOW, EVENTS)]
            streams = [Stream(await client.send(request, stream=True)) for request in requests]
            for stream in streams:
                await stream.next()
        assert [await stream.rest() for stream in streams] == [[], []]
        await client.aclose()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == [], "no stream was cut after the time of grace"


@requirement("gateway:1")
async def test_a_flood_of_pieces_does_not_grow_a_reader_that_does_not_read(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        hub = served.app.services.hub
        session = (
            await served.app.services.sessions.get(OWNER, served.app.services.sessions.target("api:chat"))
        ).session
        with open_deaf(served, EVENTS):
            await until(lambda: [reader.cursor for reader in hub.readers] == [1])
            (reader,) = hub.readers
            for _ in range(200):
                hub.publish_delta(session.row, Delta(RunId("run_1"), 1, "y" * 100_000, PUBLIC))
                await anyio.lowlevel.checkpoint()
            assert 0 < reader.pending_length < MIB
