"""A report: the result that a child owes to its requester, and the actions that follow when it arrives.

A pure state machine. The engine passes events in and carries out the actions it returns; between a child's end and
the next action, only the report's row exists. Contract: spawn 7, 8.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.exchange import ANNOUNCE_SKIP
from antiphon.domain.ids import RunId, SessionId, SessionRow, TaskId
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import is_silent


class ReportState(StrEnum):
    """How far a result has come on its way to the requester."""

    OPEN = "open"
    """The child works, or waits for children of its own."""
    RECORDED = "recorded"
    """The requester's log contains it; the next action waits for the end of the run that spawned the child."""
    ANNOUNCING = "announcing"
    """The child words the text for the requester's channel."""
    DONE = "done"
    KEPT = "kept"
    """No recipient is left: the result stays in the child's log and is listed."""


class Report(Struct, frozen=True, kw_only=True):
    """One row."""

    id: str
    """The id of the first run that was to bring the result; a spawn answers it as `runId`."""
    run: RunId
    """The run whose end brings the result: the first, or the one that continues it."""
    child: SessionRow
    requester: SessionRow | None
    """None once no recipient is left."""
    requester_incarnation: SessionId | None
    origin_run: RunId | None
    """The requester's run that must end before anything follows; the spawning one, or its continuation."""
    is_from_outside: bool = False
    """Whether a call from outside a run spawned it: its record starts nothing. Contract: tools 1."""
    waiter: RunId | None = None
    """The requester's run that yielded until this and other results arrive."""
    place: DeliveryContext | None = None
    """The place of the requester's answers when the child was spawned, if that is outside."""
    principal: Principal
    """The principal whose rights the child has, and all runs that follow from its result."""
    is_sandboxed: bool = False
    """Whether the child, its requester or a session that caused it is sandboxed; then so are the runs that follow."""
    task: TaskId | None = None
    """The task that caused the child's work, and so the runs that follow."""
    stage: ReportState
    is_taken: bool = False
    """Whether the requester already has the result through a wait."""

    @property
    def is_of_task(self) -> bool:
        """Whether a task's own run brings it to a chat, where its record starts nothing. Contract: tasks 1."""
        return self.task is not None and self.is_from_outside and self.origin_run is None


class Situation(Struct, frozen=True, kw_only=True):
    """The facts that decide in addition to the report, as they are in the deciding unit."""

    has_requester: bool = True
    """Whether the requester's session exists."""
    is_present: bool = True
    """Whether the requester's incarnation is still the one that spawned."""
    may_flow: bool = True
    """Whether the requester may read what the child says."""
    may_word: bool = True
    """Whether the child can word a text; a child that is about to be deleted, or was reset since, cannot."""
    is_in_thread: bool = False
    """Whether people have had the answer in a thread of the child's own."""
    is_origin_over: bool = True
    """Whether the run that spawned has ended, or a call from outside spawned."""
    follower: RunId | None = None
    """Another run of the requester that waits for the result or has just yielded; the next action waits for it."""
    is_waiter_parked: bool = False
    """Whether the run that yielded still waits."""
    is_last_awaited: bool = False
    """Whether all other results that it waits for have arrived."""


class Then(StrEnum):
    """The action that begins with a record."""

    NOTHING = "nothing"
    ANSWER = "answer"
    """A run of the requester that continues with it."""
    CONTINUE = "continue"
    """The run that continues the one that waited for this result and others."""


class RecordResult(Struct, frozen=True):
    """The result is stored in the requester's log."""

    then: Then = Then.NOTHING


class AnswerRequest(Struct, frozen=True):
    """A run of the requester continues with the record, which is in its log already."""


class Word(Struct, frozen=True):
    """A turn of the child words the text for the requester's channel."""


class Tell(Struct, frozen=True):
    """This text goes to the requester's channel."""

    text: str


class PutAway(Struct, frozen=True):
    """Nothing more follows: the child is archived or deleted when due; the attachments of its task are deleted."""

    may_delete: bool = True
    """Whether no run will still use the result that the child holds."""


Action = RecordResult | AnswerRequest | Word | Tell | PutAway


class ReportTransition(Struct, frozen=True):
    """The report's next state, and the resulting actions, in order."""

    report: Report
    actions: tuple[Action, ...] = ()


def on_child_ended(report: Report, situation: Situation) -> ReportTransition:
    """Handles the end of the run that was to bring the result; `may_word` is unset while the child is being deleted."""
    assert report.stage is ReportState.OPEN
    if not situation.has_requester or report.requester_incarnation is None:
        return ReportTransition(replace(report, stage=ReportState.KEPT), (PutAway(may_delete=False),))
    if report.waiter is not None:
        return _come_for_waiter(report, situation)
    report = replace(report, origin_run=situation.follower or report.origin_run)
    if not situation.is_origin_over:
        return ReportTransition(replace(report, stage=ReportState.RECORDED), (RecordResult(),))
    following = _following(report, situation)
    if isinstance(following, AnswerRequest):
        return ReportTransition(replace(report, stage=ReportState.DONE), (RecordResult(Then.ANSWER), PutAway()))
    return _then(report, (RecordResult(),), following)


