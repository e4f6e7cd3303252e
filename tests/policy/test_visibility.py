"""Which sessions a session sees. Cases B."""

from collections.abc import Iterable

import pytest

from antiphon.domain.classification import PUBLIC
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.policy.decision import Allow
from antiphon.policy.visibility import (
    Act,
    AgentToAgent,
    Standing,
    TargetFacts,
    Visibility,
    VisibilityRules,
    decide,
    scope_of,
)
from tests.claims import requirement

OWN, CHILD, OTHER, PARENT = (SessionRow(row) for row in (10, 11, 12, 1))


def caller(agent: str = "main", *, is_sandboxed: bool = False, is_guest: bool = False) -> Standing:
    return Standing(
        session=OWN,
        agent_id=AgentId(agent),
        depth=1,
        parent=PARENT,
        taint=PUBLIC,
        is_sandboxed=is_sandboxed,
        principal="guest:bob" if is_guest else None,
        is_guest=is_guest,
    )


def target(session: SessionRow, agent: str = "main", ancestors: Iterable[SessionRow] = ()) -> TargetFacts:
    return TargetFacts(
        session=session, agent_id=AgentId(agent), ancestors=tuple(ancestors), taint=PUBLIC, is_participant=True
    )


def sees(rules: VisibilityRules, to: TargetFacts, act: Act = Act.READ, by: Standing | None = None) -> bool:
    return isinstance(decide(scope_of(by or caller(), act, rules), to), Allow)


@requirement("visibility:1", "visibility:6")
@pytest.mark.parametrize(
    ("visibility", "seen"),
    [
        (Visibility.SELF, {"own"}),
        (Visibility.TREE, {"own", "child", "child of another agent"}),
        (Visibility.AGENT, {"own", "child", "child of another agent", "same agent"}),
        (Visibility.ALL, {"own", "child", "child of another agent", "same agent"}),
    ],
)
def test_each_visibility_includes_the_one_before(visibility: Visibility, seen: set[str]) -> None:
    rules = VisibilityRules(visibility=visibility)
    targets = {
        "own": target(OWN),
        "child": target(CHILD, ancestors=(PARENT, OWN)),
        "child of another agent": target(CHILD, "codex", (PARENT, OWN)),
        "same agent": target(OTHER),
        "other agent": target(OTHER, "codex"),
        "requester": target(PARENT, "codex"),
    }
    assert {name for name, to in targets.items() if sees(rules, to)} == seen
    assert {name for name, to in targets.items() if sees(rules, to, Act.SEND)} == seen | {"requester"}


@requirement("visibility:3")
@pytest.mark.parametrize(
    ("one", "other", "may"), [("ops-a", "ops-b", True), ("main", "ops-a", True), ("guest", "ops-a", False)]
)
def test_both_agents_must_be_allowed_in_either_direction(one: str, other: str, *, may: bool) -> None:
    rules = VisibilityRules(
        visibility=Visibility.ALL, agent_to_agent=AgentToAgent(enabled=True, allow=("ops-*", "main"))
    )
    assert sees(rules, target(OTHER, other), by=caller(one)) is may
    assert sees(rules, target(OTHER, one), by=caller(other)) is may


@requirement("visibility:3")
@pytest.mark.parametrize(
    ("visibility", "crossing", "may"),
    [
        (Visibility.ALL, AgentToAgent(enabled=True), True),
        (Visibility.ALL, AgentToAgent(enabled=False, allow=("*",)), False),
        (Visibility.AGENT, AgentToAgent(enabled=True), False),
    ],
)
def test_agents_meet_only_where_all_is_seen_and_the_switch_is_on(
    visibility: Visibility, crossing: AgentToAgent, *, may: bool
) -> None:
    rules = VisibilityRules(visibility=visibility, agent_to_agent=crossing)
    assert sees(rules, target(OTHER, "codex")) is may


@requirement("visibility:2")
@pytest.mark.parametrize("clamp", [Visibility.TREE, Visibility.ALL])
@pytest.mark.parametrize("visibility", Visibility)
def test_a_sandbox_takes_the_smaller_and_widens_nothing(visibility: Visibility, clamp: Visibility) -> None:
    rules = VisibilityRules(visibility=visibility, sandbox_visibility=clamp)
    expected = Visibility.SELF if visibility is Visibility.SELF else Visibility.TREE
    clamped = scope_of(caller(is_sandboxed=True), Act.READ, rules).visibility
    assert clamped is (visibility if clamp is Visibility.ALL else expected)
    assert scope_of(caller(), Act.READ, rules).visibility is visibility


@requirement("access:4")
@pytest.mark.parametrize("act", Act)
def test_a_guest_sees_the_session_alone_that_is_written_in_and_may_send_to_its_requester(act: Act) -> None:
    rules, guest = VisibilityRules(visibility=Visibility.ALL), caller(is_guest=True)
    assert sees(rules, target(OWN), act, guest)
    assert not sees(rules, target(CHILD, ancestors=(PARENT, OWN)), act, guest)
    assert not sees(rules, target(OTHER), act, guest)
    assert sees(rules, target(PARENT), act, guest) is (act is Act.SEND)
