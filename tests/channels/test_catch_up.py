"""What is taken in of the messages of an outage, and what adapters remember of their platforms."""

from datetime import UTC, datetime, timedelta

from antiphon.channels.catch_up import caught_up
from antiphon.channels.files import LARGEST_FILE, LARGEST_IMAGE, sent_file
from antiphon.channels.remembered import MOST, Remembered
from antiphon.domain.inbound import Inbound, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement
from tests.engine.stage import ManualClock

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SINCE = NOON - timedelta(hours=24)


def message(number: int, *, hours: float = 0, is_meant: bool = True) -> Inbound:
    return Inbound(
        platform_id=str(number),
        place=DeliveryContext(channel="fake", to="room", account_id="default"),
        chat_type=ChatType.GROUP,
        sender=Sender(id="ann", name="Ann"),
        text=f"number {number}",
        is_meant=is_meant,
        sent_at=NOON - timedelta(hours=hours),
    )


@requirement("channels:1")
def test_all_messages_of_a_short_outage_are_taken_in() -> None:
    missed = [message(number) for number in range(3)]
    assert caught_up(missed, since=SINCE, most=3) == missed


@requirement("channels:1")
def test_old_ones_and_those_beyond_the_most_are_told_once_before_the_others() -> None:
    missed = [message(1, hours=30), message(2, hours=25), message(3), message(4), message(5)]
    told, *taken = caught_up(missed, since=SINCE, most=2)
    assert (told.platform_id, told.text, [each.platform_id for each in taken]) == ("3", "", ["4", "5"])
    assert told.refused == ("3 messages were written here while I was away, and will not be answered. "
                            "Write again what still matters.",)  # fmt: skip


@requirement("channels:1")
def test_nothing_is_told_of_messages_that_nobody_wrote_to_the_bot() -> None:
    missed = [message(1, hours=30, is_meant=False), message(2)]
    assert caught_up(missed, since=SINCE, most=200) == missed[1:]


@requirement("channels:1")
def test_without_catching_up_messages_are_only_told() -> None:
    (told,) = caught_up([message(1)], since=SINCE, most=0)
    assert told.refused[0].startswith("A message was written here")


def test_files_are_sorted_by_their_types_and_sizes() -> None:
    assert sent_file("1", "a.png", "image/png", 300) == SentFile(file_id="1", kind="photo", name="a.png", size=404)
    assert sent_file("2", "a.svg", "image/svg+xml", 300) == SentFile(
        file_id="2", kind="document", name="a.svg", size=300
    )
    assert sent_file("3", "", "audio/ogg", None) == SentFile(file_id="3", kind="audio", name="file", size=LARGEST_FILE)
    assert isinstance(sent_file("4", "a.png", "image/png", LARGEST_IMAGE + 1), str)
    assert isinstance(sent_file("5", "a.zip", "application/zip", LARGEST_FILE + 1), str)


def test_what_is_remembered_is_forgotten_in_time_and_when_there_is_too_much() -> None:
    clock = ManualClock()
    known = Remembered[str](clock, seconds=60)
    assert (known.get("1"), known.put("1", "Ann"), known.get("1")) == (None, "Ann", "Ann")
    clock.pass_time(timedelta(seconds=61))
    assert known.get("1") is None
    many = Remembered[int]()
    for number in range(MOST + 1):
        many.put(str(number), number)
    assert (many.get("0"), many.get("1")) == (None, 1)
