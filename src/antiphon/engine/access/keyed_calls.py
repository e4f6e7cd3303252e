"""Calls from outside a run with an `Idempotency-Key` that need no approval: each runs once. Contract: tools 1.

The begin of such a call is stored before the call has any effect. If its process ends before the answer is stored, what
became of the call is unknown, and it does not run again.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import NotFound, Unavailable
from antiphon.domain.idempotency import KeyedCall
from antiphon.domain.ids import ProcessId, SessionRow
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.engine.ledger.waits import LONGEST_WAIT, Waits
from antiphon.engine.refusal import Refusal, accepted
from antiphon.store import keyed_calls, processes
from antiphon.store import sessions as rows
from antiphon.store.codec import json_text, moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

UNKNOWN = json_text({"status": "error", "code": "outcome_unknown", "error": OUTCOME_UNKNOWN})


class CallOutcome(NamedTuple):
    answer: str
    """As JSON."""
    made_of: Classification


class _BeginsNow(Struct, frozen=True):
    """The call is this process's to carry out."""


class KeyedCalls:
    """Remembers the answers of calls by their origins, for `keyed_calls.KEPT`."""

    def __init__(self, database: Database, waits: Waits, *, process: ProcessId, clock: Clock) -> None:
        self._database = database
        self._waits = waits
        self._process = process
        self._clock = clock
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        """Of calls at work in this process, by origin."""
        self._storing = Trouble(
            logger, "Storing an answer", action="answer_failed", means="A repeated call may be answered as unknown."
        )

    async def find(self, origin: str) -> KeyedCall | None:
        """What became of the call, if it has begun before; without an outcome if it still runs after `LONGEST_WAIT`."""
        found = await self._database.read(keyed_calls.find, origin)
        return found if found is None or found.outcome is not None else await self._settled(found)

    async def once(
        self, session: SessionRow, origin: str, sha256: str, carry_out: Callable[[], Awaitable[CallOutcome]]
    ) -> KeyedCall:
        """Like `find`, but a call that has not begun before is carried out now.

        Raises `NotFound` if the session was deleted, and whatever `carry_out` raises.
        """
        lock = self._locks.setdefault(origin, anyio.Lock())
        call = KeyedCall(
            origin=origin,
            session=session,
            sha256=sha256,
            begun_at=moment(self._clock.now_ms()),
            begun_by=self._process,
        )
        async with lock:
            found = accepted(await self._database.run(begin_keyed_call, call, sessions=(session,)))
            if isinstance(found, _BeginsNow):
                outcome = await carry_out()
                await self._end(call, outcome)
                return replace(call, outcome=outcome.answer, made_of=outcome.made_of)
        return found if found.outcome is not None else await self._settled(found)

    async def _end(self, call: KeyedCall, outcome: CallOutcome) -> None:
        """Whoever called gets the answer also if it cannot be stored."""
        try:
            await self._database.run(end_keyed_call, call, outcome, sessions=(call.session,))
        except Unavailable as error:
            self._storing.failed(error)
        else:
            self._storing.worked()

    async def _settled(self, call: KeyedCall) -> KeyedCall:
        """What became of a call that had no outcome yet."""

        async def is_over() -> bool:
            if self._carries_out(call):
                return False
            return not await self._database.read(_is_under_way, call.origin, self._process)

        await self._waits.wait_until(call.session, LONGEST_WAIT, is_over)
        if self._carries_out(call):
            return call
        return await self._database.run(settle_keyed_call, call, self._process, sessions=(call.session,))

    def _carries_out(self, call: KeyedCall) -> bool:
        lock = self._locks.get(call.origin)
        return lock is not None and lock.locked()


async def begin_keyed_call(tx: Transaction, call: KeyedCall) -> KeyedCall | _BeginsNow | Refusal:
    """The call as it was begun before; if it was not, notes that it begins now."""
    if (found := await keyed_calls.find(tx, call.origin)) is not None:
        return await settle_keyed_call(tx, found, call.begun_by)
    if await rows.find_by_row(tx, call.session) is None:
        return Refusal(NotFound("Session not found: the caller's own session was deleted."))
    await keyed_calls.insert(tx, call)
    return _BeginsNow()


async def settle_keyed_call(tx: Transaction, call: KeyedCall, process: ProcessId) -> KeyedCall:
    """What became of a call that the process does not carry out at present; unknown if nobody else does."""
    found = await keyed_calls.find(tx, call.origin)
    if found is None or found.outcome is not None:
        return found or call
    if found.begun_by != process and await processes.is_alive(tx, found.begun_by):
        return found
    await end_keyed_call(tx, found, CallOutcome(UNKNOWN, PUBLIC))
    return replace(found, outcome=UNKNOWN)


async def end_keyed_call(tx: Transaction, call: KeyedCall, outcome: CallOutcome) -> None:
    await keyed_calls.store_outcome(tx, call.origin, outcome.answer, outcome.made_of)
    tx.wake(call.session)


async def _is_under_way(query: Query, origin: str, process: ProcessId) -> bool:
    """Whether another process carries out the call."""
    found = await keyed_calls.find(query, origin)
    if found is None or found.outcome is not None or found.begun_by == process:
        return False
    return await processes.is_alive(query, found.begun_by)
