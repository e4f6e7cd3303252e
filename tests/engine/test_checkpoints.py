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
from antiphon.testing import SERVER_ERROR, Answering, Call, FakeProvider, FakeRequest, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, ask, facts, find_session, open_session, open_with_provider, read_log
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
    async with fake_provider(answers) as fake:
        async with open_with_provider(open_home, fake, parts, **{"checkpoints__enabled": True, **settings}) as app:
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
