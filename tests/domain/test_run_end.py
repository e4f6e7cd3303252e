"""What follows from the end of a run, by a table over its facts. Contract: runs 2, 4, 5, spawn 7, 8."""

from datetime import UTC, datetime
from itertools import product

import pytest
from msgspec.structs import replace

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow
from antiphon.domain.message import Cut
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import PLACE_CLEARANCE, RESET, YIELDED, Outcome, PlaceGot, Purpose, Run, RunStatus
from antiphon.domain.run_end import (
    AdvanceExchanges,
    CallOffChildren,
    EndFacts,
    EndSlot,
    KeepQuiet,
    NotePlace,
    SettleResults,
    Speak,
    TellPlace,
    WaitForChildren,
    code_of,
    got_by,
    has_new_input,
    on_finished,
    outcome_of,
    told_after,
)
from antiphon.domain.session import HERE, NOWHERE, DeliveryContext
from antiphon.domain.telling import CAUSES, OF_CUTS, QUIET, Cause, Told, cause_of, cut_short
from tests.claims import requirement

PLACE = DeliveryContext(channel="telegram", to="1")
AROUND = EndFacts(place=PLACE)
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


@pytest.mark.parametrize("outcome", [FAILED, TIMEOUT, replace(OK, reply=" ")])
@requirement("groups:4")
def test_a_place_is_told_once_why_there_is_no_reply_until_a_turn_succeeds_there(outcome: Outcome) -> None:
    cause = cause_of(outcome.code) if outcome.code else Cause.EMPTY
    first = on_finished(RUN, outcome, AROUND)
    assert first[0] == TellPlace(cause, is_public=cause is Cause.AWAY)
    told = told_after(AROUND, outcome, first)
    assert told == (Told(PLACE, cause),)
    again = replace(AROUND, told=told)
    assert on_finished(RUN, outcome, again)[0] == KeepQuiet(PlaceGot.TOLD_BEFORE)
    elsewhere = replace(again, place=replace(PLACE, to="2"))
    assert isinstance(on_finished(RUN, outcome, elsewhere)[0], TellPlace)
    assert told_after(again, OK, on_finished(RUN, OK, again)) == ()
    assert told_after(elsewhere, OK, on_finished(RUN, OK, elsewhere)) == told


@requirement("groups:3", "groups:4")
def test_what_a_place_gets_from_a_turn_that_went_well() -> None:
    def got(reply: str, around: EndFacts = AROUND) -> PlaceGot | None:
        return got_by(on_finished(RUN, replace(OK, reply=reply), around))

    heard = replace(AROUND, said="The train leaves at 9:14.")
    assert got("hello") is PlaceGot.SENT and got("hello", heard) is PlaceGot.SENT
    assert got("<NO_REPLY>") is PlaceGot.MARKER and got("<NO_REPLY>", heard) is PlaceGot.SENT
    assert got("hello", replace(AROUND, may_go=False)) is PlaceGot.FLOW
    assert got("", replace(AROUND, is_parked=True)) is PlaceGot.WITHDRAWN
    assert on_finished(RUN, replace(OK, reply=heard.said or ""), heard)[0] == KeepQuiet(PlaceGot.SENT)


@requirement("runs:2")
@pytest.mark.parametrize("cut", Cut)
def test_a_reply_that_was_cut_says_so(cut: Cut) -> None:
    assert on_finished(RUN, replace(OK, cut=cut), AROUND)[0] == Speak(cut_short("hello", OF_CUTS[cut]))


@requirement("groups:4")
def test_a_run_that_broke_off_keeps_what_it_had_said() -> None:
    broken = Outcome(status=RunStatus.ERROR, reply="The tra", code="model_stream_cut")
    assert on_finished(RUN, broken, AROUND)[0] == Speak(cut_short("The tra", Cause.CUT))
    assert isinstance(on_finished(RUN, broken, replace(AROUND, said="The tra"))[0], TellPlace)


OUTCOMES = [
    *(Outcome(status=RunStatus.ERROR, code=code, reply=reply) for code in CAUSES for reply in ("", "The tra")),
    *(Outcome(status=RunStatus.CANCELLED, code=code, reply=reply) for code in QUIET for reply in ("", "The tra")),
    *(replace(OK, reply=reply, cut=cut) for reply in ("hello", " ", "<NO_REPLY>") for cut in (None, *Cut)),
    TIMEOUT,
]
DELIBERATE = (PlaceGot.MARKER, PlaceGot.WITHDRAWN, PlaceGot.FLOW, PlaceGot.TOLD_BEFORE)


@requirement("groups:4")
@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.AWAITING_APPROVAL])
@pytest.mark.parametrize("purpose", Purpose)
def test_a_run_with_a_place_is_never_silent_unless_somebody_chose_it(purpose: Purpose, status: RunStatus) -> None:
    """Over causes, places, purposes and what stood there before: one thing is got, and silence has a reason."""
    run = replace(RUN, purpose=purpose, status=status)
    choices = product(OUTCOMES, (PLACE, HERE, NOWHERE), (None, "The tra"), (True, False), (True, False), (True, False))
    for outcome, place, said, may_go, is_known, is_parked in choices:
        told = tuple(Told(PLACE, cause) for cause in Cause) if is_known else ()
        around = EndFacts(place=place, said=said, may_go=may_go, told=told, is_told_today=is_known, is_parked=is_parked)
        actions = on_finished(run, outcome, around)
        of_place = [action for action in actions if isinstance(action, Speak | TellPlace | KeepQuiet)]
        assert len(of_place) == int(purpose.speaks_for_itself)
        got = got_by(actions)
        assert (got is not None) is (purpose.speaks_for_itself and place.is_outside)
        if got is None:
            continue
        if isinstance(of_place[0], KeepQuiet):
            assert got in DELIBERATE or said is not None, outcome
        assert got is not PlaceGot.MARKER or "<NO_REPLY>" in outcome.reply
        assert got is not PlaceGot.FLOW or not may_go or outcome.code == PLACE_CLEARANCE
        assert got is not PlaceGot.TOLD_BEFORE or is_known
        assert got is not PlaceGot.WITHDRAWN or outcome.code in QUIET or is_parked


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
        replace(spawned, status=RunStatus.AWAITING_APPROVAL), OK, EndFacts(place=PLACE, is_continued=True)
    )
    assert continued == (KeepQuiet(PlaceGot.WITHDRAWN), AdvanceExchanges())


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


def test_a_run_that_was_called_off_before_it_began_says_nothing() -> None:
    queued = replace(RUN, status=RunStatus.QUEUED)
    assert on_finished(queued, CANCELLED, AROUND) == (KeepQuiet(PlaceGot.WITHDRAWN), AdvanceExchanges())
