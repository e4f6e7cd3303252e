"""What a socket does with clients that are wrong, slow or hostile: one error each, and everybody else goes on."""

import gc
import json
import random
import re
import socket
import struct
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from antiphon.app import gateway_app
from antiphon.gateway import connections
from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.server import bind, serving
from antiphon.gateway.socket_connection import SocketConnection
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import TOKEN, Json, Served, new_client, serve
from tests.gateway.socket.speaking import CONNECT, Speaker, address, opened, speaking
from tests.shards import shard
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
RESET = struct.pack("ii", 1, 0)
"""Closing a socket that lingers so long resets the connection."""


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    """A gateway that answers a second client at the end, whatever the first one did."""
    async with serve(open_home) as served, speaking(served) as bystander:
        yield served
        assert (await bystander.call("health.get"))["ok"] is True


async def closing(speaker: Speaker) -> tuple[int, str]:
    """The code and reason with which the gateway closes, after whatever else it sends."""
    with anyio.fail_after(SECONDS):
        try:
            while True:
                await speaker.socket.recv()
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return closed.rcvd.code, closed.rcvd.reason


async def refusal(speaker: Speaker) -> Json:
    """The next frame, which is an error."""
    frame = await speaker.read()
    assert (frame["type"], frame["ok"]) == ("res", False)
    return frame


def request(**fields: Any) -> str:
    return json.dumps({"type": "req", "id": "1", "method": "health.get"} | fields)


@requirement("gateway:2")
async def test_a_binary_frame_closes_the_connection(served: Served) -> None:
    async with speaking(served) as speaker:
        await speaker.socket.send(request().encode())
        assert await closing(speaker) == (1003, "Frames are texts. Send JSON as text.")


@requirement("gateway:2")
async def test_a_text_that_is_not_utf8_closes_the_connection(served: Served) -> None:
    async with speaking(served) as speaker:
        await speaker.socket.send(b'{"\xff"}', text=True)
        assert (await closing(speaker))[0] == 1007


UNREADABLE: dict[str, tuple[str, str | None, str]] = {
    "not JSON": ("hello", None, "not_json"),
    "nested": ("[" * 10_000 + "]" * 10_000, None, "invalid_request"),
    "nested parameters": (request(params=0).replace("0}", "[" * 10_000 + "]" * 10_000 + "}"), None, "not_json"),
    "a list": ("[]", None, "invalid_request"),
    "no id": ('{"type": "req", "method": "health.get"}', None, "invalid_request"),
    "a number as id": (request(id=7), None, "invalid_request"),
    "an empty id": (request(id=""), None, "invalid_request"),
    "an id of a megabyte": (request(id="x" * MIB), None, "invalid_request"),
    "half a surrogate as id": ('{"type": "req", "id": "\\ud800", "method": "health.get"}', None, "not_json"),
    "half a surrogate": (
        '{"type": "req", "id": "1", "method": "sessions.get", "params": {"key": "\\ud800"}}',
        "1",
        "not_json",
    ),
    "another type": (request(type="res"), "1", "invalid_request"),
    "two ids": ('{"type": "req", "id": "1", "id": "2", "method": "health.get"}', "2", "invalid_request"),
    "two ids, one written otherwise": (
        '{"type": "req", "id": "1", "\\u0069d": "2", "method": "health.get"}',
        "2",
        "invalid_request",
    ),
    "two sets of parameters": (request(params={}).replace("}}", '}, "params": {}}'), "1", "invalid_request"),
    "an unknown field": (request(scope="admin"), "1", "invalid_request"),
    "a list of parameters": (request(method="sessions.get", params=[]), "1", "invalid_request"),
    "no method": ('{"type": "req", "id": "1"}', "1", "invalid_request"),
    "an unknown method": (request(method="sessions.explode"), "1", "unknown_method"),
    "a method of HTTP": (request(method="sessions.transcript", params={"key": "main"}), "1", "only_http"),
    "a stream": (request(method="sessions.history", params={"key": "main", "follow": True}), "1", "only_http"),
    "unknown parameters": (request(params={"scope": "admin"}), "1", "invalid_request"),
    "too many values": (request(params=list(range(20_001))), "1", "not_json"),
}


@requirement("gateway:2", "answers:3")
@pytest.mark.parametrize("case", UNREADABLE)
async def test_a_frame_that_is_no_request_gets_one_error_and_the_connection_goes_on(served: Served, case: str) -> None:
    text, id, code = UNREADABLE[case]
    async with speaking(served) as speaker:
        await speaker.socket.send(text)
        refused = await refusal(speaker)
        assert (refused.get("id"), refused["error"]["code"]) == (id, code)
        assert len(json.dumps(refused)) < 2_000
        assert (await speaker.call("health.get")) == {"ok": True}


