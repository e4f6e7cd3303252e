"""What becomes of a message that somebody wrote on a channel. Contract: access 3, groups 1."""

from enum import StrEnum

from msgspec import Struct

from antiphon.domain.channel_access import ChannelAccess

MOST_PAIRINGS = 3
"""Requests of strangers that are open at once, of one account."""
MOST_WRONG_CODES = 5
"""After so many wrong codes a sender waits for an hour."""


class Admission(StrEnum):
    """What is done with a message before anything is stored in a session."""

    ENTER = "enter"
    """It is posted, or carried out if it is a command."""
    REDEEM = "redeem"
    """It brings a code that links the sender's account to a person."""
    PAIR = "pair"
    """The sender gets a code, and the message waits until an owner admits them."""
    WAIT = "wait"
    """The sender has a code already; the message waits if none does."""
    ASK_OWNERS = "ask_owners"
    """Owners are asked whether the bot may answer in the group."""
    TELL_OWNERS = "tell_owners"
    """Somebody may pretend to be the sender: owners are told, and nothing is taken in."""
    IGNORE = "ignore"


class GroupStanding(StrEnum):
    """What is known about the group in which a message was written."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    CLOSED = "closed"
    """Owners were asked and have not allowed it."""


class AdmissionRequest(Struct, frozen=True, kw_only=True):
    """A message at the door, with what is known about its sender and its chat."""

    access: ChannelAccess
    group: GroupStanding | None = None
    """None in direct chats."""
    is_admitted: bool
    """Whether the sender's account is linked to a person, or an owner has admitted it."""
    is_meant: bool = True
    """Whether the sender addresses the bot, or somebody has added it to the group."""
    is_proven: bool = True
    """Whether the platform proves that the sender wrote it."""
    is_automatic: bool = False
    """Whether a program wrote it by itself; proven or not, nobody is told of it."""
    is_suspended: bool = False
    is_machine: bool = False
    """Whether a program speaks with the sender's account."""
    brings_code: bool = False
    wrong_codes: int = 0
    """Those that the sender has tried within an hour."""
    is_waiting: bool = False
    """Whether the sender's request is open."""
    was_told: bool = False
    """Whether the sender got a code within an hour."""
    open_pairings: int = 0
    """Open requests of the account."""


def decide_admission(request: AdmissionRequest) -> Admission:
    """Groups are open to all their members once an owner has allowed them; direct chats only to admitted senders."""
    if request.is_automatic:
        return Admission.IGNORE
    if not request.is_proven:
        return Admission.TELL_OWNERS
    if request.is_suspended or request.is_machine:
        return Admission.IGNORE
    match request.group:
        case GroupStanding.ALLOWED:
            return Admission.ENTER
        case GroupStanding.UNKNOWN:  # a bot may read more chats than those in which anybody wants it
            return Admission.ASK_OWNERS if request.is_meant else Admission.IGNORE
        case GroupStanding.CLOSED:
            return Admission.IGNORE
        case None:
            pass
    if request.brings_code and request.wrong_codes < MOST_WRONG_CODES:
        return Admission.REDEEM
    if request.is_admitted or request.access is ChannelAccess.PUBLIC:
        return Admission.ENTER
    return _decide_pairing(request)


def decide_after_wrong_code(request: AdmissionRequest) -> Admission:
    """The same for a message whose code was wrong: a stranger's is like any other of theirs."""
    if request.is_admitted or request.access is ChannelAccess.PUBLIC:
        return Admission.ENTER
    return _decide_pairing(request)


def _decide_pairing(request: AdmissionRequest) -> Admission:
    if request.access is ChannelAccess.PRIVATE:
        return Admission.IGNORE
    if request.is_waiting:
        return Admission.WAIT
    if request.was_told or request.open_pairings >= MOST_PAIRINGS:
        return Admission.IGNORE
    return Admission.PAIR
