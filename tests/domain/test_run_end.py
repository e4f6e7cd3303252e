"""What follows from the end of a run, by a table over its facts. Contract: runs 2, 4, 5, spawn 7, 8."""

from datetime import UTC, datetime
from itertools import product

import pytest
from msgspec.structs import replace

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import PLACE_CLEARANCE, RESET, YIELDED, Outcome, Purpose, Run, RunStatus
from antiphon.domain.run_end import (
    AdvanceExchanges,
    Around,
    CallOffChildren,
    EndSlot,
    NotePlace,
    SettleResults,
    Speak,
    TakeBack,
    TellOfCap,
    WaitForChildren,
    code_of,
    has_new_input,
    on_finished,
    outcome_of,
)
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement

PLACE = DeliveryContext(channel="telegram", to="1")
AROUND = Around(place=PLACE)
OK = Outcome(status=RunStatus.OK, reply="hello")
FAILED = Outcome(status=RunStatus.ERROR, error="boom", code="model_server_error")
CANCELLED = Outcome(status=RunStatus.CANCELLED, code="cancelled")
TIMEOUT = Outcome(status=RunStatus.TIMEOUT, code="run_timeout")
RUN = Run(
    id=RunId("run_1"),
    session=SessionRow(1),
    session_key="agent:main:main",
    session_id=SessionId("cli:1"),
    agent_id=AgentId("main"),
    seq=2,
    newest_seq=2,
    status=RunStatus.RUNNING,
    mode=QueueMode.ENQUEUE,
    purpose=Purpose.MESSAGE,
    principal=OWNER,
    created_at=datetime(2026, 3, 4, tzinfo=UTC),
)


@requirement("runs:4")
def test_a_run_goes_on_if_its_last_step_has_not_seen_what_joined_it() -> None:
    joined = replace(RUN, newest_seq=5)
    assert has_new_input(joined, OK, saw=4)
    assert not has_new_input(joined, OK, saw=5)
    assert not has_new_input(joined, OK, saw=None)
    assert not has_new_input(joined, FAILED, saw=4)


@requirement("sessions:6")
def test_a_reset_goes_before_what_the_run_reports() -> None:
    reset = replace(RUN, is_cancel_requested=True, code=RESET)
    for reported in (OK, FAILED, TIMEOUT):
        outcome = outcome_of(reset, reported)
        assert (outcome.status, outcome.code, outcome.reply) == (RunStatus.CANCELLED, RESET, reported.reply)
    assert outcome_of(replace(RUN, is_cancel_requested=True), OK) == OK


def test_a_run_that_yields_and_is_called_off_is_cancelled() -> None:
    yielding = replace(RUN, is_yielding=True, is_cancel_requested=True)
    assert outcome_of(yielding, OK).status is RunStatus.CANCELLED
    assert outcome_of(yielding, FAILED) == FAILED
    assert code_of(OK, is_parked=True) == YIELDED and code_of(FAILED, is_parked=True) == FAILED.code


@pytest.mark.parametrize("purpose", Purpose)
def test_only_a_run_that_speaks_for_itself_says_its_reply_at_its_place(purpose: Purpose) -> None:
    actions = on_finished(replace(RUN, purpose=purpose), OK, AROUND)
    assert (Speak("hello") in actions) is purpose.speaks_for_itself
    assert (EndSlot() in actions) is (purpose is Purpose.TASK)


@pytest.mark.parametrize("outcome", [FAILED, CANCELLED, TIMEOUT])
def test_a_run_that_did_not_end_well_takes_back_what_was_shown(outcome: Outcome) -> None:
    actions = on_finished(RUN, outcome, AROUND)
    assert TakeBack() in actions and not any(isinstance(action, Speak) for action in actions)


@requirement("runs:6")
def test_a_cap_is_told_before_what_was_shown_is_taken_back() -> None:
    capped = Outcome(status=RunStatus.ERROR, error="That is enough.", code="person_cap")
    assert on_finished(RUN, capped, AROUND)[:2] == (TellOfCap("That is enough."), TakeBack())


@requirement("flow:2")
def test_owners_hear_of_a_place_that_lost_clearance_whatever_the_run_is_for() -> None:
    above = Outcome(status=RunStatus.ERROR, code=PLACE_CLEARANCE)
    for purpose in Purpose:
        assert NotePlace() in on_finished(replace(RUN, purpose=purpose), above, AROUND)


@requirement("spawn:8")
def test_a_parked_run_waits_and_settles_nothing() -> None:
    spawned = replace(RUN, has_spawned=True, purpose=Purpose.TASK)
    actions = on_finished(spawned, OK, replace(AROUND, is_parked=True, owes_result=True))
    assert actions == (Speak("hello"), AdvanceExchanges(), WaitForChildren())
    continued = on_finished(
        replace(spawned, status=RunStatus.AWAITING_APPROVAL), OK, Around(place=PLACE, is_continued=True)
    )
    assert continued == (TakeBack(), AdvanceExchanges())


@requirement("spawn:8")
def test_children_are_called_off_with_a_run_whose_result_nobody_needs_without_them() -> None:
    spawned = replace(RUN, has_spawned=True)
    for outcome, is_called_off, owes in product((OK, FAILED, CANCELLED, TIMEOUT), (False, True), (False, True)):
        run = replace(spawned, is_cancel_requested=is_called_off)
        found = CallOffChildren() in on_finished(run, outcome, replace(AROUND, owes_result=owes))
        if outcome is TIMEOUT:
            assert found is owes
        else:
            assert found is (outcome is CANCELLED or is_called_off)


@requirement("spawn:7")
def test_a_result_is_settled_after_the_exchanges() -> None:
    assert SettleResults() not in on_finished(RUN, OK, AROUND)
    for run, around in (
        (replace(RUN, has_spawned=True), AROUND),
        (replace(RUN, announces="rep_1"), AROUND),
        (RUN, replace(AROUND, owes_result=True)),
    ):
        actions = on_finished(run, OK, around)
        assert actions.index(SettleResults()) > actions.index(AdvanceExchanges())


def test_a_run_that_never_began_shows_nothing_and_takes_nothing_back() -> None:
    queued = replace(RUN, status=RunStatus.QUEUED)
    assert on_finished(queued, CANCELLED, AROUND) == (AdvanceExchanges(),)
