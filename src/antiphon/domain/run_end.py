"""The end of a run, as a pure machine: by which outcome it ends, and what follows from it.

The engine gathers the facts, asks here, and carries the actions out in the unit that ends the run.
Contract: runs 2, 4, 5, 6, approvals 2, spawn 7, 8.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.run import PLACE_CLEARANCE, RESET, TOLD_CAPS, YIELDED, Outcome, PlaceGot, Purpose, Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import spoken
from antiphon.domain.telling import (
    OF_CUTS,
    OUTWARD,
    QUIET,
    Cause,
    Told,
    cause_of,
    cut_short,
    noted,
    succeeded,
)


class EndFacts(Struct, frozen=True, kw_only=True):
    """The facts that decide in addition to the run and its outcome, as they are in the ending unit."""

    place: DeliveryContext
    """Where its answers go."""
    owes_result: bool = False
    """Whether its session's requester waits for its result."""
    is_parked: bool = False
    """Whether it waits for its children: another run continues it."""
    is_continued: bool = False
    """Whether the run that continues it is about to be queued."""
    said: str | None = None
    """The newest text of its steps that its place has already."""
    may_go: bool = True
    """Whether words that were made of what it held may go to the place."""
    told: tuple[Told, ...] = ()
    """What places of its session were told since a turn succeeded there."""
    is_told_today: bool = False
    """Whether the person was told today that their cap is reached."""


class Speak(Struct, frozen=True):
    """These words go to the place, in the stead of what was shown of them."""

    text: str
    got: PlaceGot = PlaceGot.SENT
    """`flow` if they may not go there."""


class TellPlace(Struct, frozen=True):
    """The place is told why there is no reply."""

    cause: Cause
    is_public: bool
    """Whether nothing that the run held has a part in it."""
    got: PlaceGot = PlaceGot.TOLD


class KeepQuiet(Struct, frozen=True):
    """Nothing more goes to the place; what was shown of the reply is deleted."""

    got: PlaceGot | None
    """None for a place that is not outside."""


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
    | TellPlace
    | KeepQuiet
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


def on_finished(run: Run, outcome: Outcome, around: EndFacts) -> tuple[Action, ...]:
    """What follows from the end of the run, in order. `run` is as it was before."""
    return (*_words(run, outcome, around), *_consequences(run, outcome, around))


def got_by(actions: Sequence[Action]) -> PlaceGot | None:
    """What the place of the run gets; None if it has no place outside."""
    return next((each.got for each in actions if isinstance(each, Speak | TellPlace | KeepQuiet)), None)


def told_after(around: EndFacts, outcome: Outcome, actions: Sequence[Action]) -> tuple[Told, ...]:
    """What places of the session were told since a turn succeeded there, once the run has ended."""
    telling = next((each for each in actions if isinstance(each, TellPlace)), None)
    if telling is not None:
        return around.told if outcome.code in TOLD_CAPS else noted(around.told, around.place, telling.cause)
    return succeeded(around.told, around.place) if outcome.status is RunStatus.OK else around.told


def _words(run: Run, outcome: Outcome, around: EndFacts) -> tuple[Action, ...]:
    """What its place gets, once: words, a reason why there are none, or silence."""
    noted_place = (NotePlace(),) if outcome.code == PLACE_CLEARANCE else ()
    if not run.purpose.speaks_for_itself:
        return noted_place
    return (_of_place(run, outcome, around), *noted_place)


def _of_place(run: Run, outcome: Outcome, around: EndFacts) -> Speak | TellPlace | KeepQuiet:
    if not around.place.is_outside:
        return KeepQuiet(None)
    said_before = KeepQuiet(PlaceGot.SENT if around.said is not None else PlaceGot.WITHDRAWN)
    is_called_off = outcome.status is RunStatus.CANCELLED or outcome.code in QUIET - {YIELDED} or run.code == RESET
    if is_called_off or around.is_continued:
        return said_before
    cause, text = _cause(outcome), spoken(outcome.reply).strip()
    if text:
        if text == around.said and cause is None:
            return said_before
        if text != around.said:
            whole = outcome.reply if cause is None else cut_short(text, cause)
            return Speak(whole, PlaceGot.SENT if around.may_go else PlaceGot.FLOW)
    elif outcome.status is RunStatus.OK and (outcome.reply.strip() or around.is_parked or around.said is not None):
        is_chosen = bool(outcome.reply.strip()) and around.said is None
        return KeepQuiet(PlaceGot.MARKER) if is_chosen else said_before
    return _telling(outcome, cause or Cause.EMPTY, around)


def _cause(outcome: Outcome) -> Cause | None:
    """Why the reply is not whole; None if it is."""
    if outcome.status is not RunStatus.OK:
        return cause_of(outcome.code)
    return None if outcome.cut is None else OF_CUTS[outcome.cut]


def _telling(outcome: Outcome, cause: Cause, around: EndFacts) -> TellPlace | KeepQuiet:
    """The sentence; once for each cause and place until a turn succeeds there, and of a cap once a day."""
    is_public = cause in OUTWARD or outcome.code in TOLD_CAPS
    if outcome.code == PLACE_CLEARANCE or not (is_public or around.may_go):
        return KeepQuiet(PlaceGot.FLOW)
    is_known = around.is_told_today if outcome.code in TOLD_CAPS else Told(around.place, cause) in around.told
    return KeepQuiet(PlaceGot.TOLD_BEFORE) if is_known else TellPlace(cause, is_public)


def _consequences(run: Run, outcome: Outcome, around: EndFacts) -> tuple[Action, ...]:
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


def _takes_children_along(run: Run, outcome: Outcome, around: EndFacts) -> bool:
    """A cancelled run does, even if it ended first; a timed-out one does if others await its result."""
    if outcome.status is RunStatus.TIMEOUT:
        return around.owes_result
    return outcome.status is RunStatus.CANCELLED or run.is_cancel_requested


def code_of(outcome: Outcome, *, is_parked: bool) -> str | None:
    """The code of the ended run; one that goes on in another run says so."""
    return YIELDED if is_parked and outcome.status is RunStatus.OK else outcome.code