@requirement("gateway:2")
async def test_names_inside_parameters_and_texts_are_not_those_of_the_frame(served: Served) -> None:
    async with speaking(served) as speaker:
        for text in ('"id": "2", "id": "3", "method": [{"type": 1}]', "\\u0069d \ud83d\ude00"):
            created = await speaker.ask("sessions.create", key="api:id", metadata={"id": text, "type": {"id": text}})
            assert created["ok"] or "field twice" not in created["error"]["message"], created


@requirement("gateway:2", "gateway:5")
async def test_a_message_of_a_hundred_mebibytes_in_pieces_is_cut_at_eight(served: Served) -> None:
    async with speaking(served) as speaker:
        sent = 0

        async def pieces() -> AsyncGenerator[str]:
            nonlocal sent
            while sent < 100 * MIB:
                sent += MIB
                yield "x" * MIB

        with pytest.raises(ConnectionClosed):
            await speaker.socket.send(pieces())
            await closing(speaker)
        assert speaker.socket.close_code in (1009, 1006)  # without the frame if the connection broke while it wrote
        assert sent < 100 * MIB


@requirement("gateway:2", "gateway:5")
async def test_a_message_in_a_million_pieces_is_cut(served: Served) -> None:
    async with speaking(served) as speaker:
        piece = Frame(Opcode.CONT, b"x", fin=False).serialize(mask=True)
        first = Frame(Opcode.TEXT, b"x", fin=False).serialize(mask=True)
        speaker.socket.transport.write(first + piece * 5_000)
        assert (await closing(speaker))[0] == 1008


@requirement("gateway:2", "gateway:5")
async def test_before_connect_a_frame_has_at_most_64_kib(served: Served) -> None:
    async with opened(served) as speaker:
        await speaker.send("connect", CONNECT | {"token": TOKEN, "client": "x" * 70_000})
        assert (await closing(speaker))[0] == 1009
    async with speaking(served) as speaker:
        await served.open("api:chat")
        posted = await speaker.call("sessions.append", key="api:chat", text="x" * MIB)
        assert posted["seq"] == 2


NO_GREETING: dict[str, tuple[str, Json | None, str]] = {
    "a method": ("sessions.list", {}, "not_connected"),
    "an open method": ("health.get", {}, "not_connected"),
    "no token": ("connect", CONNECT, "token_missing"),
    "a wrong token": ("connect", CONNECT | {"token": "tok_x_y"}, "bad_token"),
    "another protocol": ("connect", CONNECT | {"token": TOKEN, "protocol": {"min": 2, "max": 9}}, "invalid_request"),
    "no protocol": ("connect", {"client": "x", "token": TOKEN}, "invalid_request"),
    "claimed scopes": ("connect", CONNECT | {"token": TOKEN, "scopes": ["admin"]}, "invalid_request"),
    "a page secret without a cookie": ("connect", CONNECT | {"page": "0" * 64}, "token_missing"),
}


@requirement("gateway:2", "access:2", "gateway:5")
@pytest.mark.parametrize("case", NO_GREETING)
async def test_a_connection_that_does_not_prove_itself_is_ended_with_its_error(served: Served, case: str) -> None:
    method, params, code = NO_GREETING[case]
    async with opened(served) as speaker:
        await speaker.send(method, params)
        assert (await refusal(speaker))["error"]["code"] == code
        assert await closing(speaker) == (1008, code)


@requirement("gateway:2")
async def test_a_second_connect_is_refused(served: Served) -> None:
    async with speaking(served) as speaker:
        again = await speaker.ask("connect", **CONNECT, token=TOKEN)
        assert again["error"]["code"] == "already_connected"
        assert (await speaker.call("health.get")) == {"ok": True}


@requirement("gateway:2")
async def test_a_repeated_open_id_is_refused_and_the_first_is_answered(served: Served) -> None:
    async with speaking(served) as speaker:
        run = await _sleeping(speaker)
        await speaker.send("runs.wait", {"runId": run, "wait": SECONDS}, id="same")
        await speaker.send("health.get", id="same")
        assert (await speaker.answer("same"))["error"]["code"] == "id_in_use"
        await speaker.call("runs.cancel", runId=run)
        assert (await speaker.answer("same"))["payload"]["status"] == "cancelled"


async def _sleeping(speaker: Speaker) -> str:
    """The id of a run that works until it is cancelled."""
    await speaker.call("sessions.create", key="api:busy")
    return (await speaker.call("chat.send", key="api:busy", text="!sleep 3600"))["runId"]


