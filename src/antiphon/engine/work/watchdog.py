"""A watchdog for the event loop: logs each long stall, and the code that caused it.

A thread checks whether the loop still ticks. If not, it records what the loop's thread is doing. Code that holds the
interpreter's lock is seen the moment it releases it, still in the same function. If no task ran, and no thread of the
process either, the machine did other work: that is logged apart, and not each time.
"""

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

import anyio

from antiphon.engine.work.stalls import StallMeter

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.1
STALL_SECONDS = 0.2
"""Length of a stall; it is logged once it is over."""
STARVED_SHARE = 0.2
"""A stall without a task is the machine's if the process used less of a processor than this share meanwhile."""
STARVED_SECONDS = 60.0
"""Between lines about stalls that are the machine's."""
FRAMES_SHOWN = 4
NO_TASK, UNKNOWN = "no task", "unknown"


class Watchdog:
    """Watches the loop that `run` runs on."""

    def __init__(self, *, stall_seconds: float = STALL_SECONDS, meter: StallMeter | None = None) -> None:
        self._stall_seconds = stall_seconds
        self._meter = meter or StallMeter()
        self._ticked_at = 0.0
        self._cpu = 0.0
        self._process_cpu = 0.0
        self._starved: list[float] = []
        """The stalls of the machine since the last line about them."""
        self._starved_told_at = -STARVED_SECONDS
        self._seen: tuple[float, str, str] | None = None
        """Of the current stall: the last tick, the task's name, and the position of its code."""
        self._is_over = False

    async def run(self) -> None:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        self._tick(loop)
        thread = threading.Thread(
            target=self._watch, args=(loop, threading.get_ident()), name="antiphon-watchdog", daemon=True
        )
        thread.start()
        try:
            await anyio.sleep_forever()
        finally:
            self._is_over = True

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Uses a callback and a plain sleep of the thread; a task and an event would cost an idle gateway more."""
        if self._is_over:
            return
        loop.call_later(TICK_SECONDS, self._tick, loop)
        now, cpu, process_cpu = time.monotonic(), time.thread_time(), time.process_time()
        stood = now - self._ticked_at - TICK_SECONDS
        if self._ticked_at:
            self._meter.note(stood, now)
            if stood > self._stall_seconds - TICK_SECONDS:
                self._tell(stood, cpu - self._cpu, process_cpu - self._process_cpu)
        self._ticked_at, self._cpu, self._process_cpu = now, cpu, process_cpu

    def _tell(self, stood: float, cpu: float, process_cpu: float) -> None:
        """Logs `at_least_ms`, because the stall may have begun up to a tick earlier."""
        seen = self._seen
        if seen is None or seen[0] != self._ticked_at:
            if stood < self._stall_seconds:
                return
            seen = (self._ticked_at, UNKNOWN, "")
        if seen[1] in (NO_TASK, UNKNOWN) and process_cpu < STARVED_SHARE * stood:
            self._tell_starved(stood)
            return
        logger.warning(
            "Event loop was blocked",
            extra={
                "action": "loop_stalled",
                "at_least_ms": round(stood * 1000),
                "cpu_ms": round(cpu * 1000),
                "request": seen[1],
                "at": seen[2],
            },
        )

    def _tell_starved(self, stood: float) -> None:
        self._starved.append(stood)
        now = time.monotonic()
        if now - self._starved_told_at < STARVED_SECONDS:
            return
        times, longest = len(self._starved), max(self._starved)
        self._starved, self._starved_told_at = [], now
        logger.warning(
            "Machine was too busy to run this process",
            extra={"action": "loop_starved", "times": times, "longest_ms": round(longest * 1000)},
        )

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._is_over:
            time.sleep(TICK_SECONDS)
            ticked_at = self._ticked_at
            if self._seen is not None and self._seen[0] == ticked_at:
                continue
            if time.monotonic() - ticked_at > self._stall_seconds:
                frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
                task = asyncio.current_task(loop)
                name = NO_TASK if task is None else task.get_name()
                self._seen = (ticked_at, name, _where(frame))


def _where(frame: FrameType | None) -> str:
    """The innermost frame, where it is stuck, then the frames of our own code that led to it."""
    found: list[str] = []
    while frame is not None and len(found) < FRAMES_SHOWN:
        code = frame.f_code
        if not found or "/antiphon/" in code.co_filename:
            found.append(f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(found)
