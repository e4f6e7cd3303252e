"""Whether a session may spawn: the reasons against it, in the contract's order."""

import pytest
from msgspec.structs import replace

from antiphon.domain.ids import AgentId
from antiphon.policy.decision import ALLOW, Deny
from antiphon.policy.spawn import SpawnFacts, decide_spawn
from tests.claims import requirement

MAIN, HELPER = AgentId("main"), AgentId("helper")
FINE = SpawnFacts(
    agent_id=MAIN,
    child_agent_id=HELPER,
    depth=0,
    max_depth=1,
    active_children=4,
    max_children=5,
    allowed_agents=("helper",),
    is_sandboxed=False,
    will_be_sandboxed=False,
    requires_sandbox=False,
)
AGAINST = [
    ({"depth": 1}, "spawn_depth"),
    ({"active_children": 5}, "spawn_children"),
    ({"allowed_agents": ("other",)}, "spawn_agent"),
    ({"is_sandboxed": True}, "spawn_unsandboxed"),
    ({"requires_sandbox": True}, "spawn_unsandboxed"),
]


@requirement("spawn:2")
@pytest.mark.parametrize(("change", "rule"), AGAINST)
def test_each_reason_alone_denies(change: dict[str, object], rule: str) -> None:
    decision = decide_spawn(replace(FINE, **change))
    assert isinstance(decision, Deny) and decision.rule == rule and decision.reason


@requirement("spawn:2")
def test_the_first_reason_in_order_is_told() -> None:
    facts = FINE
    for change, rule in reversed(AGAINST):
        facts = replace(facts, **change)
        decision = decide_spawn(facts)
        assert isinstance(decision, Deny) and decision.rule == rule


@requirement("spawn:2")
@pytest.mark.parametrize("allowed", [("helper",), ("*",), ("other", "helper")])
def test_allowed_agents_may_be_spawned_and_the_own_one_always(allowed: tuple[str, ...]) -> None:
    assert decide_spawn(replace(FINE, allowed_agents=allowed)) is ALLOW
    assert decide_spawn(replace(FINE, child_agent_id=MAIN, allowed_agents=())) is ALLOW


@requirement("spawn:2")
def test_a_sandboxed_session_may_spawn_a_sandboxed_child() -> None:
    assert decide_spawn(replace(FINE, is_sandboxed=True, will_be_sandboxed=True, requires_sandbox=True)) is ALLOW
