"""The adapter with the real client library against the fake: what is sent, streamed, edited, looked for and refused."""

import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from antiphon.channels.slack.channel import SlackChannel
from antiphon.channels.slack.client import SlackClient
from antiphon.channels.slack.section import SlackAccount
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import Button, DeliveryPart
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.session import DeliveryContext
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from tests.channels.slack.fake_slack import BOT, HOME, TOKEN, FakeSlack
from tests.channels.slack.slack_platform import CHANNEL, settings_of
from tests.claims import requirement
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio

ANN = f"{HOME}.U7ANN"


@dataclass(frozen=True, slots=True)
class Stage:
    fake: FakeSlack
    channel: SlackChannel
    clock: ManualClock

    async def send(
        self,
        text: str,
        *,
        to: str = CHANNEL,
        thread: str | None = None,
        id: str = "dlv_1",
        attempts: int = 1,
        **more: Any,
    ) -> str:
        place = DeliveryContext(channel="slack", account_id="default", to=to, thread_id=thread)
        delivery = Delivery(
            id=id,
            session=None,
            session_key=None,
            session_id=None,
            run_id=None,
            place=place,
            text=text,
            made_of=PUBLIC,
            status=DeliveryStatus.CLAIMED,
            attempts=attempts,
            due_at=datetime.now(UTC),
            created_at=more.pop("created_at", None) or datetime.now(UTC),
        )
        index: int = more.pop("index", 0)
        part = DeliveryPart(index=index, text=text, **more)
        sent = await self.channel.send(delivery, part)
        assert sent is not None or part.file is not None
        return sent or ""

    async def fails(self, text: str = "x", **more: Any) -> DeliveryFailed:
        with pytest.raises(DeliveryFailed) as caught:
            await self.send(text, **more)
        return caught.value

    def methods(self) -> list[str]:
        return [method for method, _ in self.fake.requests]


def channel_of(fake: FakeSlack, clock: ManualClock) -> SlackChannel:
    client = SlackClient(SlackAccount.model_validate(settings_of(fake)), clock)
    return SlackChannel(client, "default", 500)


@pytest.fixture
async def stage(fake: FakeSlack) -> AsyncGenerator[Stage]:
    clock = ManualClock()
    channel = channel_of(fake, clock)
    yield Stage(fake, channel, clock)
    await channel.aclose()


@pytest.fixture
def root(fake: FakeSlack) -> str:
    """A message at the top of the channel."""
    return fake.write("U7ANN", f"<@{BOT}> hello", channel=CHANNEL)


@requirement("channels:1")
async def test_a_text_for_a_person_goes_to_their_direct_chat(stage: Stage) -> None:
    await stage.send("hello", to=ANN)
    await stage.send("again", to=ANN, id="dlv_2")
    assert stage.fake.texts("DU7ANN") == ["hello", "again"]
    assert stage.methods().count("conversations.open") == 1
    sent = dict(stage.fake.requests)["chat.postMessage"]
    assert (sent["unfurl_links"], sent["unfurl_media"]) == ("false", "false")


@requirement("channels:1")
async def test_a_growing_text_in_a_thread_is_streamed_to_who_asked_and_ends_as_one_message(
    stage: Stage, root: str
) -> None:
    growing: dict[str, Any] = {"thread": root, "is_growing": True, "asker": ANN}
    ts = await stage.send("One", **growing)
    await stage.send("One two", replaces=ts, **growing)
    await stage.send("One two", replaces=ts, **growing)
    await stage.send("One two, and three.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two, and three."]
    asked = [each for each in stage.methods() if each.startswith("chat.")]
    assert asked == ["chat.startStream", "chat.appendStream", "chat.stopStream"]
    started = dict(stage.fake.requests)["chat.startStream"]
    assert (started["recipient_user_id"], started["recipient_team_id"]) == ("U7ANN", HOME)
    assert not stage.fake.own(CHANNEL, root)[0]["is_streamed"]


