"""Bounds of connections: in number, in what waits to be sent, and in what the log is told. Contract: gateway 5."""

import logging
import resource
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack

import anyio
import httpx
import psutil
import pytest

from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.guard import Receive, Scope, Send
from antiphon.gateway.server import bind, serving
from tests.claims import requirement
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def trailers(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the names of the headers, after all has come."""
    while (await receive()).get("more_body", False):
        pass
    names = b",".join(name for name, _ in scope["headers"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": names})


async def much(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 50_000_000})


async def is_closed(stream: anyio.abc.SocketStream) -> bool:
    with anyio.fail_after(SECONDS):
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
        return False


@requirement("gateway:5")
async def test_the_oldest_idle_connection_makes_room_and_working_ones_stay() -> None:
    begun, end = anyio.Event(), anyio.Event()

    async def works(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/works":
            begun.set()
            await end.wait()
        await trailers(scope, receive, send)

    limits = ConnectionLimits(connections=20)
    async with serving(works, bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits) as url:
        port = int(url.rpartition(":")[2])
        answers: list[httpx.Response] = []
        silent: list[anyio.abc.SocketStream] = []
        async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as client, anyio.create_task_group() as tasks:

            async def ask() -> None:
                answers.append(await client.get("/works"))

            tasks.start_soon(ask)
            await begun.wait()
            silent += [await anyio.connect_tcp("127.0.0.1", port) for _ in range(60)]
            assert (await client.get("/")).status_code == 200
            assert await is_closed(silent[0])
            end.set()
        assert answers[0].status_code == 200
        for stream in silent:
            await stream.aclose()


@requirement("gateway:5")
async def test_where_all_are_at_work_one_more_is_told_so() -> None:
    begun = 0
    has_all, end = anyio.Event(), anyio.Event()

    async def works(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        if begun == 5:
            has_all.set()
        await end.wait()
        await trailers(scope, receive, send)

    limits = ConnectionLimits(connections=5)
    async with (
        serving(works, bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits) as url,
        httpx.AsyncClient(base_url=url, timeout=SECONDS) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(5):
            tasks.start_soon(client.get, "/")
        await has_all.wait()
        answer = await client.get("/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_connections")
        assert answer.headers["retry-after"] == "1"
        end.set()


@requirement("gateway:5")
async def test_strangers_who_take_no_answer_make_room() -> None:
    async def in_parts(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 500_000, "more_body": True})

    limits = ConnectionLimits(connections=5)
    async with serving(in_parts, bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits) as url:
        deaf: list[anyio.abc.SocketStream] = []
        for _ in range(5):
            deaf.append(await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])))
            await deaf[-1].send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with anyio.fail_after(SECONDS):
                assert await deaf[-1].receive(1)
        async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as client, client.stream("GET", "/") as answer:
            assert answer.status_code == 200
        for stream in deaf:
            await stream.aclose()


@requirement("gateway:5")
async def test_a_body_in_many_small_chunks_is_refused_and_one_in_some_is_not() -> None:
    async with (
        serving(trailers, bind("127.0.0.1", 0), on_stop=lambda: None) as url,
        httpx.AsyncClient(base_url=url, timeout=SECONDS) as client,
    ):

        async def chunks(count: int, size: int) -> AsyncGenerator[bytes]:
            for _ in range(count):
                yield b"y" * size

        assert (await client.post("/", content=chunks(1000, 1))).status_code == 200
        assert (await client.post("/", content=chunks(5000, 64))).status_code == 200
        refused = await client.post("/", content=chunks(1100, 1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "chunks_too_small")


@requirement("gateway:5")
async def test_trailers_are_no_headers() -> None:
    async with serving(trailers, bind("127.0.0.1", 0), on_stop=lambda: None) as url:
        async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as stream:
            await stream.send(
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nCookie: a\r\n\r\n"
            )
            answer = await stream.receive()
            while b"\r\n0\r\n\r\n" not in answer:
                answer += await stream.receive()
        assert b"host,transfer-encoding" in answer and b"cookie" not in answer


@requirement("gateway:5")
async def test_who_takes_no_byte_of_an_answer_is_dropped() -> None:
    limits = ConnectionLimits(stall_seconds=0.5, idle_seconds=0.5)
    async with serving(much, bind("127.0.0.1", 0), on_stop=lambda: None, limits=limits) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with anyio.fail_after(SECONDS):
                while _sockets_of(int(url.rpartition(":")[2])):
                    await anyio.sleep(0.05)


def _sockets_of(port: int) -> int:
    """Connections that this process has accepted on the port and not closed."""
    found = psutil.Process().net_connections("tcp")
    return sum(1 for each in found if each.laddr[1:2] == (port,) and each.status == psutil.CONN_ESTABLISHED)


@requirement("gateway:5")
async def test_refusals_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with serving(trailers, bind("127.0.0.1", 0), on_stop=lambda: None) as url:
            for _ in range(50):
                async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as stream:
                    await stream.send(b"\0")
                    assert b"invalid_http" in await stream.receive()
    assert [(record.levelname, record.__dict__["code"]) for record in caplog.records] == [("WARNING", "invalid_http")]


@requirement("gateway:5")
async def test_the_soft_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("needs a hard limit of 2,048 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        async with serving(trailers, bind("127.0.0.1", 0), on_stop=lambda: None) as url:
            port = int(url.rpartition(":")[2])
            with ExitStack() as stack:
                for _ in range(700):  # both ends are this process's
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as client:
                    assert (await client.get("/")).status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1024), hard))
