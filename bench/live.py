"""B6: one session followed live by 1,000 readers over HTTP, beside a bare server; and posts over HTTP."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import psutil

from bench import idle
from bench.measure import Row, micros, p50, p99

READERS = 1000
EVENTS = 50
EVENTS_A_SECOND = 5
"""With 1,000 readers 5,000 deliveries a second."""
STREAMS = 2000
"""That many are open while posts are timed."""
TIMED_POSTS = 40
POST_SECONDS = 4.0
POSTERS = 16
MARK = b"bench-mark-"
FRAME = b"3e8\r\n" + MARK + b"%06d" + b"x" * 983 + b"\r\n"
"""A chunk of 1,000 bytes, as a message's frame is with its ids and times."""

BARE = f"""
import asyncio, uvloop
class Server(asyncio.Protocol):
    all = set()
    def connection_made(self, transport): self.all.add(transport)
    def connection_lost(self, error): pass
    def data_received(self, data):
        if data.startswith(b"G"):
            return
        for number in data.split():
            frame = {FRAME!r} % int(number)
            for transport in self.all: transport.write(frame)
async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)
uvloop.run(main())
"""


class Reader(asyncio.Protocol):
    """Notes when each mark came."""

    def __init__(self, request: bytes, came: Callable[[int], None], ready: Callable[[], None]) -> None:
        self.request = request
        self.came = came
        self.ready: Callable[[], None] | None = ready
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.WriteTransport", transport).write(self.request)
        if not self.request.startswith(b"GET /s"):
            self.tell()

    def tell(self) -> None:
        if self.ready is not None:
            self.ready()
            self.ready = None

    def data_received(self, data: bytes) -> None:
        if self.ready is not None and b"event: history" in data:
            self.tell()
        data = self._rest + data
        start = data.find(MARK)
        while 0 <= start <= len(data) - len(MARK) - 6:
            self.came(int(data[start + len(MARK) : start + len(MARK) + 6]))
            start = data.find(MARK, start + len(MARK))
        self._rest = data[-len(MARK) - 5 :] if start < 0 else data[start:]
        if start < 0 and MARK in self._rest:
            self._rest = b""


async def follow(directory: Path) -> list[Row]:
    home = directory / "home"
    process = idle.start_gateway(home)
    try:
        url = await idle.ready_url(home)
        port = int(url.rpartition(":")[2])
        token = (home / "owner.token").read_text().strip()
        head = f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\n".encode()
        await post(port, head, b"/sessions", {"key": "api:live"})
        request = b"GET /sessions/api:live/history?follow=1 HTTP/1.1\r\n" + head + b"\r\n"

        async def publish(number: int) -> None:
            text = f"{MARK.decode()}{number:06}{'x' * 700}"
            await post(port, head, b"/sessions/api:live/messages?append=1", {"text": text})

        cost, waits = await measure_deliveries(process.pid, port, request, publish)
        posts, post_cost = await _posts(process.pid, port, head)
        opening, beside = await _posts_beside_streams(port, head, request)
    finally:
        process.terminate()
        process.wait()
    bare = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        assert bare.stdout is not None
        bare_port = int(await asyncio.to_thread(bare.stdout.readline))
        _, teller = await asyncio.open_connection("127.0.0.1", bare_port)

        async def tell(number: int) -> None:
            teller.write(b"%d " % number)

        bare_cost, _ = await measure_deliveries(bare.pid, bare_port, b"G", tell)
        teller.close()
    finally:
        bare.terminate()
        bare.wait()
    ratio = cost / bare_cost
    return [
        Row(
            id="B6",
            what=f"{READERS:,} readers of one session, {READERS * EVENTS_A_SECOND:,} deliveries/s: CPU each; p50, p99",
            measured=f"{micros(cost)}; {micros(p50(waits))}, {micros(p99(waits))}",
            reference=f"a bare uvloop server {micros(bare_cost)} (×{ratio:.1f})",
            target="≤ 3 × bare; p50 ≤ 100 ms",
            is_met=ratio <= 3 and p50(waits) <= 0.1,
            figures={"cpu_s": cost, "bare_cpu_s": bare_cost, "ratio": ratio, "p50_s": p50(waits), "p99_s": p99(waits)},
        ),
        Row(
            id="B6p",
            what=f"posts over HTTP, {POSTERS} connections, stored without a run",
            measured=f"{posts:,.0f}/s, {micros(post_cost)} of CPU each",
            reference="",
            target="none",
            is_met=True,
            figures={"posts_per_s": posts, "cpu_s": post_cost},
        ),
        Row(
            id="B6s",
            what=f"a post to the session that {STREAMS:,} streams follow: p50, longest",
            measured=f"{micros(p50(beside))}, {micros(max(beside))}",
            reference=f"while they open, a hundred at a time: longest {micros(max(opening))}",
            target="≤ 500 ms",
            is_met=max(beside) <= 0.5,
            figures={"beside_p50_s": p50(beside), "beside_longest_s": max(beside), "opening_longest_s": max(opening)},
        ),
    ]


