"""What happens when the clock goes back: nothing waits longer than its longest wait, counted from now.

Times in rows were made by the clock as it was. After it went back by a day, all of them lie a day further ahead.
"""

import logging
import math
from datetime import timedelta

from antiphon.clock import Clock
from antiphon.domain.checkpoint import LONGEST_BACKOFF, CheckpointRules
from antiphon.domain.delivery import BUSY, LONGEST_WISH, MAX_ATTEMPTS, wait_before_next
from antiphon.domain.delivery import LONGEST_WAIT as LONGEST_WAIT_OF_TEXT
from antiphon.domain.inbound import LONGEST_HOLD
from antiphon.engine.access.signin import BROWSER_LIFE
from antiphon.engine.children.wait import MARGIN
from antiphon.engine.ledger.waits import LONGEST_WAIT
from antiphon.store.database import Database
from antiphon.store.due_times import DueTime, list_far, pull_in

logger = logging.getLogger(__name__)

SLACK_MS = 1_000
"""A clock that is set back by less has only been corrected."""
LATER_MS = 60_000
"""When to look again at a child that is busy when its time comes."""


def _milliseconds(wait: timedelta) -> str:
    return str(wait // timedelta(milliseconds=1))


def _wait_of_text() -> str:
    """A text's own wait after its attempts. How long the platform asked to wait is not stored: an hour at most."""
    waits = {attempts: _milliseconds(wait_before_next(attempts, None)) for attempts in range(1, MAX_ATTEMPTS)}
    cases = " ".join(f"WHEN attempts = {attempts} THEN {wait}" for attempts, wait in waits.items())
    wish, longest = _milliseconds(LONGEST_WISH), _milliseconds(LONGEST_WAIT_OF_TEXT)
    return f"CASE WHEN attempts = 0 THEN 0 WHEN code = '{BUSY}' THEN {wish} {cases} ELSE {longest} END"


_WAIT_OF_TEXT = _wait_of_text()

DUE_TIMES = (
    DueTime(
        table="deliveries",
        column="due_at",
        longest=_WAIT_OF_TEXT,
        rows="status = 'queued'",
        session="session",
    ),
    DueTime(table="deliveries", column="created_at", rows="status IN ('queued', 'claimed')", session="session"),
    DueTime(
        table="spawns",
        column="due_at",
        longest=f"archive_after + {LATER_MS}",
        rows="cleanup = 'keep' AND archive_after IS NOT NULL",
        session="child",
    ),
    DueTime(
        table="spawns",
        column="due_at",
        longest=_milliseconds(LONGEST_WAIT + MARGIN),
        rows="cleanup = 'delete'",
        session="child",
    ),
    DueTime(
        table="spawns",
        column="kept_until",
        longest=_milliseconds(LONGEST_WAIT + MARGIN),
        rows="kept_until IS NOT NULL",
        session="child",
    ),
    DueTime(
        table="runs",
        column="started_at",
        rows="is_parked = 1 AND deadline IS NOT NULL",
        session="session",
        end="deadline",
    ),
    DueTime(table="approvals", column="asked_at", rows="state = 'pending'", session="session", end="expires_at"),
    DueTime(
        table="tokens",
        column="created_at",
        rows="kind IN ('link', 'person', 'channel', 'node') AND expires_at IS NOT NULL",
        end="expires_at",
    ),
    DueTime(table="tokens", column="expires_at", longest=_milliseconds(BROWSER_LIFE), rows="kind = 'browser'"),
    DueTime(table="tokens", column="last_used_at", rows="kind = 'browser'"),
    DueTime(
        table="tokens",
        column="created_at",
        rows="kind = 'session' AND expires_at IS NOT NULL",
        session="session",
        end="expires_at",
    ),
    DueTime(table="held_messages", column="held_at", rows="id > 0", end="open_until"),
    DueTime(table="held_messages", column="due_at", longest=_milliseconds(LONGEST_HOLD), rows="id > 0"),
    DueTime(table="pairings", column="created_at", rows="state = 'open'", end="expires_at"),
    DueTime(table="link_codes", column="created_at", rows="expires_at > 0", end="expires_at"),
    DueTime(table="link_undos", column="created_at", rows="expires_at > 0", end="expires_at"),
    DueTime(table="thread_bindings", column="used_at", rows="ends_at IS NOT NULL", session="child", end="ends_at"),
    DueTime(table="thread_bindings", column="bound_at", rows="max_age_ms IS NOT NULL", session="child"),
    DueTime(table="sessions", column="interacted_at", rows="deleted_at IS NULL", session="id"),
    DueTime(table="incarnations", column="started_at", rows="ended_at IS NULL", session="session"),
)
"""Stored times that something waits for, besides checkpoints. Waits of a process end by its own monotonic time."""


def due_times(rules: CheckpointRules) -> tuple[DueTime, ...]:
    """Every stored time that something waits for. A checkpoint that failed waits longer, by a time of its own."""
    return (
        *DUE_TIMES,
        DueTime(
            table="sessions",
            column="checkpoint_at",
            longest=_milliseconds(rules.idle),
            rows="checkpoint_at IS NOT NULL",
            session="id",
        ),
        DueTime(
            table="checkpoints",
            column="again_at",
            longest=_milliseconds(LONGEST_BACKOFF),
            rows="again_at IS NOT NULL",
            session="session",
        ),
        DueTime(
            table="checkpoints",
            column="look_at",
            longest=_milliseconds(LONGEST_BACKOFF),
            rows="look_at IS NOT NULL",
            session="session",
        ),
    )


class ClockSteps:
    """Notices that the clock went back, also while no process ran, and pulls stored times in."""

    def __init__(self, database: Database, clock: Clock, checkpoints: CheckpointRules) -> None:
        self._database = database
        self._clock = clock
        self._due_times = due_times(checkpoints)
        self._ahead_ms = math.inf
        """How far the clock was ahead of the monotonic one when all stored times were in order."""

    async def look(self) -> None:
        """Costs nothing unless the clock went back or this process has just started. Raises `Unavailable`."""
        ahead_ms = self._clock.now_ms() - self._clock.monotonic() * 1000
        if ahead_ms >= self._ahead_ms - SLACK_MS:
            self._ahead_ms = max(self._ahead_ms, ahead_ms)
            return
        changed, has_future = 0, not math.isinf(self._ahead_ms)
        for due in self._due_times:
            for session in await self._database.read(list_far, due, self._clock.now_ms()):
                sessions = () if session is None else (session,)
                now_ms = self._clock.now_ms()  # anew: what was stored meanwhile does not lie ahead of this
                pulled_in = await self._database.run(pull_in, due, session, now_ms, sessions=sessions)
                changed += pulled_in
                has_future |= due.is_beginning and pulled_in > 0
        self._ahead_ms = ahead_ms
        if changed and has_future:
            logger.warning("Clock went back", extra={"action": "clock_went_back", "times_pulled_in": changed})
        elif changed:  # a setting that became shorter does that too
            logger.info("Waits were cut", extra={"action": "waits_cut", "times_pulled_in": changed})
