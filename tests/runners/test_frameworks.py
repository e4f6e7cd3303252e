"""What the agents of all frameworks may do and may not, as runners."""

import json
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.testing import Call, FakeProvider, FakeRequest, Reply, fake_provider
from tests.runners.asking import asked
from tests.runners.framework_lives import FRAMEWORKS, runner_of
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NOTE = Reply(calls=[Call(name="note", arguments='{"text": "one"}')])
REFUND = Reply(calls=[Call(name="refund", arguments='{"order": 7}')])
DONE = Reply(text=["All ", "done."])


class Shop:
    """The agent's own functions, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def note(self, text: str) -> str:
        """Notes something."""
        self.done.append(f"note {text}")
        return f"noted {text}"

    def refund(self, order: int) -> str:
        """Refunds an order."""
        self.done.append(f"refund {order}")
        return f"refunded {order}"


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def shop() -> Shop:
    return Shop()


def agent(framework: str, provider: FakeProvider, shop: Shop, **settings: Any) -> antiphon.Agent:
    runner = runner_of(framework, provider.base_url, shop.note, shop.refund)
    return antiphon.Agent("main", runner=runner, **settings)


def results(request: FakeRequest) -> list[str]:
    """What the request tells the model of its calls."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


async def test_a_refused_call_does_not_run_and_the_model_is_told(framework: str, home: Path, shop: Shop) -> None:
    async with (
        fake_provider([REFUND, DONE]) as provider,
        antiphon.open(home, agents=[agent(framework, provider, shop)]) as app,
    ):
        session = await app.sessions.open("one")
        run = await session.post("refund 7")
        approval = await asked(app, session)
        assert json.loads(approval.calls[0].arguments) == {"order": 7}
        await app.approvals.decide(approval.id, "deny", note="not this one")
        assert (await run.wait(SECONDS)).reply == "All done."
    assert shop.done == []
    [told] = results(provider.requests[1])
    assert "not this one" in told


async def test_the_reply_is_shown_while_it_is_written(framework: str, home: Path, shop: Shop) -> None:
    async with (
        fake_provider([NOTE, DONE]) as provider,
        antiphon.open(home, agents=[agent(framework, provider, shop)]) as app,
    ):
        run = await (await app.sessions.open("one")).post("note it")
        pieces = [piece.text async for piece in run.stream()]
        assert "".join(pieces) == "All done." == (await run.wait(SECONDS)).reply
    print(pieces)


async def test_a_message_that_joins_in_the_middle_is_seen(framework: str, home: Path, shop: Shop) -> None:
    async with (
        fake_provider([REFUND, DONE, DONE, DONE]) as provider,
        antiphon.open(home, agents=[agent(framework, provider, shop)]) as app,
    ):
        session = await app.sessions.open("one")
        run = await session.post("refund 7")
        approval = await asked(app, session)
        await session.post("and be quick", queue_mode=antiphon.QueueMode.STEER)
        await app.approvals.decide(approval.id, "once")
        ended = await run.wait(SECONDS)
        print(ended)
        for r in provider.requests:
            print([(m["role"], m.get("content"), m.get("tool_calls")) for m in r.messages])
    print(shop.done)
    assert 0
