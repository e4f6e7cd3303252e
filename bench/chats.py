"""B20: people who write to a bot, whose Telegram is a fake in another process; and what an idle bot costs."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
from anyio import to_thread

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram, Json, person
from bench.idle import ready_url, start_gateway
from bench.measure import Row, micros, p50, p99
from bench.runs import PARTS

CHATS = 50
A_MINUTE = 20
SECONDS = 30
STRANGERS = 1_000
"""Who write within a minute, beside the known chats."""
FIRST_STRANGER = 100_000
DOCUMENTS = 100
DOCUMENT_BYTES = 2 * 1024 * 1024
GUEST_BYTES = 50 * 1024 * 1024
OWNER_MESSAGES = 60
OWNER_PAUSE_SECONDS = 0.1
IDLE_SECONDS = 20
MIB = 1024 * 1024


class _Platform(FakeTelegram):
    """Notes when each chat first shows something new."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[int, float] = {}
        self.waited: list[float] = []

    def _see(self, chat: int) -> None:
        if (at := self.written.pop(chat, None)) is not None:
            self.waited.append(time.perf_counter() - at)

    def _show(self, id: int, sent: Json) -> Json:
        shown = super()._show(id, sent)
        self._see(int(sent["chat_id"]))
        return shown

    def _send_message_draft(self, sent: Json) -> bool:
        done = super()._send_message_draft(sent)
        if str(sent.get("text", "")).strip():
            self._see(int(sent["chat_id"]))
        return done


def serve_platform() -> None:
    """Serves the fake; begins to write as soon as a line comes in, and prints what people waited for."""
    with run_fake(_Platform()) as fake:
        print(json.dumps({"token": fake.token, "port": fake.port}), flush=True)
        while line := sys.stdin.readline():
            asked = json.loads(line)
            print(
                json.dumps(_serve_owner(fake, **asked) if "documents" in asked else _write(fake, **asked)), flush=True
            )


