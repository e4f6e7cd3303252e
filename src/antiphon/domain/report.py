"""A report: the result that a child owes to the session which spawned it, and what follows when it comes.

A pure state machine. The engine tells it what happened and does what it answers; between a child's end and what
follows there is only the report's row. Contract: spawn 7, 8.
"""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.exchange import ANNOUNCE_SKIP
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import is_silent


class ReportState(StrEnum):
    """How far a result came on its way to the requester."""

    OPEN = "open"
    """The child is at work, or waits for children of its own."""
    RECORDED = "recorded"
    """It stands in the requester's log; what follows waits for the end of the run that spawned the child."""
    ANNOUNCING = "announcing"
    """The child words what the requester's channel is told."""
    DONE = "done"
    KEPT = "kept"
    """Nobody is left whom it could be given to: it stays in the child's log, and is listed."""


class Report(Struct, frozen=True, kw_only=True):
    """One row."""

    id: str
    """That of the run which was to bring the result first; what a spawn answers as `runId`."""
    run: RunId
    """The run whose end brings it: the first, or the one that continues it."""
    child: SessionRow
    requester: SessionRow | None
    """None once nobody is left."""
    requester_incarnation: SessionId | None
    origin_run: RunId | None
    """The requester's run that is to have ended before anything follows; the spawning one, or what continues it."""
    is_from_outside: bool = False
    """Whether it was spawned by a call from outside a run: its record starts nothing. Contract: tools 1."""
    waiter: RunId | None = None
    """The requester's run that yielded until this and others are there."""
    place: DeliveryContext | None = None
    """Where the requester's answers went when the child was spawned, if that is outside."""
    principal: Principal
    """Whose rights the child has, and what follows from its result."""
    is_sandboxed: bool = False
    """Whether the child, its requester or a session that caused it is sandboxed; so is what follows then."""
    stage: ReportState
    is_taken: bool = False
    """Whether the requester has the result already, by a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides beside the report itself, as it stands in the unit that asks."""

    has_requester: bool = True
    """Whether the requester's session is there."""
    is_present: bool = True
    """Whether the requester's incarnation is still the one that spawned."""
    may_flow: bool = True
    """Whether the requester may read what the child says."""
    may_word: bool = True
    """Whether the child can be asked for words; one that is about to go cannot."""
    is_origin_over: bool = True
    """Whether the run that spawned has ended, or a call from outside spawned."""
    follower: RunId | None = None
    """Another run of the requester, which waits for the result now or has just yielded; what follows waits for it."""
    is_waiter_parked: bool = False
    """Whether the run that yielded still waits."""
    is_last_awaited: bool = False
    """Whether all others have come that it waits for."""


class Then(StrEnum):
    """What begins with a record."""

    NOTHING = "nothing"
    ANSWER = "answer"
    """A run of the requester that goes on with it."""
    CONTINUE = "continue"
    """The run that continues the one which waited for this result and others."""


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The result enters the requester's log."""

    then: Then = Then.NOTHING


@dataclass(frozen=True, slots=True)
class Answer:
    """A run of the requester goes on with the record, which stands in its log already."""


@dataclass(frozen=True, slots=True)
class Word:
    """A turn of the child words what the requester's channel is told."""


@dataclass(frozen=True, slots=True)
class Tell:
    """The requester's channel is told this text."""

    text: str


@dataclass(frozen=True, slots=True)
class PutAway:
    """Nothing more follows: the child is archived or deleted in its time; the attachments of its task go."""

    may_delete: bool = True
    """Whether no run will still go on with the result that the child holds."""


Action = RecordResult | Answer | Word | Tell | PutAway


@dataclass(frozen=True, slots=True)
class ReportTransition:
    """The report's next state, and what has to be done for it, in order."""

    report: Report
    actions: tuple[Action, ...] = ()


def on_child_ended(report: Report, situation: Situation) -> ReportTransition:
    """The run that was to bring the result ended; with `may_word` unset the child is being deleted."""
    assert report.stage is ReportState.OPEN
    if not situation.has_requester or report.requester_incarnation is None:
        return ReportTransition(replace(report, stage=ReportState.KEPT), (PutAway(may_delete=False),))
    if report.waiter is not None:
        return _come_for_waiter(report, situation)
    report = replace(report, origin_run=situation.follower or report.origin_run)
    if not situation.is_origin_over:
        return ReportTransition(replace(report, stage=ReportState.RECORDED), (RecordResult(),))
    following = _following(report, situation)
    if isinstance(following, Answer):
        return ReportTransition(replace(report, stage=ReportState.DONE), (RecordResult(Then.ANSWER), PutAway()))
    return _then(report, (RecordResult(),), following)


def on_origin_ended(report: Report, situation: Situation, *, is_called_off: bool = False) -> ReportTransition:
    """The run that spawned has ended after the result came. If it was called off, nothing follows."""
    assert report.stage is ReportState.RECORDED
    return _then(report, (), None if is_called_off else _following(report, situation))


def on_yield(report: Report, waiter: RunId) -> ReportTransition:
    """The run that spawned ends until all results are there. It goes on with this one, unless that was taken."""
    assert report.stage is ReportState.RECORDED
    if report.is_taken:
        return ReportTransition(replace(report, stage=ReportState.DONE), (PutAway(),))
    come = replace(report, stage=ReportState.DONE, waiter=waiter, is_taken=True)
    return ReportTransition(come, (PutAway(may_delete=False),))


