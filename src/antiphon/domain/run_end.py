"""The end of a run, as a pure machine: by which outcome it ends, and what follows from it.

The engine gathers the facts, asks here, and carries the actions out in the unit that ends the run.
Contract: runs 2, 4, 5, 6, approvals 2, spawn 7, 8.
"""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.run import PLACE_CLEARANCE, RESET, TOLD_CAPS, YIELDED, Outcome, Purpose, Run, RunStatus
from antiphon.domain.session import DeliveryContext


class Around(Struct, frozen=True, kw_only=True):
    """The facts that decide in addition to the run and its outcome, as they are in the ending unit."""

    place: DeliveryContext
    """Where its answers go."""
    owes_result: bool = False
    """Whether its session's requester waits for its result."""
    is_parked: bool = False
    """Whether it waits for its children: another run continues it."""
    is_continued: bool = False
    """Whether the run that continues it is about to be queued."""


class Speak(Struct, frozen=True):
    """The reply goes to the place, in the stead of what was shown of it."""

    text: str


class TellOfCap(Struct, frozen=True):
    """The person hears in their chat that a cap is reached, once a day."""

    text: str


class TakeBack(Struct, frozen=True):
    """What was shown of the reply is deleted."""


class NotePlace(Struct, frozen=True):
    """The log tells owners which place may not have what the session holds."""


class AdvanceExchanges(Struct, frozen=True):
    """The exchanges go on whose requests it sent, and the one that it belongs to unless another run continues it."""


class WaitForChildren(Struct, frozen=True):
    """It waits for all children of its session; it is continued at once if they have ended."""


class CallOffChildren(Struct, frozen=True):
    """The work that it gave to children is cancelled."""


class SettleResults(Struct, frozen=True):
    """The result that it owes reaches its requester, and results of its own children are followed up."""


class EndSlot(Struct, frozen=True):
    """The slot of its task is over."""


Action = (
    Speak
    | TellOfCap
    | TakeBack
    | NotePlace
    | AdvanceExchanges
    | WaitForChildren
    | CallOffChildren
    | SettleResults
    | EndSlot
)


def outcome_of(run: Run, reported: Outcome) -> Outcome:
    """The outcome by which the run ends: a reset, or the cancellation of a run that yields, goes before the report."""
    if run.is_cancel_requested and run.code == RESET:
        return replace(reported, status=RunStatus.CANCELLED, code=RESET, error="The session was reset.")
    if run.is_cancel_requested and run.is_yielding and reported.status is RunStatus.OK:
        # The run ends without final words, and nothing will continue it.
        return replace(reported, status=RunStatus.CANCELLED, code="cancelled", error="The run was cancelled.")
    return reported


def has_new_input(run: Run, outcome: Outcome, *, saw: int | None) -> bool:
    """Whether the run goes on: a message joined it that its last step had not seen. Contract: runs 4."""
    return outcome.status is RunStatus.OK and saw is not None and run.newest_seq > saw


def on_finished(run: Run, outcome: Outcome, around: Around) -> tuple[Action, ...]:
    """What follows from the end of the run, in order. `run` is as it was before."""
    return (*_words(run, outcome, around), *_consequences(run, outcome, around))


def _words(run: Run, outcome: Outcome, around: Around) -> tuple[Action, ...]:
    """What its place gets."""
    noted = (NotePlace(),) if outcome.code == PLACE_CLEARANCE else ()
    if not run.purpose.speaks_for_itself or run.status is RunStatus.QUEUED:
        return noted
    if outcome.status is RunStatus.OK and run.code != RESET and not around.is_continued:
        return (Speak(outcome.reply), *noted)
    told = (TellOfCap(outcome.error or ""),) if outcome.code in TOLD_CAPS else ()
    return (*told, TakeBack(), *noted)


def _consequences(run: Run, outcome: Outcome, around: Around) -> tuple[Action, ...]:
    """What follows for exchanges, for the session that spawned the run, for its children and its task."""
    if around.is_continued:
        return (AdvanceExchanges(),)
    if around.is_parked:
        return (AdvanceExchanges(), WaitForChildren())
    actions: list[Action] = []
    if run.has_spawned and _takes_children_along(run, outcome, around):
        actions.append(CallOffChildren())
    actions.append(AdvanceExchanges())
    if around.owes_result or run.announces is not None or run.has_spawned:
        actions.append(SettleResults())
    if run.purpose is Purpose.TASK:
        actions.append(EndSlot())
    return tuple(actions)


def _takes_children_along(run: Run, outcome: Outcome, around: Around) -> bool:
    """A cancelled run does, even if it ended first; a timed-out one does if others await its result."""
    if outcome.status is RunStatus.TIMEOUT:
        return around.owes_result
    return outcome.status is RunStatus.CANCELLED or run.is_cancel_requested


def code_of(outcome: Outcome, *, is_parked: bool) -> str | None:
    """The code of the ended run; one that goes on in another run says so."""
    return YIELDED if is_parked and outcome.status is RunStatus.OK else outcome.code