@requirement("gateway:2")
async def test_more_than_64_open_requests_are_refused_as_busy(served: Served) -> None:
    async with speaking(served) as speaker:
        run = await _sleeping(speaker)
        for number in range(64):
            await speaker.send("runs.wait", {"runId": run, "wait": SECONDS}, id=f"wait {number}")
        assert (await speaker.ask("health.get"))["error"]["code"] == "busy"
        await speaker.send("connect", CONNECT, id="none")
        assert (await speaker.answer("none"))["error"]["code"] == "busy"
        async with speaking(served) as other:
            await other.call("runs.cancel", runId=run)
        for number in range(64):
            assert (await speaker.answer(f"wait {number}"))["ok"]
        assert (await speaker.call("health.get")) == {"ok": True}


@requirement("gateway:2", "gateway:3")
async def test_ten_thousand_subscriptions_end_at_the_limit(served: Served) -> None:
    async with speaking(served) as speaker:
        limit = speaker.hello["limits"]["subscriptions"]
        for number in range(limit + 1):
            await speaker.call("sessions.create", key=f"api:{number}")
        for number in range(limit):
            await speaker.call("sessions.messages.subscribe", key=f"api:{number}")
        refused = await speaker.ask("sessions.messages.subscribe", key=f"api:{limit}")
        assert (refused["error"]["type"], refused["error"]["code"]) == ("rate_limited", "too_many_subscriptions")
        await speaker.call("sessions.messages.subscribe", key="api:0")
        await speaker.call("sessions.messages.unsubscribe", key="api:1")
        await speaker.call("sessions.messages.subscribe", key=f"api:{limit}")
        for number in range(50):
            refused = await speaker.ask("sessions.subscribe", search=str(number))
        assert refused["error"]["code"] == "too_many_subscriptions"


@requirement("gateway:2", "gateway:3")
async def test_subscriptions_asked_for_at_once_do_not_pass_the_limit(served: Served) -> None:
    async with speaking(served) as speaker:
        limit = speaker.hello["limits"]["subscriptions"]
        sessions = [f"api:{number}" for number in range(limit + 30)]
        for session in sessions:
            await speaker.call("sessions.create", key=session)
        for session in sessions[: limit - 10]:
            await speaker.call("sessions.messages.subscribe", key=session)
        for session in sessions[limit - 10 :]:
            await speaker.send("sessions.messages.subscribe", {"key": session, "limit": 1}, id=session)
        answers = [await speaker.answer(session) for session in sessions[limit - 10 :]]
        assert sum(answer["ok"] for answer in answers) == 10
        for session in sessions[:10]:
            await speaker.call("sessions.messages.unsubscribe", key=session)
        for session in sessions[:10]:
            await speaker.call("sessions.messages.subscribe", key=session)
        refused = next(answer["id"] for answer in answers if not answer["ok"])
        assert (await speaker.ask("sessions.messages.subscribe", key=refused))["ok"] is False


@requirement("gateway:1", "gateway:3", "keys:6")
async def test_cursors_that_name_nothing_begin_anew_with_the_reason(served: Served) -> None:
    await served.open("api:chat")
    last = await served.append("api:chat", "first life")
    async with speaking(served) as speaker:
        for after, reason in ((last + 1, "ahead"), (10**17, "ahead")):
            answer = await speaker.call("sessions.messages.subscribe", key="api:chat", after=after)
            assert (answer["reset"], answer["seq"]) == (reason, last)
        await served.client.delete("/sessions/api:chat")
        reset = await speaker.event("session.reset")
        assert reset["payload"] == {"sessionKey": "agent:main:api:chat", "reason": "deleted"}
        await served.open("api:chat")
        newest = await served.append("api:chat", "second life")
        answer = await speaker.call("sessions.messages.subscribe", key="api:chat", after=last, limit=10)
        assert (answer["reset"], answer["seq"]) == ("pruned", newest)
        assert [message["seq"] for message in answer["history"]["messages"]] == [newest]


@requirement("gateway:5")
async def test_a_flood_of_pings_ends_the_connection_before_its_answers_pile_up(served: Served) -> None:
    async with speaking(served) as speaker:
        ping = Frame(Opcode.PING, b"x" * 125).serialize(mask=True)
        speaker.socket.transport.write(ping * 10_000)
        assert await closing(speaker) == (1008, "Too many pings. Send one a second.")
    async with speaking(served) as speaker:
        for _ in range(20):
            await (await speaker.socket.ping())


