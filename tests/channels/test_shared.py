"""What adapters share: how files are sorted, and what is remembered of a platform."""

from datetime import timedelta

from antiphon.channels.files import LARGEST_FILE, LARGEST_IMAGE, sent_file
from antiphon.channels.remembered import MOST, Remembered
from antiphon.domain.inbound import SentFile
from tests.engine.stage import ManualClock


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
