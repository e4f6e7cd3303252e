"""Bytes that are nearly requests: whatever comes, the gateway goes on answering and keeps its memory (P19)."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil

from tests.attacks.test_edge import answers, head, post
from tests.claims import requirement
from tests.processes import ending
from tests.waiting import SECONDS

TEMPLATES = (
    head("GET /health HTTP/1.1", "Connection: close"),
    head("GET /sessions/main/history?follow=1 HTTP/1.1", "Authorization: Bearer x", "Connection: close"),
    post("/auth/exchange", b'{"code": "abc"}'),
    post("/auth/prove", b'{"nonce": "%s"}' % (b"0" * 32)),
    post("/sessions/main/messages", b'{"content": [{"type": "text", "text": "x"}]}'),
    post("/channels/webhook/desk", b'{"messageId": "1", "peer": "p", "text": "x"}'),
    head(
        "POST /auth/exchange HTTP/1.1",
        "Transfer-Encoding: chunked",
        "Content-Type: application/json",
        "Connection: close",
    )
    + b'10\r\n{"code": "abcde"\r\n1\r\n}\r\n0\r\n\r\n',
)
TOKENS = (
    b"\r\n",
    b"\0",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: x\r\n",
    b"[" * 300,
    b"\xff",
    b":",
)
MOST_GROWTH = 64 * 1024 * 1024
HEALTH_SECONDS = 0.5
"""Of an answer to `/health` in the long form, on a machine with nothing else to do."""


def mutated(chance: random.Random) -> bytes:
    """A request with a few of its bytes changed, doubled, cut or joined by others."""
    data = bytearray(chance.choice(TEMPLATES))
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[place:place] = chance.choice(TOKENS)
            case 1:
                del data[place : place + chance.randrange(1, 20)]
            case 2:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 3:
                data[place:place] = data[place : place + chance.randrange(1, 200)]
            case _:
                data += chance.choice(TEMPLATES)
    return bytes(data)


@requirement("gateway:5", "answers:5")
def test_mutated_requests_neither_stop_nor_fill_the_gateway(home: Path, is_soak: bool) -> None:
    count = 100_000 if is_soak else 400
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
    command = [sys.executable, "-m", "antiphon", "serve", "--home", str(home), "--port", "0", "--json"]
    with ending(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        url = httpx.Response(200, text=process.stdout.readline()).json()["url"]
        port = int(url.rpartition(":")[2])
        token = (home / "owner.token").read_text().strip()
        with httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client:
            owner = {"Authorization": f"Bearer {token}"}
            posted = client.post(f"/sessions/main/messages?wait={SECONDS}", json={"text": "x"}, headers=owner)
            assert posted.status_code == 200
            before = psutil.Process(process.pid).memory_info().rss
            slowest, is_over = [0.0], threading.Event()

            def watch() -> None:
                while not is_over.wait(0.05):
                    began = time.monotonic()
                    assert client.get("/health").status_code == 200
                    slowest[0] = max(slowest[0], time.monotonic() - began)

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                senders = [threading.Thread(target=send_many, args=(port, seed, count // 8)) for seed in range(8)]
                for sender in senders:
                    sender.start()
                for sender in senders:
                    sender.join()
            finally:
                is_over.set()
                watcher.join()
            assert slowest[0] < (HEALTH_SECONDS if is_soak else SECONDS)
            assert psutil.Process(process.pid).memory_info().rss < before + MOST_GROWTH
            assert client.get("/ready").status_code == 200


def send_many(port: int, seed: int, count: int) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        answer = answers(port, mutated(chance), ends=True)
        assert not answer.startswith(b"HTTP/1.1 5") or answer.startswith(b"HTTP/1.1 503"), answer[:500]
