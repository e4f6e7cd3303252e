"""B21: one session followed by 1,000 WebSockets, beside a bare server; and 1,000 that follow a list of 100 sessions."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from bench import idle
from bench.live import EVENTS_A_SECOND, MARK, READERS, Reader, cpu_seconds, measure_deliveries, post
from bench.measure import Row, micros, p50, p99

SESSIONS = 100
IDLE_SECONDS = 15.0
FRAME = b"\x81\x7e\x03\xe8" + MARK + b"%06d" + b"x" * 983
"""A text of 1,000 bytes, as a message's frame is with its ids and times."""

BARE = f"""
import asyncio, base64, hashlib, uvloop
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
class Server(asyncio.Protocol):
    all = set()
    def connection_made(self, transport): self.transport = transport
    def connection_lost(self, error): self.all.discard(self.transport)
    def data_received(self, data):
        if data.startswith(b"GET"):
            key = data.lower().partition(b"sec-websocket-key: ")[2]
            key = data[len(data) - len(key) :].split(b"\\r\\n")[0]
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            self.transport.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade"
                                 b"\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
            self.all.add(self.transport)
        elif data[:1] != b"\\x81":
            for number in data.split():
                frame = {FRAME!r} % int(number)
                for transport in self.all: transport.write(frame)
async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)
uvloop.run(main())
"""


def masked(text: bytes) -> bytes:
    """A client's frame; its mask is nought."""
    size = len(text)
    head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2)
    return head + bytes(4) + text


def request(id: str, method: str, **params: object) -> bytes:
    return masked(json.dumps({"type": "req", "id": id, "method": method, "params": params}).encode())


class SocketReader(Reader):
    """A WebSocket that notes when each mark came. It is ready once the last of its requests is answered."""

    frames: tuple[bytes, ...] = ()
    mark_of_ready = b""
    _seen = b""
    _is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.ready is None:
            super().data_received(data)
            return
        self._seen += data
        if not self._is_open and b"\r\n\r\n" in self._seen:
            assert self._seen.startswith(b"HTTP/1.1 101"), self._seen
            self._is_open = True
            self.transport.write(b"".join(self.frames))
        if self._is_open and self.mark_of_ready in self._seen:
            self._seen = b""
            self.tell()


def upgrade(port: int) -> bytes:
    key = base64.b64encode(os.urandom(16))
    return (
        b"GET /ws HTTP/1.1\r\nHost: localhost:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % (port, key)
    )


async def sockets(directory: Path) -> list[Row]:
    home = directory / "home"
    process = idle.start_gateway(home)
    try:
        url = await idle.ready_url(home)
        port = int(url.rpartition(":")[2])
        token = (home / "owner.token").read_text().strip()
        head = f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\n".encode()
        await post(port, head, b"/sessions", {"key": "api:live"})
        connect = request("1", "connect", protocol={"min": 1, "max": 1}, client="bench", token=token)

        class Follower(SocketReader):
            frames = (connect, request("2", "sessions.messages.subscribe", key="api:live"))
            mark_of_ready = b'"subscribed":true'

        async def publish(number: int) -> None:
            text = f"{MARK.decode()}{number:06}{'x' * 700}"
            await post(port, head, b"/sessions/api:live/messages?append=1", {"text": text})

        cost, waits = await measure_deliveries(process.pid, port, upgrade(port), publish, Follower)
        for number in range(SESSIONS):
            await post(port, head, b"/sessions", {"key": f"api:{number}"})
        start, share = await _list_followers(process.pid, port, connect)
    finally:
        process.terminate()
        process.wait()
    bare_cost = await _bare()
    ratio = cost / bare_cost
    return [
        Row(
            id="B21",
            what=f"{READERS:,} WebSockets on a session, {READERS * EVENTS_A_SECOND:,} deliveries/s: CPU each; p50, p99",
            measured=f"{micros(cost)}; {micros(p50(waits))}, {micros(p99(waits))}",
            reference=f"a bare uvloop WebSocket server {micros(bare_cost)} (×{ratio:.1f})",
            target="≤ 3 × bare; p50 ≤ 10 ms",
            is_met=ratio <= 3 and p50(waits) <= 0.01,
            figures={"cpu_s": cost, "bare_cpu_s": bare_cost, "ratio": ratio, "p50_s": p50(waits), "p99_s": p99(waits)},
        ),
        Row(
            id="B21l",
            what=f"{READERS:,} WebSockets that follow a list of {SESSIONS} sessions: all begun, CPU while idle",
            measured=f"{start:.2f} s, {share:.2%}",
            reference="",
            target="≤ 3 s, ≤ 0.5 %",
            is_met=start <= 3 and share <= 0.005,
            figures={"start_s": start, "cpu": share},
        ),
    ]


async def _list_followers(pid: int, port: int, connect: bytes) -> tuple[float, float]:
    """How long it takes until all have their list, and the share of a core that they need afterwards."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Semaphore(0)

    class Lister(SocketReader):
        frames = (connect, request("2", "sessions.subscribe", limit=100))
        mark_of_ready = b'"subscribed":true'

    def ignore(number: int) -> None:
        raise AssertionError(number)

    began = time.perf_counter()
    opened = await asyncio.gather(
        *(
            loop.create_connection(lambda: Lister(upgrade(port), ignore, ready.release), "127.0.0.1", port)
            for _ in range(READERS)
        )
    )
    async with asyncio.timeout(60):
        for _ in range(READERS):
            await ready.acquire()
    start = time.perf_counter() - began
    await asyncio.sleep(2)
    before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    share = (cpu_seconds(pid) - before) / IDLE_SECONDS
    for transport, _ in opened:
        transport.abort()
    return start, share


async def _bare() -> float:
    """CPU seconds of a bare server for one delivery."""
    bare = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        assert bare.stdout is not None
        port = int(await asyncio.to_thread(bare.stdout.readline))
        _, teller = await asyncio.open_connection("127.0.0.1", port)

        class Bare(SocketReader):
            mark_of_ready = b"101"

        async def tell(number: int) -> None:
            teller.write(b"%d " % number)

        cost, _ = await measure_deliveries(bare.pid, port, upgrade(port), tell, Bare)
        teller.close()
    finally:
        bare.terminate()
        bare.wait()
    return cost
