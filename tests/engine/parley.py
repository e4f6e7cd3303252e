"""What tests of sessions that speak to one another act with: peers, sends, and waiting until all is quiet."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio

from antiphon.app import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification
from antiphon.domain.delivery import Delivery
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import ExchangeStage, JsonObject, TextPart, UserMessage
from antiphon.domain.session import Session, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.refusal import accepted
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, open_session
from antiphon.engine.views.activities import Work
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.runs import RunFilter
from tests.engine.stage import config, find_session, read_log
from tests.waiting import SECONDS

AGENT_WIDE = {"tools__sessions__visibility": "agent"}


MODELS = ("offline", "openai:*", "nowhere:*", *(f"scripted:script-{number}.json" for number in range(4)))
"""What the tests' agents may name for their children."""


def settings(**more: Any) -> Config:
    """Sessions see those of their agent, unless said otherwise."""
    return config(**{**AGENT_WIDE, "agents__defaults__subagents__models": MODELS, **more})


async def open_peer(
    app: App,
    name: str,
    *,
    agent: str = "main",
    label: str | None = None,
    parent: SessionRow | None = None,
    taint: Classification | None = None,
) -> Session:
    """The session `agent:<agent>:cli:<name>`, labelled with its name; under a parent if one is given."""
    services = app.services
    command = OpenSession(
        principal=OWNER,
        target=services.sessions.target(f"agent:{agent}:cli:{name}" if ":" not in name else name),
        agent_id=services.rules.agent_id(agent) or services.rules.default_agent,
        source=Source(),
        attributes=SessionAttributes(label=name if label is None else label, taint=taint),
        parent=parent,
        new_session_id=services.sessions.new_session_id(Source()),
        at_ms=services.clock.now_ms(),
    )
    return accepted(await app.database.run(open_session, command, app.services.rules)).session


def key_of(name: str, agent: str = "main") -> str:
    return f"agent:{agent}:cli:{name}"


def target_of(app: App, session: Session) -> NamedTarget:
    return app.services.sessions.target(str(session.key))


async def call(
    app: App, session: Session, tool: str, *, key: str | None = None, principal: Principal = OWNER, **arguments: Any
) -> JsonObject:
    """The tool's answer to a call from outside, as the session."""
    with anyio.fail_after(SECONDS):
        return await app.tool_calls.call(principal, target_of(app, session), tool, arguments, idempotency_key=key)


def send_directive(message: str, **arguments: Any) -> str:
    """What makes the offline model call `sessions_send`."""
    return "!call sessions_send " + json.dumps({"message": message, **arguments})


async def settle(app: App) -> None:
    """Returns when no run is queued or running: a run's end queues what follows from it in the same transaction."""
    with anyio.fail_after(SECONDS):
        while True:
            runs = await app.services.runs.list(OWNER, RunFilter(), limit=1_000)
            unfinished = [run for run in runs if not run.status.is_terminal]
            if not unfinished:
                return
            await app.services.waits.wait(unfinished[-1].id, timedelta(seconds=SECONDS))


async def until_work(app: App, holds: Callable[[Work], bool]) -> Work:
    """What is being done, once that holds of it."""
    with anyio.fail_after(SECONDS):
        while True:
            work = await app.services.activities.now(OWNER, limit=100)
            if holds(work):
                return work
            await anyio.sleep(0.01)


def is_running(name: str) -> Callable[[Work], bool]:
    """Whether the session has a run that was begun."""

    def holds(work: Work) -> bool:
        return any(each.session_key == key_of(name) and each.started_at is not None for each in work.activities)

    return holds


async def set_place(app: App, session: Session, to: str, channel: str = "nowhere") -> None:
    """Gives the session a channel that its answers go to."""
    place = {"delivery_channel": channel, "delivery_to": to}
    await app.services.sessions.patch(OWNER, target_of(app, session), place)


async def deliveries(app: App) -> list[Delivery]:
    return (await app.services.deliveries.list(OWNER, DeliveryFilter(), limit=1_000))[::-1]


async def steps(app: App, name: str) -> list[tuple[str, int, str]]:
    """The messages of exchanges in the session's log: stage, turn, words."""
    events = await read_log(app, name)
    return [shown for event in events if (shown := _step(event)) is not None]


def _step(event: Event) -> tuple[str, int, str] | None:
    message = event.message
    if not isinstance(message, UserMessage) or message.exchange is None:
        return None
    words = " | ".join(part.text for part in message.content if isinstance(part, TextPart))
    return message.exchange.stage.value, message.exchange.turn, words


async def runs_of(app: App, name: str) -> int:
    session = await find_session(app, name)
    return len(await app.services.runs.list(OWNER, RunFilter(session=session.row), limit=1_000))


TURN = ExchangeStage.TURN.value
RECORD = ExchangeStage.RECORD.value
REQUEST = ExchangeStage.REQUEST.value
ANNOUNCE = ExchangeStage.ANNOUNCE.value
