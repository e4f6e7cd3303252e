"""B24: writers beside somebody who is refused again and again."""

import time
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError, Conflict
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.store.database import Transaction
from antiphon.store.usage import count_message
from bench.approvals import own_server
from bench.measure import Row, p50

WRITERS = 32
SECONDS = 2.0
ROUNDS = 5
REFUSED_PER_SECOND = 200
CONTENT = text_content("hello")


async def refusals(directory: Path) -> list[Row]:
    """Appends a second of 32 writers beside 200 refusals a second, over those without, in turn."""
    rows = [await _measure(directory / "sqlite", "SQLite", Config())]
    async with own_server() as url:
        shared = Config.model_validate({"database": {"url": SecretStr(url), "connections": 12}})
        rows.append(await _measure(directory / "postgres", "PostgreSQL", shared))
    return rows


async def _measure(home: Path, what: str, config: Config) -> Row:
    async with open_app(home, config) as app:
        targets = [await _open(app, f"s{number}") for number in range(WRITERS)]
        alone, beside, above = list[float](), list[float](), list[float]()
        await _rate(app, targets, None)
        for _ in range(ROUNDS):
            alone.append(await _rate(app, targets, None))
            beside.append(await _rate(app, targets, _Refused(app, "unknown")))
            above.append(await _rate(app, targets, _Refused(app, None)))
        pairs = zip(alone, beside, strict=True), zip(alone, above, strict=True)
        before, after = (p50([other / own for own, other in each]) for each in pairs)
    return Row(
        id="B24",
        what=f"{what}: 32 writers beside 200 refusals a second",
        measured=f"×{before:.2f}; where each had written, ×{after:.2f}",
        reference=f"alone {p50(alone):,.0f}/s",
        target="≥ 0.95",
        is_met=min(before, after) >= 0.95,
        figures={"before_writing": before, "after_writing": after, "alone_per_s": p50(alone)},
    )


async def _open(app: App, name: str) -> NamedTarget:
    opened = await app.services.sessions.open(OWNER, app.services.sessions.target(f"api:{name}"))
    return NamedTarget(opened.session.key, None)


class _Refused:
    """An act that is refused before it writes, or after."""

    def __init__(self, app: App, name: str | None) -> None:
        self._app = app
        self._name = name

    async def again(self) -> None:
        try:
            if self._name is not None:
                target = self._app.services.sessions.target(f"api:{self._name}")
                await self._app.services.inbox.append(OWNER, target, CONTENT)
            else:
                await self._app.database.run(_write_and_refuse)
        except AntiphonError:
            return
        raise RuntimeError("act was not refused")


async def _write_and_refuse(tx: Transaction) -> None:
    await count_message(tx, "person:eve", 0)
    raise Conflict("refused")


async def _rate(app: App, targets: list[NamedTarget], refused: _Refused | None) -> float:
    """Appends a second."""
    appended = 0
    end = time.perf_counter() + SECONDS

    async def write(target: NamedTarget) -> None:
        nonlocal appended
        while time.perf_counter() < end:
            await app.services.inbox.append(OWNER, target, CONTENT)
            appended += 1

    async def refuse(tasks: TaskGroup) -> None:
        while refused is not None and time.perf_counter() < end:
            tasks.start_soon(refused.again)
            await anyio.sleep(1 / REFUSED_PER_SECOND)

    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for target in targets:
            tasks.start_soon(write, target)
        tasks.start_soon(refuse, tasks)
    return appended / (time.perf_counter() - start)
