"""The adapter with the real client library, against the fake over loopback."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from antiphon.channels.discord.channel import DiscordChannel, nonce_of
from antiphon.channels.discord.client import DiscordClient, UnreadableAnswer
from antiphon.channels.discord.settings import DiscordSettings
from antiphon.channels.files import FileTooLarge
from antiphon.clock import SystemClock
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import Button, DeliveryPart
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import BUSY, GONE, THREAD_GONE, Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.own_text import Code, own_text
from antiphon.domain.session import DeliveryContext
from antiphon.testing.faults import Fault
from tests.channels.discord.fake_discord import ANN, BEN, FAMILY, OTHER, FakeDiscord
from tests.claims import requirement

pytestmark = pytest.mark.anyio


def place(to: str = FAMILY, thread: str | None = None) -> DeliveryContext:
    return DeliveryContext(channel="discord", account_id="default", to=to, thread_id=thread)


@dataclass(frozen=True, slots=True)
class Stage:
    fake: FakeDiscord
    channel: DiscordChannel

    async def send(
        self, text: str = "x", *, to: str = FAMILY, thread: str | None = None, id: str = "dlv_1", age: float = 0,
        attempts: int = 1, part: DeliveryPart | None = None, **more: Any,
    ) -> str | None:  # fmt: skip
        now = datetime.now(UTC)
        delivery = Delivery(
            id=id, session=None, session_key=None, session_id=None, run_id=None, place=place(to, thread), text=text,
            made_of=PUBLIC, status=DeliveryStatus.CLAIMED, due_at=now, created_at=now - timedelta(seconds=age),
            attempts=attempts,
        )  # fmt: skip
        return await self.channel.send(delivery, part or DeliveryPart(index=0, text=text, **more))

    async def fails(self, **more: Any) -> DeliveryFailed:
        with pytest.raises(DeliveryFailed) as caught:
            await self.send(**more)
        assert self.fake.token not in caught.value.message
        return caught.value


@pytest.fixture
async def stage(fake: FakeDiscord) -> AsyncGenerator[Stage]:
    settings = DiscordSettings(account="default", token=fake.token, api_base=fake.base_url)
    channel = DiscordChannel(DiscordClient(settings), SystemClock())
    try:
        yield Stage(fake, channel)
    finally:
        await channel.aclose()


@requirement("channels:1")
async def test_a_text_notifies_nobody_and_shows_no_preview(stage: Stage) -> None:
    sent = await stage.send("**hello** @everyone https://example.org <@100000000000000012>")
    (message,) = stage.fake.of_bot(FAMILY)
    assert sent == message["id"] and message["content"].startswith("**hello** @everyone")
    (asked,) = stage.fake.asked("create")
    assert asked["allowed_mentions"] == {"parse": []} and asked["flags"] == 4
    assert asked["nonce"] == nonce_of("dlv_1", 0) and len(asked["nonce"]) == 24 and asked["enforce_nonce"] is True
    assert nonce_of("dlv_1", 1) != nonce_of("dlv_1", 0) != nonce_of("dlv_2", 0)


@requirement("channels:1")
async def test_a_text_that_is_sent_again_is_seen_once(stage: Stage) -> None:
    """Within minutes Discord knows it; later it is looked for, behind what others wrote."""
    first = await stage.send("hello")
    assert await stage.send("hello", attempts=2) == first
    stage.fake.nonces.clear()
    for number in range(230):
        stage.fake.write(f"talk {number}", channel=FAMILY, sender=BEN)
    assert await stage.send("hello", attempts=2, age=600) == first
    assert stage.fake.texts(FAMILY) == ["hello"]
    second = await stage.send("hello", id="dlv_2")
    assert second != first and stage.fake.texts(FAMILY) == ["hello", "hello"], "another text that says the same"


@requirement("channels:1")
async def test_a_file_that_is_sent_again_is_seen_once(stage: Stage) -> None:
    """Discord changes names: it keeps letters of ASCII alone. A file of the same length is another one."""
    for name in ("große Tüte.txt", "tea.txt"):
        part = part_of(name, b"x" * 100)
        first = await stage.send("", part=part, id=name)
        assert await stage.send("", part=part, id=name, attempts=2) == first
        stage.fake.nonces.clear()
        assert await stage.send("", part=part, id=name, attempts=2, age=600) == first
        other = await stage.send("", part=part_of("other.txt", b"x" * 100), id="dlv_other", attempts=2, age=600)
        assert other not in (None, first)
    names = [name for name, _ in stage.fake.sent_files[FAMILY].values()]
    assert names == ["große Tüte.txt", "other.txt", "tea.txt"]


async def test_a_file_that_is_too_large_or_not_permitted_is_refused_for_good(stage: Stage) -> None:
    too_large = await stage.fails(part=part_of("a.bin", bytes(10 * 1024 * 1024 + 1)))
    assert too_large.is_permanent and too_large.code == "channel_refused" and "40005" in too_large.message
    stage.fake.refuses[FAMILY] = (403, 50013, "Missing Permissions")
    refused = await stage.fails(part=part_of("a.bin", b"x"))
    assert refused.is_permanent and refused.code == "channel_refused" and "Attach Files" in refused.message
    assert (await stage.fails(text="x")).code == GONE


def part_of(name: str, data: bytes) -> DeliveryPart:
    return DeliveryPart(index=0, text="", file=Attachment(name=name, data=data, sha256=""))


@requirement("channels:1")
async def test_a_text_of_which_only_the_first_words_are_there_becomes_whole(stage: Stage) -> None:
    """The beginning of a streamed reply was sent, and no answer came."""
    first = await stage.send("The train")
    assert await stage.send("The train leaves at ten.") == first
    assert stage.fake.texts(FAMILY) == ["The train leaves at ten."]


async def test_without_the_right_to_read_the_history_a_text_is_sent_again(stage: Stage) -> None:
    stage.fake.will_answer("history", '{"message": "Missing Access", "code": 50001}', status=403)
    assert await stage.send("hello", attempts=2, age=600) is not None
    assert stage.fake.texts(FAMILY) == ["hello"]


@requirement("channels:1")
async def test_a_direct_message_goes_to_the_person_whose_id_is_named(stage: Stage) -> None:
    for _ in range(2):
        await stage.send("hello", to=ANN["id"], id=f"dlv_{time.monotonic_ns()}")
    assert stage.fake.texts(stage.fake.dm_of(ANN["id"])) == ["hello", "hello"]
    assert len(stage.fake.asked("open_dm")) == 1


async def test_a_thread_gets_its_own_texts(stage: Stage) -> None:
    thread = stage.fake.add_thread("plans")
    await stage.send("there", thread=thread)
    assert (stage.fake.texts(thread), stage.fake.texts(FAMILY)) == (["there"], [])


async def test_buttons_stand_under_the_message_until_it_is_replaced(stage: Stage) -> None:
    buttons = tuple(Button(label=f"{'Yes' * 40}{number}", data=f"apr_1:{number}") for number in range(7))
    sent = await stage.send("Approve?", buttons=buttons)
    (message,) = stage.fake.of_bot(FAMILY)
    assert [len(row["components"]) for row in message["components"]] == [5, 2]
    assert message["components"][0]["components"][0]["custom_id"] == "apr_1:0"
    assert await stage.send("Approved.", replaces=sent) == sent
    (message,) = stage.fake.of_bot(FAMILY)
    assert message["content"] == "Approved." and message["components"] == [] and message["flags"] == 4


async def test_a_message_that_is_gone_is_not_replaced_and_may_be_withdrawn_twice(stage: Stage) -> None:
    sent = await stage.send("same")
    assert sent is not None and await stage.send("same", replaces=sent) == sent
    for _ in range(2):
        await stage.channel.withdraw(place(), sent)
    assert stage.fake.texts(FAMILY) == []
    failed = await stage.fails(replaces=sent)
    assert failed.is_permanent and failed.code == "channel_refused"
    foreign = stage.fake.write("hello", channel=FAMILY)["id"]
    assert (await stage.fails(replaces=foreign)).is_permanent


@requirement("approvals:4")
async def test_nothing_in_a_text_of_antiphons_own_is_markup(stage: Stage) -> None:
    own = own_text(
        "# *Ann* [x](http://e.org) <@1>\n1. a_b\n", Code("rm `x` ``y``"), " ", Code("a\n```\nb", is_block=True)
    )
    await stage.send(part=DeliveryPart(index=0, text=own.text, spans=own.spans))
    (text,) = stage.fake.texts(FAMILY)
    assert text.startswith("\\# \\*Ann\\* \\[x](http://e.org) \\<@1>\n1\\. a\\_b\n`` rm `x` ")
    assert text.count("```") == 2 and "``y``" not in text
    long = own_text("*" * 1_990)
    await stage.send(id="dlv_2", part=DeliveryPart(index=0, text=long.text, spans=long.spans))
    assert stage.fake.texts(FAMILY)[1] == "*" * 1_990


@requirement("channels:1")
async def test_a_thread_is_begun_once_under_a_message(stage: Stage) -> None:
    message = stage.fake.write("look into this", channel=FAMILY)["id"]
    title, inbound = "a title\nthat is " + "long " * 40, f"1:{FAMILY}:{message}"
    assert await stage.channel.open_thread(place(), inbound, title) == message
    assert await stage.channel.open_thread(place(), inbound, "another") == message
    assert stage.fake.channels[message]["parent_id"] == FAMILY and len(stage.fake.channels[message]["name"]) <= 100
    with pytest.raises(DeliveryFailed) as caught:
        await stage.channel.open_thread(place(), f"1:{FAMILY}:5", "none")
    assert caught.value.is_permanent


@requirement("channels:1")
async def test_a_thread_without_a_message_of_the_channel_has_one_that_says_its_title(stage: Stage) -> None:
    inside = stage.fake.add_thread("plans")
    written = stage.fake.write("look into this", channel=inside)["id"]
    for message in (None, f"1:{inside}:{written}"):
        first = await stage.channel.open_thread(place(thread=inside), message, "*scout*")
        again = await stage.channel.open_thread(place(thread=inside), message, "*scout*")
        assert (again == first) is (message is not None), "without a message, each is another"
        assert stage.fake.messages[FAMILY][first]["content"] == "\\*scout\\*"
        assert stage.fake.channels[first]["name"] == "*scout*"


@requirement("channels:1")
@pytest.mark.parametrize(
    ("refusal", "thread", "code"),
    [
        ((404, 10003, "Unknown Channel"), None, GONE),
        ((404, 10003, "Unknown Channel"), "7", THREAD_GONE),
        ((400, 160005, "Thread is locked"), "7", THREAD_GONE),
        ((400, 50083, "Thread is archived"), "7", THREAD_GONE),
        ((403, 50001, "Missing Access"), None, GONE),
        ((403, 50013, "Missing Permissions"), None, GONE),
        ((403, 50001, "Missing Access"), "7", GONE),
        ((400, 50035, "Invalid Form Body"), None, "channel_refused"),
    ],
)
async def test_refusals_are_for_good_and_say_what_is_gone(
    stage: Stage, refusal: tuple[int, int, str], thread: str | None, code: str
) -> None:
    stage.fake.add_thread("plans", id="7")
    await stage.send(id="dlv_0")
    stage.fake.refuses[thread or FAMILY] = refusal
    failed = await stage.fails(thread=thread)
    assert (failed.code, failed.is_permanent) == (code, True)


@pytest.mark.parametrize("to", ["", "ann", "1 2", "-5", "12345"])
async def test_names_that_no_place_has_are_refused(stage: Stage, to: str) -> None:
    failed = await stage.fails(to=to)
    assert failed.is_permanent and failed.code in ("channel_refused", GONE)


@pytest.mark.parametrize("thread", ["x", "1/../2"])
async def test_names_that_no_thread_has_are_refused(stage: Stage, thread: str) -> None:
    assert (await stage.fails(thread=thread)).code == "channel_refused"
    assert not stage.fake.asked("create")


@requirement("channels:1")
async def test_a_person_who_takes_no_texts_is_gone(stage: Stage) -> None:
    stage.fake.blocked.add(ANN["id"])
    failed = await stage.fails(to=ANN["id"])
    assert (failed.code, failed.is_permanent) == (GONE, True)


@requirement("channels:1")
async def test_the_budget_of_a_channel_is_kept_by_all_who_send_and_edit(stage: Stage) -> None:
    """Discord refuses nothing, and an answer comes at once: nobody waits after the message that used the budget up."""
    stage.fake.limits["create"] = (2, 0.6)
    began = time.monotonic()
    first = await stage.send(id="dlv_0")
    await stage.send(id="dlv_1")
    assert time.monotonic() - began < 0.5 and first is not None
    async with anyio.create_task_group() as tasks:
        for number in range(2, 7):
            tasks.start_soon(lambda number=number: stage.send(id=f"dlv_{number}"))
    assert len(stage.fake.texts(FAMILY)) == 7 and time.monotonic() - began > 1
    assert len(stage.fake.asked("create")) == 7, "each was asked for once"
    await stage.send(id="dlv_9", to=OTHER)


@requirement("channels:1")
async def test_a_long_pause_is_the_deliverers(stage: Stage) -> None:
    stage.fake.limits["create"] = (1, 600.0)
    await stage.send(id="dlv_0")
    failed = await stage.fails(id="dlv_1")
    assert failed.code == BUSY and failed.retry_after is not None
    assert timedelta(seconds=500) < failed.retry_after <= timedelta(seconds=601)
    assert len(stage.fake.asked("create")) == 1


@requirement("channels:1")
async def test_a_global_limit_holds_for_all_and_ends_for_all(stage: Stage) -> None:
    """Also if the request that waited for its end is cancelled: the library would wait for it forever."""
    await stage.send(id="dlv_0")
    stage.fake.limited_until = time.monotonic() + 0.8
    with anyio.move_on_after(0.2):
        await stage.send(id="dlv_1")
    stage.fake.limited_until = 0
    with anyio.fail_after(5):
        await stage.send(id="dlv_2", to=OTHER)
    assert stage.fake.texts(OTHER) == ["x"]


async def test_requests_beside_one_that_hangs_go_on(stage: Stage) -> None:
    await stage.send(id="dlv_0")
    stage.fake.will("create", Fault.HANG)
    task = asyncio.ensure_future(stage.send(id="dlv_1"))
    await stage.fake.until(lambda: len(stage.fake.asked("create")) == 2)
    with anyio.fail_after(5):
        await stage.send(id="dlv_2", to=OTHER)
        await stage.channel.typing(place())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with anyio.fail_after(5):
        await stage.send(id="dlv_1")


@pytest.mark.parametrize(
    ("body", "status", "is_permanent"),
    [
        ("{", 200, False), ('"x"', 200, False), ("[]", 200, False), ('{"id": 5}', 200, False), ("[" * 999, 200, False),
        ("<html>", 429, False), ('{"retry_after": "x"}', 429, False), ("{}", 418, True),
    ],
)  # fmt: skip
async def test_answers_that_make_no_sense_are_failures(
    stage: Stage, body: str, status: int, *, is_permanent: bool
) -> None:
    await stage.send(id="dlv_0")
    stage.fake.will_answer("create", body, status=status, Via="1.1 google")
    assert (await stage.fails()).is_permanent is is_permanent
    assert await stage.send() is not None


async def test_a_revoked_token_is_no_fault_of_the_text(stage: Stage) -> None:
    token, stage.fake.token = stage.fake.token, "another"
    failed = await stage.fails()
    assert not failed.is_permanent and "token" in failed.message
    stage.fake.token = token
    assert await stage.send() is not None
    stage.fake.token = "another"
    assert not (await stage.fails(id="dlv_2")).is_permanent


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "http://localhost:1/x", "file:///etc/passwd", "x", ""])
async def test_a_file_is_fetched_only_from_discord(fake: FakeDiscord, url: str) -> None:
    client = DiscordClient(DiscordSettings(account="default", token=fake.token, api_base=fake.base_url))
    try:
        with anyio.fail_after(5), pytest.raises(UnreadableAnswer):
            await client.download(url, 100)
        fake.files["big"] = bytes(101)
        with pytest.raises(FileTooLarge):
            await client.download(f"{fake.base_url.removesuffix('/api/v10')}/files/big", 100)
    finally:
        await client.aclose()


@requirement("channels:1")
async def test_no_log_holds_the_token_or_a_text(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stage.fake.limited_until = time.monotonic() + 0.2
    await stage.send("of a secret kind")
    stage.fake.token = "another"
    await stage.fails(text="of a secret kind")
    said = "\n".join(record.getMessage() for record in caplog.records if record.name != "httpx")
    assert "secret kind" not in said and "Gabcde" not in said