def _write(fake: _Platform, *, count: int, strangers: int) -> Json:
    """Writes so many messages of known chats, and of strangers between them; what the known ones waited for."""
    fake.waited.clear()
    said, due = len(fake.requests), time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, due - time.perf_counter()))
        chat = 100 + number % CHATS
        fake.written[chat] = time.perf_counter()
        fake.write("hello", sender=person(chat, f"P{chat}"))
        for stranger in range(strangers * number // count, strangers * (number + 1) // count):
            fake.write("who are you?", sender=person(FIRST_STRANGER + stranger, f"S{stranger}"))
        due += 60 / (CHATS * A_MINUTE)
    deadline = time.perf_counter() + 10
    while fake.written and time.perf_counter() < deadline:
        time.sleep(0.05)
    sent = [int(found["chat_id"]) for method, found in fake.requests[said:] if method == "sendMessage"]
    return {
        "waited": fake.waited,
        "unanswered": len(fake.written),
        "strangers_told": sum(chat >= FIRST_STRANGER for chat in sent),
    }


def _serve_owner(fake: _Platform, *, code: str, documents: int) -> Json:
    """An owner writes, beside a guest who sends so many documents at once; what the owner waited for."""
    owner, guest = person(1, "Olga"), person(7, "Ann")
    if code:
        fake.write(f"/link {code} yes", sender=owner)
        fake.wait_for(lambda: fake.texts(1))
    fake.waited.clear()
    for number in range(documents):
        fake.write(None, sender=guest, document=fake.add_file(bytes(DOCUMENT_BYTES), file_name=f"{number}.pdf"))
    for _ in range(OWNER_MESSAGES):
        fake.written[1] = time.perf_counter()
        fake.write("hello", sender=owner)
        fake.wait_for(lambda: 1 not in fake.written)
        time.sleep(OWNER_PAUSE_SECONDS)
    return {"waited": fake.waited}


@contextmanager
def _platform() -> Generator[tuple["subprocess.Popen[str]", Json]]:
    command = [sys.executable, "-c", "from bench.chats import serve_platform; serve_platform()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            found = json.loads(process.stdout.readline())
            yield process, {"token": found["token"], "api_base": f"http://127.0.0.1:{found['port']}"}
        finally:
            process.stdin.close()
            process.terminate()


async def chats(directory: Path) -> list[Row]:
    with _platform() as (process, section):
        assert process.stdin is not None and process.stdout is not None
        settings: dict[str, Any] = {
            "channels": {"telegram": {**section, "access": "public"}},
            "access": {"messages_per_minute": 1000},
        }
        async with open_app(directory / "home", Config.model_validate(settings), PARTS):
            measured = await _measure(process, SECONDS, 0)
    waited, unanswered = measured["waited"], measured["unanswered"]
    with _platform() as (process, section):
        alone, beside = await _beside_strangers(directory / "strangers", process, section)
    ratio = p50(beside["waited"]) / p50(alone["waited"])
    with _platform() as (process, section):
        served, crowded, stored = await _beside_documents(directory / "documents", process, section)
    slower = p50(crowded) / p50(served)
    with _platform() as (_, section):
        with_bot = await _idle(directory / "with", section)
    without = await _idle(directory / "without", None)
    more_cpu, more_memory = with_bot[0] - without[0], with_bot[1] - without[1]
    return [
        Row(
            id="B20",
            what="50 chats of a bot, 20 messages a minute each: from the message to the first visible text",
            measured=f"p50 {micros(p50(waited))}, p99 {micros(p99(waited))}, {unanswered} unanswered",
            reference=f"{len(waited)} messages, real client, fake of Telegram in another process",
            target="p50 ≤ 450 ms, of which a text waits 300 ms for another part; p99 ≤ 1 s",
            is_met=p50(waited) <= 0.45 and p99(waited) <= 1 and not unanswered,
            figures={"p50_s": p50(waited), "p99_s": p99(waited)},
        ),
        Row(
            id="B20",
            what=f"the same chats beside {STRANGERS:,} strangers a minute who have to be admitted",
            measured=f"p50 {micros(p50(beside['waited']))}, {ratio:.2f} of {micros(p50(alone['waited']))} without them",
            reference=f"{beside['unanswered']} unanswered, {beside['strangers_told']} strangers told a code",
            target="p50 unchanged (≤ 1.2 of it), at most 3 codes",
            is_met=ratio <= 1.2 and not beside["unanswered"] and beside["strangers_told"] <= 3,
            figures={"ratio": ratio, "p50_s": p50(beside["waited"])},
        ),
        Row(
            id="B20",
            what=f"an owner's chat beside {DOCUMENTS} documents of a guest, 2 MiB each",
            measured=f"p50 {micros(p50(crowded))}, {slower:.2f} of {micros(p50(served))} without them",
            reference=f"{stored / MIB:.1f} MiB of {DOCUMENTS * DOCUMENT_BYTES // MIB} taken in",
            target=f"p50 ≤ 1.2 of that without; at most the guest's {GUEST_BYTES // MIB} MiB on disk",
            is_met=slower <= 1.2 and stored <= GUEST_BYTES,
            figures={"ratio": slower, "p50_s": p50(crowded), "stored": stored},
        ),
        Row(
            id="B20",
            what="an idle bot, beside a gateway without one: CPU, memory",
            measured=f"{more_cpu:.2%}, {more_memory / MIB:.0f} MiB",
            reference=f"with {with_bot[0]:.2%}, {with_bot[1] / MIB:.0f} MiB; without {without[0]:.2%}",
            target="≤ 0.3 % of a core, ≤ 32 MiB",
            is_met=more_cpu <= 0.003 and more_memory <= 32 * MIB,
            figures={"cpu": more_cpu, "rss": more_memory},
        ),
    ]


async def _measure(process: "subprocess.Popen[str]", seconds: int, strangers: int) -> Json:
    return await _ask(process, {"count": seconds * CHATS * A_MINUTE // 60, "strangers": strangers})


async def _ask(process: "subprocess.Popen[str]", asked: Json) -> Json:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{json.dumps(asked)}\n")
    process.stdin.flush()
    return json.loads(await to_thread.run_sync(process.stdout.readline))


async def _beside_documents(
    home: Path, process: "subprocess.Popen[str]", section: Json
) -> tuple[list[float], list[float], int]:
    """What an owner waits for without documents of a guest and beside them, and the bytes of these on disk."""
    settings: dict[str, Any] = {
        "channels": {"telegram": {**section, "access": "public"}},
        "access": {"messages_per_minute": 1000},
        "limits": {"guest": {"stored_bytes": GUEST_BYTES}},
    }
    async with open_app(home, Config.model_validate(settings), PARTS) as app:
        code = (await app.services.links.make_code(OWNER)).code
        alone = await _ask(process, {"code": code, "documents": 0})
        beside = await _ask(process, {"code": "", "documents": DOCUMENTS})
    received = home / "workspaces" / "main" / "received"
    return alone["waited"], beside["waited"], sum(path.stat().st_size for path in received.rglob("*.pdf"))


async def _beside_strangers(home: Path, process: "subprocess.Popen[str]", section: Json) -> tuple[Json, Json]:
    """What known chats wait for without strangers, and beside them."""
    known = [f"telegram:{100 + chat}" for chat in range(CHATS)]
    settings: dict[str, Any] = {
        "channels": {"telegram": {**section, "access": "pairing"}},
        "access": {"messages_per_minute": 1000},
        "session": {"identity_links": {f"known-{each.partition(':')[2]}": [each] for each in known}},
    }
    async with open_app(home, Config.model_validate(settings), PARTS):
        await _measure(process, 3, 0)
        return await _measure(process, SECONDS, 0), await _measure(process, SECONDS, STRANGERS * SECONDS // 60)


async def _idle(home: Path, section: Json | None) -> tuple[float, int]:
    """The share of a core and the memory of a gateway that does nothing."""
    home.mkdir(mode=0o700)
    config = home / "antiphon.json5"
    config.write_text(json.dumps({} if section is None else {"channels": {"telegram": section}}))
    process = start_gateway(home, "--config", str(config))
    try:
        await ready_url(home)
        await anyio.sleep(3)
        watched = psutil.Process(process.pid)
        cpu = sum(watched.cpu_times()[:2])
        await anyio.sleep(IDLE_SECONDS)
        return (sum(watched.cpu_times()[:2]) - cpu) / IDLE_SECONDS, watched.memory_info().rss
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
