"""The adapter with the real client library, against the fake of the Bot API over loopback."""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from antiphon.channels.telegram.channel import TelegramChannel
from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.settings import TelegramSettings
from antiphon.domain.channel_form import Button, DeliveryPart
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.session import DeliveryContext
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram, group, person
from tests.claims import requirement

pytestmark = pytest.mark.anyio

ANN = 7
FAMILY = -100


@dataclass(frozen=True, slots=True)
class Stage:
    fake: FakeTelegram
    channel: TelegramChannel

    async def send(
        self,
        text: str,
        *,
        to: int | str = ANN,
        thread: str | None = None,
        replaces: str | None = None,
        buttons: tuple[Button, ...] = (),
    ) -> str | None:
        place = DeliveryContext(channel="telegram", account_id="default", to=str(to), thread_id=thread)
        delivery = Delivery(
            id="dlv_1",
            session=None,
            session_key=None,
            session_id=None,
            run_id=None,
            place=place,
            text=text,
            made_of=PUBLIC,
            status=DeliveryStatus.CLAIMED,
            due_at=datetime.now(UTC),
            created_at=datetime.now(UTC),
        )
        return await self.channel.send(delivery, DeliveryPart(index=0, text=text, replaces=replaces, buttons=buttons))

    async def fails(self, text: str = "x", **more: object) -> DeliveryFailed:
        with pytest.raises(DeliveryFailed) as caught:
            await self.send(text, **more)  # pyright: ignore[reportArgumentType]
        assert self.fake.token not in caught.value.message
        return caught.value


@pytest.fixture
async def stage() -> AsyncGenerator[Stage]:
    async with serve_fake(FakeTelegram()) as fake:
        fake.write("hello", sender=person(ANN, "Ann"))
        fake.write("hello", sender=person(ANN, "Ann"), chat=group(FAMILY, "Family", is_forum=True))
        address = fake.base_url.removesuffix("/bot")
        channel = TelegramChannel(TelegramClient(TelegramSettings(token=fake.token, api_base=address)))
        try:
            yield Stage(fake, channel)
        finally:
            await channel.aclose()


@requirement("channels:1")
async def test_a_text_is_sent_with_its_markup_and_the_message_has_an_id(stage: Stage) -> None:
    sent = await stage.send("**hello** `x`")
    (message,) = stage.fake.messages(ANN)
    assert sent == str(message["message_id"]) and message["text"] == "hello x"
    assert [(each["type"], each["offset"], each["length"]) for each in message["entities"]] == [
        ("bold", 0, 5),
        ("code", 6, 1),
    ]
    _, asked = stage.fake.requests[-1]
    assert asked["link_preview_options"] == {"is_disabled": True}, "a preview would fetch what the text names"


async def test_a_topic_gets_its_own_texts(stage: Stage) -> None:
    await stage.send("there", to=FAMILY, thread="9")
    assert (stage.fake.texts(FAMILY, 9), stage.fake.texts(FAMILY)) == (["there"], [])


async def test_buttons_stand_under_the_message_until_it_is_replaced(stage: Stage) -> None:
    sent = await stage.send("Approve?", buttons=(Button(label="Yes", data="apr_1:once"),))
    (message,) = stage.fake.messages(ANN)
    assert message["reply_markup"] == {"inline_keyboard": [[{"text": "Yes", "callback_data": "apr_1:once"}]]}
    assert await stage.send("Approved.", replaces=sent) == sent
    (message,) = stage.fake.messages(ANN)
    assert message["text"] == "Approved." and "reply_markup" not in message


async def test_replacing_a_message_by_the_same_text_succeeds_and_one_that_is_gone_fails_for_good(stage: Stage) -> None:
    sent = await stage.send("same")
    assert sent is not None and await stage.send("same", replaces=sent) == sent
    await stage.channel.withdraw(DeliveryContext(channel="telegram", to=str(ANN)), sent)
    assert stage.fake.texts(ANN) == []
    assert (await stage.fails(replaces=sent)).is_permanent
    await stage.channel.withdraw(DeliveryContext(channel="telegram", to=str(ANN)), sent)


@requirement("channels:1")
async def test_markup_that_is_refused_is_sent_once_more_as_it_was_written(stage: Stage) -> None:
    stage.fake.will("sendMessage", Fault.UNPARSED)
    await stage.send("**hello**")
    (message,) = stage.fake.messages(ANN)
    assert message["text"] == "**hello**" and "entities" not in message
    stage.fake.will("sendMessage", Fault.UNPARSED)
    assert (await stage.fails("plain")).code == "channel_refused", "there is no markup to leave out"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.DROP, "channel_unreachable"),
        (Fault.ACT_AND_DROP, "channel_unreachable"),
        (Fault.BAD_GATEWAY, "channel_unreachable"),
        (Fault.CONFLICT, "channel_failed"),
        (Fault.WRONG_JSON, "channel_failed"),
    ],
)
async def test_what_may_pass_is_not_permanent(stage: Stage, fault: Fault, code: str) -> None:
    stage.fake.will("sendMessage", fault)
    failed = await stage.fails()
    assert (failed.code, failed.is_permanent) == (code, False)


async def test_a_busy_platform_says_when(stage: Stage) -> None:
    stage.fake.retry_after = 17
    stage.fake.will("sendMessage", Fault.BUSY)
    failed = await stage.fails()
    assert (failed.code, failed.is_permanent, failed.retry_after) == ("channel_busy", False, timedelta(seconds=17))


async def test_a_blocked_bot_and_an_unknown_chat_are_gone(stage: Stage) -> None:
    stage.fake.blocked.add(ANN)
    for failed in (await stage.fails(), await stage.fails(to=99)):
        assert (failed.code, failed.is_permanent) == ("channel_gone", True)
    assert (await stage.fails(to="somebody")).is_permanent
    stage.fake.token = "7001:another-token"
    assert not (await stage.fails()).is_permanent


async def test_a_draft_is_shown_and_a_long_one_by_its_end(stage: Stage) -> None:
    place = DeliveryContext(channel="telegram", to=str(ANN))
    await stage.channel.draft(place, 5, "so **far**")
    assert stage.fake.drafts == {(ANN, 5): "so far"}
    await stage.channel.draft(place, 5, "a" * 5000 + "end")
    assert len(stage.fake.drafts[ANN, 5]) == 4096 and stage.fake.drafts[ANN, 5].endswith("aend")
    await stage.channel.typing(place)
    assert stage.fake.requests[-1] == ("sendChatAction", {"chat_id": str(ANN), "action": "typing"})


async def test_no_log_holds_the_token_or_an_answer(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage.fake.will("sendMessage", Fault.WRONG_JSON)
    await stage.fails("hello")
    await stage.send("hello")
    assert stage.fake.token not in caplog.text
    assert '"resu' not in caplog.text