@requirement("gateway:5")
async def test_upgrades_that_are_none_are_answered_over_http(served: Served) -> None:
    upgrade = "Host: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    cases = {
        f"GET /ws HTTP/1.0\r\n{upgrade}{key}\r\n": 400,
        f"POST /ws HTTP/1.1\r\n{upgrade}{key}Content-Length: 0\r\n\r\n": 405,
        f"GET /elsewhere HTTP/1.1\r\n{upgrade}{key}\r\n": 404,
        f"GET /ws?token=secret HTTP/1.1\r\n{upgrade}{key}\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}Sec-WebSocket-Key: x\r\n\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}{key}{key}\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade.replace('13', '8')}{key}\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}{key}Content-Length: 5\r\n\r\nhello": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}{key}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
        "GET /ws HTTP/1.1\r\nHost: {host}\r\n\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}{key}X: {'x' * 9000}\r\n\r\n": 400,
        f"GET /ws HTTP/1.1\r\n{upgrade}{key}Origin: https://evil.test\r\n\r\n": 403,
        f"GET /ws HTTP/1.1\r\n{upgrade.replace('{host}', 'evil.test')}{key}\r\n": 403,
    }
    for text, status in cases.items():
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(text.replace("{host}", f"127.0.0.1:{served.port}").encode())
            answer = b""
            with anyio.fail_after(SECONDS), suppress(anyio.EndOfStream):
                while not answer.endswith(b"}}"):
                    answer += await stream.receive()
            assert int(answer.split()[1]) == status, text
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"], text


@requirement("gateway:5")
async def test_a_token_in_the_address_is_refused_and_not_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with pytest.raises(InvalidStatus) as refused:
        async with opened(served, uri=f"{address(served)}?token={TOKEN}"):
            pass
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "query_not_allowed"
    ours = [record for record in caplog.records if not record.name.startswith("websockets.client")]
    assert not any(TOKEN in record.getMessage() for record in ours)


@requirement("gateway:2", "gateway:5")
async def test_a_connection_that_says_nothing_is_ended_in_five_seconds(served: Served) -> None:
    async with opened(served) as speaker:
        assert await closing(speaker) == (1008, "No 'connect' came within 5 seconds.")


