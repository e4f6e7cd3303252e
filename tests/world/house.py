"""A row of the world, and the system that lives through it. Uses only what every version of the system has."""

import base64
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio

from antiphon.agents.asking import RetryPolicy
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.event import Event
from antiphon.domain.message import ImagePart, Part, TextPart, ToolResult, text_of
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store.sqlite import Connect, connect_sqlite
from tests.channels.fake_channel import NAME, FakeChannel
from tests.world.server import Answer, Asked, Provider, Script, serving
from tests.world.wire import FINE, Dialect, said

ROW_SECONDS: Final = 60.0
OF_MAKERS: Final = re.compile(r"Traceback|Exception|\w+Error\b|\bNone\b|sk-world", re.ASCII)
"""What nobody should read who only chats, an owner neither."""
KEY: Final = "sk-world-0123456789"
MODELS: Final = {"openai": "rude:m", "anthropic": "anthropic:m"}
SESSION: Final = "api:world"
GOOD_RUN: Final = ("ok", None)


def image(name: str = "image") -> ImagePart:
    """An image that only its name tells from others: nobody looks into it."""
    return ImagePart(mime_type="image/png", data=base64.b64encode(name.encode()).decode())


def adds(a: int = 1, b: int = 2) -> int:
    """Adds."""
    return a + b


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a provider does, and what must be seen of it."""

    name: str
    dialect: Dialect
    script: Script
    """What the provider answers; None for a good answer."""
    turns: Sequence[str | tuple[Part, ...]] = ("hi",)
    """What a person says; the last is what the row is about, the others are answered well."""
    status: str = "ok"
    code: str | None = None
    reply: str | None = FINE
    """None for any."""
    cut: str | None = None
    requests: int | None = None
    """How often the provider is asked in the last of the turns; None for any number."""
    requests_after: int = 1
    """How often in the turn after it."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the agent."""
    provider: dict[str, Any] = field(default_factory=dict[str, Any])
    path: str = ""
    """Follows the address of the provider."""
    check: Callable[["Seen"], object] | None = None
    """Asserts more."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen of a row."""

    run: Run
    events: list[Event]
    asked: list[Asked]
    """The requests of the last of the turns."""
    chat: list[str]
    """What the chat shows of the last of the turns."""
    after: Run
    asked_after: list[Asked]
    chat_after: list[str]

    def facts(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.type == kind]

    @property
    def results(self) -> list[ToolResult]:
        return [event.message for event in self.events if isinstance(event.message, ToolResult)]

    @property
    def last_texts(self) -> str:
        """The conversation of the turn after, as the provider got it."""
        return self.asked_after[-1].text


async def live(row: Row, home: Path, connect: Connect = connect_sqlite) -> Seen:
    """Lives through the row and the turn after it. Raises `AssertionError`, `TimeoutError` where it goes wrong."""
    with serving(said(row.dialect, FINE), row.script) as provider, anyio.fail_after(ROW_SECONDS):
        platform = FakeChannel()
        async with _opened(row, home, provider, connect, platform) as app:
            await app.services.sessions.open(OWNER, app.services.sessions.target(SESSION))
            *before, last = row.turns
            for turn in before:
                run = await _says(app, turn)
                assert run.status.value == "ok", f"a turn before: {run.code} {run.error}"
            count, shown = len(provider.asked), len(platform.texts)
            run = await _says(app, last)
            middle, shown_then = len(provider.asked), len(platform.texts)
            after = await _says(app, "And now?")
            return Seen(
                run=run,
                events=await _log(app),
                asked=provider.asked[count:middle],
                chat=platform.texts[shown:shown_then],
                after=after,
                asked_after=provider.asked[middle:],
                chat_after=platform.texts[shown_then:],
            )


def judge(row: Row, seen: Seen) -> None:
    """Asserts what the row promises, and that the session has survived it."""
    run = seen.run
    assert (run.status.value, run.code) == (row.status, row.code), f"{run.status.value} {run.code}: {run.error}"
    if row.reply is not None:
        assert run.reply == row.reply
    assert getattr(run, "cut", None) == row.cut
    if row.requests is not None:
        assert len(seen.asked) == row.requests
    assert (seen.after.status.value, seen.after.code) == GOOD_RUN, f"the turn after: {seen.after.error}"
    assert seen.after.reply == FINE
    assert len(seen.asked_after) == row.requests_after
    assert KEY not in (run.error or "")
    _judge_chat(run, seen.chat)
    assert seen.chat_after[-1:] == [FINE], seen.chat_after
    if row.check is not None:
        row.check(seen)


def _judge_chat(run: Run, chat: list[str]) -> None:
    """The reply stands in the chat, with a word that it is not whole where it is not; else one plain sentence."""
    assert chat, "silence"
    assert not any(found := [each for text in chat for each in OF_MAKERS.findall(text)]), found
    if run.status.value != "ok":
        assert len(chat) == 1, chat
    elif getattr(run, "cut", None) is not None:
        assert chat[-1].startswith(run.reply or "") and chat[-1] != run.reply, chat
    else:
        assert chat[-1] == run.reply, chat


@asynccontextmanager
async def _opened(
    row: Row, home: Path, provider: Provider, connect: Connect, platform: FakeChannel
) -> AsyncGenerator[App]:
    base = f"http://127.0.0.1:{provider.port}{'/v1' if row.dialect == 'openai' else ''}{row.path}"
    reached = {"base_url": base, "api_key": KEY, "stall_seconds": 5, "first_byte_seconds": 20, **row.provider}
    model = MODELS[row.dialect]
    settings = {
        "agents": {"defaults": {"model": model, **row.defaults}},
        "providers": {model.partition(":")[0]: reached},
        "checkpoints": {"enabled": False},
        **row.settings,
    }
    parts = Parts(
        retry=RetryPolicy(first_delay_seconds=0.001),
        tools=(adds,),
        connect=connect,
        synchronous="OFF",
        channels=[platform],
    )
    async with open_app(home, Config.model_validate(settings), parts) as app:
        yield app
        await app.models.aclose()


async def _says(app: App, said: str | tuple[Part, ...]) -> Run:
    content: tuple[Part, ...] = (TextPart(text=said),) if isinstance(said, str) else said
    envelope = Envelope(place=DeliveryContext(channel=NAME, to="room"))
    posted = await app.services.inbox.post(OWNER, app.services.sessions.target(SESSION), content, envelope=envelope)
    assert posted.run_id is not None
    run = await app.services.waits.wait(posted.run_id, timedelta(seconds=ROW_SECONDS))
    assert run is not None, "the run has not ended"
    await app.deliverer.wait_idle()
    return run


async def _log(app: App) -> list[Event]:
    session = (await app.services.sessions.get(OWNER, app.services.sessions.target(SESSION))).session
    events: list[Event] = []
    while True:
        found = (await app.services.history.read_logs({session.row: events[-1].seq if events else 0}))[session.row]
        events += found.events
        if not found.events or events[-1].seq == found.last_seq:
            return events


def in_order(*answers: Answer | None) -> Script:
    """Answers the first requests in that order, and then well."""
    left = list(answers)
    return lambda asked: left.pop(0) if left else None


def texts_of(events: Sequence[Event]) -> list[str]:
    return [text_of(event.message.content) for event in events if event.message is not None]
