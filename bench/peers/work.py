"""The work that every store is given, done inside the store's own environment.

Only the standard library and uvloop are imported here: an environment holds a peer, not Antiphon.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import uvloop

from bench.measure import p99

PAGE = 50
FILL_AT_ONCE = 500
Page = TypeVar("Page")


class Store(Protocol[Page]):
    """One store on a directory of its own, with its package's defaults.

    - Names of sessions are the caller's; each is opened once, before anything else is asked of it.
    - `append` returns when the message is as durable as the store makes it.
    - `fill` appends in order, by the fastest way that the store's API has.
    - `read` gives the newest messages, decoded; `texts` takes their texts out, oldest first, outside of the time
      that is measured.
    """

    async def open_session(self, name: str) -> None: ...

    async def close_session(self, name: str) -> None: ...

    async def append(self, name: str, text: str) -> None: ...

    async def fill(self, name: str, texts: Sequence[str]) -> None: ...

    async def read(self, name: str, limit: int) -> Page: ...

    def texts(self, page: Page) -> list[str]: ...

    async def pragma(self, name: str) -> str:
        """The value that the connection which writes has."""
        ...


@runtime_checkable
class SessionList(Protocol):
    async def make_session(self, name: str, text: str) -> None:
        """A session that a list shows whole; of one message if the list tells of messages."""
        ...

    async def list_newest(self, limit: int) -> int:
        """How many sessions it gave."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    work: str
    session: str = ""
    count: int = 0
    seconds: float = 0.0
    """No sample, and no part of a fill, is begun after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    samples: list[float] = field(default_factory=list[float])
    """Seconds, one for each call."""
    reached: int = 0
    """How many messages or sessions there are now."""
    per_second: float = 0.0
    p99_seconds: float = 0.0
    failures: int = 0
    """Calls that raised."""
    last_failure: str = ""
    facts: dict[str, str] = field(default_factory=dict[str, str])


async def timed(call: Callable[[], Awaitable[object]], count: int, seconds: float) -> list[float]:
    """Seconds of each call, `count` of them or as many as begin in time."""
    samples: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(samples) < count and (start := time.perf_counter()) < deadline:
        await call()
        samples.append(time.perf_counter() - start)
    return samples


class Works(Generic[Page]):
    """What the bench asks for, by name; checks that what was appended is there."""

    def __init__(self, store: Store[Page]) -> None:
        self._store = store
        self._written: dict[str, int] = {}
        self._made = 0

    async def do(self, command: Command) -> Answer:
        works: dict[str, Callable[[Command], Awaitable[Answer]]] = {
            "facts": self._facts,
            "fill": self._fill,
            "close": self._close,
            "append": self._append,
            "append_together": self._append_together,
            "read": self._read,
            "make_sessions": self._make_sessions,
            "list": self._list,
        }
        return await works[command.work](command)

    async def _facts(self, command: Command) -> Answer:
        await self._open(command.session)
        await self._append_next(command.session)
        journal, level = await self._store.pragma("journal_mode"), await self._store.pragma("synchronous")
        synchronous = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}[level]
        return Answer(facts={"journal": journal, "synchronous": synchronous, "sqlite": sqlite3.sqlite_version})

    async def _fill(self, command: Command) -> Answer:
        name = command.session
        await self._open(name)
        deadline = time.perf_counter() + command.seconds
        while (first := self._written[name]) < command.count and time.perf_counter() < deadline:
            end = min(first + FILL_AT_ONCE, command.count)
            await self._store.fill(name, [text_of(number) for number in range(first, end)])
            self._written[name] = end
        await self._check(name)
        return Answer(reached=self._written[name])

    async def _close(self, command: Command) -> Answer:
        await self._store.close_session(command.session)
        return Answer()

    async def _append(self, command: Command) -> Answer:
        name = command.session
        samples = await timed(lambda: self._append_next(name), command.count, command.seconds)
        await self._check(name)
        return Answer(samples=samples, reached=self._written[name])

    async def _append_together(self, command: Command) -> Answer:
        """Appends to `count` new sessions for `seconds`, one task each."""
        names = [f"{command.session}-{number}" for number in range(command.count)]
        for name in names:
            await self._open(name)
            await self._append_next(name)  # connections and caches are there when the clock starts
        samples: list[float] = []
        failures: list[str] = []
        start = time.perf_counter()
        deadline = start + command.seconds

        async def append_until_deadline(name: str) -> None:
            while (begun := time.perf_counter()) < deadline:
                try:
                    await self._append_next(name)
                except Exception as error:
                    failures.append(f"{type(error).__name__}: {error}"[:200])
                else:
                    samples.append(time.perf_counter() - begun)

        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(append_until_deadline(name))
        elapsed = time.perf_counter() - start
        for name in names:
            if not failures:
                await self._check(name)
            await self._store.close_session(name)
        return Answer(
            reached=len(samples),
            per_second=len(samples) / elapsed,
            p99_seconds=p99(samples) if samples else 0.0,
            failures=len(failures),
            last_failure=failures[-1] if failures else "",
        )

    async def _read(self, command: Command) -> Answer:
        samples = await timed(lambda: self._store.read(command.session, PAGE), command.count, command.seconds)
        await self._check(command.session)
        return Answer(samples=samples, reached=self._written[command.session])

    async def _make_sessions(self, command: Command) -> Answer:
        store = self._store
        assert isinstance(store, SessionList)
        deadline = time.perf_counter() + command.seconds
        while self._made < command.count and time.perf_counter() < deadline:
            await store.make_session(f"n{self._made}", text_of(self._made))
            self._made += 1
        return Answer(reached=self._made)

    async def _list(self, command: Command) -> Answer:
        store = self._store
        assert isinstance(store, SessionList)
        samples = await timed(lambda: store.list_newest(PAGE), command.count, command.seconds)
        given = await store.list_newest(PAGE)
        assert given == PAGE, given
        return Answer(samples=samples, reached=self._made)

    async def _open(self, name: str) -> None:
        await self._store.open_session(name)
        self._written[name] = 0

    async def _append_next(self, name: str) -> None:
        number = self._written[name]
        await self._store.append(name, text_of(number))
        self._written[name] = number + 1

    async def _check(self, name: str) -> None:
        """The newest messages are those last appended, in order."""
        texts = self._store.texts(await self._store.read(name, PAGE))
        end = self._written[name]
        expected = [text_of(number) for number in range(max(0, end - PAGE), end)]
        assert texts == expected, (name, end, [text.rstrip("x") for text in texts])


def text_of(number: int) -> str:
    return f"{number:08d} ".ljust(200, "x")


def serve(open_store: Callable[[Path, str], AbstractAsyncContextManager[Store[Page]]]) -> None:
    """Answers each command, a line of JSON, with a line of JSON, until the input ends.

    The arguments of the process are the store's directory and its variant.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is no answer

    async def answer_all() -> None:
        async with open_store(Path(sys.argv[1]), sys.argv[2]) as store:
            works = Works(store)
            while line := await asyncio.to_thread(sys.stdin.readline):
                answer = await works.do(Command(**json.loads(line)))
                answers.write(json.dumps(asdict(answer)) + "\n")
                answers.flush()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answer_all())
