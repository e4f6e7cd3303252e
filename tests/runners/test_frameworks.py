"""What the agents of all frameworks may do and may not, as runners."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from anyio import to_thread
from openai import AsyncOpenAI

import antiphon
from antiphon.domain.session import Source
from antiphon.testing import Call, FakeProvider, FakeRequest, Reply, Script, fake_provider
from tests.engine.checkpoints.test_checkpoint_flow import open_with_guests
from tests.engine.stage import post, wait_end
from tests.people import guest
from tests.runners.asking import asked
from tests.runners.framework_lives import FRAMEWORKS, MODEL, runner_of
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NOTE = Reply(calls=[Call(name="note", arguments='{"text": "one"}')])
REFUND = Reply(calls=[Call(name="refund", arguments='{"order": 7}')])
DONE = Reply(text=["All ", "done."])


class Shop:
    """The agent's own functions, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_held = False
        """Whether a note waits within its function until it may go on."""
        self.began, self.go_on = Event(), Event()

    def note(self, text: str) -> str:
        """Notes something."""
        self.began.set()
        assert not self.is_held or self.go_on.wait(SECONDS)
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


@asynccontextmanager
async def opened(
    home: Path,
    framework: str,
    shop: Shop,
    script: Script,
    *,
    config: antiphon.Config | None = None,
    **settings: Any,
) -> AsyncGenerator[tuple[antiphon.Antiphon, FakeProvider]]:
    """A home whose agent is one of the framework, and its model."""
    async with (
        fake_provider(script) as provider,
        AsyncOpenAI(base_url=provider.base_url, api_key="k") as client,
        antiphon.open(
            home,
            config=config,
            agents=[antiphon.Agent("main", runner=runner_of(framework, client, shop.note, shop.refund), **settings)],
        ) as app,
    ):
        yield app, provider


