"""What is taken out of texts, what stays, and what that costs."""

import re
import time
from collections.abc import Callable
from types import ModuleType
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.clock import RandomIds, SystemClock
from antiphon.domain import assignments, secret_forms
from antiphon.domain.ids import Ids
from antiphon.domain.redaction import (
    PIECE,
    redact,
    redact_beginning,
    redact_part,
    redacted_pieces,
)
from antiphon.domain.spans import LONGEST_VALUE, MASK
from antiphon.domain.tokens import OWNER_PREFIX, TOKEN_PREFIX
from tests.claims import requirement
from tests.domain.secrets import FALSE_ALARMS, HARMLESS, SECRETS, UNRECOGNISED

MANY = 150
RATIO = 16
WORDS = assignments.WORDS
"""Reads names alone, of at most 64 characters."""
GENEROUS = 4.0
"""Times as much as linear cost would be; a quadratic one is sixteen times as much."""

PREFIXES = sorted({prefix for form in secret_forms.FORMS for prefix in form.prefixes})
HOSTILE = [
    *PREFIXES,
    *("-eyJ", "eyJ.", "eyJa.eyJb.", "123456:", "x123456:", "a.aaaaaa.", "://", "://a:", "://a:b@", "://a:b", "@"),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----\n-----END ", "-----"),
    *(
        "password=",
        "password:",
        "password='",
        'password="',
        'password=\\"',
        'password="\\"',
        "password=`",
        'password="""',
    ),
    *(
        "password=[",
        "password: |\n  ",
        "password: |\n a\n",
        "password=\u201c",
        "password: ${{",
        "password=<",
        "<password>",
    ),
    *(
        "password is ",
        "password is",
        "| password | ",
        "password 'a",
        "PASSWORD 'a b",
        "password for a:",
        "password (a): ",
    ),
    *("password: &quot;", "&quot;password&quot;", "password%3D%22", "**password:** ", "пароль: ", "пароль", "密码："),
    *(
        "mysql ",
        "mysql -p",
        "redis-cli ",
        "redis-cli -a ",
        "IDENTIFIED BY 'a' ",
        "Private-Lines: 9\n",
        "\nPrivate-Lines: 9",
    ),
    *("a_" + "A1b" * 11, "_" + "A1b" * 11, "ab-cd-ef_" + "A1b" * 30, "a-b_"),
    *("token:token=", "token", "key ", "key=", "api key: ", "--token ", "--token", "passphrase:", "passphrase: a\n"),
    *(
        "passphrase:a ",
        "Cookie: a=",
        "Authorization: Bearer ",
        "authorization:",
        "Authorization: Digest ",
        "sig=",
        "?sig=",
    ),
    *(
        '"password": "a",',
        '{"name":"token","value":"',
        "\\",
        '\\"',
        '"',
        "'",
        "=",
        ":",
        "[redacted]",
        "password=[redacted]",
    ),
    *(
        "https://hooks.slack.com/services/",
        "https://api.telegram.org/bot",
        "curl -u a:",
        "sshpass -p ",
        "a_",
        "A",
        "aA",
        ".",
    ),
    *(
        "password: a.b.",
        "password = a(",
        "password: str=",
        "key=a1b2c3d4e5f6g7h8i9",
        "pass",
        "pwd",
        "_.-",
        " ",
        "\n",
        "é",
    ),
]
ALPHABET = st.sampled_from(
    [
        *(
            "password",
            "dbPassword",
            "token",
            "api_key",
            "key",
            "secret",
            "--token",
            "pwd",
            "pass",
            "Cookie",
            "passphrase",
        ),
        *(
            "=",
            ":",
            " ",
            "\n",
            '"',
            "'",
            "\\",
            '\\"',
            "`",
            ",",
            ";",
            "&",
            "?",
            "<",
            ">",
            "[",
            "]",
            "{",
            "(",
            ")",
            "@",
            "/",
        ),
        *(
            "://",
            "a",
            "b1",
            "Z9",
            "_",
            "-",
            ".",
            "sk-",
            "ghp_",
            "SG.",
            "eyJ",
            "AKIA",
            "ant_",
            "tok_",
            "123456:",
            "xoxb-",
        ),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "x" * 20,
            "0123456789abcdef" * 3,
            MASK,
            "Bearer ",
        ),
        *(
            "|\n  ",
            "${",
            "}}",
            "value",
            "\u201c",
            "\u201d",
            "é",
            "str",
            "self.",
            "next(",
            "a" * 3_000,
            " " * 300,
            "-u u:",
        ),
        *("password is", " is ", "|", "&quot;", "->", "IDENTIFIED BY '", "mysql -p", "ab_" + "A1b" * 11, "A1b" * 11),
        *(
            "пароль",
            "：",
            "\\u0022",
            "%3D",
            "**",
            " (a)",
            "PASSWORD",
            "$2b$",
            "hunter22",
            "-",
            "_",
            "\nPrivate-Lines: 2\n",
        ),
    ]
)
TEXTS = st.lists(ALPHABET, max_size=30).map("".join)
FILLER = " \n" * 600


