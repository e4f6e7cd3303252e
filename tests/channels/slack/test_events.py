"""Slack's events in Antiphon's words: recorded ones, and such as nobody should send."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.channels.slack.events import (
    EventSurroundings,
    KnownUser,
    SlackBot,
    SlackPosition,
    change_of,
    command_of,
    inbound_of,
    press_of,
    read_event,
    read_payload,
)
from antiphon.channels.slack.section import ReplyPlace
from antiphon.domain.inbound import ChangeKind, ChatChange, Inbound
from antiphon.domain.keys import ChatType
from antiphon.domain.message import AttributionKind, Whose
from tests.claims import requirement

RECORDED = Path(__file__).parent / "recorded"
BOT = SlackBot(user_id="U00FAKEBOT01", user="antiphon", team_id="T00FAKE00AA")
ANN = KnownUser(name="Ann", team="T00FAKE00AA", language="de-DE")
AROUND = EventSurroundings(me=BOT, account="default", users={"U00FAKEUSER1": ANN}, title="general")


def recorded(file: str, name: str) -> Any:
    return json.loads((RECORDED / f"{file}.json").read_text("utf-8"))[name]


def event_of(text: str | None = "hello", **more: Any) -> dict[str, Any]:
    event = {"type": "message", "user": "U1", "text": text, "ts": "1767224888.280449", "channel": "C1"}
    return {**event, "channel_type": "channel", "team": "T00FAKE00AA", **more}


def read(event: Any, around: EventSurroundings = AROUND) -> Inbound | None:
    return inbound_of(read_event(event), around)


def inbound(event: Any, around: EventSurroundings = AROUND) -> Inbound:
    found = read(event, around)
    assert found is not None
    return found


@requirement("channels:1", "keys:7")
def test_a_recorded_mention_begins_a_thread_that_its_answers_stand_in() -> None:
    mention = inbound(recorded("slack", "mention")["event"])
    later = inbound(recorded("slack", "followUp")["event"])
    assert (mention.place.to, mention.place.thread_id) == ("C00FAKECHAN1", "1767224888.280449")
    assert mention.place == later.place and mention.platform_id != later.platform_id
    assert (mention.is_meant, later.is_meant) == (True, False)
    assert (mention.text, mention.title, mention.chat_type) == ("@antiphon Hey", "general", ChatType.CHANNEL)
    assert (mention.sender.id, mention.sender.name, mention.sender.language) == (
        "T00FAKE00AA.U00FAKEUSER1",
        "Ann",
        "de-DE",
    )


@requirement("channels:1")
def test_both_events_of_a_mention_are_one_message() -> None:
    message = event_of(f"<@{BOT.user_id}> hi")
    one, two = inbound(message), inbound({**message, "type": "app_mention", "client_msg_id": "x", "channel_type": ""})
    assert (one.platform_id, one.place, one.position) == (two.platform_id, two.place, two.position)


@requirement("channels:1")
def test_with_replies_in_the_channel_a_mention_is_answered_beside_it() -> None:
    beside = replace(AROUND, replies=ReplyPlace.CHANNEL)
    found = inbound(event_of(f"<@{BOT.user_id}> hi"), beside)
    assert (found.place.thread_id, found.position) == (None, SlackPosition("1767224888.280449", "C1"))


@requirement("channels:1")
def test_a_recorded_direct_message_is_of_the_person_whose_chat_it_is() -> None:
    around = replace(AROUND, me=SlackBot(user_id="U0ADXR1N57A", team_id="T0ADGE2G4EM"))
    found = inbound(recorded("dm_slack-direct", "directDM")["event"], around)
    assert (found.chat_type, found.place.to, found.place.thread_id) == (ChatType.DIRECT, found.sender.id, None)
    assert (found.sender.id, found.is_meant, found.title) == ("T0ADGE2G4EM.U0ADXQT6CRW", True, None)
    assert found.position == SlackPosition("1771442483.260129", "D0ACX51K95H")


@requirement("access:3")
def test_people_of_an_enterprise_have_its_id_and_strangers_of_shared_channels_their_own() -> None:
    payload = recorded("slack-multi-workspace_team1", "mention")
    bot = SlackBot(user_id="U0A9G5N5URZ", team_id="T0A8YAUUGMU", enterprise_id="E0A9D9SMZ0R")
    around = replace(AROUND, me=bot)
    assert inbound(payload["event"], around).sender.id == "E0A9D9SMZ0R.U0A8WUV28QM"
    foreign = event_of(user_team="T0OTHER", team="T0OTHER")
    assert inbound(foreign).sender.id == "T0OTHER.U1"
    sister = replace(around, users={"U1": KnownUser(name="Sis", team="T0OTHER", enterprise="E0A9D9SMZ0R")})
    assert inbound(foreign, sister).sender.id == "E0A9D9SMZ0R.U1"
    unnamed = replace(AROUND, users={"U1": KnownUser(name="Fay", team="T0OTHER")})
    assert inbound(event_of(team=None), unnamed).sender.id == "T0OTHER.U1"


@requirement("channels:1", "groups:1")
@pytest.mark.parametrize(
    "event",
    [
        event_of(bot_id="B1"),
        event_of(bot_id="B1", subtype="bot_message", user=""),
        event_of(user=BOT.user_id),
        event_of(user="USLACKBOT"),
        event_of(user=""),
        event_of(subtype="message_changed", message={"text": "hello"}),
        event_of(subtype="message_deleted", hidden=True),
        event_of(subtype="channel_join"),
        event_of(hidden=True),
        event_of(text=""),
        event_of(text=None),
        event_of(ts="99999999999999.1"),
        event_of(ts="now"),
        event_of(channel=""),
        {"type": "message"},
    ],
)
def test_what_no_person_wrote_is_nothing(event: Any) -> None:
    assert read(event) is None


@requirement("channels:1")
def test_a_program_with_an_account_is_no_person() -> None:
    assert read(event_of(), replace(AROUND, users={"U1": KnownUser(name="Otto", is_bot=True)})) is None


@requirement("channels:1")
@pytest.mark.parametrize("event", [None, [], "x", {"type": 7}, event_of(files={}), event_of(channel=["C"])])
def test_what_cannot_be_read_is_refused_as_such(event: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_event(event)


@requirement("channels:4", "channels:1")
def test_a_command_in_a_thread_begins_with_a_mention() -> None:
    found = inbound(event_of(f"<@{BOT.user_id}>  /stop", thread_ts="1767224000.000001"))
    assert (found.text, found.is_meant, found.place.thread_id) == ("/stop", True, "1767224000.000001")
    assert inbound(event_of("<@U2> /stop")).text == "@U2 /stop"


@requirement("channels:1")
def test_control_sequences_are_shown_as_people_see_them() -> None:
    users = {"U2": KnownUser(name="Ben")}
    text = "<@U2> &lt;b&gt; <#C2|plans> <!here> <!subteam^S1|@ops> <https://e.example/a|here> <https://e.example>"
    found = inbound(event_of(text), replace(AROUND, users=users))
    assert found.text == "@Ben <b> #plans @here @ops here (https://e.example/a) https://e.example"


@requirement("groups:5")
def test_a_message_that_is_passed_on_holds_anothers_words() -> None:
    share = {"is_share": True, "text": "/stop &amp; go", "author_name": "Eve"}
    passed = inbound(event_of("", attachments=[share]))
    assert (passed.text, passed.attribution and passed.attribution.kind) == ("/stop & go", AttributionKind.FORWARD)
    odd: list[Any] = [{"is_share": 7, "text": None, "author_name": 3}, {"title": "a preview"}]
    quoted = inbound(event_of("look", attachments=[share, *odd]))
    (cited,) = quoted.cites
    assert (quoted.text, cited.citation.whose, cited.citation.text) == ("look", Whose.OTHER, "/stop & go")


@requirement("channels:1")
def test_files_are_fetched_later_unless_they_lie_elsewhere_or_are_too_large() -> None:
    files = [
        {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 30},
        {"id": "F2", "name": "b.zip", "mimetype": "application/zip", "size": 10**12},
        {"id": "F3", "name": "c.doc", "mimetype": "x", "is_external": True},
        {"id": "F4", "mode": "tombstone", "name": None},
    ]
    found = inbound(event_of("", subtype="file_share", files=files, channel="D1", channel_type="im"))
    assert [each.file_id for each in found.unfetched] == ["F1"] and len(found.refused) == 3
    assert "b.zip" in found.refused[0] and "c.doc" in found.refused[1]


@requirement("channels:1")
def test_changes_of_channels() -> None:
    def change(event: Any) -> ChatChange | None:
        return change_of(read_event(event), AROUND)

    joined = recorded("member-joined-channel_slack", "memberJoinedChannel")["event"]
    added = change(joined)
    assert added is not None and (added.kind, added.place.to, added.title) == (
        ChangeKind.ADDED,
        "C00FAKECHAN1",
        "general",
    )
    assert added.sender is not None and added.sender.id == "T00FAKE00AA.U00FAKEUSER1"
    other = change({**joined, "user": "U9", "team": "T0OTHER"})
    assert other is not None and (other.kind, other.people) == (ChangeKind.JOINED, ("T0OTHER.U9",))
    for event in (
        {"type": "channel_left", "channel": "C1"},
        {"type": "member_left_channel", "user": BOT.user_id, "channel": "C1"},
    ):
        left = change(event)
        assert left is not None and (left.kind, left.place.to) == (ChangeKind.LEFT, "C1")
    renamed = change({"type": "channel_rename", "channel": {"id": "C1", "name": "new", "created": 1}})
    assert renamed is not None and (renamed.kind, renamed.place.to, renamed.title) == (ChangeKind.RENAMED, "C1", "new")
    moved = change({"type": "channel_id_changed", "old_channel_id": "C1", "new_channel_id": "C2"})
    assert moved is not None and (moved.kind, moved.place.to, moved.moved_to) == (ChangeKind.MOVED, "C1", "C2")
    assert change(recorded("actions-reactions_slack", "reaction")["event"] | {"item": None}) is None


@requirement("channels:4")
def test_a_recorded_slash_command_is_a_command_of_chats() -> None:
    payload = recorded("slash-commands_slack", "slashCommandWithArgs")
    found = command_of(read_payload(payload), AROUND)
    assert (found.text, found.place.to, found.chat_type) == ("/some arguments here", "C00FAKECHAN3", ChatType.CHANNEL)
    assert command_of(read_payload({**payload, "text": " "}), AROUND).text == "/help"
    assert command_of(read_payload({**payload, "text": "/new"}), AROUND).text == "/new"
    direct = command_of(read_payload({**payload, "channel_id": "D1"}), AROUND)
    assert direct.place.to == direct.sender.id


@requirement("approvals:4")
def test_a_recorded_press_decides_only_by_data_of_antiphon() -> None:
    payload = recorded("channel_slack", "channel_post_action")
    assert press_of(read_payload(payload), AROUND) is None
    payload["actions"][0]["value"] = "apr_1:approve"
    press = press_of(read_payload(payload), AROUND)
    assert press is not None and (press.data, press.message_id) == ("apr_1:approve", "1771287149.605429")
    assert (press.place.to, press.place.thread_id) == ("C00FAKECHAN1", "1771287144.743569")
    assert press.sender.id == "T00FAKE00AA.U00FAKEUSER1"
    payload["actions"][0]["value"] = "ü" * 10
    assert press_of(read_payload(payload), AROUND) is None


def test_of_two_times_the_later_is_after_the_other_also_with_other_digits() -> None:
    assert SlackPosition("1767224888.280449").is_after("1767224888.28")
    assert not SlackPosition("1767224888.280449").is_after("1767224888.2804490")
    assert SlackPosition("1767224889.000001").is_after("nonsense")
    assert not SlackPosition("999999999.9").is_after("1767224888.280449")
