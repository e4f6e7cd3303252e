"""What a sandboxed session causes is known as such, in every run that follows; on each backend."""

import json
from typing import Any

import pytest

from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.run import Run
from antiphon.store.runs import RunFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import YIELD, session_of, spawn_directive
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import call, open_peer, send_directive, settings, settle
from tests.engine.stage import ask, find_run

pytestmark = pytest.mark.anyio

MAIN, DESK = "agent:main:main", "agent:porter:cli:desk"
AGENTS: list[dict[str, Any]] = [
    {"id": "main", "sandbox": {"mode": "non-main"}, "subagents": {"allowAgents": ["porter"]}},
    {"id": "porter"},
]


def chains(**more: Any) -> Any:
    meeting = {"tools__sessions__visibility": "all", "tools__agent_to_agent": {"enabled": True}}
    return settings(agents__list=AGENTS, **meeting, **more)


async def runs_of(app: App, key: str) -> list[Run]:
    """In the order in which they were queued."""
    runs = await app.services.runs.list(OWNER, RunFilter(session=(await session_of(app, key)).row), limit=100)
    return sorted(runs, key=lambda run: run.seq)


@requirement("visibility:2", "spawn:7")
async def test_the_run_that_a_sandboxed_childs_result_starts_is_sandboxed(open_home: OpenHome) -> None:
    async with open_home(chains()) as app:
        await open_peer(app, MAIN)
        for agent, is_sandboxed in (("main", True), ("porter", False)):
            await ask(app, MAIN, spawn_directive("!say x", agentId=agent))
            await settle(app)
            *_, asked, answer = await runs_of(app, MAIN)
            assert not asked.is_sandboxed and answer.is_sandboxed is is_sandboxed


@requirement("visibility:2", "spawn:8")
async def test_the_run_that_goes_on_with_a_sandboxed_childs_result_is_sandboxed(open_home: OpenHome) -> None:
    async with open_home(chains()) as app:
        await open_peer(app, MAIN)
        for agent, is_sandboxed in (("main", True), ("porter", False)):
            await ask(app, MAIN, f"{spawn_directive('!say x', agentId=agent)}\n{YIELD}")
            await settle(app)
            *_, parked, continuation = await runs_of(app, MAIN)
            assert continuation.continues == parked.id
            assert not parked.is_sandboxed and continuation.is_sandboxed is is_sandboxed


@requirement("visibility:2", "send:5")
async def test_what_answers_and_follows_a_sandboxed_session_is_sandboxed(open_home: OpenHome) -> None:
    async with open_home(chains()) as app:
        await open_peer(app, MAIN)
        desk, boxed = await open_peer(app, DESK, agent="porter"), await open_peer(app, "boxed")
        text = "!say first\n!turn second"
        await ask(app, str(desk.key), send_directive(text, sessionKey=MAIN))
        await settle(app)
        assert not any(run.is_sandboxed for run in [*await runs_of(app, DESK), *await runs_of(app, MAIN)])
        await ask(app, str(desk.key), send_directive(text, sessionKey=str(boxed.key)))
        await settle(app)
        asked, *turns = (await runs_of(app, DESK))[-2:]
        assert not asked.is_sandboxed and all(turn.is_sandboxed for turn in turns)
        assert all(run.is_sandboxed for run in await runs_of(app, str(boxed.key)))


@requirement("visibility:2", "spawn:8")
async def test_what_a_sandboxed_session_caused_joins_no_run_outside_of_the_sandbox(open_home: OpenHome) -> None:
    gates = Gates()
    steer = "!call subagents " + json.dumps({"action": "steer", "target": "free", "message": "!say his"})
    more: dict[str, Any] = {"tools__subagents__tools": ["sessions_send"]}
    async with open_home(chains(**more), Parts(tools=[gates.tool])) as app:
        await open_peer(app, MAIN)
        await ask(app, MAIN, spawn_directive(wait_at("free"), agentId="porter", label="free"))
        await gates.until_reached("free")
        child = json.loads((await ask(app, MAIN, spawn_directive("!say x", label="boxed"))).reply or "")
        sent: Any = await call(
            app, await session_of(app, child["childSessionKey"]), "sessions_send", sessionKey="parent", message=steer
        )
        assert json.loads(sent["reply"])["code"] == "others_work"
        assert (await find_run(app, sent["runId"])).is_sandboxed
        mine = json.loads((await ask(app, MAIN, steer)).reply or "")
        assert mine["status"] == "accepted"
        gates.open("free")
        await settle(app)


@requirement("visibility:6")
@pytest.mark.parametrize("narrowed", [False, "self"])
async def test_a_child_may_send_to_its_requester_whatever_its_agent_may(open_home: OpenHome, narrowed: Any) -> None:
    agents = [{"id": "main", "tools": {"sessions": {"send": narrowed}}}]
    async with open_home(settings(agents__list=agents)) as app:
        boss, other = await open_peer(app, "boss"), await open_peer(app, "other")
        child = await open_peer(app, "agent:main:subagent:c", parent=boss.row)
        for name in ("parent", str(boss.key)):
            sent: Any = await call(app, child, "sessions_send", sessionKey=name, message="!say heard")
            assert sent["reply"] == "heard", sent
        refused: Any = await call(app, child, "sessions_send", sessionKey=str(other.key), message="!say x")
        assert refused["code"] == "not_found"
        run = await ask(app, str(child.key), send_directive("!say heard", sessionKey="parent"))
        assert json.loads(run.reply or "")["reply"] == "heard"
        await settle(app)