@requirement("channels:1")
async def test_a_growing_text_elsewhere_is_edited(stage: Stage) -> None:
    ts = await stage.send("One", to=ANN, is_growing=True)
    await stage.send("One two", to=ANN, is_growing=True, replaces=ts)
    await stage.send("One two.", to=ANN, replaces=ts)
    assert stage.fake.texts("DU7ANN") == ["One two."]
    assert [each for each in stage.methods() if "tream" in each] == []


@requirement("channels:1")
async def test_without_a_known_asker_a_growing_text_is_edited_in_a_thread_too(stage: Stage, root: str) -> None:
    ts = await stage.send("One", thread=root, is_growing=True)
    await stage.send("One two.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two."]
    assert "chat.startStream" not in stage.methods()


@requirement("channels:1")
async def test_a_reply_that_goes_another_way_than_it_began_replaces_its_beginning(stage: Stage, root: str) -> None:
    ts = await stage.send("Well", thread=root, is_growing=True, asker=ANN)
    await stage.send("On the other hand", thread=root, replaces=ts, is_growing=True, asker=ANN)
    await stage.send("On the other hand.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["On the other hand."]


@requirement("channels:1", "runs:8")
async def test_another_process_completes_a_stream_that_was_left_open(stage: Stage, root: str) -> None:
    ts = await stage.send("One", thread=root, is_growing=True, asker=ANN)
    after = Stage(stage.fake, channel_of(stage.fake, stage.clock), stage.clock)
    try:
        await after.send("One two", thread=root, replaces=ts, is_growing=True, asker=ANN)
        await after.send("One two three.", thread=root, replaces=ts)
    finally:
        await after.channel.aclose()
    assert stage.fake.texts(CHANNEL, root) == ["One two three."]


@requirement("channels:1")
@pytest.mark.parametrize("error", ["message_not_in_streaming_state", "stopped_by_user"])
async def test_a_stream_that_ended_by_itself_is_completed_by_an_edit(stage: Stage, root: str, error: str) -> None:
    ts = await stage.send("One", thread=root, is_growing=True, asker=ANN)
    stage.fake.own(CHANNEL, root)[0]["is_streamed"] = False
    stage.fake.refuse("chat.appendStream", error)
    await stage.send("One two", thread=root, replaces=ts, is_growing=True, asker=ANN)
    await stage.send("One two.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two."]


@requirement("channels:1")
@pytest.mark.parametrize("fault", [Fault.DROP, Fault.ACT_AND_DROP, Fault.WRONG_JSON, Fault.BAD_GATEWAY])
async def test_words_whose_answer_was_lost_are_not_shown_twice(stage: Stage, root: str, fault: Fault) -> None:
    growing: dict[str, Any] = {"thread": root, "is_growing": True, "asker": ANN}
    ts = await stage.send("One", **growing)
    stage.fake.will("chat.appendStream", fault)
    failed = await stage.fails("One two", replaces=ts, **growing)
    assert not failed.is_permanent
    await stage.send("One two three", replaces=ts, **growing)
    stage.fake.will("chat.update", fault)
    await stage.fails("One two three.", thread=root, replaces=ts)
    await stage.send("One two three.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two three."]


@requirement("channels:1")
async def test_words_that_are_given_up_on_the_way_are_not_shown_twice(stage: Stage, root: str) -> None:
    growing: dict[str, Any] = {"thread": root, "is_growing": True, "asker": ANN}
    ts = await stage.send("One", **growing)
    stage.fake.will("chat.appendStream", Fault.ACT_AND_HANG)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: stage.send("One two", replaces=ts, **growing))
        await stage.fake.until(lambda: stage.fake.texts(CHANNEL, root) == ["One two"])
        tasks.cancel_scope.cancel()
    await stage.send("One two three.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two three."]


