"""The result of a child as a machine: every stage with every event, in every situation."""

from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.report import (
    Action,
    AnswerRequest,
    Heir,
    PutAway,
    RecordResult,
    Report,
    ReportState,
    ReportTransition,
    Situation,
    Tell,
    Then,
    Word,
    announced_text,
    on_announce_ended,
    on_child_deleted,
    on_child_ended,
    on_origin_ended,
    on_released,
    on_requester_deleted,
    on_waited,
    on_yield,
)
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement

pytestmark = [requirement("spawn:7", "spawn:8")]

PLACE = DeliveryContext(channel="webhook", to="ann")
WAITER = RunId("run_waiter")
FOLLOWER = RunId("run_follower")
OPEN = Report(
    id="run_child",
    run=RunId("run_child"),
    child=SessionRow(2),
    requester=SessionRow(1),
    requester_incarnation=SessionId("api:1"),
    origin_run=RunId("run_origin"),
    principal=OWNER,
    stage=ReportState.OPEN,
)
HEIR = Heir(requester=SessionRow(9), incarnation=SessionId("api:9"), run=RunId("run_heir"), place=PLACE)
BOTH = (False, True)

REPORTS = [
    replace(OPEN, stage=stage, place=place, waiter=waiter, is_taken=taken, is_from_outside=outside)
    for stage, place, waiter, taken, outside in product(ReportState, (None, PLACE), (None, WAITER), BOTH, BOTH)
]
SITUATIONS = [
    Situation(
        has_requester=there,
        is_present=present,
        may_flow=flow,
        may_word=word,
        is_origin_over=over,
        follower=follower,
        is_waiter_parked=parked,
        is_last_awaited=last,
    )
    for there, present, flow, word, over, follower, parked, last in product(
        BOTH, BOTH, BOTH, BOTH, BOTH, (None, FOLLOWER), BOTH, BOTH
    )
]
TEXTS = ("Done.", "ANNOUNCE_SKIP", "")


def _in(*stages: ReportState) -> list[Report]:
    return [report for report in REPORTS if report.stage in stages]


def every_step() -> Iterator[tuple[str, Report, ReportTransition]]:
    """Each event with each report that it can meet, in each situation."""
    for report, situation in product(_in(ReportState.OPEN), SITUATIONS):
        yield "child_ended", report, on_child_ended(report, situation)
    for report, situation, is_off in product(_in(ReportState.RECORDED), SITUATIONS, BOTH):
        yield "origin_ended", report, on_origin_ended(report, situation, is_called_off=is_off)
    for report in _in(ReportState.RECORDED):
        yield "yield", report, on_yield(report, WAITER)
    for report, situation in product(_in(ReportState.OPEN, ReportState.DONE), SITUATIONS):
        yield "released", report, on_released(report, situation)
    for report, is_off in product(REPORTS, BOTH):
        yield "waited", report, on_waited(report, is_wording_called_off=is_off)
    for report, situation, text in product(_in(ReportState.ANNOUNCING), SITUATIONS, TEXTS):
        yield (
            "announce_ended",
            report,
            on_announce_ended(report, announced_text(RunStatus.OK, text, "The record."), situation),
        )
    for report, situation in product(_in(ReportState.ANNOUNCING), SITUATIONS):
        yield "child_deleted", report, on_child_deleted(report, situation)
    for report, heir, answered, newest in product(REPORTS, (HEIR, Heir()), BOTH, BOTH):
        if answered or report.stage in (ReportState.RECORDED, ReportState.ANNOUNCING, ReportState.DONE):
            consequences = on_requester_deleted(report, heir, is_answered=answered, is_newest=newest)
            yield "requester_deleted", report, consequences


def begins_something(action: Action) -> bool:
    """Whether the action starts a run or tells the requester's channel."""
    return isinstance(action, AnswerRequest | Word | Tell) or (
        isinstance(action, RecordResult) and action.then is not Then.NOTHING
    )


def test_at_most_one_thing_follows_from_a_result() -> None:
    for event, report, step in every_step():
        assert sum(map(begins_something, step.actions)) <= 1, (event, report, step)


def test_a_result_is_recorded_once_and_only_when_its_child_ends() -> None:
    for event, report, step in every_step():
        records = sum(isinstance(action, RecordResult) for action in step.actions)
        is_first = event == "child_ended" and step.report.stage is not ReportState.KEPT
        assert records == int(is_first), (event, report, step)


def test_nothing_follows_from_a_result_that_was_taken_or_came_from_outside() -> None:
    for event, report, step in every_step():
        is_settled = report.is_from_outside or (report.is_taken and event not in ("released", "announce_ended"))
        if is_settled and report.waiter is None and event not in ("announce_ended", "child_deleted"):
            assert not any(map(begins_something, step.actions)), (event, report, step)


