"""Texts that a framework has in classes of its own, and calls that would wait for the loop on the loop."""

from pathlib import Path

import pytest

import antiphon
from antiphon import Turn
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class _Text(str):
    """As LangChain's messages have it."""


async def test_texts_of_a_class_of_their_own_are_texts(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        turn.say(_Text("as it "))
        await turn.save(_Text("state"))
        await turn.usage(model=_Text("big"), input=1, output=1)
        step = await turn.step(_Text("look"), lambda: _Text("seen"))
        reply = await turn.call(_Text("read"), {_Text("page"): _Text("one")}, run=lambda _: _Text("text"))
        return _Text(f"{turn.state} {step} {reply.text}")

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        session = await app.sessions.open("one")
        assert (await (await session.post("hello")).wait(SECONDS)).reply == "state seen text"
        assert (await (await session.post("again")).wait(SECONDS)).reply == "state seen text"


async def test_pieces_of_a_class_of_their_own_are_texts(home: Path) -> None:
    def answer(turn: Turn) -> object:
        yield _Text("piece by ")
        yield _Text("piece")

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert (await run.wait(SECONDS)).reply == "piece by piece"


async def test_a_call_that_would_wait_for_the_loop_on_the_loop_is_refused(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        return turn.call_sync("read", {}, run=lambda _: "never").text

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert "Await the method" in str((await run.wait(SECONDS)).error)


async def test_a_plain_function_has_whatever_a_turn_has(home: Path) -> None:
    def answer(turn: Turn) -> str:
        turn.from_thread(turn.save("kept"))
        return f"{turn.state} {len(turn.from_thread(turn.messages()))}"

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert str((await run.wait(SECONDS)).reply).startswith("kept ")
