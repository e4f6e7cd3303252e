"""An approval request as a machine: every state with every event, parked or not, of a run or from outside."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product

import pytest
from msgspec.structs import replace

from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.approval import (
    Approval,
    ApprovalState,
    ApprovalTransition,
    AskedCall,
    Consequence,
    Verdict,
    find_identical,
    hash_of_text,
    moved,
    on_decided,
    on_expired,
    on_other_run,
    on_withdrawn,
    tools_of,
)
from antiphon.domain.ids import AgentId, ApprovalId, RunId, SessionId, SessionRow
from tests.claims import requirement
from tests.engine.stage import START

pytestmark = [requirement("approvals:1", "approvals:2", "approvals:3")]

RUN = RunId("run_1")
LATER = START + timedelta(days=3)
GUEST = Principal(PrincipalKind.PERSON, "ann")
CALLS = tuple(
    AskedCall(
        id=id,
        message_seq=5,
        index=index,
        tool=tool,
        arguments="{}",
        sha256=hash_of_text("{}"),
        definition="d",
        reason="It may delete something.",
    )
    for index, (id, tool) in enumerate((("1", "delete"), ("2", "pay")))
)
ASKED = Approval(
    id=ApprovalId("appr_1"),
    session=SessionRow(1),
    session_key="agent:main:main",
    session_id=SessionId("api:1"),
    run=RUN,
    agent_id=AgentId("main"),
    principal=GUEST,
    state=ApprovalState.PENDING,
    calls=CALLS,
    asked_at=START,
    expires_at=START + timedelta(days=7),
)
VERDICTS = {"1": Verdict.ONCE, "2": Verdict.DENY}
ALL = [
    replace(ASKED, state=state, run=run, is_parked=is_parked)
    for state, run, is_parked in product(ApprovalState, (RUN, None), (False, True))
]
EVENTS: dict[str, Callable[[Approval], ApprovalTransition]] = {
    "other run": on_other_run,
    "decided": lambda approval: on_decided(approval, VERDICTS, by=OWNER, note="careful", at=LATER),
    "expired": lambda approval: on_expired(approval, at=LATER),
    "withdrawn": lambda approval: on_withdrawn(approval, at=LATER),
}
FOLLOWING: dict[str, dict[tuple[RunId | None, bool], Consequence]] = {
    "other run": {(RUN, False): Consequence.PARK},
    "decided": {
        (RUN, False): Consequence.RESUME,
        (RUN, True): Consequence.CONTINUE,
        (None, False): Consequence.BEGIN,
        (None, True): Consequence.BEGIN,
    },
    "expired": {(RUN, False): Consequence.RESUME, (RUN, True): Consequence.CONTINUE},
    "withdrawn": {},
}
"""By event: what follows from a pending request, by its run and whether that is parked; else nothing."""
STATES = {
    "other run": ApprovalState.PENDING,
    "decided": ApprovalState.DECIDED,
    "expired": ApprovalState.EXPIRED,
    "withdrawn": ApprovalState.WITHDRAWN,
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("approval", ALL, ids=lambda each: f"{each.state}-{each.run}-{each.is_parked}")
def test_every_event_in_every_state(approval: Approval, event: str) -> None:
    after = EVENTS[event](approval)
    if approval.state is not ApprovalState.PENDING:
        assert after == ApprovalTransition(approval), "the first answer stands"
        return
    assert after.approval.state is STATES[event]
    assert after.then is FOLLOWING[event].get((approval.run, approval.is_parked), Consequence.NOTHING)
    assert after.approval.is_parked is (approval.is_parked or after.then is Consequence.PARK)
    assert (after.approval.decided_at is None) is (event == "other run")


def test_a_decision_says_by_whom_when_and_with_which_words() -> None:
    decided = on_decided(ASKED, VERDICTS, by=OWNER, note="careful", at=LATER).approval
    assert [call.verdict for call in decided.calls] == [Verdict.ONCE, Verdict.DENY]
    assert (decided.decided_by, decided.decided_at, decided.note) == (OWNER, LATER, "careful")


def test_an_expired_request_has_no_verdicts_and_no_decider() -> None:
    expired = on_expired(ASKED, at=LATER).approval
    assert {call.verdict for call in expired.calls} == {None} and expired.decided_by is None


def test_a_decision_that_leaves_a_call_out_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        on_decided(ASKED, {"1": Verdict.ONCE}, by=OWNER, note=None, at=LATER)


def test_the_answers_move_with_the_calls_to_the_continuation() -> None:
    decided = on_decided(replace(ASKED, is_parked=True), VERDICTS, by=OWNER, note=None, at=LATER).approval
    there = moved(decided, RunId("run_2"), {(5, 0): (9, 1), (5, 1): (9, 2)})
    assert there.run == "run_2" and not there.is_parked
    assert there.find_call(5, 0) is None
    found = there.find_call(9, 2)
    assert found is not None and (found.tool, found.verdict) == ("pay", Verdict.DENY)


def test_half_a_surrogate_pair_has_a_hash_of_its_own() -> None:
    assert hash_of_text('{"a": "\ud800"}') != hash_of_text('{"a": "?"}')
    assert tools_of([*CALLS, *CALLS]) == "delete, pay"


def test_only_an_approved_call_from_outside_is_carried_out() -> None:
    outside = replace(ASKED, run=None)
    denied = on_decided(outside, dict.fromkeys(("1", "2"), Verdict.DENY), by=OWNER, note=None, at=LATER)
    assert denied.then is Consequence.NOTHING and denied.approval.is_settled
    approved = on_decided(outside, VERDICTS, by=OWNER, note=None, at=LATER).approval
    assert approved.is_due and not approved.is_settled
    assert on_decided(ASKED, VERDICTS, by=OWNER, note=None, at=LATER).approval.is_settled


@pytest.mark.parametrize("name", ["tool", "sha256", "definition"])
def test_an_identical_call_has_the_same_bytes_tool_and_asker(name: str) -> None:
    asked = replace(CALLS[1], id="9", index=7, reason="Another.")
    assert find_identical([ASKED], asked, GUEST) is ASKED
    assert find_identical([ASKED], asked, OWNER) is None
    assert find_identical([ASKED], replace(asked, **{name: "other"}), GUEST) is None
