"""What people are told in place of a reply: by its cause, who reads it, and what was shown before. Contract: groups 4.

Pure. Each code with which runs end has one cause, or is an end that needs no words; a test holds the table against all
codes that exist.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from antiphon.domain.message import Cut
from antiphon.domain.person import PersonRole
from antiphon.domain.run import GUESTS_CAP, PERSON_CAP, PLACE_CLEARANCE, RESET, YIELDED
from antiphon.domain.session import DeliveryContext


class Cause(StrEnum):
    """Why a place gets no whole reply."""

    AWAY = "provider_away"
    KEY = "key_or_quota"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    CUT = "cut"
    EMPTY = "empty"
    LIMIT = "limit"
    """A limit of ours."""
    FAULT = "fault"
    """A fault of ours."""


class ShownPart(StrEnum):
    """What the place has of the reply."""

    NOTHING = "nothing"
    PART = "part"
    """Its beginning, which the words follow."""


class Told(NamedTuple):
    """A place was told of a cause, and no turn has succeeded there since."""

    place: DeliveryContext
    cause: Cause


class ToldText(NamedTuple):
    """What a place was told in the stead of a reply."""

    at_ms: int
    channel: str
    to: str
    text: str


CAUSES: Mapping[str, Cause] = {
    "model_unreachable": Cause.AWAY,
    "model_stalled": Cause.AWAY,
    "model_server_error": Cause.AWAY,
    "model_key_missing": Cause.KEY,
    "model_authentication": Cause.KEY,
    "model_rate_limited": Cause.KEY,
    "model_quota": Cause.KEY,
    "model_not_found": Cause.KEY,
    "model_context_too_long": Cause.TOO_LONG,
    "acp_auth": Cause.KEY,
    "model_refused": Cause.REFUSED,
    "model_filtered": Cause.REFUSED,
    "model_stream_cut": Cause.CUT,
    "empty_answer": Cause.EMPTY,
    "run_timeout": Cause.LIMIT,
    "limit_model_calls": Cause.LIMIT,
    "limit_tool_calls": Cause.LIMIT,
    "limit_tokens": Cause.LIMIT,
    "limit_cost": Cause.LIMIT,
    "daily_cap": Cause.LIMIT,
    PERSON_CAP: Cause.LIMIT,
    GUESTS_CAP: Cause.LIMIT,
    PLACE_CLEARANCE: Cause.LIMIT,
    "above_clearance": Cause.LIMIT,
    "model_clearance": Cause.LIMIT,
    "runner_clearance": Cause.LIMIT,
    "runner_failed": Cause.FAULT,
    "nested_approval": Cause.FAULT,
    "nested_call": Cause.FAULT,
    "runner_answer": Cause.FAULT,
    "runner_diverged": Cause.FAULT,
    "own_name_taken": Cause.FAULT,
    "acp_stalled": Cause.AWAY,
    "acp_unsandboxed": Cause.FAULT,
    "acp_not_configured": Cause.FAULT,
    "acp_not_started": Cause.FAULT,
    "acp_protocol": Cause.FAULT,
    "acp_version": Cause.FAULT,
    "acp_ended": Cause.FAULT,
    "acp_unasked": Cause.FAULT,
    "acp_failed": Cause.FAULT,
    "tool_failures": Cause.FAULT,
    "schema_mismatch": Cause.FAULT,
    "child_failed": Cause.FAULT,
    "crashed": Cause.FAULT,
    "recovered": Cause.FAULT,
    "internal_error": Cause.FAULT,
    "out_of_memory": Cause.FAULT,
    "unreadable_entry": Cause.FAULT,
    "unknown_agent": Cause.FAULT,
    "unknown_model": Cause.FAULT,
    "invalid_provider": Cause.FAULT,
    "package_missing": Cause.FAULT,
    "workspace_unsafe": Cause.FAULT,
    "workspace_unusable": Cause.FAULT,
}
QUIET = frozenset({"cancelled", "suspended", "session_deleted", "taken", RESET, YIELDED})
"""Codes of ends that somebody chose, or that another run continues."""
OF_CHECKPOINTS = frozenset({"nothing_new", "checkpoint_running", "checkpoints_off"})
"""Codes of checkpoints alone, which have no place."""
OF_CUTS: Mapping[Cut, Cause] = {
    Cut.LENGTH: Cause.LIMIT,
    Cut.FILTER: Cause.REFUSED,
    Cut.REFUSAL: Cause.REFUSED,
    Cut.STREAM: Cause.CUT,
}
"""Why an answer was cut that is a reply nevertheless."""
OUTWARD = frozenset({Cause.AWAY, Cause.KEY})
"""Causes that no word of the conversation has a part in; words about others are made of what the run was made of."""

_PLAIN = {
    Cause.AWAY: "The AI service cannot be reached at the moment; please try again later.",
    Cause.KEY: "The AI service takes no requests from here at the moment; please try again later.",
    Cause.TOO_LONG: "This conversation has become too long to go on with; please begin a new one with /new.",
    Cause.REFUSED: "The AI service declined to answer this; please put it another way.",
    Cause.CUT: "The answer broke off before there was anything to show; please ask again.",
    Cause.EMPTY: "There was no answer, although I asked twice; please ask again.",
    Cause.LIMIT: "This needs more than is allowed here, so I stopped; please ask for less at once, or try again later.",
    Cause.FAULT: "Something went wrong on our side; please try again later.",
}
_FOR_OWNERS = {
    Cause.AWAY: "The model's provider does not answer; try again in a few minutes, and run `antiphon doctor` if it "
    "stays away.",
    Cause.KEY: "The model's provider refuses the key or the model, or the quota is used up; check these there, or run "
    "`antiphon doctor`.",
    Cause.TOO_LONG: "The conversation does not fit into the model, even shortened; begin a new one with /new, or use a "
    "model with a larger context.",
    Cause.REFUSED: "The model's provider refuses this request; put it another way, or read the run's error with "
    "`antiphon runs`.",
    Cause.CUT: "The answer broke off before there was anything to show; ask again, and look at the provider if it "
    "happens often.",
    Cause.EMPTY: "The model gave an empty answer twice; ask again, or use another model.",
    Cause.LIMIT: "A limit of the settings ended this turn; `antiphon runs` says which one, so raise it or ask for less "
    "at once.",
    Cause.FAULT: "Something went wrong in Antiphon; `antiphon runs` and its log say what.",
}
_AFTER_A_PART = {
    Cause.REFUSED: "(The AI service held back the rest of this answer.)",
    Cause.LIMIT: "(A limit ended the answer here; ask for the rest in a new message.)",
}
_BROKE_OFF = "(The answer broke off here; ask for the rest in a new message.)"
_CODE_FENCE = "```"
_END_OF_CODE = "\n```"
_CAPS = {
    PERSON_CAP: "Your share for today is used up; I answer again tomorrow (UTC).",
    GUESTS_CAP: "The share of all guests for today is used up; I answer again tomorrow (UTC).",
}


def cause_of(code: str | None) -> Cause:
    """Why a run that did not end well gives no reply; a code that nobody knows is a fault of ours."""
    return CAUSES.get(code or "", Cause.FAULT)


def sentence(
    cause: Cause, role: PersonRole | None, shown: ShownPart = ShownPart.NOTHING, *, code: str | None = None
) -> str:
    """One plain sentence. Only an owner reads of providers, settings and commands; None is anybody else.

    `code` chooses between limits that people can tell apart.
    """
    if shown is ShownPart.PART:
        return _AFTER_A_PART.get(cause, _BROKE_OFF)
    if code in _CAPS:
        return _CAPS[code]
    return (_FOR_OWNERS if role is PersonRole.OWNER else _PLAIN)[cause]


def cut_short(text: str, cause: Cause) -> str:
    """The beginning of an answer, with a word that it is not whole."""
    is_in_code = text.count(_CODE_FENCE) % 2 == 1
    return f"{text}{_END_OF_CODE if is_in_code else ''}\n\n{sentence(cause, None, ShownPart.PART)}"


def noted(told: tuple[Told, ...], place: DeliveryContext, cause: Cause) -> tuple[Told, ...]:
    """What was told, with this."""
    new = Told(place, cause)
    return told if new in told else (*told, new)


def succeeded(told: tuple[Told, ...], place: DeliveryContext) -> tuple[Told, ...]:
    """What is left of it once a turn has succeeded at the place."""
    return tuple(each for each in told if each.place != place)