@requirement("gateway:2", "gateway:5")
async def test_a_client_that_does_not_read_is_cut_and_loses_nothing(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        limits = ConnectionLimits(socket_stall_seconds=1.0)
        quick = serving(gateway_app(served.app, TOKEN), bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits)
        async with quick as url, new_client(url, TOKEN) as client:
            there = replace_url(served, url, client)
            async with speaking(there, max_queue=1) as stalled, speaking(there) as bystander:
                await stalled.call("sessions.messages.subscribe", key="api:chat")
                await bystander.call("sessions.messages.subscribe", key="api:chat")
                stalled.socket.transport.pause_reading()
                seqs = [await served.append("api:chat", "x" * MIB) for _ in range(12)]
                assert [(await bystander.event())["seq"] for _ in seqs] == seqs
                with anyio.fail_after(SECONDS):
                    while there.app.services.hub.readers[1:]:
                        await anyio.sleep(0.05)  # until the stalled one was cut
            async with speaking(there) as resumed:
                await resumed.call("sessions.messages.subscribe", key="api:chat", after=1)
                assert [(await resumed.event())["seq"] for _ in seqs] == seqs


def replace_url(served: Served, url: str, client: httpx.AsyncClient) -> Served:
    return Served(served.app, url, client)


@requirement("gateway:2", "gateway:5")
async def test_a_client_that_answers_no_ping_is_ended_as_one_that_does_not_read(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        limits = ConnectionLimits(ping_seconds=0.2)
        eager = serving(gateway_app(served.app, TOKEN), bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits)
        async with (
            eager as url,
            new_client(url, TOKEN) as client,
            speaking(replace_url(served, url, client)) as speaker,
        ):
            protocol = speaker.socket.protocol
            send_frame = protocol.send_frame
            protocol.send_frame = lambda frame: None if frame.opcode is Opcode.PONG else send_frame(frame)
            code, reason = await closing(speaker)
            assert (code, "pings" in reason) == (1013, True)


def test_every_code_with_which_a_connection_ends_is_described() -> None:
    pattern = r"(?:end\(|_end_later, |TOO_SLOW = )(1[0-9]{3})"
    sources = [source.read_text("utf-8") for source in Path(connections.__file__).parent.rglob("*.py")]
    ended_with = {code for source in sources for code in re.findall(pattern, source)}
    by_the_library = {"1002", "1007", "1009", "1012"}
    table = (ROOT / "docs" / "WEBSOCKET.md").read_text("utf-8").partition("| code |")[2].partition("\n\n")[0]
    assert set(re.findall(r"\b1[0-9]{3}\b", table)) == ended_with | by_the_library


@requirement("gateway:5")
async def test_a_client_that_sends_and_never_reads_is_not_read_any_more(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        limits = ConnectionLimits(socket_stall_seconds=1.0)
        quick = serving(gateway_app(served.app, TOKEN), bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits)
        async with (
            quick as url,
            new_client(url, TOKEN) as client,
            speaking(replace_url(served, url, client)) as speaker,
        ):
            speaker.socket.transport.pause_reading()
            with pytest.raises(ConnectionClosed):
                with anyio.fail_after(SECONDS):
                    while True:
                        await speaker.send("sessions.list", {"search": "x" * 150})


@requirement("gateway:2", "gateway:5")
async def test_ten_thousand_wrong_frames_leave_no_id_without_an_answer(served: Served, is_soak: bool) -> None:
    """The long form sends a million, on connections of 10,000 frames each."""
    for number in range(shard().share(100) if is_soak else 1):
        await send_wrong_frames(served, random.Random(shard().seed(18) + 100 * number))


async def send_wrong_frames(served: Served, chance: random.Random) -> None:
    """Ten thousand on one connection; each id that can be read is answered, and nothing is an internal error."""
    await served.open("api:chat")
    good = [
        request(),
        request(method="sessions.get", params={"key": "api:chat"}),
        request(method="sessions.messages.subscribe", params={"key": "api:chat", "after": 0}),
        request(method="sessions.subscribe", params={}),
        request(method="sessions.append", params={"key": "api:chat", "text": "x"}),
    ]
    async with speaking(served) as speaker:
        for batch in range(200):
            wanted: dict[str, int] = {}
            for number in range(50):
                frame = chance.choice(good).replace('"1"', f'"{batch}.{number}"', 1)
                text = mutated(frame, chance)
                await speaker.socket.send(text)
                if (id := id_of(text)) is not None:
                    wanted[id] = wanted.get(id, 0) + 1
            last = await speaker.send("health.get", id=f"end {batch}")
            answered: dict[str | None, int] = {}
            while last not in answered or any(answered.get(id, 0) < count for id, count in wanted.items()):
                frame = await speaker.read()
                if frame["type"] == "res":
                    answered[frame.get("id")] = answered.get(frame.get("id"), 0) + 1
                    assert frame["ok"] or frame["error"]["code"] != "internal_error", frame


def mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(['"', "{", "]", "\\ud800", "0", "", "\x00", "é", ",", "null"]) + text[at + 1 :]
    return text


def id_of(text: str) -> str | None:
    """The id that the gateway can read, as another reader of JSON sees it."""
    try:
        frame = json.loads(text)
        id = frame["id"]
        id.encode()
    except (ValueError, TypeError, KeyError, AttributeError, UnicodeError):
        return None
    return id if isinstance(id, str) and 0 < len(id) <= 100 else None


@requirement("gateway:5")
async def test_a_thousand_half_open_sockets_leave_nothing(served: Served) -> None:
    """All of them at once, without a word after the upgrade; half of them then vanish without a close."""
    head = (
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    await open_half(served.port, head, 50)  # what is made once
    await until_gone(0)
    gc.collect()
    before = len(anyio.get_running_tasks())
    tracemalloc.start()
    try:
        free = tracemalloc.get_traced_memory()[0]
        await open_half(served.port, head, 1_000)
        await until_gone(before)
        assert tracemalloc.get_traced_memory()[0] - free < 10 * MIB
    finally:
        tracemalloc.stop()


async def open_half(port: int, head: str, count: int) -> None:
    """Opens as many sockets as are let in, and leaves them."""
    streams: list[SocketStream] = []
    for _ in range(count):
        streams.append(await anyio.connect_tcp("127.0.0.1", port))
        await streams[-1].send(head.encode())
    for number, each in enumerate(streams):
        with anyio.move_on_after(SECONDS), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            await each.receive()
        if number % 2:
            await each.aclose()
        else:
            each.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            await each.aclose()


async def until_gone(tasks: int) -> None:
    """Returns when the gateway holds nothing of any socket but the bystander's."""
    with anyio.fail_after(SECONDS):
        while len(kept()) > 1 or (tasks and len(anyio.get_running_tasks()) > tasks):
            await anyio.sleep(0.1)
            gc.collect()


def kept() -> list[SocketConnection]:
    """The sockets that the gateway still holds anything of."""
    return [each for each in gc.get_objects() if type(each) is SocketConnection]
