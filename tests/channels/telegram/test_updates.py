"""Telegram's updates in Antiphon's words."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.channels.files import LARGEST_FILE
from antiphon.channels.telegram.updates import Me, read_update
from antiphon.domain.inbound import ButtonPress, ChangeKind, ChatChange, FromChannel, Inbound
from antiphon.domain.keys import ChatType
from antiphon.domain.position import NumberedPosition
from antiphon.domain.session import DeliveryContext
from antiphon.testing.telegram import Json, group, person
from tests.claims import requirement

ME = Me(id=7001, username="test_bot")
ANN = person(7, "Ann")
FAMILY = group(-100, "Family")
BOT = {"id": 7001, "is_bot": True, "first_name": "Bot"}


def update(kind: str, content: Json, id: int = 5) -> Json:
    return {"update_id": id, kind: content}


def message(chat: Json | None = None, **more: Any) -> Json:
    there = chat or {"id": 7, "type": "private"}
    return update("message", {"message_id": 3, "date": 1_700_000_000, "chat": there, "from": ANN, **more})


def read(given: object) -> FromChannel:
    found = read_update(given, ME)
    assert found is not None
    return found


def inbound(given: object) -> Inbound:
    content = read(given)
    assert isinstance(content, Inbound)
    return content


@requirement("channels:1")
def test_a_message_of_a_direct_chat_names_its_chat_and_its_sender_by_numbers() -> None:
    found = inbound(message(text="hello"))
    assert found.place == DeliveryContext(channel="telegram", to="7", account_id="default")
    assert (found.sender.id, found.sender.name, found.text) == ("7", "Ann", "hello")
    assert (found.chat_type, found.is_meant, found.position) == (ChatType.DIRECT, True, NumberedPosition("5"))
    assert found.platform_id == "7001:7:3" and found.sent_at is not None


@requirement("groups:1")
@pytest.mark.parametrize(
    ("more", "is_meant"),
    [
        ({"text": "hello all"}, False),
        ({"text": "@test_bot hi", "entities": [{"type": "mention", "offset": 0, "length": 9}]}, True),
        ({"text": "@Test_Bot hi", "entities": [{"type": "mention", "offset": 0, "length": 9}]}, True),
        ({"text": "😀 @test_bot", "entities": [{"type": "mention", "offset": 3, "length": 9}]}, True),
        ({"text": "@test_bot hi", "entities": []}, False),
        ({"text": "@test_botty", "entities": [{"type": "mention", "offset": 0, "length": 11}]}, False),
        ({"text": "/status@test_bot", "entities": [{"type": "bot_command", "offset": 0, "length": 16}]}, True),
        ({"text": "/status@other_bot", "entities": [{"type": "bot_command", "offset": 0, "length": 17}]}, False),
        ({"text": "hey Bot", "entities": [{"type": "text_mention", "offset": 4, "length": 3, "user": BOT}]}, True),
        ({"text": "hey Ann", "entities": [{"type": "text_mention", "offset": 4, "length": 3, "user": ANN}]}, False),
        ({"text": "yes", "reply_to_message": {"message_id": 1, "from": BOT}}, True),
        ({"text": "yes", "reply_to_message": {"message_id": 1, "from": ANN}}, False),
        ({"text": "yes", "reply_to_message": {"from": BOT, "forum_topic_created": {"name": "x"}}}, False),
        ({"photo": [{"file_id": "a"}], "caption": "@test_bot", "caption_entities": []}, False),
        (
            {
                "photo": [{"file_id": "a"}],
                "caption": "@test_bot",
                "caption_entities": [{"type": "mention", "offset": 0, "length": 9}],
            },
            True,
        ),
        ({"text": "x", "entities": [{"type": "mention", "offset": -9, "length": 10**9}]}, False),
    ],
)
def test_a_message_of_a_group_is_meant_if_it_names_answers_or_commands_the_bot(more: Json, is_meant: bool) -> None:
    found = inbound(message(FAMILY, **more))
    assert (found.chat_type, found.title, found.is_meant) == (ChatType.GROUP, "Family", is_meant)


def test_a_topic_is_a_thread_and_an_answer_outside_topics_is_not() -> None:
    topic = inbound(message(FAMILY, text="x", message_thread_id=9, is_topic_message=True))
    assert topic.place.thread_id == "9"
    assert inbound(message(FAMILY, text="x", message_thread_id=9)).place.thread_id is None


@pytest.mark.parametrize(
    "given",
    [
        {"update_id": 1},
        {"update_id": 1, "something_new": {"a": 1}},
        update("edited_message", {"message_id": 1, "chat": FAMILY, "from": ANN, "text": "x"}),
        update("message_reaction", {"chat": FAMILY, "user": ANN}),
        update("channel_post", {"message_id": 1, "chat": {"id": -5, "type": "channel"}, "text": "x"}),
        message({"id": -5, "type": "channel"}, text="x"),
        message(FAMILY, text="x", **{"from": {**ANN, "is_bot": True}}),
        message(FAMILY, text="x", sender_chat=FAMILY),
        message(FAMILY, new_chat_members=[BOT]),
        message(FAMILY, pinned_message={"message_id": 1}),
        update("callback_query", {"id": "1", "from": ANN, "data": "a:once", "inline_message_id": "x"}),
        update("callback_query", {"id": "1", "from": ANN, "data": "a", "message": {"chat": FAMILY, "from": ANN}}),
        update("callback_query", {"id": "1", "from": ANN, "data": "ä", "message": {"chat": FAMILY, "from": BOT}}),
        update("callback_query", {"id": "1", "from": ANN, "data": "a" * 65, "message": {"chat": FAMILY, "from": BOT}}),
    ],
)
def test_what_is_no_message_of_a_person_is_passed_over(given: Json) -> None:
    assert read_update(given, ME) is None


def test_a_press_names_the_chat_of_its_message() -> None:
    pressed = update(
        "callback_query", {"id": "77", "from": ANN, "data": "a:once", "message": {"chat": FAMILY, "from": BOT}}
    )
    content = read(pressed)
    assert isinstance(content, ButtonPress)
    assert (content.platform_id, content.place.to, content.data, content.sender.id) == (
        "press:77",
        "-100",
        "a:once",
        "7",
    )


@requirement("flow:2", "groups:1")
def test_people_join_and_leave_groups() -> None:
    """Other bots read nothing of this one, and a direct chat has no members."""
    joined = read(message(FAMILY, new_chat_members=[ANN, BOT, person(8, "Ben")]))
    parted = read(message(FAMILY, left_chat_member=ANN))
    assert isinstance(joined, ChatChange) and isinstance(parted, ChatChange)
    assert (joined.kind, joined.people, joined.place.to) == (ChangeKind.JOINED, ("7", "8"), "-100")
    assert (parted.kind, parted.people) == (ChangeKind.PARTED, ("7",))
    assert read_update(message(FAMILY, new_chat_members=[BOT]), ME) is None
    assert read_update(message(new_chat_members=[ANN]), ME) is None


@pytest.mark.parametrize(
    ("chat", "was", "now", "kind"),
    [
        (FAMILY, "left", "member", ChangeKind.ADDED),
        (FAMILY, "kicked", "administrator", ChangeKind.ADDED),
        (FAMILY, "member", "administrator", None),
        (FAMILY, "member", "left", ChangeKind.LEFT),
        (FAMILY, "administrator", "kicked", ChangeKind.LEFT),
        ({"id": 7, "type": "private"}, "member", "kicked", ChangeKind.BLOCKED),
        ({"id": 7, "type": "private"}, "kicked", "member", None),
        ({"id": -5, "type": "channel"}, "left", "administrator", None),
    ],
)
def test_changes_of_the_bots_membership(chat: Json, was: str, now: str, kind: ChangeKind | None) -> None:
    change = {"chat": chat, "from": ANN, "old_chat_member": {"status": was}, "new_chat_member": {"status": now}}
    found = read_update(update("my_chat_member", change), ME)
    assert (None if found is None else getattr(found, "kind", None)) == kind


@pytest.mark.parametrize(
    "given",
    [
        message({"id": -5, "type": "group"}, migrate_to_chat_id=-1005),
        message(FAMILY | {"id": -1005}, migrate_from_chat_id=-5),
    ],
)
def test_a_group_that_becomes_a_supergroup_moves(given: Json) -> None:
    content = read(given)
    assert isinstance(content, ChatChange)
    assert (content.kind, content.place.to, content.moved_to) == (ChangeKind.MOVED, "-5", "-1005")


def test_names_and_texts_are_cleaned_of_half_characters_and_of_what_steers_the_screen() -> None:
    hostile = {**ANN, "first_name": "\u202eevil\x1b[2J]\ud83d", "last_name": "\u2066\u3164"}
    found = inbound(message(text="a\ud83db \ud83d\ude00", **{"from": hostile}))
    assert found.sender.name == "evil(2J)\ufffd" and found.text == "a\ufffdb 😀"
    assert inbound(message(text="x", **{"from": {"id": 7, "first_name": "\u200b"}})).sender.name == "somebody"


def test_files_are_named_by_kind_and_too_large_ones_are_refused_plainly() -> None:
    sizes = [
        {"file_id": "s", "file_size": 10},
        {"file_id": "m", "file_size": 20},
        {"file_id": "l", "file_size": 6 * 2**20},
    ]
    (photo,) = inbound(message(photo=sizes)).unfetched
    assert (photo.file_id, photo.kind, photo.name) == ("m", "photo", "photo.jpg")
    document = {"file_id": "d", "file_name": "a/../b.pdf", "file_size": 5}
    (file,) = inbound(message(document=document, caption="look")).unfetched
    assert (file.file_id, file.kind, file.name, file.size) == ("d", "document", "a_.._b.pdf", 5)
    assert inbound(message(document=document, caption="look")).text == "look"
    (voice,) = inbound(message(voice={"file_id": "v"})).unfetched
    assert (voice.name, voice.size) == ("voice.ogg", LARGEST_FILE)
    large = inbound(message(document={"file_id": "d", "file_name": "big.iso", "file_size": 21 * 2**20}))
    assert large.refused == ("The file 'big.iso' is larger than 20 MiB and was not taken in.",)
    assert "sticker cannot be taken in" in inbound(message(sticker={"file_id": "x"})).refused[0]
    assert inbound(message(FAMILY, sticker={"file_id": "x"})).refused == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "message_id",
    "chat",
    "from",
    "text",
    "entities",
    "photo",
    "document",
    "reply_to_message",
    "date",
    "sender_chat",
)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values), json_values)
def test_no_update_brings_anything_down(fields: Json, whole: Any) -> None:
    for each in (message(**fields), update("callback_query", fields), update("my_chat_member", fields), whole):
        with suppress(msgspec.ValidationError):
            read_update(each, ME)
