"""What runners do that they should not: keys used twice, names of tools, halves of characters, endless threads."""

import asyncio
import sys
from pathlib import Path

import anyio
import pytest

import antiphon
from antiphon import PlannedCall, Turn
from antiphon.domain.message import MAX_TEXT_BYTES
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def _run(home: Path, runner: object) -> antiphon.Run:
    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=runner)]) as app:  # pyright: ignore[reportArgumentType]
        return await (await (await app.sessions.open("one")).post("go")).wait(SECONDS)


async def _results(session: antiphon.SessionHandle) -> list[str]:
    events = await session.history(include_tools=True)
    return [event.message.tool for event in events if isinstance(event.message, antiphon.ToolResult)]


async def test_a_key_used_twice_in_one_step_ends_the_run_before_either_call(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        first = PlannedCall(name="sessions_list", arguments={"limit": 1}, key="same")
        await turn.calls([first, PlannedCall(name="session_status", arguments={}, key="same")])
        return "never"

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        session = await app.sessions.open("one")
        run = await (await session.post("go")).wait(SECONDS)
        assert run.code == "runner_diverged"
        assert await _results(session) == []


async def test_the_same_call_twice_in_one_step_under_one_key_is_made_once(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        call = PlannedCall(name="session_status", arguments={}, key="same")
        first, second = await turn.calls([call, call])
        return str(first.text == second.text)

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        session = await app.sessions.open("one")
        assert (await (await session.post("go")).wait(SECONDS)).reply == "True"
        assert await _results(session) == ["session_status"]


async def test_two_steps_of_one_key_at_once_end_the_run(home: Path) -> None:
    begun: list[int] = []

    async def answer(turn: Turn) -> str:
        async def work() -> None:
            begun.append(1)
            await asyncio.sleep(3600)

        await asyncio.gather(turn.step("work", work, key="same"), turn.step("work", work, key="same"))
        return "never"

    assert (await _run(home, answer)).code == "runner_diverged" and len(begun) < 2


async def test_no_calls_are_no_step(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        return str(await turn.calls([]))

    assert (await _run(home, answer)).reply == "[]"


@pytest.mark.parametrize("name", ["sessions_list", "message", "ask_person", "run_command"])
async def test_an_own_function_has_no_name_of_antiphons_tools(name: str, home: Path) -> None:
    done: list[object] = []

    async def answer(turn: Turn) -> str:
        reply = await turn.call(name, {"question": "?"}, run=done.append, effects=["spends"])
        return reply.text

    run = await _run(home, answer)
    assert run.code == "own_name_taken" and name in (run.error or "") and not done


async def test_halves_of_characters_are_made_whole_and_long_replies_cut(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        turn.say("a\ud800b")
        await turn.save("a\ud800b")
        kept = await turn.step("half \ud800", lambda: "a\ud800b")
        own = await turn.call("own \udc00", {"text": "a\ud800b"}, key="\ud800", run=lambda given: given["text"])
        return f"\ud800 {kept} {own.text} {'x' * 2 * MAX_TEXT_BYTES}"

    reply = (await _run(home, answer)).reply or ""
    assert reply.startswith("\ufffd a\ufffdb a\ufffdb x") and "cut here" in reply


async def test_a_turn_is_awaited_on_its_own_loop(home: Path) -> None:
    def answer(turn: Turn) -> str:
        async def inside() -> str:
            return (await turn.call("session_status")).text

        return asyncio.run(inside())

    run = await _run(home, answer)
    assert run.code == "other_loop" and "from_thread" in (run.error or "")


async def test_usage_that_is_no_number_is_refused(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        found: list[str] = []
        for counted in ({"cost": float("nan")}, {"cost": float("inf")}, {"input": 2**70}, {"input": 1.5}):
            try:
                await turn.usage(**{"model": "m", "input": 1, "output": 1, **counted})  # pyright: ignore[reportArgumentType]
            except antiphon.Invalid as error:
                found.append(error.code)
        return " ".join(found)

    assert (await _run(home, answer)).reply == " ".join(["invalid_usage"] * 4)


_PROGRAM = """
import asyncio, sys, time, antiphon

begun = []

def wait():
    begun.append(1)
    time.sleep(3600)

async def swallows(turn):
    begun.append(1)
    for _ in range(4):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

def blocks(turn):
    wait()

async def calls(turn):
    return (await turn.call("own", {}, run=lambda _: wait())).text

async def steps(turn):
    return await turn.step("own", wait)

async def main():
    agents = [antiphon.Agent("main", runner=globals()[sys.argv[1]])]
    async with antiphon.open(sys.argv[2], agents=agents) as app:
        run = await (await app.sessions.open("one")).post("go")
        while not begun:
            await asyncio.sleep(0.05)
        await run.cancel()
        print((await run.wait()).status, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["swallows", "blocks", "calls", "steps"])
async def test_a_runner_that_does_not_end_does_not_keep_the_program_from_ending(how: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    command = [sys.executable, str(program), how, str(tmp_path / "home")]
    with anyio.fail_after(SECONDS):
        ended = await anyio.run_process(command, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"cancelled\n"), ended.stderr.decode()
