"""What is particular to agents of pydantic-ai."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import antiphon
from antiphon.domain.message import ImagePart, TextPart
from antiphon.runners.pydantic_ai import PydanticAI
from antiphon.testing import Call, FakeProvider, FakeRequest, Reply, Script, fake_provider
from tests.runners.asking import asked
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

PIXEL = b"\x89PNG\r\n\x1a\n"
DONE = Reply(text="Done.")


def calls(name: str, /, **arguments: object) -> Reply:
    return Reply(calls=[Call(name=name, arguments=json.dumps(arguments))])


def results(request: FakeRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


@asynccontextmanager
async def opened(
    home: Path, agent: Agent[Any, Any], script: Script, **options: Any
) -> AsyncGenerator[tuple[antiphon.Antiphon, FakeProvider]]:
    async with fake_provider(script) as provider, AsyncOpenAI(base_url=provider.base_url, api_key="k") as client:
        agent.model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
        runner = PydanticAI(agent, **options)
        async with antiphon.open(home, agents=[antiphon.Agent("main", runner=runner)]) as app:
            yield app, provider


def itself(turn: antiphon.Turn) -> antiphon.Turn:
    return turn


async def test_arguments_and_results_are_recorded_as_json_and_arrive_as_they_are_declared(home: Path) -> None:
    agent, seen = Agent(deps_type=antiphon.Turn), list[object]()

    @agent.tool
    def book(context: RunContext[antiphon.Turn], day: date) -> ToolReturn:
        seen.extend([day, context.deps.session.key])
        return ToolReturn(return_value={"booked": day})

    async with opened(home, agent, [calls("book", day="2027-01-31"), DONE], deps=itself) as (app, provider):
        session = await app.sessions.open("one")
        assert (await (await session.post("book it")).wait(SECONDS)).reply == "Done."
        assert seen == [date(2027, 1, 31), session.key]
        assert json.loads(results(provider.requests[1])[0]) == {"booked": "2027-01-31"}


async def test_what_tools_raise_for_the_model_is_raised_once_more_after_the_record(home: Path) -> None:
    agent, tries = Agent(retries=3), list[str]()

    @agent.tool_plain
    def find(name: str) -> str:
        tries.append(name)
        if name == "Bo":
            raise ModelRetry("Give the whole name.")
        raise ToolFailed("Nobody has that name.")

    async with opened(home, agent, [calls("find", name="Bo"), calls("find", name="Bodo"), DONE]) as (app, provider):
        assert (await (await (await app.sessions.open("one")).post("find")).wait(SECONDS)).reply == "Done."
        assert tries == ["Bo", "Bodo"]
        first, second = results(provider.requests[2])
        assert "Give the whole name." in first
        assert "Nobody has that name." in second


async def test_a_tool_that_asks_for_a_yes_only_sometimes_gets_one(home: Path) -> None:
    agent, done = Agent(), list[int]()

    @agent.tool
    def pay(context: RunContext[object], amount: int) -> str:
        if amount > 10 and not context.tool_call_approved:
            raise ApprovalRequired
        done.append(amount)
        return "paid"

    async with opened(home, agent, [calls("pay", amount=5), calls("pay", amount=50), DONE]) as (app, _):
        session = await app.sessions.open("one")
        run = await session.post("pay")
        approval = await asked(app, session)
        assert done == [5] and json.loads(approval.calls[0].arguments) == {"amount": 50}
        await app.approvals.decide(approval.id, "once")
        assert (await run.wait(SECONDS)).reply == "Done."
        assert done == [5, 50]


async def test_a_result_that_comes_from_outside_is_asked_of_a_person(home: Path) -> None:
    agent = Agent()

    @agent.tool_plain
    def weigh(parcel: str) -> str:
        raise CallDeferred

    async with opened(home, agent, [calls("weigh", parcel="red"), DONE]) as (app, provider):
        session = await app.sessions.open("one")
        run = await session.post("weigh it")
        approval = await asked(app, session)
        assert 'weigh {"parcel":"red"}' in approval.calls[0].reason.replace(": ", ":")
        await app.approvals.decide(approval.id, "once", note="3 kg")
        assert (await run.wait(SECONDS)).reply == "Done."
        assert results(provider.requests[1]) == ["3 kg"]


async def test_an_answer_that_is_no_text_is_given_as_json(home: Path) -> None:
    class Weather(BaseModel):
        degrees: int

    agent = Agent(output_type=Weather)
    async with opened(home, agent, [calls("final_result", degrees=7)], streams=False) as (app, provider):
        ended = await (await (await app.sessions.open("one")).post("the weather")).wait(SECONDS)
        assert ended.reply == '{"degrees":7}'
        assert provider.requests[0].body["stream"] is False


async def test_images_of_people_reach_the_model(home: Path) -> None:
    image = ImagePart(mime_type="image/png", data=base64.b64encode(PIXEL).decode())
    async with opened(home, Agent(), [DONE]) as (app, provider):
        run = await (await app.sessions.open("one")).post((TextPart(text="look"), image))
        assert (await run.wait(SECONDS)).reply == "Done."
        assert image.data in json.dumps(provider.requests[0].messages)


async def test_a_model_that_fails_for_a_while_is_asked_again_by_the_agents_own_rules(home: Path) -> None:
    agent = Agent()
    failing = 0

    @agent.output_validator
    def check(text: str) -> str:
        nonlocal failing
        failing += 1
        if failing == 1:
            raise ModelRetry("In English, please.")
        return text

    async with opened(home, agent, [Reply(text="Fertig."), DONE]) as (app, provider):
        assert (await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)).reply == "Done."
        assert len(provider.requests) == 2
