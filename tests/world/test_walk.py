"""Failures in a row, as people see them in Telegram, the page and `chat -m`. Contract: groups 4."""

from pathlib import Path

import pytest

from tests.claims import requirement
from tests.gateway.browsing import chromium
from tests.world.walk import FAILURES, Place, faults_of, walk

pytestmark = pytest.mark.browser
SHORT = {"the key is refused", "the stream is cut", "nothing but blanks", "held back"}
"""Failures after which nothing is tried again later, so that they end at once."""


@requirement("groups:4")
def test_failures_in_a_row_leave_nobody_without_a_word(home: Path, is_soak: bool) -> None:
    failures = [each for each in FAILURES if is_soak or each[0] in SHORT]
    with chromium() as browser:
        places = walk(home, failures, browser)
    assert {place.name: faults_of(place) for place in places} == {place.name: [] for place in places}


def test_what_is_wrong_in_a_transcript_is_found() -> None:
    place = Place("chat", lambda _: [], tells_once=True)
    place.seen = [
        ("first", []),
        ("second", ["RuntimeError: model_refused"]),
        ("third", []),
        ("fourth", ["Later.", "Later."]),
        ("last", ["Sorry."]),
    ]
    assert [fault.partition(":")[0] for fault in faults_of(place)] == ["first", "second", "second", "fourth", "last"]
