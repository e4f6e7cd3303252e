"""A user has made a guest's account theirs by a code; the guest undoes it, and the user wants to read on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId
from antiphon.policy.chats import ChannelRules, ChatRules
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, Lobby, lobby
from tests.engine.chats.test_unlinking import EVES_ID, PUBLIC, a_guest, a_user, hears, link
from tests.gateway.served import following, new_client, serve
from tests.gateway.test_revocation import until_open

pytestmark = pytest.mark.anyio

KEY = "agent:main:telegram:direct:42"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Attempt):
    """A request of the user's after the undo."""

    path: str
    body: dict[str, str] | None = None


READINGS = [
    Reading(attacker=Attacker.FORMER_READER, door=Door.HTTP, what=path, path=path)
    for path in (
        f"/sessions/{KEY}",
        f"/sessions/{KEY}/history",
        f"/sessions/{KEY}/transcript",
        "/sessions",
        "/runs",
        "/memory",
        "/search?q=diary",
    )
] + [
    Reading(attacker=Attacker.FORMER_READER, door=Door.HTTP, what=f"posts {path}", path=path, body=body)
    for path, body in (
        (f"/sessions/{KEY}/messages", {"text": "what did I write?"}),
        (f"/sessions/{KEY}/command", {"text": "/memory"}),
        (f"/sessions/{KEY}/fork", {}),
        (f"/sessions/{KEY}/reset", {}),
    )
]


@asynccontextmanager
async def undone(
    open_home: OpenHome, *, is_open: bool = False, reads: str | None = None
) -> AsyncGenerator[tuple[Lobby, httpx.AsyncClient]]:
    """The user in a browser, who has read and written in the guest's chat; the guest has undone the link."""
    async with serve(open_home) as served, new_client(served.url) as browser:
        rules = ChannelRules(agent_id=AgentId("main"), access=PUBLIC)
        scene = Lobby(served.app, ChatRules(channels={(CHANNEL, ACCOUNT): rules}))
        await a_guest(scene)
        eve = await a_user(scene)
        code = (await served.app.services.people.new_link(OWNER, eve.id)).code
        answer = (await browser.post("/auth/exchange", json={"code": code})).json()
        browser.headers["Antiphon-Page"] = answer["pageSecret"]
        browser.headers["Origin"] = served.url
        await link(scene, eve)
        assert "my diary" in (await browser.get(f"/sessions/{KEY}/history")).text
        sent = await browser.post(f"/sessions/{KEY}/messages", json={"text": "mine now"})
        assert sent.is_success, sent.text
        if reads is not None:
            assert (await browser.get(reads)).is_success
        if is_open:
            async with following(browser, f"/sessions/{KEY}/history?follow=1") as stream:
                await until_open(served, 1)
                await scene.hears("42", "/unlink")
                await stream.rest()
        else:
            await scene.hears("42", "/unlink")
        yield scene, browser


@requirement("access:1", "access:3")
@pytest.mark.parametrize("attempt", rows(*READINGS))
async def test_nothing_of_the_guests_is_read_after_the_undo(open_home: OpenHome, attempt: Reading) -> None:
    async with undone(open_home, reads=attempt.path if attempt.body is None else None) as (_, browser):
        if attempt.body is None:
            answer = await browser.get(attempt.path)
        else:
            answer = await browser.post(attempt.path, json=attempt.body)
        assert not any(words in answer.text for words in ("my diary", "likes tea")), answer.text
        assert KEY not in answer.text or answer.status_code in (403, 404), answer.text


STREAM = Attempt(attacker=Attacker.FORMER_READER, door=Door.SSE, what="keeps a stream open")


@requirement("access:1", "access:3")
@pytest.mark.parametrize("attempt", rows(STREAM))
async def test_an_open_stream_ends_with_the_undo(open_home: OpenHome, attempt: Attempt) -> None:
    async with undone(open_home, is_open=True) as (_, browser):
        assert (await browser.get(f"/sessions/{KEY}/history")).status_code == 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoing(Attempt):
    """Somebody else sends `/unlink`."""

    sender: str
    channel: str = CHANNEL
    group: str | None = None


UNDOINGS = [
    Undoing(attacker=Attacker.FORMER_READER, door=Door.TELEGRAM, what="from their own account", sender=EVES_ID),
    Undoing(attacker=Attacker.GUEST, door=Door.TELEGRAM, what="another guest", sender="43"),
    Undoing(attacker=Attacker.GUEST, door=Door.TELEGRAM, what="from another channel", sender="42", channel="signal"),
    Undoing(attacker=Attacker.GUEST, door=Door.TELEGRAM, what="in a group", sender="43", group="g"),
]


@requirement("access:3")
@pytest.mark.parametrize("attempt", rows(*UNDOINGS))
async def test_nobody_else_undoes_a_link(open_home: OpenHome, attempt: Undoing) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await a_guest(scene)
        eve = await a_user(scene)
        await link(scene, eve)
        await hears(scene, "43", "hello")
        before = await scene.rows("SELECT * FROM link_undos")
        noted = await scene.count("link_undo_rows")
        await scene.hears(attempt.sender, "/unlink", channel=attempt.channel, group=attempt.group)
        assert await scene.person_of("42") == eve.id
        assert (await scene.rows("SELECT * FROM link_undos"), await scene.count("link_undo_rows")) == (before, noted)
