"""Words that may not go to a group: its owner is asked in one plain sentence, and lets exactly these go, once."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import RunId
from antiphon.domain.message import text_content
from antiphon.domain.session import DeliveryContext
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing
from antiphon.engine.deliveries.refused import send_or_ask
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Transaction
from antiphon.testing.telegram import FakeTelegram, Json
from tests.attacks.test_requests import labels
from tests.channels.telegram.bots import ANN, FAMILY, OLGA, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_spawn
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

WORDS = "Dinner is at eight."
DESK = "api:desk"


@asynccontextmanager
async def household(
    open_home: OpenHome, fake: FakeTelegram, *, is_hidden: bool = False, **more: Json
) -> AsyncGenerator[Bot]:
    """`is_hidden`: what the run has read may not be shown in the owner's chat."""
    group: Json = {"groups": {"-100": {"members": ["eve", "owner"]}}}
    cleared: Json = {} if is_hidden else {"clearance": {"level": "CONFIDENTIAL"}}
    async with open_bot(open_home, fake, Parts(tools=PARTS.tools), **group, **cleared, **more) as bot:
        for name in ("ann", "eve"):
            await bot.app.database.run(_add_member, name)
        await bot.link_owner()
        await bot.says("@test_bot hello", chat=FAMILY)
        yield bot


async def _add_member(tx: Transaction, name: str) -> None:
    await tx.execute(
        "INSERT INTO people (id, name, role, agents, created_at) VALUES (?, ?, 'user', '', 0)", (name, name)
    )


async def pending(bot: Bot) -> list[Approval]:
    where = ApprovalFilter(state=ApprovalState.PENDING)
    return await bot.app.services.approvals.list(OWNER, where, limit=5)


async def asks(bot: Bot, text: str = WORDS) -> RunId:
    """A run of the owner's that has read the books, and waits for the release of these words to the group."""
    target = bot.app.services.sessions.target(DESK)
    await bot.app.services.sessions.open(OWNER, target)
    lines = [BOOKS, to_call("message", channel="telegram", recipient="-100", text=text)]
    posted = await bot.app.services.inbox.post(OWNER, target, text_content("\n".join(lines)))
    assert posted.run_id is not None

    async def is_asked() -> bool:
        return bool(await pending(bot))

    await until(is_asked)
    await bot.app.deliverer.wait_idle()
    return posted.run_id


async def replies(bot: Bot, text: str = WORDS) -> None:
    """A run of the owner's whose reply, made of the books, was for the group."""
    services = bot.app.services
    target = services.sessions.target(DESK)
    session = (await services.sessions.open(OWNER, target)).session
    posted = await services.inbox.post(OWNER, target, text_content("hello"))
    assert posted.run_id is not None
    run = await services.waits.wait(posted.run_id, timedelta(seconds=SECONDS))
    assert run is not None

    async def refuse(tx: Transaction) -> None:
        check = ExitCheck(rules=services.rules, read=())
        outgoing = Outgoing(text=text, made_of=Classification(Level.CONFIDENTIAL), check=check)
        place = DeliveryContext(channel="telegram", to="-100", account_id="default")
        await send_or_ask(tx, run, place, outgoing)

    await bot.app.database.run(refuse, sessions=(session.row,))
    await bot.app.deliverer.wait_idle()


async def press(bot: Bot, fake: FakeTelegram, approval: Approval, word: str, sender: Json = OLGA) -> None:
    told = len([method for method, _ in fake.requests if method == "answerCallbackQuery"])
    message = fake.messages(1)[-1]
    fake.press(f"{approval.id}:{word}", sender=sender, chat=1, message_id=message["message_id"])
    await fake.until(lambda: len([method for method, _ in fake.requests if method == "answerCallbackQuery"]) > told)
    await bot.settles()