def test_the_corpus_is_large_enough_to_say_something() -> None:
    assert len(SECRETS) >= MANY and len({text for text, _ in SECRETS}) == len(SECRETS)
    assert len(HARMLESS) >= MANY and len(set(HARMLESS)) == len(HARMLESS)


@requirement("history:3")
def test_every_secret_of_the_corpus_is_hidden() -> None:
    shown = [text for text, secret in SECRETS if secret in redact(text).text]
    assert (len(shown), shown) == (0, [])
    for text, secret in SECRETS:
        ends = {secret[:6], secret[-6:]} if len(secret) >= 8 else {secret}
        rest = text.replace(secret, "")
        assert not [end for end in ends if end not in rest and end in redact(text).text], text


def test_what_is_not_recognised_is_listed_as_a_gap() -> None:
    assert not [text for text, secret in UNRECOGNISED if secret not in redact(text).text]


@requirement("history:3")
def test_harmless_texts_of_the_corpus_stay_as_they_are() -> None:
    changed = {text for text in HARMLESS if redact(text) != (text, False)}
    assert changed == FALSE_ALARMS
    assert len(FALSE_ALARMS) <= len(HARMLESS) // 50


def test_secrets_are_hidden_in_the_middle_of_other_texts() -> None:
    for text, secret in SECRETS:
        within = f"Before that:\n{text}\n\nAfter that, some words."
        shown = redact(within)
        assert secret not in shown.text and MASK in shown.text, text
        assert shown.text.startswith("Before that:\n"), text


def test_a_short_text_is_judged_like_the_end_of_a_long_one() -> None:
    """Short texts are looked through for signs of secrets first."""
    for text in (*(text for text, _ in (*SECRETS, *UNRECOGNISED)), *HARMLESS):
        for piece in (text, text[: len(text) * 2 // 3], text[len(text) // 3 :], text.replace("\n", " ")):
            assert redact(f"{FILLER}{piece}").text == f"{FILLER}{redact(piece).text}", piece


@given(TEXTS)
@settings(max_examples=500)
def test_any_short_text_is_judged_like_the_end_of_a_long_one(text: str) -> None:
    assert redact(f"{FILLER}{text}").text == f"{FILLER}{redact(text).text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Bearer abcdefghijklmnopqrstuv", f"Bearer {MASK}"),
        ("use Bearer abcdefghij123456 there", f"use Bearer {MASK} there"),
        ("bearer 0123456789abcdef", f"bearer {MASK}"),
        ("BEARER AbCdEfGhIjKlMnOp", f"BEARER {MASK}"),
        ("bearer responsibilities", "bearer responsibilities"),
        ("Bearer Responsibilities", "Bearer Responsibilities"),
        ("Bearer abcdefghij12345", "Bearer abcdefghij12345"),
        ("a://b:xy@c", f"a://b:{MASK}@c"),
        ("Private-Lines: 1\nab", MASK),
        ("-u me:abc", f"-u me:{MASK}"),
    ],
)
def test_secrets_of_few_characters_are_hidden(text: str, shown: str) -> None:
    assert redact(text).text == shown


def test_own_tokens_are_hidden_however_they_are_drawn() -> None:
    ids: Ids = RandomIds(SystemClock())
    owner = f"{OWNER_PREFIX}_{ids.random_hex(48)}"
    bound = f"{ids.new(TOKEN_PREFIX)}_{ids.random_hex(48)}"
    assert redact(f"{owner} {bound}").text == f"{MASK} {MASK}"
    assert not redact(ids.new(TOKEN_PREFIX)).was_redacted


@requirement("history:3")
@given(TEXTS)
@example("IDENTIFIED BY 'first mysql -psecond")  # its forms are looked for one after the other, each from the beginning
@settings(max_examples=400)
def test_redaction_twice_is_redaction_once(text: str) -> None:
    once = redact(text)
    assert redact(once.text) == (once.text, False)
    assert once.was_redacted is (once.text != text)