def on_origin_ended(report: Report, situation: Situation, *, is_called_off: bool = False) -> ReportTransition:
    """Handles the end of the run that spawned, after the result arrived. If it was called off, nothing follows."""
    assert report.stage is ReportState.RECORDED
    return _then(report, (), None if is_called_off else _following(report, situation))


def on_yield(report: Report, waiter: RunId) -> ReportTransition:
    """The run that spawned waits until all results arrive. It continues with this one, unless it has taken it."""
    assert report.stage is ReportState.RECORDED
    if report.is_taken:
        return ReportTransition(replace(report, stage=ReportState.DONE), (PutAway(),))
    come = replace(report, stage=ReportState.DONE, waiter=waiter, is_taken=True)
    return ReportTransition(come, (PutAway(may_delete=False),))


def on_released(report: Report, situation: Situation) -> ReportTransition:
    """The waiting run is not continued, and another run began this report: its own consequences apply again."""
    if report.stage is not ReportState.DONE:
        return ReportTransition(replace(report, waiter=None))
    return _then(
        replace(report, waiter=None, is_taken=False),
        (),
        _following(replace(report, waiter=None, is_taken=False), situation),
    )


def on_waited(report: Report, *, is_wording_called_off: bool) -> ReportTransition:
    """A wait of the requester brought the result: it is not announced any more.

    A turn that was to word it does not begin; one that has begun continues.
    """
    match report.stage:
        case ReportState.RECORDED | ReportState.DONE:
            return ReportTransition(replace(report, is_taken=True))
        case ReportState.ANNOUNCING if is_wording_called_off:
            return ReportTransition(replace(report, stage=ReportState.DONE, is_taken=True), (PutAway(),))
        case _:
            return ReportTransition(report)


def on_announce_ended(report: Report, text: str | None, situation: Situation) -> ReportTransition:
    """Handles the end of the announce turn, whose `text` reaches the channel if it may still flow to the requester.

    After a reset of the requester, nothing is announced.
    """
    assert report.stage is ReportState.ANNOUNCING
    done = replace(report, stage=ReportState.DONE)
    if text is None or report.place is None or not situation.has_requester or not situation.is_present:
        return ReportTransition(done, (PutAway(),))
    return ReportTransition(done, (Tell(text) if situation.may_flow else AnswerRequest(), PutAway()))


def on_child_deleted(report: Report, situation: Situation) -> ReportTransition:
    """The child is deleted while it words the result: the requester continues with the record itself."""
    assert report.stage is ReportState.ANNOUNCING
    is_there = situation.has_requester and situation.is_present
    return ReportTransition(replace(report, stage=ReportState.DONE), (AnswerRequest(),) if is_there else ())


class Heir(Struct, frozen=True, kw_only=True):
    """The new requester of a deleted session's children, with the attributes of the deleted session's own report."""

    requester: SessionRow | None = None
    """None if no recipient is left."""
    incarnation: SessionId | None = None
    run: RunId | None = None
    place: DeliveryContext | None = None
    is_from_outside: bool = False


def on_requester_deleted(report: Report, heir: Heir, *, is_answered: bool, is_newest: bool) -> ReportTransition:
    """The requester's session is deleted: results go to its own requester; without one they are kept.

    Results that arrived but were not continued with (`is_answered` unset) go to the heir again. For a child that stays,
    the newest report records its next requester, even if it is done.
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
    """The text for the requester's channel after the announce turn; None if the turn chose silence.

    The record itself if the turn failed or has no words for it.
    """
    if status is not RunStatus.OK or not reply.strip():
        return record
    return None if is_silent(reply, ANNOUNCE_SKIP) else reply


def _come_for_waiter(report: Report, situation: Situation) -> ReportTransition:
    come = replace(report, stage=ReportState.DONE, is_taken=True)
    if situation.is_waiter_parked and situation.is_last_awaited:
        return ReportTransition(come, (PutAway(), RecordResult(Then.CONTINUE)))
    return ReportTransition(come, (RecordResult(), PutAway(may_delete=not situation.is_waiter_parked)))


def _following(report: Report, situation: Situation) -> AnswerRequest | Word | None:
    """The action that follows from a record, once the run that spawned the child has ended.

    A child whose words may not flow to its requester writes nothing to its channel. Contract: spawn 7, flow 6.
    """
    if situation.is_in_thread:
        return None
    if report.is_taken or report.is_from_outside or not situation.is_present or report.waiter is not None:
        return None
    can_word = report.place is not None and situation.may_flow and situation.may_word
    return Word() if can_word else AnswerRequest()


def _then(report: Report, actions: tuple[Action, ...], following: AnswerRequest | Word | None) -> ReportTransition:
    if isinstance(following, Word):
        return ReportTransition(replace(report, stage=ReportState.ANNOUNCING), (*actions, following))
    begun = () if following is None else (following,)
    return ReportTransition(replace(report, stage=ReportState.DONE), (*actions, *begun, PutAway()))
