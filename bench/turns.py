"""B16: a turn with a provider: post → reply over HTTP, beside a bare streaming request of the same bytes."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench import idle
from bench.live import cpu_seconds, post, read_answer, request_bytes
from bench.measure import Row, micros, p50

LENGTHS = (10, 100, 1_000)
LONG = 5_000
TURNS = 60
WARM_TURNS = 6
IN_TURN = 100
AT_ONCE = 16
SECONDS_AT_ONCE = 6.0
REPLY_PIECES = 20
WORDS = "The quick brown fox jumps over the lazy dog, and then it sleeps until the sun is up again. "

PROVIDER = f"""
import asyncio, json, uvloop
def event(delta, reason=None):
    choice = {{"index": 0, "delta": delta, "finish_reason": reason}}
    chunk = {{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}}
    return b"data: " + json.dumps(chunk).encode() + b"\\n\\n"
usage = {{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
end = {{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}}
events = [event({{"role": "assistant", "content": ""}})]
events += [event({{"content": "word "}}) for _ in range({REPLY_PIECES})]
events += [event({{}}, "stop"), b"data: " + json.dumps(end).encode() + b"\\n\\n", b"data: [DONE]\\n\\n"]
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
PACKETS = [HEAD] + [b"%x\\r\\n%s\\r\\n" % (len(each), each) for each in events] + [b"0\\r\\n\\r\\n"]
class Provider(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left, self.data = transport, 0, b""
        self.last = b""
    def data_received(self, data):
        if self.left == 0:
            self.data += data
            head, found, rest = self.data.partition(b"\\r\\n\\r\\n")
            if not found: return
            self.data = b""
            if b"GET /last" in head:
                body = b"".join(LAST)
                self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
                return
            LAST.clear()
            self.left = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
            data = rest
        LAST.append(data)
        self.left -= len(data)
        if self.left == 0:
            for packet in PACKETS: self.transport.write(packet)
LAST = []
async def main():
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0, backlog=200)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)
uvloop.run(main())
"""

BARE = """
import asyncio, sys, time, httpx2, uvloop
url, turns = sys.argv[1], int(sys.argv[2])
body = sys.stdin.buffer.read()
async def main():
    async with httpx2.AsyncClient() as client:
        async def ask():
            headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
            async with client.stream("POST", url, headers=headers, content=body) as response:
                async for piece in response.aiter_bytes(): pass
        for _ in range(10): await ask()
        start = time.process_time()
        for _ in range(turns): await ask()
        print((time.process_time() - start) / turns)
uvloop.run(main())
"""

Post = Callable[[str, str], Awaitable[None]]


async def turns(directory: Path) -> list[Row]:
    provider = subprocess.Popen([sys.executable, "-c", PROVIDER], stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        assert provider.stdout is not None
        port = int(await asyncio.to_thread(provider.stdout.readline))
        async with _serving(directory / "home", _settings(port, has_checkpoints=False)) as gateway:
            rows = await _measure(gateway, port)
            alone = await gateway.compare("alone")
        async with _serving(directory / "looking-back", _settings(port, has_checkpoints=True)) as gateway:
            rows.append(_looking_back(alone, await gateway.compare("looking-back")))
        return rows
    finally:
        provider.terminate()
        provider.wait()


def _looking_back(alone: tuple[float, float], beside: tuple[float, float]) -> Row:
    ratio = beside[1] / alone[1]
    return Row(
        id="B16",
        what="a turn of a session that looks back after every fifth: CPU with its share of that; wall p50",
        measured=f"{micros(beside[0])}; {micros(beside[1])}",
        reference=f"without checkpoints {micros(alone[0])}; {micros(alone[1])} (p50 ×{ratio:.2f})",
        target="p50 ≤ 1.05 ×",
        is_met=ratio <= 1.05,
        figures={"checkpoint_cpu": beside[0], "checkpoint_wall": beside[1], "checkpoint_ratio": ratio},
    )


@asynccontextmanager
async def _serving(home: Path, settings: dict[str, Any]) -> "AsyncGenerator[_Gateway]":
    home.mkdir(mode=0o700)
    (home / "antiphon.json5").write_text(json.dumps(settings))
    process = idle.start_gateway(home)
    try:
        url = await idle.ready_url(home)
        token = (home / "owner.token").read_text().strip()
        head = f"Host: localhost:{url.rpartition(':')[2]}\r\nAuthorization: Bearer {token}\r\n".encode()
        gateway = _Gateway(process.pid, int(url.rpartition(":")[2]), head)
        await gateway.open("warm")
        for _ in range(WARM_TURNS):
            await gateway.turn("warm")
        yield gateway
    finally:
        process.terminate()
        process.wait()


def _settings(provider_port: int, *, has_checkpoints: bool) -> dict[str, Any]:
    return {
        "checkpoints": {"enabled": has_checkpoints},
        "providers": {"fake": {"base_url": f"http://127.0.0.1:{provider_port}/v1", "api_key": "k"}},
        "agents": {"defaults": {"model": "fake:m", "context_tokens": 1_000_000}},
    }


async def _measure(gateway: "_Gateway", provider_port: int) -> list[Row]:
    rows: list[Row] = []
    least = 0.0
    for length in LENGTHS:
        name = f"turns{length}"
        await gateway.open(name, messages=length)
        cost, wall, stall = await gateway.measure([name], TURNS)
        bare = await _bare(provider_port)
        least = least or cost
        is_met = cost <= 3 * bare and cost <= 6e-3 if length == LENGTHS[0] else cost <= 1.5 * least
        rows.append(
            Row(
                id="B16",
                what=f"a turn at {length:,} messages: CPU; wall p50; longest stall",
                measured=f"{micros(cost)}; {micros(wall)}; {micros(stall)}",
                reference=f"a bare streaming request {micros(bare)} (×{cost / bare:.1f})",
                target="≤ 3 × bare, ≤ 6 ms; stall ≤ 20 ms" if length == LENGTHS[0] else "≤ 1.5 × that at 10",
                is_met=is_met and stall <= 20e-3,
                figures={"cpu": cost, "bare": bare, "wall": wall, "stall": stall},
            )
        )
    await gateway.open("long", messages=LONG)
    first, _, _ = await gateway.measure(["long"], 1, warm=0)
    cost, wall, stall = await gateway.measure(["long"], TURNS)
    names = [f"session{number}" for number in range(IN_TURN)]
    for name in names:
        await gateway.open(name, messages=100)
    in_turn, _, stall_in_turn = await gateway.measure(names, 2 * IN_TURN, warm=IN_TURN)
    rows.append(
        Row(
            id="B16",
            what=f"a turn at {LONG:,} messages: the first, then; {IN_TURN} sessions of 100 in turn: CPU",
            measured=f"{micros(first)}, {micros(cost)} (stall {micros(stall)}); {micros(in_turn)}",
            reference="–",
            target="–",
            is_met=stall_in_turn <= 20e-3,
            figures={"first": first, "cpu": cost, "in_turn": in_turn, "stall": stall},
        )
    )
    rate, share, stall = await gateway.at_once()
    rows.append(
        Row(
            id="B16",
            what=f"{AT_ONCE} sessions at once: turns/s; share of a core; longest stall",
            measured=f"{rate:.0f}/s; {share:.0%}; {micros(stall)}",
            reference=f"{rate / share:.0f} turns/s for a whole core",
            target="≥ 150 turns/s a core; ≤ 20 ms",
            is_met=rate / share >= 150 and stall <= 20e-3,
            figures={"rate": rate, "share": share, "stall": stall},
        )
    )
    return rows


class _Gateway:
    def __init__(self, pid: int, port: int, head: bytes) -> None:
        self._pid = pid
        self._port = port
        self._head = head

    async def open(self, name: str, *, messages: int = 0) -> None:
        """A session with so many messages, of both sides in turn."""
        await post(self._port, self._head, b"/sessions", {"key": f"api:{name}"})
        connection = await self._connect()
        path = f"/sessions/api:{name}/messages?append=1".encode()
        for number in range(messages):
            role = "assistant" if number % 2 else "user"
            await self._send(connection, path, {"text": f"{number}: {WORDS * 2}", "role": role})
        connection[1].close()

    async def turn(self, name: str) -> None:
        connection = await self._connect()
        await self._turn(connection, name)
        connection[1].close()

    async def measure(self, names: list[str], turns: int, *, warm: int = WARM_TURNS) -> tuple[float, float, float]:
        """CPU seconds of the gateway for a turn, median seconds from post to reply, longest stall."""
        connection = await self._connect()
        for number in range(warm):
            await self._turn(connection, names[number % len(names)])
        walls: list[float] = []
        async with _Stalls(self._port, self._head) as stalls:
            before = cpu_seconds(self._pid)
            for number in range(turns):
                start = time.perf_counter()
                await self._turn(connection, names[number % len(names)])
                walls.append(time.perf_counter() - start)
            spent = cpu_seconds(self._pid) - before - stalls.cost
        connection[1].close()
        return spent / turns, p50(walls), stalls.longest

    async def compare(self, name: str) -> tuple[float, float]:
        """CPU seconds of a turn at 10 messages, and median seconds from post to reply; without probes of stalls."""
        await self.open(name, messages=10)
        walls: list[float] = []
        for _ in range(WARM_TURNS):
            await self.turn(name)
        before = cpu_seconds(self._pid)
        for _ in range(2 * TURNS):
            start = time.perf_counter()
            await self.turn(name)
            walls.append(time.perf_counter() - start)
        return (cpu_seconds(self._pid) - before) / len(walls), p50(walls)

    async def at_once(self) -> tuple[float, float, float]:
        """Turns a second of 16 sessions, the gateway's share of a core, the longest stall."""
        names = [f"once{number}" for number in range(AT_ONCE)]
        for name in names:
            await self.open(name, messages=10)
        done = 0
        end = time.perf_counter() + SECONDS_AT_ONCE

        async def talk(name: str) -> None:
            nonlocal done
            connection = await self._connect()
            while time.perf_counter() < end:
                await self._turn(connection, name)
                done += 1
            connection[1].close()

        async with _Stalls(self._port, self._head) as stalls:
            before = cpu_seconds(self._pid)
            async with asyncio.TaskGroup() as tasks:
                for name in names:
                    tasks.create_task(talk(name))
            share = (cpu_seconds(self._pid) - before - stalls.cost) / SECONDS_AT_ONCE
        return done / SECONDS_AT_ONCE, share, stalls.longest

    async def _turn(self, connection: "_Connection", name: str) -> None:
        path = f"/sessions/api:{name}/messages?wait=60".encode()
        answer = await self._send(connection, path, {"text": "and now?"})
        assert answer["status"] == "ok", answer

    async def _send(self, connection: "_Connection", path: bytes, body: object) -> Any:
        reader, writer = connection
        writer.write(request_bytes(self._head, path, body))
        return json.loads(await read_answer(reader))

    async def _connect(self) -> "_Connection":
        return await asyncio.open_connection("127.0.0.1", self._port)


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEALTH_EVERY = 5e-3
HEALTH_COST = 250e-6
"""CPU seconds of one probe, subtracted from the cost of turns."""


class _Stalls:
    """Asks a gateway again and again whether it lives; the longest wait bounds the longest stall of its loop."""

    def __init__(self, port: int, head: bytes) -> None:
        self.longest = 0.0
        self.probes = 0
        self._port = port
        self._request = b"GET /health HTTP/1.1\r\n" + head + b"\r\n"

    @property
    def cost(self) -> float:
        return self.probes * HEALTH_COST

    async def __aenter__(self) -> "_Stalls":
        self._task = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _probe(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                start = time.perf_counter()
                writer.write(self._request)
                await read_answer(reader)
                self.probes += 1
                self.longest = max(self.longest, time.perf_counter() - start)
                await asyncio.sleep(HEALTH_EVERY)
        finally:
            writer.close()


async def _bare(port: int) -> float:
    """CPU seconds of a bare client for a request of the bytes that the provider received last."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /last HTTP/1.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
    writer.close()
    command = [sys.executable, "-c", BARE, f"http://127.0.0.1:{port}/v1/chat/completions", str(TURNS)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(body)
    return float(json.loads(out))
