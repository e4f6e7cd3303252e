"""Rows of the report, and how samples become figures."""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from antiphon.engine.work.stalls import StallMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report."""

    id: str
    what: str
    measured: str
    reference: str
    target: str
    is_met: bool
    figures: dict[str, Any] = field(default_factory=dict[str, Any])


TICK_SECONDS = 0.005


@asynccontextmanager
async def metering() -> AsyncGenerator[StallMeter]:
    """Notes how late a timer of 5 ms is on the running loop, until left."""
    meter, loop = StallMeter(), asyncio.get_running_loop()
    due = loop.time() + TICK_SECONDS
    handle: asyncio.TimerHandle

    def tick() -> None:
        nonlocal due, handle
        meter.note(loop.time() - due, time.monotonic())
        due = loop.time() + TICK_SECONDS
        handle = loop.call_at(due, tick)

    handle = loop.call_at(due, tick)
    try:
        yield meter
    finally:
        handle.cancel()


def p50(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def p99(samples: Sequence[float]) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))]


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
