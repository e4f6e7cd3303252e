"""What a client of the socket may make the gateway hold and do, on its own connection and after it."""

import gc
import json
import tracemalloc
from typing import Any

import anyio
import pytest
from websockets.frames import Close, Frame, Opcode

from antiphon.app import gateway_app
from antiphon.feed.listed import Listing
from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.server import bind, serving
from antiphon.gateway.socket.frames import read_request
from antiphon.gateway.socket_connection import SocketConnection
from antiphon.metrics import READERS_CUT
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import TOKEN, Served, new_client, serve
from tests.gateway.socket.speaking import speaking
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


def masked(method: str, params: object, *, id: str) -> bytes:
    """The request as the bytes of a client's frame."""
    text = json.dumps({"type": "req", "id": id, "method": method, "params": params})
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=True)


def lists() -> list[Listing[Any]]:
    """The lists of sessions that the gateway still holds."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is Listing]


@requirement("gateway:3", "gateway:5")
async def test_lists_that_a_socket_asked_for_as_it_closed_do_not_stay(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        async with speaking(served) as speaker:
            asked = [masked("sessions.subscribe", {"search": f"x{each}"}, id=str(each)) for each in range(31)]
            end = Frame(Opcode.CLOSE, Close(1000, "").serialize()).serialize(mask=True)
            speaker.socket.transport.write(b"".join(asked) + end)
            await speaker.socket.wait_closed()
        with anyio.fail_after(SECONDS):
            while any("_ServedSocket._answer" in (task.name or "") for task in anyio.get_running_tasks()):
                await anyio.sleep(0.01)  # until the requests are over
        assert lists() == []


@requirement("gateway:5", "access:5")
async def test_beginning_a_subscription_counts_like_a_change_and_ending_one_does_not(open_home: OpenHome) -> None:
    limits = {"limits": {"owner": {"requests_per_minute": 1, "burst": 3}}}
    async with serve(open_home, limits) as served, speaking(served) as speaker:
        for name in ("sessions.subscribe", "runs.subscribe", "approvals.subscribe"):
            await speaker.call(name)
        assert (await speaker.ask("sessions.subscribe"))["error"]["code"] == "rate_limited"
        await speaker.call("runs.unsubscribe")
        await speaker.call("sessions.list")


def test_a_request_keeps_its_parameters_and_not_its_frame() -> None:
    frame = b'{"type":"req",' + b" " * MIB + b'"id":"1","method":"runs.wait","params":{"runId":"run_1"}}'
    tracemalloc.start()
    try:
        kept = [read_request(bytes(bytearray(frame))) for _ in range(8)]
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
    assert {bytes(each.params) for each in kept} == {b'{"runId":"run_1"}'}


@requirement("gateway:2", "gateway:5")
async def test_parameters_beyond_the_limit_of_their_method_are_refused_before_they_are_kept(
    open_home: OpenHome,
) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        for method in ("runs.wait", "sessions.subscribe", "no.method"):
            refused = await speaker.ask(method, key="x" * 70_000)
            assert refused["error"]["code"] == "body_too_large", method


@requirement("gateway:2", "gateway:5")
async def test_open_requests_hold_no_more_than_a_frame_together(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await speaker.call("sessions.create", key="api:busy")
        run = (await speaker.call("chat.send", key="api:busy", text="!sleep 3600"))["runId"]
        params = json.dumps({"key": "api:busy", "text": "!sleep 3600", "wait": SECONDS}).replace(
            "}", " " * 5 * MIB + "}"
        )
        for id in ("first", "second"):
            await speaker.socket.send(f'{{"type":"req","id":"{id}","method":"sessions.post","params":{params}}}')
        refused = await speaker.answer("second")
        assert (refused["error"]["type"], refused["error"]["code"]) == ("rate_limited", "busy")
        assert (await speaker.call("health.get")) == {"ok": True}
        await speaker.call("runs.cancel", runId=run)


@requirement("gateway:2", "gateway:5")
async def test_answers_that_nobody_reads_are_bounded(open_home: OpenHome) -> None:
    limits = ConnectionLimits(socket_stall_seconds=100 * SECONDS)
    async with serve(open_home) as served:
        await served.open("api:chat")
        for _ in range(4):
            await served.append("api:chat", "x" * 900_000)
        quiet = serving(gateway_app(served.app, TOKEN), bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits)
        async with (
            quiet as url,
            new_client(url, TOKEN) as client,
            speaking(Served(served.app, url, client)) as speaker,
        ):
            before = READERS_CUT.read()
            speaker.socket.transport.pause_reading()
            for number in range(20):
                await speaker.send("sessions.history", {"key": "api:chat", "limit": 100}, id=f"h{number}")
            with anyio.fail_after(SECONDS):
                while READERS_CUT.read() == before:
                    await anyio.sleep(0.01)
            speaker.socket.transport.abort()


def _sockets() -> list[SocketConnection]:
    """Those of this process, also of tests before."""
    return [each for each in gc.get_objects() if type(each) is SocketConnection]


@requirement("gateway:2", "gateway:5")
async def test_changes_that_wait_for_the_answer_of_their_subscription_are_bounded(open_home: OpenHome) -> None:
    limits = ConnectionLimits(socket_stall_seconds=100 * SECONDS)
    async with serve(open_home) as served:
        await served.open("api:chat")
        for _ in range(4):
            await served.append("api:chat", "x" * 900_000)
        sessions, is_full = served.app.services.sessions, anyio.Event()
        list_now = sessions.list

        async def list_later(*given: Any, **named: Any) -> Any:
            await is_full.wait()
            return await list_now(*given, **named)

        quiet = serving(gateway_app(served.app, TOKEN), bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits)
        earlier = _sockets()
        async with (
            quiet as url,
            new_client(url, TOKEN) as client,
            speaking(Served(served.app, url, client)) as speaker,
        ):
            before = READERS_CUT.read()
            speaker.socket.transport.pause_reading()
            sessions.list = list_later
            await speaker.send("sessions.subscribe", id="list")
            for number in range(3):
                await speaker.send("sessions.history", {"key": "api:chat", "limit": 100}, id=f"h{number}")
            [socket] = [each for each in _sockets() if each not in earlier]
            with anyio.fail_after(SECONDS):
                while socket.is_writable:
                    await anyio.sleep(0.01)
            is_full.set()
            sessions.list = list_now
            with anyio.fail_after(SECONDS):
                while READERS_CUT.read() == before:
                    await served.append("api:chat", "y" * 100_000)
            speaker.socket.transport.abort()
