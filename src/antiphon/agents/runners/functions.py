"""Calls a runner: a coroutine, a plain function in a thread, or one of either that yields its reply in pieces."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import anyio

from antiphon.agents.runners.threads import run_in_thread
from antiphon.agents.runners.turn import Turn
from antiphon.domain.errors import Invalid

Runner = Callable[[Turn], Any]
"""Yields pieces of the reply, or returns it; where it does both, what it returns counts."""


async def call_runner(function: Runner, turn: Turn, threads: anyio.CapacityLimiter) -> str | None:
    """What the runner returns; None if it returns nothing, perhaps after pieces.

    Raises whatever it raises, and `Invalid` (`runner_answer`) for an answer that is no text.

    A process that a runner tries to end goes on: `SystemExit` of it is an error like any other.
    """
    try:
        return await _answer(function, turn, threads)
    except SystemExit as error:
        raise RuntimeError("The runner tried to end the process.") from error


async def _answer(function: Runner, turn: Turn, threads: anyio.CapacityLimiter) -> str | None:
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isasyncgenfunction(target):
        return await _say_all(function(turn), turn)
    if inspect.iscoroutinefunction(target):
        return _text(await function(turn))
    value = await run_in_thread(_call_plain, function, turn, limiter=threads)
    if isinstance(value, AsyncIterator):
        return await _say_all(cast("AsyncIterator[object]", value), turn)
    if inspect.isawaitable(value):
        value = await cast("Awaitable[object]", value)
    return _text(value)


async def _say_all(pieces: AsyncIterator[object], turn: Turn) -> None:
    async for piece in pieces:
        turn.say(_piece(piece))


def _call_plain(function: Runner, turn: Turn) -> object:
    """In a thread. The pieces of a generator are shown as they come."""
    value = function(turn)
    if not isinstance(value, Iterator):
        return cast("object", value)
    pieces = cast("Iterator[object]", value)
    while True:
        try:
            piece = next(pieces)
        except StopIteration as stop:
            return cast("object", stop.value)
        turn.say(_piece(piece))


def _piece(piece: object) -> str:
    if not isinstance(piece, str):
        raise Invalid(f"Runner yielded a piece that is no text: {type(piece).__name__}.", code="runner_answer")
    return str(piece)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Invalid(f"Runner answered something that is no text: {type(value).__name__}.", code="runner_answer")
    return value if value is None else str(value)  # frameworks have texts of their own kinds, which nothing stores
