"""Agents of the OpenAI Agents SDK as runners."""

from pathlib import Path

import pytest
from agents import Agent, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI

import antiphon
from antiphon.runners.openai_agents import OpenAIAgents
from antiphon.testing import Call, FakeProvider, Reply, fake_provider
from tests.runners.asking import asked
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


def model(provider: FakeProvider) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("fake", openai_client=AsyncOpenAI(base_url=provider.base_url, api_key="k"))


async def test_a_turn(home: Path) -> None:
    script = [
        Reply(calls=[Call(name="refund", arguments='{"order": 7}')]),
        Reply(text="Done."),
    ]
    done: list[int] = []

    @function_tool(needs_approval=True)
    def refund(order: int) -> str:
        done.append(order)
        return f"refunded {order}"

    async with fake_provider(script) as provider:
        agent = Agent("support", instructions="Be kind.", model=model(provider), tools=[refund])
        async with antiphon.open(home, agents=[antiphon.Agent("main", runner=OpenAIAgents(agent))]) as app:
            session = await app.sessions.open("one")
            run = await session.post("refund 7")
            approval = await asked(app, session)
            print(approval)
            await app.approvals.decide(approval.id, "once")
            ended = await run.wait(SECONDS)
            print(ended)
            print(str(provider.requests[-1].body)[:1000])
            assert ended.reply == "Done."
            assert len(provider.requests) == 2
            assert done == [7]