def on_released(report: Report, situation: Situation) -> ReportTransition:
    """The run that waited for it is not continued, and another run had begun it: it has its own consequences again."""
    if report.stage is not ReportState.DONE:
        return ReportTransition(replace(report, waiter=None))
    return _then(
        replace(report, waiter=None, is_taken=False),
        (),
        _following(replace(report, waiter=None, is_taken=False), situation),
    )


def on_waited(report: Report, *, is_wording_called_off: bool) -> ReportTransition:
    """A wait of the requester brought the result: nothing more is told of it.

    A turn that was to word it does not begin any more; one that has begun goes on.
    """
    match report.stage:
        case ReportState.RECORDED | ReportState.DONE:
            return ReportTransition(replace(report, is_taken=True))
        case ReportState.ANNOUNCING if is_wording_called_off:
            return ReportTransition(replace(report, stage=ReportState.DONE, is_taken=True), (PutAway(),))
        case _:
            return ReportTransition(report)


def on_announce_ended(
    report: Report, status: RunStatus, reply: str, record: str, situation: Situation
) -> ReportTransition:
    """The child worded the result, or failed to. What it says reaches the channel unless it rose above its requester.

    Of a conversation that was begun anew since nothing is told any more.
    """
    assert report.stage is ReportState.ANNOUNCING
    done = replace(report, stage=ReportState.DONE)
    text = announced_text(status, reply, record)
    if text is None or report.place is None or not situation.has_requester or not situation.is_present:
        return ReportTransition(done, (PutAway(),))
    return ReportTransition(done, (Tell(text) if situation.may_flow else Answer(), PutAway()))


def on_child_deleted(report: Report, situation: Situation) -> ReportTransition:
    """The child is deleted while it words the result: the requester goes on with the record itself."""
    assert report.stage is ReportState.ANNOUNCING
    is_there = situation.has_requester and situation.is_present
    return ReportTransition(replace(report, stage=ReportState.DONE), (Answer(),) if is_there else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Heir:
    """To whom the children of a deleted session report, and what they report follows: as it did itself."""

    requester: SessionRow | None = None
    """None if nobody is left."""
    incarnation: SessionId | None = None
    run: RunId | None = None
    place: DeliveryContext | None = None
    is_from_outside: bool = False


def on_requester_deleted(report: Report, heir: Heir, *, is_answered: bool, is_newest: bool) -> ReportTransition:
    """The requester's session is deleted: results go to its own requester; without one they are kept.

    What came and was not gone on with (`is_answered` unset) comes anew, to the heir. The newest report of a child
    that stays says to whom it will report, though it is done.
    """
    inherited = replace(
        report,
        requester=heir.requester,
        requester_incarnation=heir.incarnation,
        place=heir.place,
        is_from_outside=heir.is_from_outside,
        waiter=None,
    )
    if report.stage is ReportState.OPEN:
        return ReportTransition(replace(inherited, origin_run=heir.run))
    if not is_answered:
        return ReportTransition(replace(inherited, stage=ReportState.OPEN, is_taken=False, origin_run=heir.run))
    if report.stage is ReportState.DONE and is_newest:
        return ReportTransition(replace(inherited, origin_run=None))
    alone = replace(report, requester=None, origin_run=None, waiter=None)
    if report.stage in (ReportState.RECORDED, ReportState.ANNOUNCING):
        return ReportTransition(replace(alone, stage=ReportState.KEPT), (PutAway(may_delete=False),))
    return ReportTransition(alone)


def announced_text(status: RunStatus, reply: str, record: str) -> str | None:
    """What the requester's channel is told after the announce turn; None where that chose to say nothing.

    The record itself where the turn failed, or has no words for it.
    """
    if status is not RunStatus.OK or not reply.strip():
        return record
    return None if is_silent(reply, ANNOUNCE_SKIP) else reply


def _come_for_waiter(report: Report, situation: Situation) -> ReportTransition:
    come = replace(report, stage=ReportState.DONE, is_taken=True)
    if situation.is_waiter_parked and situation.is_last_awaited:
        return ReportTransition(come, (PutAway(), RecordResult(Then.CONTINUE)))
    return ReportTransition(come, (RecordResult(), PutAway(may_delete=not situation.is_waiter_parked)))


def _following(report: Report, situation: Situation) -> Answer | Word | None:
    """What follows from a record, once the run that spawned the child has ended.

    A child whose words may not flow to its requester says nothing to that one's channel. Contract: spawn 7, flow 6.
    """
    if report.is_taken or report.is_from_outside or not situation.is_present or report.waiter is not None:
        return None
    can_word = report.place is not None and situation.may_flow and situation.may_word
    return Word() if can_word else Answer()


def _then(report: Report, actions: tuple[Action, ...], following: Answer | Word | None) -> ReportTransition:
    if isinstance(following, Word):
        return ReportTransition(replace(report, stage=ReportState.ANNOUNCING), (*actions, following))
    begun = () if following is None else (following,)
    return ReportTransition(replace(report, stage=ReportState.DONE), (*actions, *begun, PutAway()))
