import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKind, parse_key
from antiphon.domain.session_ids import key_from_session_id, namespace_of, next_session_id, parse_session_id
from tests.claims import requirement

pytestmark = requirement("keys:7")

SHAPES = [
    ("cli:work", "cli"),
    ("web:0b7e", "web"),
    ("telegram:20260101-ab12", "telegram"),
    ("schedule:task-1", "schedule"),
    ("hook:0b7e", "hook"),
    ("spawn:0b7e", "spawn"),
    ("api:customer-42", "api"),
    ("peer:codex-0b7e", "peer"),
    ("api:a:b", "api"),
]


@pytest.mark.parametrize(("text", "namespace"), SHAPES)
def test_an_id_has_a_namespace_and_makes_a_key_of_its_agent(text: str, namespace: str) -> None:
    session_id = parse_session_id(text)
    assert namespace_of(session_id) == namespace
    assert key_from_session_id(AgentId("ops"), session_id) == parse_key(f"agent:ops:{text}")


@pytest.mark.parametrize(
    "text",
    [
        "", "work", "cli:", ":work", "CLI:work", "cli:Work", "cli:a b", "cli:a..b", "cli::a", "a.b:c",
        "agent:main:main", "cli:" + "a" * 440, "cli:a\n", "global", "x:group:%41",
    ],
)  # fmt: skip
def test_any_other_text_is_no_id(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_session_id(text)
    assert raised.value.code == "invalid_session_id"


@given(st.text("acgi:hmn-.%A", max_size=20))
def test_whatever_is_an_id_has_a_key_under_the_longest_agent_id(text: str) -> None:
    try:
        session_id = parse_session_id(text)
    except Invalid:
        return
    assert key_from_session_id(AgentId("z" * 64), session_id).value.endswith(f":{text}")


@pytest.mark.parametrize(("text", "namespace"), SHAPES)
def test_the_id_after_a_reset_keeps_the_namespace(text: str, namespace: str) -> None:
    old = parse_session_id(text)
    new = next_session_id(old, "20260102-cd34")
    assert new == f"{namespace}:20260102-cd34" == next_session_id(old, "20260102-cd34")
    assert namespace_of(next_session_id(new, "ef56")) == namespace


def test_a_namespace_is_compared_whole() -> None:
    assert namespace_of(parse_session_id("telegram-2:x")) != namespace_of(parse_session_id("telegram:x"))


def test_the_key_of_an_id_in_the_cron_namespace_is_a_cron_key() -> None:
    assert key_from_session_id(AgentId("main"), parse_session_id("cron:job")).kind is SessionKind.CRON
