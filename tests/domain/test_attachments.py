import base64
import string
from pathlib import PurePosixPath, PureWindowsPath
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.attachments import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_NAME_BYTES,
    GivenAttachment,
    check_attachments,
    receipt,
)
from antiphon.domain.errors import Invalid
from tests.claims import requirement

MEBIBYTE = 1024 * 1024


def text(name: str, content: str = "x") -> GivenAttachment:
    return GivenAttachment(name=name, content=content)


def encoded(content: str, name: str = "data.bin") -> GivenAttachment:
    return GivenAttachment(name=name, content=content, encoding="base64")


def refusal(*given: GivenAttachment) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check_attachments(given)
    return caught.value


@requirement("spawn:5")
def test_files_are_taken_as_they_are_and_the_receipt_tells_of_them() -> None:
    given = [text("notes.txt", "grüße"), GivenAttachment(name=".env", content="AAEC /w==\n", encoding="base64")]
    checked = check_attachments(given)
    assert [(file.name, file.data) for file in checked] == [
        ("notes.txt", "grüße".encode()),
        (".env", bytes([0, 1, 2, 255])),
    ]
    assert receipt(checked, ".antiphon/attachments/one") == {
        "count": 2,
        "totalBytes": 11,
        "files": [
            {"name": "notes.txt", "bytes": 7, "sha256": checked[0].sha256},
            {"name": ".env", "bytes": 4, "sha256": "3d1f57c984978ef98a18378c8166c1cb8ede02c03eeb6aee7e2f121dfeee3e56"},
        ],
        "relDir": ".antiphon/attachments/one",
    }


BAD_NAMES = [
    *["", " ", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "c:x"],
    *["a\0b", "a\nb", "a\rb", "a\tb", "a\x7fb", "a\x85b", "a\u202eb", "a\u2028b"],
    *["x.", "x ", " x", "con", "CON", "con.txt", "Nul.tar.gz", "com1", "lpt9.log", "COM¹", "aux .txt", "ｃｏｎ"],
    *[".manifest.json", ".MANIFEST.json", "\ud800", "a" * (MAX_NAME_BYTES + 1), "ä" * 128, "é" * 100],
]


@requirement("spawn:5")
@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_is_no_plain_files_is_refused(name: str) -> None:
    error = refusal(text("fine.txt"), text(name))
    assert error.code == "attachment_name"
    assert "Use a plain file name" in error.message
    error.message.encode()


@requirement("spawn:5")
@pytest.mark.parametrize("name", ["a" * MAX_NAME_BYTES, "constant", "com", "com10", "lpt", "a b.txt", "..x", "日本語"])
def test_a_name_that_only_looks_like_a_bad_one_is_taken(name: str) -> None:
    assert check_attachments([text(name)])[0].name == name


@requirement("spawn:5")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.txt", "a.txt"),
        ("a.txt", "A.TXT"),
        ("\u00e9", "e\u0301"),
        ("\u00c9", "e\u0301"),
        ("straße", "STRASSE"),
        ("i", "ı"),
    ],
)
def test_two_files_of_one_name_are_refused(first: str, second: str) -> None:
    assert refusal(text(first), text("other"), text(second)).code == "attachment_duplicate"


@requirement("spawn:5")
@pytest.mark.parametrize(
    "content", ["A", "AAA", "AA=", "AA===", "A=AA", "AAEC!", "AA-_", "QUJD=", "QR==", "ÄAAA", "AA==AA=="]
)
def test_broken_base64_is_refused(content: str) -> None:
    error = refusal(encoded(content))
    assert error.code == "attachment_base64" and "'data.bin'" in error.message


@requirement("spawn:5")
def test_half_a_character_is_no_text() -> None:
    assert refusal(text("a", "\udc80")).code == "attachment_text"


@requirement("spawn:5")
def test_each_limit_is_held_to_the_byte() -> None:
    full = "x" * MEBIBYTE
    assert len(check_attachments([text(str(number)) for number in range(MAX_FILES)])) == 50
    assert refusal(*[text(str(number)) for number in range(MAX_FILES + 1)]).code == "attachment_count"
    assert len(check_attachments([text("a", full)])[0].data) == MAX_FILE_BYTES
    assert refusal(text("a", full + "x")).code == "attachment_too_large"
    assert refusal(text("a", "é" * (MEBIBYTE // 2) + "x")).code == "attachment_too_large"
    five = [text(str(number), full) for number in range(5)]
    assert len(check_attachments(five)) == 5
    assert refusal(*five, text("last")).code == "attachments_too_large"


@requirement("spawn:5")
def test_base64_is_held_to_the_bytes_that_it_stands_for() -> None:
    def of(size: int) -> str:
        return base64.encodebytes(bytes(size)).decode("ascii")

    assert len(check_attachments([encoded(of(MAX_FILE_BYTES))])[0].data) == MAX_FILE_BYTES
    assert refusal(encoded(of(MAX_FILE_BYTES + 1))).code == "attachment_too_large"
    assert refusal(encoded(of(MAX_FILE_BYTES + 2))).code == "attachment_too_large"
    assert refusal(encoded("!" * 2 * MEBIBYTE)).code == "attachment_too_large", "refused before it is decoded"


NAMES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet=string.ascii_letters + "./\\: ", max_size=8),
    st.sampled_from(BAD_NAMES),
    st.text(alphabet="eEéÉ\u0301sSßﬁfiIİı", min_size=1, max_size=3),
)


@requirement("spawn:5")
@given(st.lists(NAMES, max_size=6))
def test_whatever_is_taken_can_be_written_side_by_side_anywhere(names: list[str]) -> None:
    try:
        checked = check_attachments([text(name) for name in names])
    except Invalid:
        return
    for file in checked:
        assert PurePosixPath("d", file.name).parent == PurePosixPath("d")
        assert PureWindowsPath("d", file.name).parent == PureWindowsPath("d")
        assert not PureWindowsPath(file.name).is_reserved()
        assert 0 < len(file.name.encode()) <= 255 and file.name not in (".", "..")
    for form in ("NFC", "NFD"):
        assert len({normalize(form, file.name) for file in checked}) == len(names)
        assert len({normalize(form, file.name).casefold() for file in checked}) == len(names)
        assert len({normalize(form, file.name).upper() for file in checked}) == len(names)
