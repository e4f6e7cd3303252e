"""Sessions look back: when, over which range, by whom, and what a failure leaves. Contract: checkpoints 1, 2."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.event import Event
from antiphon.domain.message import JsonObject
from antiphon.domain.session import DescriptionSource, Session
from antiphon.engine.checkpoints.checkpoints import CheckpointOutcome
from antiphon.testing import Answering, Call, FakeProvider, FakeRequest, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import (
    ManualClock,
    ask,
    facts,
    find_session,
    open_session,
    open_with_provider,
    read_log,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

Answers = Callable[[FakeRequest], Answering]


def looks_back(request: FakeRequest) -> bool:
    """Whether the request is a checkpoint's."""
    return "You look back at a conversation" in str(request.messages[0])


def conversation(request: FakeRequest) -> str:
    return str(request.messages[1]["content"])


def noting(*calls: Call) -> Answers:
    """Turns are answered `yes`; a checkpoint calls these tools, and ends."""

    def answer(request: FakeRequest) -> Answering:
        if not looks_back(request):
            return Reply(text="yes")
        return Reply(calls=calls) if len(request.messages) == 2 and calls else Reply(text="done")

    return answer


def call(name: str, **arguments: str) -> Call:
    return Call(name=name, arguments=json.dumps(arguments))


@asynccontextmanager
async def looking(
    open_home: OpenHome, answers: Answers, clock: ManualClock | None = None, **settings: Any
) -> AsyncGenerator[tuple[App, FakeProvider]]:
    parts = Parts(clock=clock, retry=RetryPolicy(attempts=1))
    settings = {"checkpoints__enabled": True, **settings}
    async with fake_provider(answers) as fake, open_with_provider(open_home, fake, parts, **settings) as app:
        yield app, fake


async def until_facts(app: App, name: str, type: str, count: int) -> Sequence[JsonObject]:
    with anyio.fail_after(SECONDS):
        while len(found := facts(await read_log(app, name), type)) < count:
            await anyio.sleep(0.02)
    return found


async def checkpoint(app: App, name: str) -> CheckpointOutcome:
    target = app.services.sessions.target(name)
    return await app.services.checkpoints.ask(OWNER, target, timedelta(seconds=SECONDS))


def introspections(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events if event.type.startswith("introspection")]


@requirement("checkpoints:1", "checkpoints:2")
async def test_after_five_turns_a_session_looks_back_and_keeps_what_it_decided(open_home: OpenHome) -> None:
    answers = noting(
        call("set_description", text="Trees of the garden"), call("set_working_memory", text="The oak is ill.")
    )
    async with looking(open_home, answers) as (app, fake):
        for number in range(5):
            assert not [request for request in fake.requests if looks_back(request)]
            await ask(app, "main", f"question {number}")
        (finished,) = await until_facts(app, "main", "introspection_finished", 1)
        assert finished["success"] and finished["reason"] == "turn_limit"
        session: Session = await find_session(app, "main")
        assert (session.description, session.description_source) == ("Trees of the garden", DescriptionSource.AI)
        assert session.working_memory == "The oak is ill."
        first = next(request for request in fake.requests if looks_back(request))
        assert all(f"question {number}" in conversation(first) for number in range(5))
        await ask(app, "main", "another")
        assert "The oak is ill." in str(fake.requests[-1].messages[0])
        assert (await find_session(app, "main")).description == "Trees of the garden"


@requirement("checkpoints:1")
async def test_a_checkpoint_needs_something_new_and_leaves_no_events_without_it(open_home: OpenHome) -> None:
    """H53."""
    async with looking(open_home, noting()) as (app, _):
        await open_session(app, "main")
        nothing = await checkpoint(app, "main")
        assert (nothing.is_done, nothing.code) == (False, "nothing_new")
        assert not introspections(await read_log(app, "main"))
        await ask(app, "main", "Good morning.")
        done = await checkpoint(app, "main")
        assert done.is_done and done.run_id is not None
        again = await checkpoint(app, "main")
        assert (again.is_done, again.code) == (False, "nothing_new")
        events = await read_log(app, "main")
        assert introspections(events) == ["introspection_started", "introspection_finished"]
        assert facts(events, "introspection_started") == [{"reason": "manual"}]


@requirement("checkpoints:1")
async def test_of_two_that_ask_at_once_one_has_a_checkpoint(open_home: OpenHome) -> None:
    """H54."""
    async with looking(open_home, noting()) as (app, fake):
        await ask(app, "main", "Good morning.")
        outcomes: list[CheckpointOutcome] = []

        async def ask_too() -> None:
            outcomes.append(await checkpoint(app, "main"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_too)
            tasks.start_soon(ask_too)
        assert sorted((each.is_done, each.code) for each in outcomes) == [(False, "checkpoint_running"), (True, None)]
        assert len([request for request in fake.requests if looks_back(request)]) == 1


@requirement("checkpoints:1")
async def test_a_failed_checkpoint_moves_nothing_and_the_next_covers_the_same_range(open_home: OpenHome) -> None:
    """H58."""
    is_failing = True

    def answer(request: FakeRequest) -> Answering:
        if not looks_back(request):
            return Reply(text="yes")
        if is_failing:
            return SERVER_ERROR if len(request.messages) > 2 else Reply(calls=[call("set_description", text="lost")])
        return Reply(text="done")

    async with looking(open_home, answer) as (app, fake):
        await ask(app, "main", "the first question")
        failed = await checkpoint(app, "main")
        assert (failed.is_done, failed.code) == (False, "model_server_error")
        (finished,) = facts(await read_log(app, "main"), "introspection_finished")
        assert finished["success"] is False and "throughSeq" not in finished
        assert (await find_session(app, "main")).description == "the first question"
        is_failing = False
        await ask(app, "main", "the second question")
        assert (await checkpoint(app, "main")).is_done
        last = [request for request in fake.requests if looks_back(request)][-1]
        assert "the first question" in conversation(last) and "the second question" in conversation(last)
        await ask(app, "main", "the third question")
        assert (await checkpoint(app, "main")).is_done
        last = [request for request in fake.requests if looks_back(request)][-1]
        assert "the third question" in conversation(last) and "the second question" not in conversation(last)
