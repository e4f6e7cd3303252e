"""`summarize`: what a session is told of its own conversation, at whose cost, and what it raises."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.agents.toolset import ToolContext, ToolOutput
from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification, Integrity, Level
from antiphon.domain.ids import AgentId
from antiphon.domain.message import ToolResult, text_content, text_of
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Source
from antiphon.engine.access.caller import Caller
from antiphon.engine.views.summary_inputs import MOST_CALLS
from antiphon.store import sessions as rows
from antiphon.testing import SERVER_ERROR, Answering, Call, FakeProvider, FakeRequest, Reply
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.checkpoints.test_checkpoint_flow import SECRET, open_with_guests, say
from tests.engine.checkpoints.test_checkpoints import checkpoint, looking, looks_back
from tests.engine.stage import ask, find_session, open_session, read_log, wait_end
from tests.people import guest
from tests.story import telling
from tests.tools.test_codes import declared, documented, told

pytestmark = pytest.mark.anyio

SUMMARY = "They spoke of trees."


def summarises(request: FakeRequest) -> bool:
    return "Summarise the conversation below" in str(request.messages[0])


def answering(request: FakeRequest) -> Answering:
    """A turn that is asked for a summary calls the tool as often as the message says; others are answered `yes`."""
    if summarises(request):
        return Reply(text=SUMMARY)
    asked = str(request.messages[-1]["content"])
    if looks_back(request) or "summarise" not in asked or request.messages[-1]["role"] != "user":
        return Reply(text="yes")
    scope = "topic" if "the topic" in asked else "session"
    count = MOST_CALLS + 1 if "often" in asked else 1
    return Reply(calls=[Call(name="summarize", arguments=json.dumps({"scope": scope}))] * count)


def summarised(fake: FakeProvider) -> list[str]:
    """The conversations of which summaries were asked for."""
    return [str(request.messages[1]["content"]) for request in fake.requests if summarises(request)]


async def results(app: App, name: str) -> list[dict[str, Any]]:
    events = await read_log(app, name)
    return [json.loads(text_of(event.message.content)) for event in events if isinstance(event.message, ToolResult)]


async def call_outside(app: App, name: str, principal: Principal = OWNER, **arguments: Any) -> dict[str, Any]:
    return await app.tool_calls.call(principal, app.services.sessions.target(name), "summarize", arguments)


async def output_of(app: App, name: str) -> ToolOutput:
    """What the tool hands over for a call from outside."""
    tool, session = app.tools.find("summarize"), await find_session(app, name)
    assert tool is not None
    caller = Caller(session=session.row, agent_id=AgentId("main"), principal=OWNER, call_id="c", run=None)
    return await tool.call(ToolContext(caller), {})


@requirement("summarize:1")
async def test_a_topic_is_what_came_after_the_last_checkpoint(open_home: OpenHome) -> None:
    async with looking(open_home, answering) as (app, fake):
        await ask(app, "main", "the oaks")
        assert (await checkpoint(app, "main")).is_done
        await ask(app, "main", "the birches")
        for scope in ("session", "topic"):
            run = await ask(app, "main", f"summarise the {scope}")
            assert run.status is RunStatus.OK
        assert await results(app, "main") == [{"status": "ok", "summary": SUMMARY}] * 2
        session, topic = summarised(fake)
        assert "the oaks" in session and "the birches" in session
        assert "the oaks" not in topic and "the birches" in topic
        # The step that asks is no part of what it asks about.
        assert "outcome unknown" not in session + topic


@requirement("summarize:1")
async def test_without_a_checkpoint_the_topic_is_the_whole_conversation(open_home: OpenHome) -> None:
    async with looking(open_home, answering) as (app, fake):
        await ask(app, "main", "the oaks")
        assert await call_outside(app, "main", scope="topic") == {"status": "ok", "summary": SUMMARY}
        (topic,) = summarised(fake)
        assert "the oaks" in topic


@requirement("summarize:1", "runs:6")
async def test_what_a_summary_uses_counts_in_the_run_the_session_and_the_caps(open_home: OpenHome) -> None:
    async with looking(open_home, answering) as (app, _):
        turn = await ask(app, "main", "the oaks")
        run = await ask(app, "main", "summarise the session")
        one = turn.usage.total_tokens
        assert run.usage.total_tokens == 3 * one and run.usage.steps == 3
        assert (await find_session(app, "main")).usage.total_tokens == 4 * one
        report = await app.services.costs.read(OWNER, days=1)
        assert report.caps[0].spent.tokens == 4 * one
        await call_outside(app, "main")
        report = await app.services.costs.read(OWNER, days=1)
        assert report.caps[0].spent.tokens == 5 * one


@requirement("summarize:1", "flow:8")
async def test_a_summary_raises_who_is_told_it_to_all_that_it_was_made_of(open_home: OpenHome) -> None:
    async with looking(open_home, answering) as (app, _):
        await open_with_guests(app, "api:ann", Source(), "ann")
        await say(app, "api:ann", "I move in May.", SECRET)
        output = await output_of(app, "api:ann")
        assert json.loads(output.text)["summary"] == SUMMARY
        assert output.classification == SECRET.with_integrity(Integrity.GUEST)


@requirement("summarize:1", "flow:2")
async def test_a_summary_leaves_out_what_the_place_of_the_answer_may_not_have(open_home: OpenHome) -> None:
    async with looking(open_home, answering) as (app, fake):
        await open_with_guests(app, "api:ann", Source(), "ann")
        await say(app, "api:ann", "the hidden word", SECRET)
        await say(app, "api:ann", "the open word", Classification(Level.PUBLIC))
        session = await find_session(app, "api:ann")
        await app.database.run(rows.update, session.row, {"clearance_level": 0, "clearance_compartments": 0})
        assert (await output_of(app, "api:ann")).classification.level is Level.PUBLIC
        (conversation,) = summarised(fake)
        assert "the open word" in conversation and "the hidden word" not in conversation


@requirement("summarize:1", "tools:1")
async def test_offline_summarises_as_it_compacts_and_children_need_a_setting(open_home: OpenHome) -> None:
    for tools, code in (([], "unknown_tool"), (["summarize"], None)):
        async with telling(open_home, tools__subagents__tools=tools) as story:
            own = await story.opens("own")
            await own.answers("the oaks")
            answer = await own.calls_in_a_run("summarize")
            assert answer["status"] == "ok" and answer["summary"].startswith("Summary of ")
            child = await own.spawns("!call summarize {}")
            reply = json.loads((await story.end_of(child.run_id)).reply or "")
            assert reply.get("code") == code


@requirement("answers:1", "summarize:1")
async def test_a_summary_answers_its_codes_and_no_others(open_home: OpenHome) -> None:
    seen = set[tuple[str, str]]()

    def see(answers: Sequence[dict[str, Any]]) -> None:
        seen.update(told(answer) for answer in answers if "code" in answer)

    async with looking(open_home, answering, limits__run={"tool_calls": 100}) as (app, _):
        await open_session(app, "api:new")
        await ask(app, "main", "summarise often")
        see([await call_outside(app, "api:new"), await call_outside(app, "main", scope="all")])
        assert [answer["status"] for answer in await results(app, "main")].count("ok") == MOST_CALLS
        see(await results(app, "main"))

    def failing(request: FakeRequest) -> Answering:
        return SERVER_ERROR if summarises(request) else Reply(text="yes")

    async with looking(open_home, failing) as (app, _):
        see([await call_outside(app, "main")])
    async with looking(open_home, answering, providers__fake__clearance={"level": "PUBLIC"}) as (app, fake):
        session = await find_session(app, "main")
        posted = await app.services.inbox.post(OWNER, app.services.sessions.target("main"), text_content("!"))
        await wait_end(app, posted.run_id)
        await app.database.run(rows.update, session.row, {"base_level": int(Level.CONFIDENTIAL)})
        see([await call_outside(app, "main")])
        assert summarised(fake) == []
    async with looking(open_home, answering, limits__daily__tokens=1) as (app, _):
        await ask(app, "main", "used up")
        see([await call_outside(app, "main")])
    for limit in ("guest", "guests"):
        limits: dict[str, Any] = {f"limits__{limit}__tokens": 1}
        async with looking(open_home, answering, **limits) as (app, _):
            await open_with_guests(app, f"api:{limit}", Source(), "ann")
            await say(app, f"api:{limit}", "hello", Classification(Level.PUBLIC))
            see([await call_outside(app, f"api:{limit}", guest("ann"))])
            if limit == "guests":
                assert {code for code, _ in seen} == declared(app, "summarize") - {"not_found"}
    assert seen <= set(documented().items())
