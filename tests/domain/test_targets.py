import pytest

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId, SessionId
from antiphon.domain.keys import main_key, parse_key
from antiphon.domain.targets import NamedTarget, RelativeTarget, parse_target
from tests.claims import requirement

pytestmark = requirement("keys:3", "keys:6")

OPS = AgentId("ops")


@pytest.mark.parametrize("target", RelativeTarget)
def test_current_and_parent_are_relative_to_the_caller(target: RelativeTarget) -> None:
    assert parse_target(target.value, agent_id=OPS) is target


def test_main_is_the_main_session_of_the_callers_agent() -> None:
    assert parse_target("main", agent_id=OPS) == NamedTarget(main_key(OPS), None)


@pytest.mark.parametrize(
    ("text", "key", "session_id"),
    [
        ("agent:main:main", "agent:main:main", None),
        ("node-phone", "node-phone", None),
        ("cli:work", None, "cli:work"),
        ("hook:x", "hook:x", "hook:x"),
        ("cron:job-1", "cron:job-1", "cron:job-1"),
        ("telegram:group:-1", "agent:ops:telegram:group:-1", "telegram:group:-1"),
    ],
)
def test_a_text_names_a_key_an_id_or_both(text: str, key: str | None, session_id: str | None) -> None:
    expected = NamedTarget(parse_key(key) if key else None, SessionId(session_id) if session_id else None)
    assert parse_target(text, agent_id=OPS) == expected


@pytest.mark.parametrize(
    "text", ["global", "unknown", "", "Main", "Current", "work", "agent:main", "cli:Work", " main"]
)
def test_a_text_that_can_be_neither_is_invalid(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_target(text, agent_id=OPS)
    assert raised.value.code == "invalid_key"


def test_the_error_for_a_bare_word_lists_what_can_be_written() -> None:
    with pytest.raises(Invalid, match="'main', 'current', 'parent'"):
        parse_target("work", agent_id=OPS)


@pytest.mark.parametrize(
    ("text", "reason"), [("cli:Work", "upper case"), ("cli:two words", "a space"), ("agent:main", "known form")]
)
def test_the_error_says_what_is_wrong_with_the_form_that_was_meant(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse_target(text, agent_id=OPS)
