"""`message` to groups: those in which the agent answers, by the rules of the place.

Contract: message 1, send_policy 3.
"""

import json
from typing import Any

import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import AgentId
from antiphon.domain.person import Identity, PersonRole
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store.database import Transaction
from antiphon.testing.telegram import FakeTelegram, Json, group
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, Bot, open_bot
from tests.claims import requirement
from tests.conftest import OpenHome

pytestmark = pytest.mark.anyio

KEY = "agent:main:telegram:group:-100"


async def says(
    bot: Bot, recipient: str, *, by: str = "api:desk", principal: Principal = OWNER, **more: Any
) -> dict[str, Any]:
    target = bot.app.services.sessions.target(by)
    if by == "api:desk":
        await bot.app.services.sessions.open(OWNER, target)
    arguments = {"channel": "telegram", "recipient": recipient, "text": "Dinner is ready.", **more}
    return await bot.app.tool_calls.call(principal, target, "message", arguments)


@requirement("message:1")
async def test_a_message_reaches_a_group_in_which_the_agent_answers_and_follows_it(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, groups={"-200": {}}) as bot:
        fake.chats[-200] = group(-200, "Work")
        await bot.link_owner()
        fake.write("hello", sender=OLGA, chat=FAMILY)
        await bot.settles()
        assert (await says(bot, "-100"))["status"] == "not_found", "no owner has allowed it"
        await bot.app.services.groups.allow(OWNER, "telegram", "default", "-100")
        for recipient in ("-100", "-200"):
            assert (await says(bot, recipient))["status"] == "accepted"
        assert (await says(bot, "-100", channel="telegram:default", text="Now."))["status"] == "accepted"
        await bot.settles()
        assert fake.texts(-100) == ["Dinner is ready.", "Now."] and fake.texts(-200) == ["Dinner is ready."]
        moved = group(-300, "Family")
        fake.write(None, sender=OLGA, chat=FAMILY, migrate_to_chat_id=-300)
        fake.chats[-300] = moved
        await bot.settles()
        for recipient in ("-100", "-300"):
            assert (await says(bot, recipient, text=f"by {recipient}"))["status"] == "accepted"
        await bot.settles()
        assert fake.texts(-300) == ["by -100", "by -300"]


def leave(fake: FakeTelegram, chat: Json) -> None:
    """Somebody removes the bot."""
    members = {
        "old_chat_member": {"status": "member", "user": OLGA},
        "new_chat_member": {"status": "left", "user": OLGA},
    }
    fake.add_update("my_chat_member", {"chat": chat, "from": OLGA, "date": 1, **members})


@requirement("message:1", "answers:2", "access:1")
async def test_all_other_groups_are_answered_like_one_that_there_is_not(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    agents, left = [{"id": "main"}, {"id": "other"}], group(-400, "Left")
    groups: Json = {"-200": {"agent": "other"}, "-300": {"silent": True}, "-400": {}, "-500": {}, "-600": {}}
    unasked: Json = {"require": [], "people": []}
    more: Json = {"agents__list": agents, "tools__approval": unasked, "flow__untrusted": "allow"}
    async with open_bot(open_home, fake, access="public", groups=groups, **more) as bot:
        services = bot.app.services
        await bot.link_owner()
        await bot.says("@test_bot hello", sender=ANN, chat=group(-500, "Hers"))
        await bot.says("hello", sender=ANN)
        for chat in (left, group(-600, "Owners")):
            await bot.says("@test_bot hello", sender=OLGA, chat=chat)
        leave(fake, left)
        fake.write("hello", sender=OLGA, chat=FAMILY)
        fake.write("hello", sender=OLGA, chat=group(-700, "Closed"))
        await bot.settles()
        await services.groups.allow(OWNER, "telegram", "default", "-100")
        family = ChatAddress(channel="telegram", account="default", peer="group:-100")
        await services.routes.set(OWNER, family, agent_id=AgentId("other"))

        async def answer(recipient: str, **by: Any) -> str:
            return json.dumps(await says(bot, recipient, **by)).replace(repr(recipient), "RECIPIENT")

        missing = await answer("-999")
        assert json.loads(missing)["status"] == "not_found"
        for recipient in ("-100", "-200", "-300", "-400", "-700", "Owners", "group:-600", "x" * 200):
            assert await answer(recipient) == missing, recipient
        assert {json.loads(await answer(to))["status"] for to in ("-500", "-600")} == {"accepted"}

        id = Identity(channel="telegram", account="default", platform_id="7").person_id
        ann = (await services.people.change_role(OWNER, id, PersonRole.USER)).person.principal
        hers: Json = {"by": "agent:main:telegram:direct:7", "principal": ann}
        assert json.loads(await answer("-500", **hers))["status"] == "accepted"
        assert await answer("-600", **hers) == await answer("-999", **hers) == missing


@requirement("message:1", "flow:7", "flow:2")
async def test_a_group_gets_what_all_of_its_members_may_read(open_home: OpenHome, fake: FakeTelegram) -> None:
    cleared: Json = {"clearance": {"level": "CONFIDENTIAL"}}
    groups: Json = {"-100": {"members": ["ann", "owner"]}, "-200": {"members": ["ann", "ben"]}, "-300": {}}
    async with open_bot(open_home, fake, groups=groups, **cleared) as bot:
        services = bot.app.services
        for name in ("ann", "ben"):
            await bot.app.database.run(_add_person, name)
        await bot.link_owner()
        taint = Classification(Level.PUBLIC, person="person:ann")
        target = services.sessions.target("api:of-ann")
        await services.sessions.open(OWNER, target, attributes=SessionAttributes(taint=taint))
        found = {to: await says(bot, to, by="api:of-ann") for to in ("-100", "-200", "-300")}
        assert found["-100"]["status"] == "accepted"
        assert {found[to]["code"] for to in ("-200", "-300")} == {"write_down"}
        fake.write("hello", sender=BEN, chat=FAMILY)  # a member whom nobody named
        await bot.settles()
        assert (await says(bot, "-100", by="api:of-ann", text="Again."))["code"] == "write_down"


async def _add_person(tx: Transaction, name: str) -> None:
    await tx.execute(
        "INSERT INTO people (id, name, role, agents, created_at) VALUES (?, ?, 'user', '', 0)", (name, name)
    )


@requirement("message:1", "send_policy:1", "send_policy:3")
@pytest.mark.parametrize("match", [{"chatType": "group"}, {"keyPrefix": KEY}, {"channel": "telegram"}])
async def test_the_send_policy_of_the_group_decides(open_home: OpenHome, fake: FakeTelegram, match: Json) -> None:
    policy = {"rules": [{"match": match, "action": "deny"}]}
    async with open_bot(open_home, fake, groups={"-100": {}}, session__send_policy=policy) as bot:
        assert (await says(bot, "-100"))["code"] == "send_denied"


@requirement("message:1", "send_policy:1", "send_policy:3")
async def test_a_group_whose_session_may_not_send_gets_nothing(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, groups={"-100": {}}) as bot:
        services = bot.app.services
        await bot.link_owner()
        await bot.says("@test_bot hello", sender=OLGA, chat=FAMILY)
        await services.sessions.patch(OWNER, services.sessions.target(KEY), {"send_policy": "deny"})
        assert (await says(bot, "-100"))["code"] == "send_denied"
        await services.sessions.patch(OWNER, services.sessions.target(KEY), {"send_policy": None})
        assert (await says(bot, "-100"))["status"] == "accepted"