def test_a_finished_child_is_put_away_once() -> None:
    for event, report, step in every_step():
        archive = sum(isinstance(action, PutAway) for action in step.actions)
        ends = step.report.stage in (ReportState.DONE, ReportState.KEPT)
        if ends and report.stage not in (ReportState.DONE, ReportState.KEPT) and event != "child_deleted":
            assert archive == 1, (event, report, step)
        if not ends:
            assert archive == 0, (event, report, step)


def test_words_are_asked_for_only_where_there_is_a_place_and_they_may_flow() -> None:
    asked = 0
    for event, situation in product(_in(ReportState.OPEN), SITUATIONS):
        step = on_child_ended(event, situation)
        if Word() in step.actions:
            asked += 1
            assert step.report.stage is ReportState.ANNOUNCING
            assert event.place is not None and situation.may_flow and situation.may_word and situation.is_present
    assert asked > 0


def test_what_rose_above_its_requester_is_not_told_to_its_channel() -> None:
    for event, report, step in every_step():
        if event == "announce_ended" and any(isinstance(action, Tell) for action in step.actions):
            assert report.place is not None
    blocked = Situation(may_flow=False)
    wording = replace(OPEN, stage=ReportState.ANNOUNCING, place=PLACE)
    assert on_announce_ended(wording, "Done.", blocked).actions == (AnswerRequest(), PutAway())


def test_nothing_that_came_is_lost_with_its_requester() -> None:
    for answered, newest in product(BOTH, BOTH):
        for report in _in(ReportState.OPEN, ReportState.RECORDED, ReportState.ANNOUNCING):
            step = on_requester_deleted(report, HEIR, is_answered=answered, is_newest=newest)
            assert step.report.stage in (ReportState.OPEN, ReportState.KEPT), (report, step)


@pytest.mark.parametrize(
    ("report", "situation", "stage", "actions"),
    [
        (OPEN, Situation(), ReportState.DONE, (RecordResult(Then.ANSWER), PutAway())),
        (OPEN, Situation(is_origin_over=False), ReportState.RECORDED, (RecordResult(),)),
        (OPEN, Situation(is_present=False), ReportState.DONE, (RecordResult(), PutAway())),
        (OPEN, Situation(has_requester=False), ReportState.KEPT, (PutAway(may_delete=False),)),
        (replace(OPEN, place=PLACE), Situation(), ReportState.ANNOUNCING, (RecordResult(), Word())),
        (
            replace(OPEN, place=PLACE),
            Situation(may_word=False),
            ReportState.DONE,
            (RecordResult(Then.ANSWER), PutAway()),
        ),
        (
            replace(OPEN, place=PLACE),
            Situation(may_flow=False),
            ReportState.DONE,
            (RecordResult(Then.ANSWER), PutAway()),
        ),
        (replace(OPEN, is_taken=True), Situation(), ReportState.DONE, (RecordResult(), PutAway())),
        (
            replace(OPEN, waiter=WAITER),
            Situation(is_waiter_parked=True),
            ReportState.DONE,
            (RecordResult(), PutAway(may_delete=False)),
        ),
        (
            replace(OPEN, waiter=WAITER),
            Situation(is_waiter_parked=True, is_last_awaited=True),
            ReportState.DONE,
            (PutAway(), RecordResult(Then.CONTINUE)),
        ),
    ],
)
def test_what_follows_when_a_child_ends(
    report: Report, situation: Situation, stage: ReportState, actions: tuple[Action, ...]
) -> None:
    step = on_child_ended(report, situation)
    assert (step.report.stage, step.actions) == (stage, actions)


def test_what_follows_waits_for_another_run_that_waits_for_the_result() -> None:
    step = on_child_ended(OPEN, Situation(is_origin_over=False, follower=FOLLOWER))
    assert (step.report.origin_run, step.report.stage) == (FOLLOWER, ReportState.RECORDED)


def test_a_wait_takes_what_came_and_no_more() -> None:
    for stage in (ReportState.RECORDED, ReportState.DONE):
        step = on_waited(replace(OPEN, stage=stage), is_wording_called_off=False)
        assert (step.report.is_taken, step.report.stage, step.actions) == (True, stage, ())
    wording = replace(OPEN, stage=ReportState.ANNOUNCING)
    assert on_waited(wording, is_wording_called_off=False) == ReportTransition(wording)
    assert on_waited(wording, is_wording_called_off=True).report.stage is ReportState.DONE
    assert on_waited(OPEN, is_wording_called_off=False) == ReportTransition(OPEN)
