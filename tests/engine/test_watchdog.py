"""The watch over the event loop: what holds it up is told, with who asked for it."""

import logging
import time

import anyio
import pytest

from antiphon.engine.work.watchdog import Watchdog
from tests.claims import requirement
from tests.waiting import SECONDS

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
            while not caplog.records:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    return caplog.records


@requirement("gateway:5")
async def test_a_stall_is_told_with_its_request_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    records = await stalls_of(caplog, "POST /tools/slow")
    told = next(record.__dict__ for record in records if "slow" in record.__dict__["request"])
    assert told["action"] == "loop_stalled"
    assert told["at_least_ms"] >= 1000 * STOOD_SECONDS - 250
    assert "hold_everybody_up" in told["at"]
