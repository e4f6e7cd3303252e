"""Which session tools say beforehand where the words of a call go and whether they may, and why the others need not."""

import json
from typing import Any

import pytest

from antiphon.agents.toolset import Foreseeing, ToolContext
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.policy.decision import ALLOW, Deny
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.tools.session_tool import SessionTool
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.deliveries.test_outgoing_flow import invite, link
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)
FORESEEING = {"message", "sessions_send", "sessions_spawn", "subagents"}
NEED_NOT = {
    "agents_list": "It answers its caller alone.",
    "memory": "A note carries what it was made of, and stands where its readers are judged by that.",
    "session_status": "It answers its caller alone.",
    "simulate_tool_call": "It answers its caller alone.",
    "sessions_history": "It answers its caller alone.",
    "sessions_list": "It answers its caller alone.",
    "sessions_search": "It answers its caller alone.",
    "sessions_wait": "It answers its caller alone.",
    "sessions_yield": "It ends its own run, whose reply is judged when it is claimed.",
    "summarize": "It answers its caller alone; what the model may have is judged by its provider.",
    "tasks": "A task carries what it was made of; its words are judged at its hour, by the run that says them.",
}


def caller_of(session: Session) -> Caller:
    return Caller(
        session=SessionRow(session.row),
        agent_id=AgentId(session.agent_id),
        principal=OWNER,
        call_id="foreseen",
        run=None,
    )


async def foreseen(story: Story, by: Character, name: str, **arguments: Any) -> ForeseenCall | None:
    tool = story.app.tools.find(name)
    assert isinstance(tool, Foreseeing)
    return await tool.foresee(ToolContext(caller_of(await by.session())), arguments)


@requirement("flow:4", "flow:7")
async def test_every_session_tool_foresees_or_need_not(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        tools = {name: story.app.tools.find(name) for name in SESSION_TOOLS}
        found = {name for name, tool in tools.items() if isinstance(tool, SessionTool) and tool.foresees}
        assert found == FORESEEING
        assert found | NEED_NOT.keys() == SESSION_TOOLS.keys() and not found & NEED_NOT.keys()
        judged = {name for name, tool in tools.items() if isinstance(tool, SessionTool) and "send_denied" in tool.codes}
        assert judged <= FORESEEING


@requirement("flow:4", "flow:5", "flow:7")
async def test_what_is_foreseen_is_what_the_call_is_told(open_home: OpenHome) -> None:
    agents = [{"id": "main"}, {"id": "other"}]
    parts = Parts(tools=PARTS.tools, channels=[FakeChannel()])
    denied: dict[str, Any] = {
        "session__send_policy": {"rules": [{"match": {"keyPrefix": "cli:shut"}, "action": "deny"}]}
    }
    async with telling(open_home, parts, agents__list=agents, **denied) as story:
        ann = await invite(story.app, "Ann")
        await link(story.app, "+1", ann)
        desk, peer, shut = await story.opens("desk"), await story.opens("peer"), await story.opens("shut")
        vault = await story.opens("vault", taint=SECRET)
        await desk.spawns("!say ready", mode="session", label="helper")
        await story.settles()
        to_ann = {"channel": NAME, "recipient": "Ann", "text": "x"}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("message", to_ann),
            ("sessions_send", {"sessionKey": peer.key, "message": "x", "timeoutSeconds": 0}),
            ("sessions_send", {"sessionKey": shut.key, "message": "x", "timeoutSeconds": 0}),
            ("sessions_spawn", {"task": "!say hi"}),
            ("sessions_spawn", {"task": "!say hi", "agentId": "other"}),
            ("subagents", {"action": "steer", "target": "helper", "message": "go on"}),
        ]
        rules: list[str | None] = []
        for is_secret in (False, True):
            if is_secret:
                await desk.answers(BOOKS)
            for name, arguments in calls:
                found = await foreseen(story, desk, name, **arguments)
                answer = await desk.calls(name, **arguments)
                assert found is not None
                denial = found.decision if isinstance(found.decision, Deny) else None
                rules.append(None if denial is None else denial.rule)
                if denial is None:
                    assert found.decision == ALLOW and answer["status"] == "accepted"
                else:
                    assert (answer["code"], answer["error"]) == (denial.rule, denial.reason)
                await story.settles()
        plain = [None, None, "send_denied", None, "spawn_agent", None]
        raised = ["write_down", "write_down", "write_down", None, "spawn_agent", "write_down"]
        assert rules == [*plain, *raised]
        to = await foreseen(story, desk, "message", **to_ann)
        assert to is not None and to.sink == DeliveryContext(channel=NAME, to="+1")
        up = await foreseen(story, vault, "sessions_send", sessionKey=peer.key, message="x")
        assert up is not None and isinstance(up.sink, Session) and str(up.sink.key) == peer.key


@requirement("flow:4", "answers:2")
async def test_what_is_refused_whatever_it_holds_is_not_foreseen(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        desk = await story.opens("desk")
        calls: list[tuple[str, dict[str, Any]]] = [
            ("message", {"channel": NAME, "recipient": "nobody", "text": "x"}),
            ("message", {"channel": NAME, "recipient": "owner", "text": " "}),
            ("message", {"channel": NAME, "recipient": "owner", "text": "x", "release": True}),
            ("sessions_send", {"sessionKey": "agent:main:cli:none", "message": "x"}),
            ("sessions_send", {"sessionKey": desk.key, "message": "x"}),
            ("sessions_spawn", {"task": " "}),
            ("subagents", {"action": "steer", "target": "nobody", "message": "x"}),
            ("subagents", {"action": "list"}),
            ("sessions_list", {}),
        ]
        for name, arguments in calls:
            assert await foreseen(story, desk, name, **arguments) is None


@requirement("flow:4")
async def test_a_blind_send_up_says_nothing_of_its_target(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say ready", mode="session", label="helper")
        await story.settles()
        await boss.answers(BOOKS)
        found = await foreseen(story, child, "sessions_send", sessionKey="parent", message="x")
        assert found == ForeseenCall(None, ALLOW)
        run = await child.answers(to_call("sessions_send", sessionKey="parent", message="x"))
        assert json.loads(run.reply or "")["status"] == "accepted"
