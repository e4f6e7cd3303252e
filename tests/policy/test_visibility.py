"""Which sessions a session sees. Cases B."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.session import Session, SessionStatus, Source
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant, Reach, decide, reach_of_session
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules
from tests.claims import requirement
from tests.people import guest, standing_of

OWN, CHILD, OTHER, PARENT = (SessionRow(row) for row in (10, 11, 12, 1))
AT = datetime(2026, 3, 4, tzinfo=UTC)


def session(row: SessionRow, agent: str = "main", ancestors: Iterable[SessionRow] = ()) -> Session:
    above = tuple(ancestors)
    return Session(
        row=row,
        key=parse_key(f"agent:{agent}:cli:s{row}"),
        agent_id=AgentId(agent),
        id=SessionId(f"cli:s{row}"),
        source=Source(),
        status=SessionStatus.IDLE,
        last_seq=1,
        created_at=AT,
        updated_at=AT,
        first_seq=1,
        incarnation_seq=1,
        started_at=AT,
        interacted_at=AT,
        parent=above[-1] if above else None,
        depth=len(above),
        ancestors=above,
    )


def caller(agent: str = "main") -> Session:
    return session(OWN, agent, (PARENT,))


def reach_of(
    rules: VisibilityRules,
    act: Act = Act.READ,
    by: Session | None = None,
    *,
    principal: Principal = OWNER,
    is_sandboxed: bool = False,
) -> Reach:
    reach = reach_of_session(
        by or caller(), standing_of(principal), act, rules, is_sandboxed=is_sandboxed, subagent_tools=SESSION_TOOLS
    )
    assert isinstance(reach, Reach)
    return reach


def sees(
    rules: VisibilityRules,
    to: Session,
    act: Act = Act.READ,
    by: Session | None = None,
    *,
    principal: Principal = OWNER,
) -> bool:
    reach = reach_of(rules, act, by, principal=principal)
    decision = decide(reach, to, incarnation=to.id, taint=to.taint, is_participant=True)
    return isinstance(decision, Grant)


def visibility_of(reach: Reach) -> Visibility:
    assert reach.viewer is not None
    return reach.viewer.visibility


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
        "own": session(OWN),
        "child": session(CHILD, ancestors=(PARENT, OWN)),
        "child of another agent": session(CHILD, "codex", (PARENT, OWN)),
        "same agent": session(OTHER),
        "other agent": session(OTHER, "codex"),
        "requester": session(PARENT, "codex"),
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
    assert sees(rules, session(OTHER, other), by=caller(one)) is may
    assert sees(rules, session(OTHER, one), by=caller(other)) is may


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
    assert sees(rules, session(OTHER, "codex")) is may


@requirement("visibility:2")
@pytest.mark.parametrize("clamp", [Visibility.TREE, Visibility.ALL])
@pytest.mark.parametrize("visibility", Visibility)
def test_a_sandbox_takes_the_smaller_and_widens_nothing(visibility: Visibility, clamp: Visibility) -> None:
    rules = VisibilityRules(visibility=visibility, sandbox_visibility=clamp)
    expected = Visibility.SELF if visibility is Visibility.SELF else Visibility.TREE
    clamped = visibility_of(reach_of(rules, is_sandboxed=True))
    assert clamped is (visibility if clamp is Visibility.ALL else expected)
    assert visibility_of(reach_of(rules)) is visibility


@requirement("access:4")
@pytest.mark.parametrize("act", [Act.LIST, Act.READ, Act.SEND, Act.STATUS])
def test_a_guest_sees_only_the_session_that_is_written_in_and_may_send_to_its_requester(act: Act) -> None:
    rules = VisibilityRules(visibility=Visibility.ALL)

    def guest_sees(to: Session) -> bool:
        return sees(rules, to, act, principal=guest("bob"))

    assert guest_sees(session(OWN))
    assert not guest_sees(session(CHILD, ancestors=(PARENT, OWN)))
    assert not guest_sees(session(OTHER))
    assert guest_sees(session(PARENT)) is (act is Act.SEND)
