"""Each tool answers the codes that it declares, with the status that docs/ERRORS.md names, and no others."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification, Level
from antiphon.domain.person import PersonRole
from antiphon.engine.exchanges.send import MAX_MESSAGE_BYTES
from antiphon.engine.sessions.patches import session_columns
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store import incarnations
from antiphon.store import sessions as rows
from antiphon.tools.session_tool import SessionTool
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_send, wait_at
from tests.engine.stage import ManualClock
from tests.story import Character, telling

pytestmark = pytest.mark.anyio

ERRORS = Path(__file__).parents[2] / "docs" / "ERRORS.md"
TOOLS = ("agents_list", "session_status", "sessions_history", "sessions_list", "sessions_search", "sessions_send")

RACED = "session_deleted"
"""Told only where the target goes between its run's end and the reading of it; see the tests of exchanges."""

RELEASED = "release_outdated"
"""Told only where what an owner has released changes before it is sent; see the tests of releases."""

RARE_IN_SPAWNS = {"not_found", "cancelled", "spawn_depth", "reference_not_allowed", "thread_failed"}
"""Told only where the caller's session or run goes in the middle of its call, to a caller without the tool, to a run
that has references, and in chats."""

CYCLE = "wait_cycle"
"""Told only between two who wait; see the tests of reports."""


def documented() -> dict[str, str]:
    """The status of each code that tools answer, as ERRORS.md has it."""
    tools = ERRORS.read_text("utf-8").partition("## Tools")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", tools, re.MULTILINE))


def declared(app: App, name: str) -> set[str]:
    tool = app.tools.find(name)
    assert isinstance(tool, SessionTool)
    return set(tool.codes)


def told(answer: Mapping[str, Any]) -> tuple[str, str]:
    """Code and status of an answer that says no."""
    assert answer["error"]
    return answer["code"], answer["status"]


@requirement("answers:1")
@pytest.mark.parametrize("tool", [name for name in TOOLS if name != "sessions_send"])
async def test_a_tool_that_shows_sessions_answers_its_codes_and_no_others(open_home: OpenHome, tool: str) -> None:
    clock = ManualClock()
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "deaf", "tools": {"sessions": {"read": False}}}]
    agents.append({"id": "narrow", "tools": {"sessions": {"read": "self"}}})
    async with telling(open_home, Parts(clock=clock), agents__list=agents) as story:
        own = await story.opens("own")
        deaf, narrow = await story.opens("d", agent="deaf"), await story.opens("n", agent="narrow")
        await own.answers("old")
        before = await own.calls("sessions_history", sessionKey="current", limit=1)
        clock.pass_time(timedelta(days=60))
        await own.answers("new")
        app, retention = story.app, timedelta(days=30)
        await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=retention).prune()
        with_key = {"sessionKey": "current"} if tool == "sessions_history" else {}
        attempts: list[tuple[Character, dict[str, Any]]] = [
            (own, {"nonsense": 1}),
            (own, {"sessionKey": "agent:main:cli:nobody"}),
            (own, {"sessionKey": "no such name"}),
            (own, {**with_key, "cursor": "nonsense"}),
            (own, {**with_key, "cursor": before["nextCursor"]}),
            (own, {"query": "?!"}),
            (deaf, {"messageLimit": 1}),
            (narrow, {"messageLimit": 1}),
        ]
        off = {"sessions_history", "sessions_search"}
        answers = [
            await session.calls(tool, **arguments)
            for session, arguments in attempts
            if not (session is deaf and tool in off)
        ]
        seen = {told(answer) for answer in answers if "code" in answer}
        assert {code for code, _ in seen} == declared(story.app, tool)
        assert seen <= set(documented().items())


