"""Runs plain functions of programs in threads that never keep the process from ending. Contract: foreign_agents 1."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Final, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

T = TypeVar("T")
THREADS: Final = 64
"""Functions of calls and steps that run at the same time; more wait."""
_LIMITER: RunVar[CapacityLimiter] = RunVar("threads_of_calls")


async def run_in_thread(function: Callable[..., T], *arguments: object, limiter: CapacityLimiter | None = None) -> T:
    """What the function returns. If the wait is cancelled, the thread is left to itself, and its result is dropped."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def work() -> None:
        try:
            value = context.run(function, *arguments)
        except StopIteration as error:  # no future can hold it
            raised = RuntimeError("The function raised StopIteration.")
            raised.__cause__ = error
            tell(lambda: done.set_exception(raised))
        except BaseException as error:
            caught = error  # Python forgets `error` at the end of this block
            tell(lambda: done.set_exception(caught))
        else:
            tell(lambda: done.set_result(value))

    def tell(end: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if done.done() else end())

    async with limiter or _limiter():
        Thread(target=work, name="antiphon runner", daemon=True).start()
        return await done


def _limiter() -> CapacityLimiter:
    try:
        return _LIMITER.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _LIMITER.set(limiter)
        return limiter
