"""`python -m bench.walks`: how many functions of ours an act passes, from its beginning to its last consequence."""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import antiphon
from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from bench.runs import open_session

OURS: Final = str(Path(antiphon.__file__).parent)
WAIT: Final = timedelta(seconds=30)


class Walk:
    """The functions of the package that are called while it is on, in all threads that begin after it."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.is_on = False

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.functions.add(frame.f_code)


def to_call(tool: str, **arguments: object) -> str:
    """What makes the model `offline` call a tool."""
    return f"!call {tool} {json.dumps(arguments)}"


async def _says(app: App, target: NamedTarget, text: str) -> None:
    posted = await app.services.inbox.post(OWNER, target, text_content(text))
    assert posted.run_id is not None
    assert await app.services.waits.wait(posted.run_id, WAIT) is not None
    await _comes_to_rest(app)


async def _comes_to_rest(app: App) -> None:
    """Returns once no run is open."""

    async def count(query: Any) -> int:
        row = await query.fetch_one("SELECT count(*) FROM runs WHERE status IN ('queued', 'running')")
        return int(row[0])

    while await app.database.read(count):
        await asyncio.sleep(0.01)


ACTS: Final[dict[str, Callable[[App, NamedTarget], Awaitable[None]]]] = {
    "post": lambda app, target: _says(app, target, "hello"),
    "send": lambda app, target: _says(
        app, target, to_call("sessions_send", sessionKey="agent:main:api:two", message="hello", timeoutSeconds=10)
    ),
    "child's end": lambda app, target: _says(app, target, to_call("sessions_spawn", task="hello")),
}


async def measure(home: Path, walk: Walk) -> dict[str, int]:
    """By act, the functions that it passes; each act was done once before."""
    found: dict[str, int] = {}
    async with open_app(home, Config()) as app:
        target = await open_session(app, "one")
        await open_session(app, "two")
        for name, act in ACTS.items():
            await act(app, target)
            walk.functions.clear()
            walk.is_on = True
            await act(app, target)
            walk.is_on = False
            found[name] = len(walk.functions)
    return found


def main() -> None:
    walk = Walk()
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    with tempfile.TemporaryDirectory() as directory:
        for name, count in asyncio.run(measure(Path(directory) / "home", walk)).items():
            print(f"{name:20}{count:6}")


if __name__ == "__main__":
    main()