@requirement("channels:1")
async def test_an_end_whose_answer_was_lost_is_made_up_for(stage: Stage, root: str) -> None:
    ts = await stage.send("One", thread=root, is_growing=True, asker=ANN)
    stage.fake.will("chat.stopStream", Fault.ACT_AND_DROP)
    await stage.fails("One two.", thread=root, replaces=ts)
    await stage.send("One two.", thread=root, replaces=ts)
    assert stage.fake.texts(CHANNEL, root) == ["One two."]


@requirement("channels:1")
async def test_a_text_that_slack_took_without_saying_so_is_found_and_not_sent_again(stage: Stage, root: str) -> None:
    for thread in (None, root):
        stage.fake.will("chat.postMessage", Fault.ACT_AND_DROP)
        await stage.fails("hello", thread=thread, id=f"dlv_{thread}")
        await stage.send("hello", thread=thread, id=f"dlv_{thread}", attempts=2)
        assert stage.fake.texts(CHANNEL, thread) == ["hello"]
    again = Stage(stage.fake, channel_of(stage.fake, stage.clock), stage.clock)
    await again.send("hello", thread=root, id=f"dlv_{root}", attempts=3)
    await again.send("hello", thread=root, id="dlv_other", attempts=2)
    await again.channel.aclose()
    assert stage.fake.texts(CHANNEL, root) == ["hello", "hello"]


@requirement("channels:1")
async def test_a_stream_whose_beginning_was_not_answered_becomes_the_reply(stage: Stage, root: str) -> None:
    stage.fake.will("chat.startStream", Fault.ACT_AND_DROP)
    await stage.fails("One **two**", thread=root, is_growing=True, asker=ANN)
    await stage.send("One **two** three.", thread=root, attempts=2)
    assert stage.fake.texts(CHANNEL, root) == ["One two three."]


@requirement("channels:1")
async def test_one_budget_of_the_account_holds_for_messages_and_their_changes(stage: Stage) -> None:
    ts = await stage.send("hello")
    stage.fake.retry_after = "7"
    stage.fake.will("chat.postMessage", Fault.BUSY)
    busy = await stage.fails("again", id="dlv_2")
    assert (busy.code, busy.retry_after, busy.is_permanent) == ("channel_busy", timedelta(seconds=7), False)
    before = len(stage.fake.requests)
    waits = await stage.fails("changed", replaces=ts)
    other = await stage.fails("elsewhere", to="C0OTHER", id="dlv_3")
    assert waits.code == other.code == "channel_busy" and len(stage.fake.requests) == before
    stage.clock.pass_time(timedelta(seconds=8))
    await stage.send("changed", replaces=ts)
    assert stage.fake.texts(CHANNEL) == ["changed"]


@requirement("channels:1")
@pytest.mark.parametrize(("said", "seconds"), [(None, 30), ("soon", 30), ("-3", 30), ("9" * 30, 30), ("99999", 3600)])
async def test_an_absurd_wish_to_wait_becomes_a_usual_one(stage: Stage, said: str | None, seconds: int) -> None:
    stage.fake.retry_after = said
    stage.fake.will("chat.postMessage", Fault.BUSY)
    assert (await stage.fails()).retry_after == timedelta(seconds=seconds)


@requirement("channels:1")
@pytest.mark.parametrize(
    ("error", "code", "is_permanent"),
    [
        ("channel_not_found", "channel_gone", True),
        ("not_in_channel", "channel_gone", True),
        ("is_archived", "channel_gone", True),
        ("thread_not_found", "channel_thread_gone", True),
        ("msg_too_long", "channel_refused", True),
        ("some_new_error", "channel_refused", True),
        ("internal_error", "channel_failed", False),
        ("invalid_auth", "channel_failed", False),
        ("token_revoked", "channel_failed", False),
        ("missing_scope", "channel_failed", False),
        ("ratelimited", "channel_busy", False),
    ],
)
async def test_each_refusal_has_a_meaning(stage: Stage, error: str, code: str, is_permanent: bool) -> None:
    stage.fake.refuse("chat.postMessage", error, needed="chat:write")
    failed = await stage.fails()
    assert (failed.code, failed.is_permanent) == (code, is_permanent)
    assert error != "missing_scope" or "chat:write" in failed.message