@given(TEXTS, TEXTS, TEXTS, st.data())
@settings(max_examples=300)
def test_a_part_hides_what_the_whole_hides(before: str, middle: str, after: str, data: st.DataObject) -> None:
    text = before + middle + after
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    parts = redact_part(text, 0, start), redact_part(text, start, end), redact_part(text, end, len(text))
    joined = "".join(part.text for part in parts)
    assert _collapsed(joined) == _collapsed(redact(text).text)


@given(TEXTS, st.integers(1, 5_000), st.integers(1, 300))
@example("password:aaa", 100, 1)
@example("a password: 'hunter22' b", 100, 3)
@settings(max_examples=500)
def test_pieces_and_beginnings_are_those_of_the_whole(text: str, most: int, size: int) -> None:
    whole = redact(text)
    assert "".join(piece.text for piece in redacted_pieces(text, size)) == whole.text
    beginning = redact_beginning(text, most)
    assert beginning.text == whole.text[:most]
    assert beginning.is_whole is (len(whole.text) <= most)


@pytest.mark.parametrize("distance", range(-40, 40))
def test_a_secret_at_the_edge_of_a_piece_is_hidden_once(distance: int) -> None:
    filled = "w " * ((PIECE + distance) // 2) + " " * (distance % 2)
    shown = redact(f"{filled}password: 'hunter 22' end").text
    assert shown == f"{filled}password: '{MASK}' end"


def test_a_secret_of_the_greatest_length_is_hidden_across_pieces() -> None:
    for filled in (0, PIECE - 3_000, PIECE - 5, PIECE, 3 * PIECE + 7):
        quoted = "w " * filled + 'password="' + "ab cd " * (LONGEST_VALUE // 6 - 1) + '" end'
        assert "ab cd" not in redact(quoted).text
        key = "w " * filled + "-----BEGIN PRIVATE KEY-----\n" + "QUJD\n" * 12_000 + "-----END PRIVATE KEY-----\nend"
        assert "QUJD" not in redact(key).text and redact(key).text.endswith("\nend")
        middle = len(key) - 100
        assert redact_part(key, middle, len(key)).text == f"{MASK}\nend"


@pytest.mark.parametrize("repeated", HOSTILE)
def test_repetitions_cost_in_proportion_to_their_length(repeated: str) -> None:
    size = 4 * 1024
    short, long = _filled(repeated, size), _filled(repeated, RATIO * size)
    assert _grows_in_proportion(redact, short, long)


@given(st.lists(ALPHABET, min_size=1, max_size=4).map("".join))
@settings(max_examples=40)
def test_repetitions_of_any_words_cost_in_proportion_to_their_length(repeated: str) -> None:
    size = max(4 * 1024, 2 * len(repeated))
    assert _grows_in_proportion(redact, _filled(repeated, size), _filled(repeated, RATIO * size))


def test_a_beginning_costs_what_it_shows() -> None:
    short, long = _filled("words and password=hunter22 ", 64 * 1024), _filled("words and password=hunter22 ", 4 << 20)
    bound = GENEROUS * max(_best(lambda: redact_beginning(short, 4_000)), 1e-3)
    assert _best(lambda: redact_beginning(long, 4_000), bound) <= bound


@pytest.mark.parametrize("module", [assignments, secret_forms])
def test_no_expression_repeats_without_a_bound(module: ModuleType) -> None:
    """Runs without a bound are found by `Runs`, which goes on where it was."""
    found: list[object] = list(vars(module).values())
    patterns = [cast("re.Pattern[str]", value) for value in found if isinstance(value, re.Pattern)]
    assert len(patterns) > 5
    for pattern in patterns:
        without_classes = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "c", pattern.pattern)
        assert not re.search(r"[*+]|\{\d+,\}", without_classes.replace("}+", "}")) or pattern is WORDS, pattern


def _collapsed(text: str) -> str:
    """A secret that is cut in two leaves two masks."""
    while MASK * 2 in text:
        text = text.replace(MASK * 2, MASK)
    return text


def _filled(repeated: str, size: int) -> str:
    return (repeated * (size // len(repeated) + 1))[:size]


def _grows_in_proportion(work: Callable[[str], object], short: str, long: str) -> bool:
    """Judged by the processor's time of this thread, the best of several."""
    for _ in range(4):
        bound = GENEROUS * RATIO * max(_best(lambda: work(short)), 1e-4)
        if _best(lambda: work(long), bound) <= bound:
            return True
    return False


def _best(work: Callable[[], object], enough: float = 0.0) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
        if best <= enough:
            break
    return best
