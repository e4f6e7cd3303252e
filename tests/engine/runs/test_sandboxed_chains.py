"""What a sandboxed session causes is known as such, in every run that follows; on each backend."""

import json
from typing import Any

import pytest

from antiphon.domain.run import Run
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_send, to_spawn, wait_at
from tests.story import Character, telling

pytestmark = pytest.mark.anyio

MAIN, DESK = "agent:main:main", "agent:porter:cli:desk"
AGENTS: list[dict[str, Any]] = [
    {"id": "main", "sandbox": {"mode": "non-main"}, "subagents": {"allowAgents": ["porter"]}},
    {"id": "porter"},
]


CHAINS: dict[str, Any] = {
    "agents__list": AGENTS,
    "tools__sessions__visibility": "all",
    "tools__agent_to_agent": {"enabled": True},
}


async def runs_of(character: Character) -> list[Run]:
    """In the order in which they were queued."""
    return sorted(await character.runs(), key=lambda run: run.seq)


@requirement("visibility:2", "spawn:7")
async def test_the_run_that_a_sandboxed_childs_result_starts_is_sandboxed(open_home: OpenHome) -> None:
    async with telling(open_home, **CHAINS) as story:
        main = await story.opens(MAIN)
        for agent, is_sandboxed in (("main", True), ("porter", False)):
            await main.answers(to_spawn("!say x", agentId=agent))
            await story.settles()
            *_, asked, answer = await runs_of(main)
            assert not asked.is_sandboxed and answer.is_sandboxed is is_sandboxed


@requirement("visibility:2", "spawn:8")
async def test_the_run_that_goes_on_with_a_sandboxed_childs_result_is_sandboxed(open_home: OpenHome) -> None:
    async with telling(open_home, **CHAINS) as story:
        main = await story.opens(MAIN)
        for agent, is_sandboxed in (("main", True), ("porter", False)):
            await main.answers(to_spawn("!say x", agentId=agent), YIELD)
            await story.settles()
            *_, parked, continuation = await runs_of(main)
            assert continuation.continues == parked.id
            assert not parked.is_sandboxed and continuation.is_sandboxed is is_sandboxed


@requirement("visibility:2", "send:5")
async def test_what_answers_and_follows_a_sandboxed_session_is_sandboxed(open_home: OpenHome) -> None:
    async with telling(open_home, **CHAINS) as story:
        main = await story.opens(MAIN)
        desk, boxed = await story.opens(DESK, agent="porter"), await story.opens("boxed")
        text = "!say first\n!turn second"
        await desk.answers(to_send(text, sessionKey=MAIN))
        await story.settles()
        assert not any(run.is_sandboxed for run in [*await runs_of(desk), *await runs_of(main)])
        await desk.answers(to_send(text, sessionKey=boxed.key))
        await story.settles()
        asked, *turns = (await runs_of(desk))[-2:]
        assert not asked.is_sandboxed and all(turn.is_sandboxed for turn in turns)
        assert all(run.is_sandboxed for run in await runs_of(boxed))


@requirement("visibility:2", "spawn:8")
async def test_what_a_sandboxed_session_caused_joins_no_run_outside_of_the_sandbox(open_home: OpenHome) -> None:
    steer: dict[str, Any] = {"action": "steer", "target": "free", "message": "!say his"}
    more: dict[str, Any] = {"tools__subagents__tools": ["sessions_send"]}
    async with telling(open_home, **CHAINS, **more) as story:
        main = await story.opens(MAIN)
        await main.answers(to_spawn(wait_at("free"), agentId="porter", label="free"))
        await story.comes_to("free")
        child = await main.spawns_in_a_run("!say x", label="boxed")
        sent = await child.calls("sessions_send", sessionKey="parent", message=to_call("subagents", **steer))
        assert json.loads(sent["reply"])["code"] == "others_work"
        assert (await story.run(sent["runId"])).is_sandboxed
        assert (await main.calls_in_a_run("subagents", **steer))["status"] == "accepted"
        story.opens_gate("free")
        await story.settles()


@requirement("visibility:6")
@pytest.mark.parametrize("narrowed", [False, "self"])
async def test_a_child_may_send_to_its_requester_whatever_its_agent_may(open_home: OpenHome, narrowed: Any) -> None:
    agents = [{"id": "main", "tools": {"sessions": {"send": narrowed}}}]
    async with telling(open_home, agents__list=agents) as story:
        boss, other = await story.opens("boss"), await story.opens("other")
        child = await boss.spawns("!say ready")
        for name in ("parent", boss.key):
            sent = await child.calls("sessions_send", sessionKey=name, message="!say heard")
            assert sent["reply"] == "heard", sent
        refused = await child.calls("sessions_send", sessionKey=other.key, message="!say x")
        assert refused["code"] == "not_found"
        assert (await child.sends_in_a_run("!say heard", sessionKey="parent"))["reply"] == "heard"
        await story.settles()
