"""The watch over the event loop: what holds it up is told, with who asked for it."""

import logging
import os
import signal
import time
from pathlib import Path

import anyio
import httpx
import pytest

from antiphon.engine.work.watchdog import Watchdog
from tests.claims import requirement
from tests.cli.program import serving
from tests.waiting import PROCESS_SECONDS, SECONDS, until

pytestmark = pytest.mark.anyio

STOOD_SECONDS = 0.6


def hold_everybody_up() -> None:
    end = time.monotonic() + STOOD_SECONDS
    while time.monotonic() < end:
        pass


async def stalls_of(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    """What is told of a task of that name that holds the loop up."""
    with caplog.at_level(logging.WARNING, "antiphon.engine.work.watchdog"), anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Watchdog().run)
            await anyio.sleep(0.3)  # it ticks

            async def busy() -> None:
                hold_everybody_up()

            tasks.start_soon(busy, name=name)
            while not any(name in record.__dict__.get("request", "") for record in caplog.records):
                await anyio.sleep(0.01)  # others may come before, of a busy machine
            tasks.cancel_scope.cancel()
    return caplog.records


@requirement("gateway:5")
async def test_a_stall_is_told_with_its_request_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    records = await stalls_of(caplog, "POST /tools/slow")
    told = next(record.__dict__ for record in records if "slow" in record.__dict__["request"])
    assert told["action"] == "loop_stalled"
    assert told["at_least_ms"] >= 1000 * STOOD_SECONDS - 250
    assert "hold_everybody_up" in told["at"]


def test_a_machine_that_does_other_work_is_told_once_and_not_as_a_stall_of_ours(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def told(words: str) -> list[str]:
        return [line for line in log.read_text("utf-8").splitlines() if words in line]

    with serving(home, log=log) as gateway:

        def starve() -> None:
            os.kill(gateway.process.pid, signal.SIGSTOP)
            time.sleep(STOOD_SECONDS)  # for so long the process gets no processor
            os.kill(gateway.process.pid, signal.SIGCONT)
            assert httpx.get(f"{gateway.url}/ready", timeout=PROCESS_SECONDS).status_code == 200

        def is_told() -> bool:
            starve()  # again, if it was busy with its own start at the moment
            return bool(told("loop_starved"))

        until(is_told, seconds=PROCESS_SECONDS)
        starve()
        starve()
    assert len(told("loop_starved")) == 1
