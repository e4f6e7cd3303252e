"""Agents of pydantic-ai as runners."""

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import antiphon
from antiphon.runners.pydantic_ai import PydanticAI
from antiphon.testing import Call, FakeProvider, Reply, fake_provider
from tests.runners.asking import asked
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


def model(provider: FakeProvider) -> OpenAIChatModel:
    return OpenAIChatModel("fake", provider=OpenAIProvider(base_url=provider.base_url, api_key="k"))


async def test_a_turn(home: Path) -> None:
    script = [
        Reply(calls=[Call(name="refund", arguments='{"order": 7}')]),
        Reply(text="Done."),
    ]
    done: list[int] = []
    async with fake_provider(script) as provider:
        agent = Agent(model(provider), instructions="Be kind.")

        @agent.tool_plain(requires_approval=True)
        def refund(order: int) -> str:
            done.append(order)
            return f"refunded {order}"

        async with antiphon.open(home, agents=[antiphon.Agent("main", runner=PydanticAI(agent))]) as app:
            session = await app.sessions.open("one")
            run = await session.post("refund 7")
            approval = await asked(app, session)
            await app.approvals.decide(approval.id, "once")
            ended = await run.wait(SECONDS)
            print(ended)
            print(provider.requests[-1].body)
            assert ended.reply == "Done."
            assert len(provider.requests) == 2
