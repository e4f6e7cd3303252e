"""Processes with an agent that has a runner: forks of one that has imported everything, which die where they must.

As a module it is that server. It has each module that is named do the like once, by its `warm`, so that nothing is
loaded in a life. A `Life` is a line of JSON on its standard input, and the answer the exit code.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import antiphon
from antiphon.building import Parts
from tests.fork_server import ForkServer, serve_forks
from tests.sqlite_template import connect_to_copy
from tests.waiting import PROCESS_SECONDS
from tests.whole_file import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a life ends: the moment in which the last of these units was, or is about to be, committed."""

    units: Sequence[str] = ()
    """In this order; others may stand between them."""
    is_before: bool = False
    effect: int | None = None
    """Instead: inside a function, after its so-manieth effect."""
    commit: int | None = None
    """Instead: at the so-manieth commit of any unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    home: str
    agent: str
    """`module:function`; it gets the life, and returns the runner."""
    model_url: str = ""
    text: str = "go"
    decides: bool = True
    """Whether it says yes to whatever is asked."""
    dies: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the last life saw."""

    status: str
    reply: str | None
    error: str | None
    types: Sequence[str]
    """Of the session's events."""
    effects: Sequence[str]


def effect(life: Life, text: str) -> None:
    """Does something that nobody can undo."""
    with Path(f"{life.home}.effects").open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    if life.dies is not None and life.dies.effect == len(_effects(life)):
        os.kill(os.getpid(), signal.SIGKILL)


def _effects(life: Life) -> list[str]:
    path = Path(f"{life.home}.effects")
    return path.read_text("utf-8").splitlines() if path.exists() else []


async def live(life: Life) -> None:
    """Posts the message, which is stored once, and waits for its answer."""
    module, name = life.agent.split(":")
    runner = getattr(importlib.import_module(module), name)(life)
    parts = Parts(commit_hook=_Reaper(life.dies), synchronous="OFF", connect=connect_to_copy)
    agents = [antiphon.Agent("main", runner=runner)]
    settings: dict[str, Any] = {"gateway": {"drain_seconds": 0}}
    config = antiphon.Config.model_validate(settings)
    async with antiphon.open(life.home, config=config, agents=agents, parts=parts) as app:
        session = await app.sessions.open("main")
        run = await session.post(life.text, message_id="m-1")
        deciding = asyncio.create_task(_decide(app)) if life.decides else None
        ended = await run.wait(PROCESS_SECONDS)
        if deciding is not None:
            deciding.cancel()
        outcome = Outcome(
            status=ended.status.value,
            reply=ended.reply,
            error=ended.error,
            types=[event.type async for event in session.events()],
            effects=_effects(life),
        )
        write_whole(Path(f"{life.home}.outcome"), json.dumps(asdict(outcome)))


async def _decide(app: antiphon.Antiphon) -> None:
    async for request in app.approvals.follow():
        if request.state is antiphon.ApprovalState.PENDING:
            await app.approvals.decide(request.id, "once")


class _Reaper:
    """Ends the process at its point."""

    def __init__(self, point: Point | None) -> None:
        self._point = point
        self._left = [*(point.units if point is not None else ())]

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None:
        if (point := self._point) is None:
            return
        if point.commit is not None and number == point.commit and (moment == "before") == point.is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self._left:
            return
        for unit in units:
            is_last = len(self._left) == 1
            if unit == self._left[0] and (moment == "before" if is_last and point.is_before else moment == "after"):
                if is_last:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._left.pop(0)


class Lives:
    """The server, from the testing side."""

    def __init__(self, *modules: str) -> None:
        self._server = ForkServer(__name__, *modules)

    def carry_out(self, life: Life) -> int:
        """The exit code; negative for the signal that killed it."""
        return self._server.run(asdict(life))

    def carry_out_to_end(self, life: Life) -> Outcome:
        code = self.carry_out(replace(life, dies=None, decides=True))
        assert code == 0, f"The process ended with {code}"
        return Outcome(**json.loads(Path(f"{life.home}.outcome").read_text("utf-8")))

    def close(self) -> None:
        self._server.close()


def _life(given: dict[str, Any]) -> Life:
    dies = given.pop("dies")
    return Life(**given, dies=None if dies is None else Point(**dies))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        importlib.import_module(each).warm()
    serve_forks(lambda given: asyncio.run(live(_life(given))), seconds=2 * PROCESS_SECONDS)