@requirement("channels:1")
async def test_a_text_that_hangs_is_given_up_and_found_again(stage: Stage) -> None:
    stage.fake.will("chat.postMessage", Fault.ACT_AND_HANG)
    with anyio.move_on_after(0.5) as scope:
        await stage.send("hello")
    assert scope.cancelled_caught
    await stage.send("hello", attempts=2)
    assert stage.fake.texts(CHANNEL) == ["hello"]


@requirement("channels:1")
async def test_words_of_a_model_call_nobody_together(stage: Stage, root: str) -> None:
    said = "<!channel> @here <@U8BEN> @everyone & <#C1>"
    await stage.send(said)
    ts = await stage.send("Now: <", thread=root, is_growing=True, asker=ANN)
    for grown in ("Now: <!chan", "Now: <!channel> @", "Now: <!channel> @her"):
        await stage.send(grown, thread=root, replaces=ts, is_growing=True, asker=ANN)
    streamed = stage.fake.own(CHANNEL, root)[0]
    await stage.send(f"Now: {said}", thread=root, replaces=ts)
    assert not any(each in streamed["text"] for each in ("<!", "<@", "<#", "@here", "@everyone"))
    for method, sent in stage.fake.requests:
        if method.startswith("chat."):
            words = sent.get("text", "") + sent.get("markdown_text", "")
            assert not any(each in words for each in ("<!", "<@", "<#", "@here", "@everyone", "@channel")), method
    assert stage.fake.texts(CHANNEL, None)[:1] == [said]


@requirement("channels:1")
async def test_a_withdrawn_message_is_deleted_also_while_it_is_streamed(stage: Stage, root: str) -> None:
    place = DeliveryContext(channel="slack", account_id="default", to=CHANNEL, thread_id=root)
    ts = await stage.send("One", thread=root, is_growing=True, asker=ANN)
    await stage.channel.withdraw(place, ts)
    await stage.channel.withdraw(place, ts)
    assert stage.fake.texts(CHANNEL, root) == []


@requirement("spawn:4")
async def test_a_thread_begins_under_the_message_that_is_answered_or_under_a_title(stage: Stage, root: str) -> None:
    place = DeliveryContext(channel="slack", account_id="default", to=CHANNEL)
    before = stage.fake.texts(CHANNEL, None)
    inside = replace(place, thread_id=root)
    others = [
        await stage.channel.open_thread(where, id, "<!channel> scout")
        for where, id in ((inside, "C1:1.2"), (place, None))
    ]
    assert len({root, *others}) == 3
    assert stage.fake.texts(CHANNEL, None)[len(before) :] == ["<!channel> scout"] * 2


@requirement("spawn:4")
async def test_a_thread_stands_under_its_message_or_beside_the_thread_of_that(stage: Stage, root: str) -> None:
    channel = DeliveryContext(channel="slack", account_id="default", to=CHANNEL)
    thread = DeliveryContext(channel="slack", account_id="default", to=CHANNEL, thread_id=root)
    direct = DeliveryContext(channel="slack", account_id="default", to=ANN)
    opened = stage.channel.open_thread
    assert await opened(channel, f"{CHANNEL}:{root}", "Plans") == root
    assert await opened(direct, "DU7ANN:1767224888.280449", "Plans") == "1767224888.280449"
    for place, message in ((thread, f"{CHANNEL}:{root}"), (channel, None), (channel, "command:trigger1")):
        new = await opened(place, message, "Plans <!here>")
        assert new != root and stage.fake.own(CHANNEL)[-1]["ts"] == new
    again = await opened(thread, f"{CHANNEL}:{root}", "Plans <!here>")
    assert stage.fake.texts(CHANNEL) == ["Plans <!here>"] * 3 and again == stage.fake.own(CHANNEL)[0]["ts"]


