"""A plain function as an agent that tests kill."""

import asyncio
from collections.abc import Awaitable, Callable
from tempfile import TemporaryDirectory
from typing import Any

from antiphon import Turn
from tests.runners.lives import Life, effect, live


def working(life: Life) -> Callable[[Turn], Awaitable[str]]:
    """A step, two equal calls, a call that needs a yes, and a state."""

    async def answer(turn: Turn) -> str:
        async def look() -> str:
            return "seen"

        async def note(given: Any) -> str:
            effect(life, f"note {given['text']}")
            return "noted"

        async def wipe(given: Any) -> str:
            effect(life, f"wipe {given['name']}")
            return "wiped"

        seen = await turn.step("look", look)
        for _ in range(2):
            await turn.call("note", {"text": "it"}, run=note)
        await turn.save("noted")
        await turn.call("wipe", {"name": "old"}, run=wipe, effects=["deletes"])
        await turn.save("wiped")
        return f"Done: {seen}."

    return answer


def warm() -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(live(Life(home=f"{directory}/home", agent=f"{__name__}:working")))
