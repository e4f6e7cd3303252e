"""Which calls wait for a person's yes."""

import pytest

from antiphon.domain.actor import OWNER, SYSTEM, session_principal
from antiphon.domain.agent import Effect
from antiphon.domain.person import PersonRole
from antiphon.policy.approvals import ApprovalRules, NeedsApproval, decide_call, problem_of_pattern
from antiphon.policy.decision import ALLOW
from antiphon.policy.session_tools import NEVER_ASK
from antiphon.policy.standing import Standing
from tests.claims import requirement

pytestmark = [requirement("approvals:1")]

DEFAULT = ApprovalRules()
MADE_OWNER = Standing(principal=OWNER, role=PersonRole.OWNER)


@pytest.mark.parametrize(
    ("effect", "asks"),
    [
        (Effect.READS, False),
        (Effect.WRITES, False),
        (Effect.LEAVES, False),
        (Effect.DELETES, True),
        (Effect.SPENDS, True),
        (Effect.CONFIGURES, True),
    ],
)
def test_deleting_spending_and_configuring_ask_by_default(effect: Effect, *, asks: bool) -> None:
    decision = decide_call(DEFAULT, "tidy", {Effect.READS, effect}, MADE_OWNER, is_from_server=False)
    assert isinstance(decision, NeedsApproval) is asks
    if isinstance(decision, NeedsApproval):
        assert decision.pattern == f"effect:{effect.value}" and decision.reason.endswith(".")


@pytest.mark.parametrize(
    ("pattern", "tool", "is_from_server", "asks"),
    [
        ("run_command", "run_command", False, True),
        ("run_command", "run_commands", False, False),
        ("git_*", "git_push", False, True),
        ("git_*", "hg_push", False, False),
        ("mcp:*", "mail__send", True, True),
        ("mcp:*", "mail__send", False, False),
        ("mcp:mail__*", "mail__send", True, True),
        ("mcp:mail__*", "files__send", True, False),
        ("mail__*", "mail__send", True, True),
        ("*", "anything", False, True),
    ],
)
def test_patterns_name_tools_and_those_of_servers(pattern: str, tool: str, is_from_server: bool, asks: bool) -> None:
    rules = ApprovalRules(require=(pattern,))
    decision = decide_call(rules, tool, {Effect.READS}, MADE_OWNER, is_from_server=is_from_server)
    assert isinstance(decision, NeedsApproval) is asks


@pytest.mark.parametrize(
    ("standing", "asks"),
    [
        (MADE_OWNER, False),
        (Standing(principal=OWNER, role=PersonRole.OWNER, is_suspended=True), True),
        (Standing(principal=OWNER, role=PersonRole.USER), True),
        (Standing(principal=OWNER, role=PersonRole.GUEST), True),
        (Standing(principal=session_principal("agent:main:api:s"), role=None), True),
        (Standing(principal=SYSTEM, role=None), True),
    ],
)
def test_every_effect_beyond_reading_asks_unless_an_owner_caused_it(standing: Standing, *, asks: bool) -> None:
    for effect in (Effect.WRITES, Effect.LEAVES):
        decision = decide_call(DEFAULT, "tidy", {effect}, standing, is_from_server=False)
        assert isinstance(decision, NeedsApproval) is asks
        assert decide_call(ApprovalRules(people=()), "tidy", {effect}, standing, is_from_server=False) is ALLOW
    assert decide_call(DEFAULT, "look", {Effect.READS}, standing, is_from_server=False) is ALLOW
    for tool in NEVER_ASK:
        assert decide_call(DEFAULT, tool, set(Effect), standing, is_from_server=False) is ALLOW


@pytest.mark.parametrize("tool", sorted(NEVER_ASK))
def test_session_tools_never_ask(tool: str) -> None:
    rules = ApprovalRules(require=("*", "mcp:*", *(f"effect:{effect.value}" for effect in Effect)))
    assert decide_call(rules, tool, set(Effect), MADE_OWNER, is_from_server=False) is ALLOW


def test_a_message_to_somebody_outside_asks_like_any_tool_that_leaves() -> None:
    user = Standing(principal=OWNER, role=PersonRole.USER)
    leaves = {Effect.LEAVES}
    assert decide_call(DEFAULT, "message", leaves, MADE_OWNER, is_from_server=False) is ALLOW
    assert isinstance(decide_call(DEFAULT, "message", leaves, user, is_from_server=False), NeedsApproval)
    always = ApprovalRules(require=("message",))
    assert isinstance(decide_call(always, "message", leaves, MADE_OWNER, is_from_server=False), NeedsApproval)
    assert problem_of_pattern("message") is None


@pytest.mark.parametrize(
    "pattern",
    ["effect:destroys", "effect:", "tool:x", "", "mcp:", "a b", "sessions_send", "mcp:sessions_send", "x" * 129],
)
def test_a_pattern_that_can_match_nothing_has_a_problem(pattern: str) -> None:
    assert problem_of_pattern(pattern)


@pytest.mark.parametrize("pattern", ["run_command", "*", "git_*", "mcp:*", "mcp:mail__*", "effect:deletes"])
def test_a_pattern_that_can_match_has_none(pattern: str) -> None:
    assert problem_of_pattern(pattern) is None