@requirement("answers:1", "send:1")
async def test_a_send_answers_its_codes_and_no_others(open_home: OpenHome) -> None:
    limits: dict[str, Any] = {"session__agent_to_agent": {"maxHops": 1, "maxPingPongTurns": 0}}
    limits["limits__guest__queued_runs"] = 1
    async with telling(open_home, **limits) as story:
        own, peer = await story.opens("own"), await story.opens("peer")
        high = await story.opens("high", taint=Classification(Level.CONFIDENTIAL))
        shut = await story.opens("shut")
        await shut.changes(send_policy="deny")
        for name, label in (("third", "third"), ("twin1", "twin"), ("twin2", "twin")):
            await story.opens(name, label=label)
        to_peer: dict[str, Any] = {"sessionKey": peer.key}
        attempts: list[tuple[Character, dict[str, Any]]] = [
            (own, {"message": "hello"}),
            (own, {"sessionKey": "no such name", "message": "hello"}),
            (own, {**to_peer, "message": " "}),
            (own, {**to_peer, "message": "x" * (MAX_MESSAGE_BYTES + 1)}),
            (own, {"label": "nobody", "message": "hello"}),
            (own, {"label": "twin", "message": "hello"}),
            (own, {"sessionKey": "current", "message": "hello"}),
            (high, {**to_peer, "message": "hello"}),
            (own, {"sessionKey": shut.key, "message": "hello"}),
            (own, {**to_peer, "message": wait_at("reply"), "timeoutSeconds": 0.01}),
        ]
        answers = [await session.calls("sessions_send", **arguments) for session, arguments in attempts]
        queued: dict[str, Any] = {**to_peer, "message": "!say queued", "timeoutSeconds": 0}
        ann = await _user_in(story.app, own, peer)
        answers += [await own.calls("sessions_send", principal=ann, **queued) for _ in range(2)]
        story.opens_gate("reply")
        for message in ("!say one", "!say two"):
            answers += [await own.calls("sessions_send", key="same", **to_peer, message=message)]
        answers += await _told_of_a_chain(own)
        seen = {told(answer) for answer in answers if "code" in answer}
    async with telling(open_home, session__agent_to_agent={"maxChainTokens": 1, "maxPingPongTurns": 0}) as story:
        seen |= {told(answer) for answer in await _told_of_a_chain(story.session("own"))}
        assert {code for code, _ in seen} == declared(story.app, "sessions_send") - {RACED, RELEASED}
        assert seen <= set(documented().items())


async def _user_in(app: App, *sessions: Character) -> Principal:
    """Somebody who is no owner, and takes part in these sessions."""
    ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
    for session in sessions:
        await app.database.run(rows.add_participant, (await session.session()).row, str(ann))
    return ann


async def _told_of_a_chain(character: Character) -> list[dict[str, Any]]:
    """What a session is told that passes a message on, within the answer to who sent it."""
    answer = await character.sends_in_a_run(to_send("hello", label="third"), label="peer")
    return [json.loads(answer["reply"])]


