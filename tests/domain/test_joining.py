"""Which messages of one sender become one, and what becomes of their words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.domain.inbound import Filling, Inbound, Sender, SentFile
from antiphon.domain.joining import MOST_FILE_BYTES, MOST_PARTS, JoinWaits, belongs, joined, wait_of, with_part
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, Citation, CitationKind, Whose
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement

PLACE = DeliveryContext(channel="telegram", to="7", account_id="default")
FORWARD = Attribution(kind=AttributionKind.FORWARD, name="Mallory")
OTHER_FORWARD = Attribution(kind=AttributionKind.FORWARD, name="News")
INLINE = Attribution(kind=AttributionKind.INLINE_BOT, name="Pics")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = timedelta(0)


def photo(size: int = 10) -> SentFile:
    return SentFile(file_id="p", kind="photo", name="photo.jpg", size=size)


def said(text: str, *, after: timedelta = NOW, **more: Any) -> Inbound:
    files = more.get("unfetched", ())
    return Inbound(
        platform_id=f"id of {text}",
        place=PLACE,
        chat_type=ChatType.DIRECT,
        sender=Sender(id="7", name="Ann"),
        text=text,
        sent_at=NOON + after,
        has_files=bool(files),
        **more,
    )


TEXT = said("look")
LONG = said("x" * 4000, filling=Filling.LONG)
PASSED_ON = said("gate 7", attribution=FORWARD)
IN_ALBUM = said("", album="a", unfetched=(photo(),))
PICTURE = said("", unfetched=(photo(),))

TOGETHER = {
    "two of an album": (IN_ALBUM, IN_ALBUM),
    "a long text and its end": (LONG, TEXT),
    "two long texts": (LONG, LONG),
    "a comment and a forward": (TEXT, PASSED_ON),
    "a forward and a comment": (PASSED_ON, TEXT),
    "two forwards": (PASSED_ON, replace(PASSED_ON, attribution=OTHER_FORWARD)),
    "a comment and a forwarded picture": (TEXT, replace(PICTURE, attribution=FORWARD)),
    "two of an album that came late": (IN_ALBUM, replace(IN_ALBUM, sent_at=NOON + timedelta(hours=1))),
}
APART = {
    "two texts": (TEXT, TEXT),
    "two albums": (IN_ALBUM, replace(IN_ALBUM, album="b")),
    "an album and a text": (IN_ALBUM, TEXT),
    "two pictures": (PICTURE, PICTURE),
    "a long text and a picture": (LONG, PICTURE),
    "a text and a long one": (TEXT, LONG),
    "a text and what an inline bot made": (TEXT, replace(PASSED_ON, attribution=INLINE)),
    "an inline bot's and a forward": (replace(PASSED_ON, attribution=INLINE), PASSED_ON),
    "a picture and a forward": (PICTURE, PASSED_ON),
    "a comment and a forward of later": (TEXT, replace(PASSED_ON, sent_at=NOON + timedelta(minutes=1))),
}


@requirement("groups:5")
@pytest.mark.parametrize("pair", TOGETHER.values(), ids=TOGETHER)
def test_what_belongs_together(pair: tuple[Inbound, Inbound]) -> None:
    assert belongs(pair[1], pair[0])


@requirement("groups:5")
@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_what_stands_alone(pair: tuple[Inbound, Inbound]) -> None:
    assert not belongs(pair[1], pair[0])


@requirement("groups:5")
def test_so_many_parts_and_bytes_become_one_and_no_more() -> None:
    album = IN_ALBUM
    while belongs(IN_ALBUM, album):
        album = with_part(album, IN_ALBUM)
    assert len(joined(album).unfetched) == MOST_PARTS
    large = replace(IN_ALBUM, unfetched=(photo(MOST_FILE_BYTES // 2 + 1),))
    assert not belongs(large, large)


@requirement("groups:5")
def test_only_parts_wait_long_and_only_texts_in_direct_chats_wait_at_all() -> None:
    waits = JoinWaits()
    for part in (IN_ALBUM, LONG, PASSED_ON):
        assert wait_of(part, waits, is_direct=True) == wait_of(part, waits, is_direct=False) == waits.part_ms
    assert (wait_of(TEXT, waits, is_direct=True), wait_of(TEXT, waits, is_direct=False)) == (waits.text_ms, 0)
    assert wait_of(PICTURE, waits, is_direct=True) == 0


@requirement("groups:5")
def test_an_album_is_one_message_with_all_pictures() -> None:
    caption = replace(IN_ALBUM, text="at sea", is_meant=True, platform_id="2")
    one = joined(with_part(with_part(replace(IN_ALBUM, is_meant=False), caption), replace(IN_ALBUM, platform_id="3")))
    assert (one.text, len(one.unfetched), one.is_meant) == ("at sea", 3, True)
    assert (one.platform_id, one.part_ids, one.parts) == (IN_ALBUM.platform_id, ("2", "3"), ())


@requirement("groups:5")
def test_a_paste_is_one_text_again() -> None:
    full = replace(LONG, text="a" * 4096, filling=Filling.FULL)
    assert joined(with_part(with_part(full, LONG), TEXT)).text == f"{'a' * 4096}{LONG.text}\nlook"


@requirement("groups:5", "flow:2")
def test_a_forward_beside_a_comment_is_a_citation_and_the_comment_is_the_senders_own() -> None:
    cited = Citation(kind=CitationKind.FORWARD, whose=Whose.OTHER, text="gate 7", name="Mallory")
    for one in (joined(with_part(TEXT, PASSED_ON)), joined(with_part(PASSED_ON, TEXT))):
        assert (one.text, one.attribution) == ("look", None)
        assert [each.citation for each in one.cites] == [cited] and one.has_foreign_words


@requirement("groups:5", "flow:2")
def test_forwards_alone_stay_others_words() -> None:
    news = replace(PASSED_ON, attribution=OTHER_FORWARD, text="sunny")
    one = joined(with_part(with_part(PASSED_ON, replace(PASSED_ON, text="gate 8")), news))
    assert (one.text, one.attribution) == ("gate 7\ngate 8", FORWARD)
    assert [(each.citation.text, each.citation.name) for each in one.cites] == [("sunny", "News")]


def test_a_forwarded_picture_beside_a_comment_names_what_it_is() -> None:
    one = joined(with_part(TEXT, replace(PICTURE, attribution=FORWARD)))
    assert [each.citation.text for each in one.cites] == ["[photo]"] and len(one.unfetched) == 1
