"""Calls of own functions that always ask, calls inside calls, and steps that fail and are tried again."""

from pathlib import Path

import pytest

import antiphon
from antiphon import Turn
from tests.runners.asking import asked
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def _refunds(turn: Turn) -> str:
    reply = await turn.call("refund", {"order": 7}, run=lambda given: f"refunded {given['order']}", ask=True)
    return reply.text


async def test_a_call_that_always_asks_waits_for_a_yes_though_rules_would_let_it_through(home: Path) -> None:
    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=_refunds)]) as app:
        session = await app.sessions.open("one")
        run = await session.post("refund it")
        approval = await asked(app, session)
        assert approval.calls[0].tool == "refund"
        assert "program asks" in approval.calls[0].reason
        await app.approvals.decide(approval.id, "once")
        assert (await run.wait(SECONDS)).reply == "refunded 7"


async def test_a_call_inside_a_call_is_refused_and_does_not_wait_for_itself(home: Path) -> None:
    async def answer(turn: Turn) -> str:
        async def outer(_: object) -> str:
            return (await turn.call("inner", {}, run=lambda _: "never")).text

        return (await turn.call("outer", {}, run=outer)).text

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert "nested_call" in str((await run.wait(SECONDS)).reply)


async def test_a_step_that_is_tried_again_is_known_as_the_same_in_a_later_attempt(home: Path) -> None:
    tries = 0
    done: list[int] = []

    async def answer(turn: Turn) -> str:
        def flaky() -> int:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise OSError("busy")
            done.append(tries)
            return tries

        for _ in range(3):
            try:
                found = await turn.step("flaky", flaky)
                break
            except OSError:
                continue
        else:
            raise AssertionError
        await turn.call("refund", {}, run=lambda _: "yes", ask=True)
        return str(found)

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        approval = await asked(app, session)
        await app.approvals.decide(approval.id, "once")
        assert (await run.wait(SECONDS)).reply == "2"
    assert done == [2]


async def test_a_call_that_was_allowed_while_the_session_spoke_of_other_things_is_carried_out_then(home: Path) -> None:
    steps: list[str] = []

    async def answer(turn: Turn) -> str:
        said = await turn.step("think", lambda: steps.append(turn.text) or turn.text)
        return "" if said != "refund it" else await _refunds(turn)

    async def answers(turn: Turn) -> str:
        return await answer(turn) or "ok"

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answers)]) as app:
        session = await app.sessions.open("one")
        first = await session.post("refund it")
        approval = await asked(app, session)
        assert (await (await session.post("hello")).wait(SECONDS)).reply == "ok"
        await app.approvals.decide(approval.id, "once")
        continued = (await first.wait(SECONDS)).continued_by
        assert continued is not None
        assert (await app.run(continued).wait(SECONDS)).reply == "refunded 7"
    assert steps == ["refund it", "hello"]
