"""What new keys may hold: nothing that cannot be seen, and nothing that looks like something else."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.keys import parse_key, quote_platform_id
from antiphon.domain.new_keys import check_new_key
from tests.claims import requirement

GOOD = (
    *("anna", "Anna Meyer", "!room:example.org", "+49 (30) 1234", "a@b.c", "x~y", "50%", "O'Brien", "a.b-c_d"),
    *("Jürgen", "Łukasz", "Nguyễn", "Øystein", "ɓaɗe", "Ελένη", "Мария", "Ивановё", "Հայկ", "שרה", "محمد", "نرگس"),
    *("मीना", "প্রিয়া", "ਸਿੰਘ", "મીરા", "தமிழ்", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "สมชาย", "ລາວ", "བོད"),
    *("မြန်မာ", "ქართული", "አማርኛ", "ខ្មែរ", "김철수", "田中さくら", "ラーメンshop", "王小明abc", "ㄅㄆ王", "김abc王"),
    *("team-42", "٤٢", "群組-7"),
)
BAD = {
    "nul": "a\0b",
    "new line": "a\nb",
    "delete": "a\x7fb",
    "c1": "a\x85b",
    "blank before": " anna",
    "blank after": "anna ",
    "no-break space": "a\u00a0b",
    "ideographic space": "a\u3000b",
    "zero width space": "a\u200bb",
    "zero width joiner": "a\u200db",
    "word joiner": "a\u2060b",
    "soft hyphen": "a\u00adb",
    "byte order mark": "\ufeffanna",
    "right to left mark": "a\u200fb",
    "right to left override": "a\u202eb",
    "isolate": "a\u2066b\u2069",
    "variation selector": "a\ufe0fb",
    "tag": "a\U000e0041b",
    "grapheme joiner": "a\u034fb",
    "hangul filler": "a\u3164b",
    "mongolian vowel separator": "a\u180eb",
    "line separator": "a\u2028b",
    "private use": "a\ue000b",
    "not assigned": "a\U0003ffffb",
    "nfd": unicodedata.normalize("NFD", "Jürgen"),
    "full width": "ａｎｎａ",
    "ligature": "oﬃce",
    "mathematical": "𝐚nna",
    "superscript": "a²",
    "long s": "ſam",
    "cyrillic a": "\u0430nna",
    "greek omicron": "b\u03bfb",
    "armenian": "a\u0578na",
    "cherokee": "\u13aa\u13b6",
    "coptic": "\u2c80\u2c82",
    "lisu": "\ua4ee\ua4d0",
    "ipa alpha": "\u0251nna",
    "ipa g": "\u0261o",
    "small capital": "\u1d00nna",
    "click": "a\u01c3",
    "kana and cyrillic": "さ\u0430",
    "hangul and kana": "김さ",
    "modifier colon": "a\ua789b",
    "triangular colon": "a\u02d0b",
    "ratio": "a\u2236b",
    "division slash": "a\u2215b",
    "en dash": "a\u2013b",
    "middle dots": "a\u2024b",
    "emoji": "anna\N{GRINNING FACE}",
    "digits of two scripts": "م٤۴",
}


def key_with(platform_id: str) -> str:
    return f"agent:main:test:direct:{quote_platform_id(platform_id)}"


@requirement("keys:4")
@pytest.mark.parametrize("platform_id", GOOD)
def test_names_in_the_scripts_of_the_world_are_taken(platform_id: str) -> None:
    check_new_key(parse_key(key_with(platform_id)))


@requirement("keys:4")
@pytest.mark.parametrize("platform_id", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_seen_or_looks_like_something_else_is_refused(platform_id: str) -> None:
    key = parse_key(key_with(platform_id))  # one that exists is read
    with pytest.raises(Invalid) as refused:
        check_new_key(key)
    assert refused.value.code == "invalid_key" and refused.value.message.startswith("Session key ")
    assert platform_id not in refused.value.message


@requirement("keys:4")
@pytest.mark.parametrize(
    "text", ["agent:main:cli:\u0430dmin", "agent:main:cli:a%00b", "agent:main:cli:a%ff", "cron:n\u03bfw", "hook:%0a"]
)
def test_every_segment_is_judged_whatever_it_is(text: str) -> None:
    with pytest.raises(Invalid):
        check_new_key(parse_key(text))


def test_scripts_are_judged_in_each_segment_for_itself() -> None:
    check_new_key(parse_key("agent:main:cli:привет:thread:anna"))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@example("\U00031350")
def test_two_ids_that_are_taken_differ_to_the_eye_of_a_normaliser(platform_id: str) -> None:
    try:
        check_new_key(parse_key(key_with(platform_id)))
    except Invalid:
        return
    assert unicodedata.normalize("NFKC", platform_id) == platform_id == platform_id.strip()
    assert all(each.isprintable() for each in platform_id)
