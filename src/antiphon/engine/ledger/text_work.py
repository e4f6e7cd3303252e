"""Works on long texts in a few threads, so that they do not delay the event loop."""

from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from antiphon.domain.message import Message, TextPart, ThinkingPart, ToolCallPart

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LONGEST_ON_LOOP = 16 * 1024
"""In characters; longer texts are worked on in a thread."""
THREADS = 2
"""At the same time. Each thread that waits for the interpreter's lock delays the event loop by a turn."""

_limiter = RunVar[anyio.CapacityLimiter]("text_work")


async def work_on(size: int, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of `work`, which reads `size` characters, at most `LONGEST_ON_LOOP` in one call into C."""
    if size <= LONGEST_ON_LOOP:
        return work(*arguments)
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(work, *arguments, limiter=limiter)


def size_of(messages: Iterable[Message | None]) -> int:
    """Characters of all their texts."""
    return sum(
        len(part.arguments) if isinstance(part, ToolCallPart) else len(part.text)
        for message in messages
        if message is not None
        for part in message.content
        if isinstance(part, TextPart | ToolCallPart | ThinkingPart)
    )