@requirement("flow:11", "approvals:4")
async def test_an_owner_is_asked_in_their_chat_and_lets_it_go_by_a_button(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with household(open_home, fake) as bot:
        before = len(fake.texts(-100))
        await asks(bot)
        (approval,) = await pending(bot)
        question = fake.messages(1)[-1]
        assert question["text"].endswith(f"Not for everyone → Family (telegram). Exact text:\n{WORDS}\nSend once?")
        assert "CONFIDENTIAL" not in question["text"] and labels(question) == ["Send once", "Deny"]
        await press(bot, fake, approval, "once")
        assert fake.texts(-100)[before:] == [WORDS]
        await press(bot, fake, approval, "once")
        assert fake.texts(-100)[before:] == [WORDS]


@requirement("flow:11", "approvals:4")
async def test_words_that_a_message_does_not_hold_are_not_released_in_a_chat(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with household(open_home, fake) as bot:
        before = len(fake.texts(-100))
        await asks(bot, "word " * 2_000)
        (approval,) = await pending(bot)
        question = fake.messages(1)[-1]
        assert labels(question) == ["Deny", "Look at the page"]
        await press(bot, fake, approval, "once")
        assert await pending(bot) and fake.texts(-100)[before:] == []


@requirement("flow:11", "approvals:4", "flow:7")
async def test_words_that_may_not_be_shown_in_the_chat_are_read_on_the_page(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with household(open_home, fake, is_hidden=True) as bot:
        before = len(fake.texts(-100))
        await asks(bot)
        (approval,) = await pending(bot)
        question = fake.messages(1)[-1]
        assert WORDS not in question["text"] and "look at the page" in question["text"] and labels(question) == []
        await press(bot, fake, approval, "once")
        assert await pending(bot) and fake.texts(-100)[before:] == []
        await bot.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        await bot.settles()
        assert fake.texts(-100)[before:] == [WORDS]


@requirement("flow:6", "flow:11", "approvals:4")
async def test_an_owner_is_asked_in_their_chat_about_a_refused_reply(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with household(open_home, fake) as bot:
        before = len(fake.texts(-100))
        await replies(bot)
        (first,) = await pending(bot)
        question = fake.messages(1)[-1]
        assert question["text"].endswith(f"Not for everyone → Family (telegram). Exact text:\n{WORDS}\nSend once?")
        assert labels(question) == ["Send once", "Deny"]
        fake.write("I am new here", sender=ANN, chat=FAMILY)
        await bot.settles()
        await press(bot, fake, first, "once")
        (second,) = await pending(bot)  # about the group as it is now
        assert second.delivery == first.delivery and second.id != first.id and fake.texts(-100)[before:] == []
        await press(bot, fake, second, "once")
        assert fake.texts(-100)[before:] == [WORDS]
        await press(bot, fake, second, "once")
        assert fake.texts(-100)[before:] == [WORDS]
        await replies(bot, "word " * 2_000)
        assert labels(fake.messages(1)[-1]) == ["Deny", "Look at the page"]


@requirement("flow:6", "flow:11", "flow:7")
async def test_a_refused_reply_that_may_not_be_shown_in_the_chat_is_read_on_the_page(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with household(open_home, fake, is_hidden=True) as bot:
        await replies(bot)
        question = fake.messages(1)[-1]
        assert WORDS not in question["text"] and "look at the page" in question["text"] and labels(question) == []
        (approval,) = await pending(bot)
        await press(bot, fake, approval, "once")
        assert await pending(bot) == [approval]


@requirement("flow:6", "flow:11", "approvals:4")
@pytest.mark.parametrize("word", ["once", "accept"])
async def test_an_owner_is_asked_in_their_chat_about_a_withheld_result(
    open_home: OpenHome, fake: FakeTelegram, word: str
) -> None:
    async with household(open_home, fake) as bot:
        services = bot.app.services
        target = services.sessions.target(DESK)
        await services.sessions.open(OWNER, target)
        spawn = to_spawn(f"{BOOKS}\n!say {WORDS}", label="reader")
        await services.inbox.post(OWNER, target, text_content(spawn))
        await bot.settles()
        (approval,) = await pending(bot)
        question = fake.messages(1)[-1]
        assert "Not for everyone → session api:desk" in question["text"].replace("agent:main:", "")
        assert WORDS in question["text"] and question["text"].endswith("what it says is kept as private.")
        assert labels(question) == ["Accept", "Send once", "Deny"]
        await press(bot, fake, approval, word)
        assert await pending(bot) == []
        session = (await services.sessions.get(OWNER, target)).session
        assert session.taint.level is (Level.CONFIDENTIAL if word == "accept" else Level.PUBLIC)
        page = await services.history.page(OWNER, target, limit=100)
        assert any(WORDS in str(event.message) for event in page.events if event.type == "user_message")


@requirement("flow:11", "groups:1")
async def test_a_group_that_gains_a_member_between_question_and_yes_is_asked_about_anew(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with household(open_home, fake) as bot:
        before = len(fake.texts(-100))
        run_id = await asks(bot)
        (first,) = await pending(bot)
        fake.write("I am new here", sender=ANN, chat=FAMILY)
        await bot.settles()
        await press(bot, fake, first, "once")

        async def is_asked_anew() -> bool:
            return [each.id for each in await pending(bot)] not in ([], [first.id])

        await until(is_asked_anew)
        assert fake.texts(-100)[before:] == []
        (second,) = await pending(bot)
        assert second.calls[0].released != first.calls[0].released
        await bot.app.deliverer.wait_idle()
        await press(bot, fake, second, "once")
        assert fake.texts(-100)[before:] == [WORDS]
        run = await bot.app.services.runs.get(OWNER, run_id)
        assert json.loads(run.reply or "")["status"] == "accepted"