@requirement("approvals:4")
async def test_buttons_stand_below_and_go_with_the_answer(stage: Stage) -> None:
    buttons = (Button(label="Approve", data="apr_1:approve"), Button(label="x" * 99, data="apr_1:deny"))
    ts = await stage.send("May I?", to=ANN, spans=(), buttons=buttons)
    assert stage.fake.press("U7ANN", "DU7ANN", ts, "Approve")
    await stage.send("Approved.", to=ANN, spans=(), replaces=ts)
    assert not stage.fake.press("U7ANN", "DU7ANN", ts, "Approve")


@requirement("channels:1")
async def test_no_log_holds_the_token_or_a_text(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stage.fake.refuse("chat.postMessage", "no_text")
    failed = await stage.fails("a private word")
    assert "private" not in f"{failed!r} {failed.__cause__!r} {failed.__context__!r}"
    await stage.send("a private word")
    assert TOKEN not in caplog.text and "a private word" not in caplog.text


@requirement("channels:1")
async def test_an_answer_of_a_proxy_is_no_answer(stage: Stage) -> None:
    for fault, code in ((Fault.BAD_GATEWAY, "channel_unreachable"), (Fault.WRONG_JSON, "channel_failed")):
        stage.fake.will("chat.postMessage", fault)
        failed = await stage.fails(id=fault)
        assert (failed.code, failed.is_permanent) == (code, False)


def plan_of(data: bytes, name: str = "große Tüte.txt") -> Attachment:
    return Attachment(name=name, data=data, sha256="")


@requirement("channels:1")
@pytest.mark.parametrize("is_in_thread", [False, True])
async def test_a_file_that_is_sent_again_is_seen_once(stage: Stage, is_in_thread: bool) -> None:
    """It is looked for by its name and size, and no earlier file is taken for it."""
    fake, file = stage.fake, plan_of(b"a plan")
    thread = fake.write("U7ANN", "hello", channel=CHANNEL) if is_in_thread else None
    await stage.send("", file=file, thread=thread, id="dlv_0")
    created_at = stage.clock.now() + timedelta(seconds=2)  # of this machine's clock, which is off
    fake.now = lambda: time.time() + 3
    again: dict[str, Any] = {"file": file, "thread": thread, "created_at": created_at}
    fake.will("files.completeUploadExternal", Fault.DROP, Fault.ACT_AND_DROP)
    for attempts in (1, 2):
        failed = await stage.fails("", attempts=attempts, **again)
        assert failed.code == "channel_unreachable" and not failed.is_permanent
    for attempts in (3, 4):
        await stage.send("", attempts=attempts, **again)
    again["file"] = plan_of(b"another")
    await stage.send("", attempts=2, **again)
    wanted = [(file.name, b"a plan")] * 2 + [(file.name, b"another")]
    assert fake.sent_files(CHANNEL, thread) == wanted


async def test_what_slack_says_of_files_that_it_does_not_take(stage: Stage) -> None:
    stage.fake.scopes = "chat:write,files:read"
    lacking = await stage.fails("", file=plan_of(b"x"))
    assert "files:write" in lacking.message and not lacking.is_permanent
    stage.fake.scopes += ",files:write"
    for error in ("file_uploads_disabled", "file_upload_size_restricted"):
        stage.fake.refuse("files.getUploadURLExternal", error)
        refused = await stage.fails("", file=plan_of(b"x"))
        assert refused.is_permanent and refused.code == "channel_refused", "texts still go there"


async def test_a_file_goes_to_slack_alone(stage: Stage) -> None:
    async with serve_fake(FakeSlack()) as evil:
        stage.fake.upload_port = evil.port
        evil.uploads["F000001"] = {"id": "F000001", "name": "x", "size": 1}
        assert (await stage.fails("", file=plan_of(b"x"))).code == "channel_failed"
        assert not evil.files