def results(request: FakeRequest) -> list[str]:
    """What the request tells the model of its calls."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


async def test_a_refused_call_does_not_run_and_the_model_is_told(framework: str, home: Path, shop: Shop) -> None:
    async with opened(home, framework, shop, [REFUND, DONE]) as (app, provider):
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
    async with opened(home, framework, shop, [NOTE, DONE]) as (app, _):
        run = await (await app.sessions.open("one")).post("note it")
        pieces = [piece.text async for piece in run.stream()]
        assert "".join(pieces) == "All done." == (await run.wait(SECONDS)).reply


async def test_a_message_that_joins_in_the_middle_is_seen_with_what_was_done(
    framework: str, home: Path, shop: Shop
) -> None:
    shop.is_held = True
    async with opened(home, framework, shop, [NOTE, DONE, Reply(text="Quickly.")]) as (app, provider):
        session = await app.sessions.open("one")
        run = await session.post("note it")
        await to_thread.run_sync(shop.began.wait, SECONDS)
        joined = await session.post("and be quick", queue_mode=antiphon.QueueMode.STEER)
        shop.go_on.set()
        ended = await joined.wait(SECONDS)
        assert joined.id == run.id and ended.reply == "Quickly."
    assert shop.done == ["note one"]
    assert results(provider.requests[2]) == ["noted one"]
    assert provider.requests[2].messages[-1]["content"] == "and be quick"


async def test_the_next_turn_knows_what_the_one_before_did(framework: str, home: Path, shop: Shop) -> None:
    async with opened(home, framework, shop, [NOTE, DONE, NOTE, DONE]) as (app, provider):
        session = await app.sessions.open("one")
        for text in ("first", "second"):
            assert (await (await session.post(text)).wait(SECONDS)).reply == "All done."
    assert shop.done == ["note one", "note one"]
    last = provider.requests[3].messages
    assert [message["content"] for message in last if message["role"] == "user"] == ["first", "second"]
    assert results(provider.requests[3]) == ["noted one", "noted one"]
    ids = [str(message["tool_call_id"]) for message in last if message["role"] == "tool"]
    assert len(set(ids)) == 2


async def test_a_cancelled_run_ends_its_agent_within_a_tool(framework: str, home: Path, shop: Shop) -> None:
    shop.is_held = True
    async with opened(home, framework, shop, [NOTE, DONE]) as (app, provider):
        run = await (await app.sessions.open("one")).post("note it")
        await to_thread.run_sync(shop.began.wait, SECONDS)
        await run.cancel()
        shop.go_on.set()
        assert (await run.wait(SECONDS)).status == "cancelled"
        assert len(provider.requests) == 1


async def test_an_agent_ends_at_the_limits_of_its_runs(framework: str, home: Path, shop: Shop) -> None:
    spent = Reply(calls=NOTE.calls, input_tokens=90, output_tokens=10)
    cases: list[tuple[dict[str, Any], str, int]] = [
        ({"tokens": 150}, "limit_tokens", 2),
        ({"model_calls": 1}, "limit_model_calls", 2),
        ({"tool_calls": 1}, "limit_tool_calls", 2),
    ]
    for limits, code, requests in cases:
        async with opened(home, framework, shop, [spent] * 4, limits=limits) as (app, provider):
            ended = await (await (await app.sessions.open(code)).post("note it")).wait(SECONDS)
            assert (ended.status, ended.code) == ("error", code)
            assert len(provider.requests) == requests


async def test_what_the_model_used_is_counted_as_it_was_said_and_priced(framework: str, home: Path, shop: Shop) -> None:
    answer = Reply(text="hi", input_tokens=1_000_000, output_tokens=10)
    async with opened(home, framework, shop, [answer]) as (app, _):
        ended = await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (1_000_000, 10)
        assert ended.usage.estimated_tokens == 0
        assert ended.usage.cost_microusd == 2_500_100
        assert ended.model == MODEL


async def test_a_guest_has_of_the_agents_functions_those_that_guests_are_given(
    framework: str, home: Path, shop: Shop
) -> None:
    for tools, told in (([], "not available"), (["note"], "noted one")):
        settings = antiphon.Config.model_validate({"access": {"roles": {"guest": {"tools": tools}}}})
        async with opened(home, framework, shop, [NOTE, DONE], config=settings) as (app, provider):
            name = f"api:{len(tools)}"
            await open_with_guests(app.app, name, Source(), "ann")
            run = await post(app.app, name, "note it", principal=guest("ann"))
            if tools:
                approval = await asked(app, await app.sessions.get(name))
                await app.approvals.decide(approval.id, "once")
            assert (await wait_end(app.app, run.run_id)).reply == "All done."
            assert told in results(provider.requests[1])[0]
            assert '"sessions_spawn"' not in json.dumps(provider.requests[0].body["tools"])
    assert shop.done == ["note one"]


async def test_words_that_may_not_leave_do_not_leave_by_a_function(framework: str, home: Path, shop: Shop) -> None:
    secret: dict[str, Any] = {"classification": {"level": "CONFIDENTIAL"}, "runner_clearance": {"level": "RESTRICTED"}}
    async with opened(home, framework, shop, [NOTE, DONE], **secret) as (app, provider):
        run = await (await app.sessions.open("one")).post("note it")
        assert (await run.wait(SECONDS)).reply == "All done."
    assert "may not go to the tool: 'note'" in results(provider.requests[1])[0]
    assert shop.done == []


async def test_a_runner_that_may_not_have_the_context_is_not_called(framework: str, home: Path, shop: Shop) -> None:
    secret: dict[str, Any] = {"classification": {"level": "CONFIDENTIAL"}, "runner_clearance": {"level": "INTERNAL"}}
    async with opened(home, framework, shop, [DONE], **secret) as (app, provider):
        ended = await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)
        assert ended.code == "runner_clearance"
        assert provider.requests == []


async def test_tools_of_the_session_are_offered_and_called(framework: str, home: Path, shop: Shop) -> None:
    remember = Reply(calls=[Call(name="memory", arguments='{"action": "add", "text": "Likes trees."}')])
    async with opened(home, framework, shop, [remember, DONE]) as (app, _):
        run = await (await app.sessions.open("one")).post("remember that I like trees")
        assert (await run.wait(SECONDS)).reply == "All done."
        assert [note.text for note in await app.memory.list()] == ["Likes trees."]


async def test_what_a_function_raises_is_told_to_the_model_and_the_run_goes_on(framework: str, home: Path) -> None:
    class Broken(Shop):
        def note(self, text: str) -> str:
            """Notes something."""
            raise OSError("the disk is full")

    async with opened(home, framework, Broken(), [NOTE, DONE]) as (app, provider):
        run = await (await app.sessions.open("one")).post("note it")
        assert (await run.wait(SECONDS)).reply == "All done."
    [told] = results(provider.requests[1])
    assert "the disk is full" in told or "An error occurred while running the tool" in told


async def test_an_agents_own_function_with_the_name_of_a_tool_of_the_session_is_never_called(
    framework: str, home: Path
) -> None:
    class Own(Shop):
        def __init__(self) -> None:
            super().__init__()
            self.note = self.memory  # pyright: ignore[reportAttributeAccessIssue] - other parameters

        def memory(self, action: str) -> str:
            """Remembers something."""
            self.done.append(action)
            return "mine"

    shop = Own()
    named = Reply(calls=[Call(name="memory", arguments='{"action": "add"}')])
    async with opened(home, framework, shop, [named, DONE]) as (app, _):
        session = await app.sessions.open("one")
        run = await (await session.post("remember it")).wait(SECONDS)
        assert run.code == "own_name_taken" and "memory" in (run.error or "") and not shop.done
