"""The send policy judges a text by the chat that is addressed, whichever session speaks."""

from typing import Any

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import parse_key
from antiphon.domain.session import DeliveryContext, Source
from antiphon.domain.session_ids import parse_session_id
from antiphon.engine.access.exits import Leaving, leave
from antiphon.policy.decision import Deny
from antiphon.store import channel_groups
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from tests.channels.fake_channel import NAME
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_live_judged import ROOM
from tests.engine.stage import config

pytestmark = pytest.mark.anyio

GROUP = DeliveryContext(channel=NAME, to="room")
DIRECT = DeliveryContext(channel=NAME, to="ann")
SPEAKERS = {
    "the chat": f"agent:main:{NAME}:group:room",
    "another chat": f"agent:main:{NAME}:group:hall",
    "a task": "agent:main:cron:task-1",
    "a hook": "agent:main:hook:mail",
    "the main session": "agent:main:main",
    "a session of a program": "agent:main:api:desk",
    "a session that answers there": "agent:main:api:home",
}
DENIED: dict[str, tuple[list[dict[str, Any]], set[str]]] = {
    "no rule": ([], set()),
    "groups": ([{"chatType": "group"}], {"group"}),
    "direct chats": ([{"chatType": "direct"}], {"direct"}),
    "the channel": ([{"channel": NAME}], {"group", "direct"}),
    "another channel": ([{"channel": "telegram"}], set()),
    "the group's key": ([{"keyPrefix": f"{NAME}:group:room"}], {"group"}),
    "keys of tasks": ([{"keyPrefix": "cron:"}], set()),
}
"""Rules that deny, with the chats in which nothing may be said then."""


@requirement("send_policy:3", "send_policy:1")
@pytest.mark.parametrize("denied", DENIED)
@pytest.mark.parametrize("speaker", SPEAKERS)
async def test_a_rule_holds_for_the_chat_whoever_speaks_there(open_home: OpenHome, speaker: str, denied: str) -> None:
    matches, chats = DENIED[denied]
    policy = {"rules": [{"match": match, "action": "deny"} for match in matches]}
    async with open_home(config(session__send_policy=policy)) as app:
        await app.database.run(_note_group)
        for name, place in (("group", GROUP), ("direct", DIRECT)):
            if name == "direct" and speaker.endswith("chat"):
                continue  # a group's session has no words for direct chats

            async def look(query: Query, place: DeliveryContext = place) -> bool:
                session = await rows.find_by_key(query, parse_key(SPEAKERS[speaker]))
                decision = await leave(query, Leaving(session, place, PUBLIC), app.services.rules)
                assert not isinstance(decision, Deny) or decision.rule == "send_denied"
                return not isinstance(decision, Deny)

            await app.database.run(_open, SPEAKERS[speaker])
            assert await app.database.read(look) == (name not in chats)


@requirement("send_policy:3", "send_policy:2")
@pytest.mark.parametrize("speaker", SPEAKERS)
async def test_a_chat_that_is_switched_off_hears_nobody(open_home: OpenHome, speaker: str) -> None:
    async with open_home() as app:
        await app.database.run(_note_group)
        for key in (SPEAKERS["the chat"], SPEAKERS[speaker]):
            await app.database.run(_open, key)
        sessions = app.services.sessions

        async def look(query: Query) -> bool:
            session = await rows.find_by_key(query, parse_key(SPEAKERS[speaker]))
            return not isinstance(await leave(query, Leaving(session, GROUP, PUBLIC), app.services.rules), Deny)

        assert await app.database.read(look)
        await sessions.patch(OWNER, sessions.target(SPEAKERS["the chat"]), {"send_policy": "deny"})
        assert not await app.database.read(look)


async def _open(tx: Transaction, text: str) -> None:
    key = parse_key(text, default_agent=AgentId("main"))
    if await rows.find_by_key(tx, key) is None:
        id = parse_session_id(f"test:{key.last_segment}-{key.kind}")
        answers = {"delivery_channel": NAME, "delivery_to": "room"} if text.endswith(":home") else {}
        new = rows.NewSession(key=key, agent_id=AgentId("main"), id=id, source=Source(), columns=answers)
        await rows.insert(tx, new, 0)


async def _note_group(tx: Transaction) -> None:
    await channel_groups.insert(tx, ROOM)