async def _posts_beside_streams(port: int, head: bytes, request: bytes) -> tuple[list[float], list[float]]:
    """How long each post takes until its answer, while streams open, and once all are open."""
    loop = asyncio.get_running_loop()
    opened, all_open = 0, asyncio.Event()

    def ready() -> None:
        nonlocal opened
        opened += 1
        if opened == STREAMS:
            all_open.set()

    async def write() -> float:
        began = time.perf_counter()
        await post(port, head, b"/sessions/api:live/messages?append=1", {"text": "hello"})
        return time.perf_counter() - began

    async with asyncio.timeout(120):
        opening, transports = list[float](), list[asyncio.Transport]()
        for number in range(STREAMS):
            if number % 100 == 0:
                opening.append(await write())
            connecting = loop.create_connection(lambda: Reader(request, lambda _: None, ready), "127.0.0.1", port)
            transports.append((await connecting)[0])
        await all_open.wait()
        beside = [await write() for _ in range(TIMED_POSTS)]
    for transport in transports:
        transport.abort()
    return opening, beside


async def measure_deliveries(
    pid: int,
    port: int,
    request: bytes,
    publish: Callable[[int], Awaitable[None]],
    reader: "type[Reader] | None" = None,
) -> tuple[float, list[float]]:
    """CPU seconds of that process for one delivery, and how long each took to come."""
    loop = asyncio.get_running_loop()
    sent = dict[int, float]()
    waits: list[float] = []
    opened = 0
    all_open, all_came = asyncio.Event(), asyncio.Event()

    def ready() -> None:
        nonlocal opened
        opened += 1
        if opened == READERS:
            all_open.set()

    def came(number: int) -> None:
        waits.append(time.perf_counter() - sent[number])
        if len(waits) == READERS * EVENTS:
            all_came.set()

    transports = [
        (await loop.create_connection(lambda: (reader or Reader)(request, came, ready), "127.0.0.1", port))[0]
        for _ in range(READERS)
    ]
    async with asyncio.timeout(120):
        await all_open.wait()
        await asyncio.sleep(1)
        before = cpu_seconds(pid)
        for number in range(EVENTS):
            sent[number] = time.perf_counter()
            await publish(number)
            await asyncio.sleep(max(0.0, sent[number] + 1 / EVENTS_A_SECOND - time.perf_counter()))
        await all_came.wait()
        used = cpu_seconds(pid) - before
    for transport in transports:
        transport.abort()
    return used / (READERS * EVENTS), waits


async def _posts(pid: int, port: int, head: bytes) -> tuple[float, float]:
    """Posts a second, and CPU seconds of the gateway for one."""
    end = time.perf_counter() + POST_SECONDS
    done = 0

    async def post() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            writer.write(request_bytes(head, b"/sessions/api:live/messages?append=1", {"text": "hello"}))
            await read_answer(reader)
            done += 1
        writer.close()

    before = cpu_seconds(pid)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(POSTERS):
            tasks.create_task(post())
    return done / POST_SECONDS, (cpu_seconds(pid) - before) / done


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def request_bytes(head: bytes, path: bytes, body: object) -> bytes:
    encoded = json.dumps(body).encode()
    kind = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(encoded)
    return b"POST " + path + b" HTTP/1.1\r\n" + head + kind + encoded


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 20"), head
    return await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))


async def post(port: int, head: bytes, path: bytes, body: object) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(head, path, body))
    await read_answer(reader)
    writer.close()