@requirement("answers:1", "spawn:2")
async def test_a_spawn_answers_its_codes_and_no_others(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    agents: list[dict[str, Any]] = [
        {
            "id": "main",
            "subagents": {
                "allowAgents": ["gone", "helper", "vault"],
                "maxChildrenPerAgent": 1,
                "models": ["no:model", "openai:*", "odd:*"],
            },
        },
        *({"id": "helper"}, {"id": "boxed", "sandbox": {"mode": "all"}}),
        {"id": "vault", "classification": {"level": "CONFIDENTIAL"}},
    ]
    task: dict[str, Any] = {"task": "look"}
    name = {"name": "a.txt", "content": "x"}
    attempts: list[dict[str, Any]] = [
        *({"nonsense": 1}, {"agentId": "no id"}, {"thread": True}, {"task": " "}, {"task": "x" * 1_048_577}),
        {"agentId": "helper", "runtime": "acp"},
        *({"agentId": "boxed"}, {"agentId": "gone"}, {"sandbox": "require"}, {"model": "no:model"}),
        {"agentId": "helper", "context": "fork"},
        {"agentId": "vault"},
        {"attachments": [{"name": str(number), "content": ""} for number in range(51)]},
        *({"attachments": [{**name, **wrong}]} for wrong in ({"name": "../x"}, {"content": "x" * 1_048_577})),
        {"attachments": [{"name": str(number), "content": "x" * 1_048_576} for number in range(6)]},
        *({"attachments": [name, name]}, {"attachments": [{**name, "content": "?", "encoding": "base64"}]}),
        {"attachments": [{**name, "content": "\ud800"}]},
        *({"model": "openai:gpt-5"}, {"model": "odd:model"}, {"model": "other:model"}),
        *({"returns": {"type": "number"}}, {"returns": {"type": "boolean"}}, {"returns": {"title": "x" * 20_000}}),
    ]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    odd = {"base_url": "http://127.0.0.1:9", "api_key": "ключ"}
    async with telling(open_home, agents__list=agents, providers__odd=odd) as story:
        own = await story.opens("own")
        await own.changes(**session_columns({"clearance": Classification(Level.INTERNAL)}))
        answers = [await own.calls("sessions_spawn", **task | given) for given in attempts]
        answers += [await own.calls("sessions_spawn", key="same", task=text) for text in ("!sleep 60", "other")]
        answers.append(await own.calls("sessions_spawn", task="one too many"))
        await own.cancels_children()
        seen = {told(answer) for answer in answers if "code" in answer}
        assert {code for code, _ in seen} == declared(story.app, "sessions_spawn") - RARE_IN_SPAWNS
        assert seen <= set(documented().items())


@requirement("answers:1", "spawn:8")
async def test_what_governs_children_answers_its_codes_and_no_others(open_home: OpenHome) -> None:
    async with telling(open_home, agents__defaults__subagents__max_children_per_agent=2) as story:
        own = await story.opens("own")
        ended = await own.spawns("!say x", label="ended")
        staying = await own.spawns("!say x", mode="session")
        await story.end_of(staying.run_id)
        await story.end_of(ended.run_id)
        busy = [await own.spawns("!sleep 60", label="busy") for _ in range(2)]
        nobody: dict[str, Any] = {"runIds": ["run_none"]}
        waits: list[dict[str, Any]] = [{}, nobody, {"runIds": [busy[0].run_id], "timeoutSeconds": 0}]
        waits.append({"runIds": [ended.run_id], "accept": True})
        acts: list[dict[str, Any]] = [
            *({"action": "dance"}, {"action": "cancel"}, {"action": "list", "message": "x"}, {"action": "steer"}),
            *({"action": "cancel", "target": "nobody"}, {"action": "cancel", "target": "busy"}),
            *({"action": "steer", "target": "ended", "message": text} for text in ("x", " ", "x" * 1_048_577)),
            {"action": "steer", "target": staying.run_id, "message": "x"},
        ]
        yields: list[dict[str, Any]] = [{}, {"nonsense": 1}]
        found = {
            "sessions_wait": [await own.calls("sessions_wait", **arguments) for arguments in waits],
            "subagents": [await own.calls("subagents", **arguments) for arguments in acts],
            "sessions_yield": [await own.calls("sessions_yield", **given) for given in yields],
        }
        for words in ("one", "two"):
            found["subagents"].append(await own.steers(busy[0].run_id, words, key="same"))
        steering: dict[str, Any] = {"action": "steer", "target": busy[0].run_id, "message": "x"}
        found["subagents"].append(await own.calls("subagents", principal=await _user_in(story.app, own), **steering))
        await own.cancels_children()
        await story.app.database.run(
            incarnations.set_taint, (await own.session()).id, Classification(Level.CONFIDENTIAL)
        )
        found["subagents"].append(await own.steers(staying.run_id, "x"))
        main = story.session("agent:main:main")
        found["sessions_yield"].append(await main.calls_in_a_run("sessions_yield"))
        for tool, answers in found.items():
            seen = {told(answer) for answer in answers if "code" in answer}
            assert {code for code, _ in seen} == declared(story.app, tool) - {CYCLE}
            assert seen <= set(documented().items())
