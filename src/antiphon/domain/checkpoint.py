"""When a session looks back at what it did since its last successful checkpoint. Contract: checkpoints 1.

A pure machine: each function takes what happened and returns what follows. `engine/checkpoints` carries it out.
"""

from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from antiphon.domain.run import MAX_ATTEMPTS

PASSIVE_MESSAGES = 20
"""Messages of a group that started no run, after which it has a checkpoint."""
OFFLINE = "offline"
"""The model for trials, which never looks back."""
HARNESS = "acp"
"""Before the name of a harness, in the place of a provider: only the harness knows its model."""
LONGEST_BACKOFF = timedelta(days=1)
AGAIN = timedelta(seconds=2)
"""When to look again at a busy session for which somebody asked."""
MOST_FAILURES = 5
"""After that many failures in a row an ended incarnation is left as it is."""
CHECKPOINT_SOURCES = frozenset({"cli", "api", "channel"})
"""The kinds of sources of sessions in which people write."""


class CheckpointReason(StrEnum):
    MANUAL = "manual"
    """Somebody asked for it."""
    NEW_SESSION = "new_session"
    """The session was reset, or left behind by a new one."""
    TURN_LIMIT = "turn_limit"
    IDLE = "idle"
    PASSIVE = "passive"
    """Messages came in a group that started no run."""


class CheckpointRules(Struct, frozen=True, kw_only=True):
    is_enabled: bool = True
    turns: int = 5
    """Completed turns after which a session has a checkpoint."""
    idle: timedelta = timedelta(minutes=10)
    """How long after its last turn a session has one."""
    model: str | None = None
    """The model that looks back; None for the session's own."""

    def model_for(self, own: str) -> str | None:
        """The model that looks back at a session with that model; None if the session has no checkpoints."""
        model = self.model or own
        has_own = own.partition(":")[0] != HARNESS
        return None if not self.is_enabled or OFFLINE in (own, model) or not (self.model or has_own) else model


def has_checkpoints(source_kind: str, own_model: str, rules: CheckpointRules) -> bool:
    """Whether a session from there, with that model, ever looks back."""
    return source_kind in CHECKPOINT_SOURCES and rules.model_for(own_model) is not None


class Uncovered(Struct, frozen=True, kw_only=True):
    """What an incarnation did since its last successful checkpoint began."""

    turns: int = 0
    """Completed turns."""
    untriggered: int = 0
    """Messages of a group that started no run."""


class DueState(Struct, frozen=True, kw_only=True):
    """What the row of an incarnation says when its time has come."""

    uncovered: Uncovered
    has_news: bool
    """Whether a message or an error lies behind the cursor."""
    is_busy: bool = False
    """Whether the session has a run that has not ended; False for an ended incarnation."""
    asked: CheckpointReason | None = None
    begun: CheckpointReason | None = None
    """The reason of the checkpoint whose process has died."""
    attempt: int = 0
    again_at: int | None = None
    """In milliseconds: before that, only what was asked for begins."""


class LookBack(Struct, frozen=True):
    reason: CheckpointReason


class GiveUp(Struct, frozen=True):
    """The process died too often during this one: it fails."""

    reason: CheckpointReason


class PutOff(Struct, frozen=True):
    at_ms: int


class Drop(Struct, frozen=True):
    """Nothing is due."""


DROP = Drop()
Action: TypeAlias = LookBack | GiveUp | PutOff | Drop


def on_turn_ended(turns: int, rules: CheckpointRules, at_ms: int) -> int:
    """When the next checkpoint is due, with that many turns uncovered; at once if the limit is reached."""
    return at_ms if turns >= rules.turns else at_ms + milliseconds_of(rules.idle)


def on_message_untriggered(untriggered: int, at_ms: int) -> int | None:
    """When it is due, with that many messages uncovered; None leaves it as it is."""
    return at_ms if untriggered >= PASSIVE_MESSAGES else None


class CheckpointAnswer(StrEnum):
    """What somebody gets who asks for a checkpoint."""

    ASKED = "asked"
    RUNNING = "checkpoint_running"
    """Another one is at work, or was asked for before."""
    NOTHING_NEW = "nothing_new"
    OFF = "checkpoints_off"
    """The session never looks back."""


def on_asked(*, has_news: bool, is_asked: bool, is_at_work: bool) -> CheckpointAnswer:
    """The answer to a person."""
    if is_asked or is_at_work:
        return CheckpointAnswer.RUNNING
    return CheckpointAnswer.ASKED if has_news else CheckpointAnswer.NOTHING_NEW


def on_left(*, has_news: bool, is_asked: bool) -> CheckpointAnswer:
    """What follows when a conversation is reset or left behind; one at work may not cover its end."""
    if is_asked:
        return CheckpointAnswer.RUNNING
    return CheckpointAnswer.ASKED if has_news else CheckpointAnswer.NOTHING_NEW


def on_due(due: DueState, rules: CheckpointRules, at_ms: int) -> Action:
    """What to do with an incarnation whose time has come. Never begins beside a run: the run's end comes first."""
    if due.begun is not None:
        return GiveUp(due.begun) if due.attempt >= MAX_ATTEMPTS else LookBack(due.begun)
    if not due.has_news:
        return DROP
    if due.is_busy:
        return PutOff(at_ms + milliseconds_of(rules.idle if due.asked is None else AGAIN))
    if due.asked is not None:
        return LookBack(due.asked)
    if due.again_at is not None and due.again_at > at_ms:
        return PutOff(due.again_at)
    if due.uncovered.untriggered >= PASSIVE_MESSAGES:
        return LookBack(CheckpointReason.PASSIVE)
    if due.uncovered.turns >= rules.turns:
        return LookBack(CheckpointReason.TURN_LIMIT)
    return LookBack(CheckpointReason.IDLE)


def on_finished(left: Uncovered, rules: CheckpointRules, at_ms: int) -> int | None:
    """When the next one is due after a success; `left` came while it was at work."""
    if left.untriggered >= PASSIVE_MESSAGES:
        return at_ms
    return on_turn_ended(left.turns, rules, at_ms) if left.turns > 0 else None


def on_failed(failures: int, rules: CheckpointRules, at_ms: int) -> int:
    """When the same range is tried again after that many failures in a row."""
    backoff = milliseconds_of(rules.idle) * 2 ** min(failures - 1, 20)
    return at_ms + min(backoff, milliseconds_of(LONGEST_BACKOFF))


def milliseconds_of(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
