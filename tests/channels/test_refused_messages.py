"""A message or a command that is refused leaves nothing behind: nobody takes part, and no session is opened."""

from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.person import Identity
from antiphon.engine.sessions.sessions import SessionAttributes
from tests.channels.test_chat_commands import chatting
from tests.channels.test_webhook import SECRET, message, ring
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import new_client, serve
from tests.gateway.test_channel_tokens import ROOM, channel, code_of, say
from tests.unchanged import nothing_stored

pytestmark = pytest.mark.anyio

LONG = "what is longer than twenty bytes"
TINY: dict[str, Any] = {"limits": {"guest": {"storedBytes": 20}}}
DOORS = {"channels": {"webhook": {"door": {"secret": SECRET, "url": "http://127.0.0.1:9/bell"}}}}


@requirement("access:2", "flow:2", "keys:5")
async def test_a_message_above_the_shared_session_lets_its_guest_in_nowhere(open_home: OpenHome) -> None:
    """Else a user into whom the guest is merged would read the owner's main session."""
    clock, secret = ManualClock(), Classification(level=Level.CONFIDENTIAL)
    async with serve(open_home, {"session": {"scope": "global"}, **DOORS}, Parts(clock=clock)) as served:
        sessions, people = served.app.services.sessions, served.app.services.people
        await sessions.open(OWNER, sessions.target("main"), attributes=SessionAttributes(taint=secret))
        async with new_client(served.url) as client, nothing_stored(served.app):
            assert code_of(await ring(client, clock, message("hello"))) == (403, "above_clearance")
        shown = (await served.client.get("/sessions/main")).json()
        assert "participants" not in shown
        anna = Identity(channel="webhook", account="door", platform_id="anna").person_id
        assert anna not in [each.person.id for each in await people.list(OWNER, after=None, limit=50)]


@requirement("channels:1", "access:4")
async def test_a_first_message_that_is_refused_opens_no_session_of_a_webhook(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, {**TINY, **DOORS}, Parts(clock=clock)) as served:
        async with new_client(served.url) as client, nothing_stored(served.app):
            assert code_of(await ring(client, clock, message(LONG))) == (403, "guest_bytes")
        async with new_client(served.url) as client:
            assert (await ring(client, clock, message("hello"))).status_code == 202, "its id is free"


@requirement("channels:4", "tasks:1")
async def test_tasks_that_are_refused_open_no_session_of_a_chat(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        answer = await chat.says("/task new every 1h A: a\n/task new every 2h A: b")
        assert answer is not None and answer.endswith("Nothing was saved.")
        assert (await chat.served.client.get("/sessions")).json()["sessions"] == []
        assert (
            await chat.says("/status")
            == "Agent: Assistant\nThere is no conversation here yet. Write a message to begin one."
        )


@requirement("access:2", "access:4")
@pytest.mark.parametrize("act", ["post", "append", "command"])
async def test_a_sender_whose_words_are_refused_takes_part_in_nothing(open_home: OpenHome, act: str) -> None:
    async with serve(open_home, TINY) as served, channel(served) as bot:
        await bot.post("/sessions", json={"sessionId": ROOM})
        sender = {"id": "eve", "name": "Eve"}
        async with nothing_stored(served.app):
            match act:
                case "post":
                    answer = await say(bot, ROOM, sender, LONG)
                case "append":
                    body = {"text": LONG, "sender": sender}
                    answer = await bot.post(f"/sessions/{ROOM}/messages?append=1", json=body)
                case _:
                    command = {"text": "/approve all", "sender": sender}
                    answer = await bot.post(f"/sessions/{ROOM}/command", json=command)
            assert answer.status_code == 403, answer.text
        assert (await say(bot, ROOM, sender, "hello")).status_code == 200
