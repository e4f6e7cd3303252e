"""Every place in one gateway: each answers, what they cost together, and that one which hangs holds up no other."""

import json
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from deltachat_rpc_client import DeltaChat

from antiphon.testing.channels import Json, Platform
from antiphon.testing.faults import Fault
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.discord.discord_platform import discord_platform
from tests.channels.email.mail_platform import MailPlatform
from tests.channels.email.post_office import PostOffice
from tests.channels.matrix.matrix_platform import matrix_platform
from tests.channels.matrix.synapse import Synapse
from tests.channels.slack.slack_platform import SlackPlatform, slack_platform
from tests.claims import requirement
from tests.cli.program import Serving, serving
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

MOST_MIB = 160
"""Resident, above a gateway without any place; the aim is 130."""
MOST_DELAY = 0.5
"""Seconds by which half of the answers elsewhere may come later while a place hangs; the aim is 0.05."""
MOST_IDLE = 0.01
"""Of a core, above a gateway without any place, while nobody writes; the aim is 0.005."""
IDLE_SECONDS = 30.0
ROUNDS = 8


@asynccontextmanager
async def places(
    home: Path, office: PostOffice, people: DeltaChat, synapse: Synapse
) -> AsyncGenerator[dict[str, Platform]]:
    async with slack_platform() as slack, discord_platform() as discord, matrix_platform(synapse) as matrix:
        delta = DeltaChatPlatform(office, people, home)
        try:
            yield {
                "slack": slack,
                "discord": discord,
                "matrix": matrix,
                "email": MailPlatform(office),
                "deltachat": delta,
            }
        finally:
            delta.leave()


def write_settings(home: Path, found: dict[str, Platform]) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    channels: Json = {name: platform.section("http://127.0.0.1:1") for name, platform in found.items()}
    settings = {"channels": channels, "access": {"messages_per_minute": 100_000}}
    (home / "antiphon.json5").write_text(json.dumps(settings), "utf-8")


async def answer_in(platform: Platform, text: str) -> float:
    """Seconds until the person sees the answer."""
    began = time.monotonic()
    await platform.write("ann", text)
    with anyio.fail_after(SECONDS):
        while f"echo: {text}" not in [each.strip() for each in await platform.shown("ann")]:
            await anyio.sleep(0.01)
    return time.monotonic() - began


async def idle_share(gateway: Serving, seconds: float = IDLE_SECONDS) -> float:
    """What part of a core the gateway and the processes that it began take while nobody writes."""

    def used() -> float:
        process = psutil.Process(gateway.process.pid)
        times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    before, began = used(), time.monotonic()
    await anyio.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def resident(gateway: Serving) -> float:
    """MiB of the gateway and the processes that it began."""
    process = psutil.Process(gateway.process.pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 2**20


@requirement("channels:1")
async def test_all_places_answer_in_one_gateway_and_one_that_hangs_delays_no_other(
    home: Path,
    office: PostOffice,
    people: DeltaChat,
    synapse: Synapse,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(tmp_path / "bare", is_forked=False) as bare:
        alone, idle_alone = resident(bare), await idle_share(bare)
    async with places(home, office, people, synapse) as found:
        write_settings(home, found)
        with serving(home, is_forked=False) as gateway:
            for name, platform in found.items():
                await answer_in(platform, f"hello from {name}")
            more, idle = resident(gateway) - alone, await idle_share(gateway) - idle_alone
            slack, other = found["slack"], found["discord"]
            assert isinstance(slack, SlackPlatform)
            before = [await answer_in(other, f"before {number}") for number in range(ROUNDS)]
            slack.fake.will("chat.postMessage", *[Fault.HANG] * 50)
            for number in range(5):
                await slack.write("ann", f"unheard {number}")
            during = [await answer_in(other, f"during {number}") for number in range(ROUNDS)]
            delay = statistics.median(during) - statistics.median(before)
    with capsys.disabled():
        print(
            f"\nall places: {more:.0f} MiB above {alone:.0f} (aim 130); idle: {idle:+.2%} of a core above "
            f"{idle_alone:.2%} (aim 0.5 %); one hangs: {delay * 1000:+.0f} ms p50 (aim 50)"
        )
    assert more <= MOST_MIB and idle <= MOST_IDLE and delay <= MOST_DELAY
