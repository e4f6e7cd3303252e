"""Calls from outside a run with an `Idempotency-Key` that need no approval: each runs once. Contract: tools 1.

The begin of such a call is stored before the call has any effect. If its process ends before the answer is stored, what
became of the call is unknown, and it does not run again. A caller that goes away does not end the call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.approval import Approval
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Limited, Unavailable
from antiphon.domain.idempotency import KeyedCall
from antiphon.domain.ids import Ids, ProcessId
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.callers import FoundCaller, find_caller
from antiphon.engine.access.reach import Outsider, Rights
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.engine.ledger.waits import LONGEST_WAIT, Waits
from antiphon.engine.rules import Rules
from antiphon.store import approvals, keyed_calls, processes
from antiphon.store.codec import json_text, moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

STOPPED = "Gateway is stopping: the call may have taken effect. Ask again with the same key."
UNKNOWN = json_text({"status": "error", "code": "outcome_unknown", "error": OUTCOME_UNKNOWN})
RETRY_SECONDS = 0.5
MAX_AT_WORK = 64
"""Calls of one caller at a time: they go on without a connection, whose limit would otherwise bound them."""


class CallOutcome(NamedTuple):
    answer: str
    """As JSON."""
    made_of: Classification


class KeyedRequest(NamedTuple):
    """Who calls, as which session, with which key, and the hash of what they call."""

    actor: Outsider
    target: NamedTarget
    key: str
    sha256: str


class BeginKeyedCall(Struct, frozen=True, kw_only=True):
    id: str
    rights: Rights
    target: NamedTarget
    key: str
    sha256: str
    process: ProcessId
    at_ms: int
    is_one_too_many: bool = False
    """Whether its caller has as many calls at work as one may have. What has begun is told all the same."""


class _BeginsNow(Struct, frozen=True):
    """The call is this process's to carry out."""

    call: KeyedCall
    found: FoundCaller


_Told = KeyedCall | Approval
"""What became of a call, or the request that it had to ask with when it came first."""


class KeyedCalls:
    """Carries out calls, and remembers their answers for `store.keyed_calls.KEPT`."""

    def __init__(
        self, database: Database, waits: Waits, rules: Rules, *, process: ProcessId, clock: Clock, ids: Ids
    ) -> None:
        self._database = database
        self._waits = waits
        self._rules = rules
        self._process = process
        self._clock = clock
        self._ids = ids
        self._at_work: dict[str, Outsider] = {}
        """Ids of calls that this process carries out or is about to begin, with who began them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing = Trouble(
            logger, "Storing an answer", action="answer_failed", means="The answer may be reported as unknown."
        )

    async def find(self, origin: str) -> KeyedCall | None:
        """The call with that origin, whatever became of it; None if it has not begun."""
        return await self._database.read(keyed_calls.find_by_origin, origin)

    async def once(
        self,
        request: KeyedRequest,
        carry_out: Callable[[FoundCaller], Awaitable[CallOutcome]],
    ) -> KeyedCall | Approval:
        """What became of the call, which is carried out now unless it has begun or asked before.

        It goes on if whoever waits for it here goes away. Raises like `Callers.find`, and what `carry_out` raises.
        """
        command = BeginKeyedCall(
            id=self._ids.new("call"),
            rights=Rights(request.actor, self._rules),
            target=request.target,
            key=request.key,
            sha256=request.sha256,
            process=self._process,
            at_ms=self._clock.now_ms(),
            is_one_too_many=list(self._at_work.values()).count(request.actor) >= MAX_AT_WORK,
        )
        self._at_work[command.id] = request.actor
        told: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        told.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may be there to ask
        task = asyncio.create_task(self._work(command, carry_out, told))

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del self._at_work[command.id]
            _tell(told, Unavailable(STOPPED, code="stopped"))

        self._tasks.add(task)
        task.add_done_callback(ended)
        return await asyncio.shield(told)

    async def settled(self, call: KeyedCall) -> KeyedCall:
        """What became of a call that has begun; without an outcome if it still runs after `LONGEST_WAIT`."""
        if call.outcome is None:
            await self._waits.wait_until(call.session, LONGEST_WAIT, lambda: self._is_over(call))
            call = await self._database.run(settle_keyed_call, call, self._carries_out, sessions=(call.session,))
        return call

    async def drain(self, seconds: float) -> None:
        """Gives calls under way this long, and ends those that are left: what became of them is unknown."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _work(
        self,
        command: BeginKeyedCall,
        carry_out: Callable[[FoundCaller], Awaitable[CallOutcome]],
        told: asyncio.Future[_Told],
    ) -> None:
        try:
            begun = await self._database.run(begin_keyed_call, command, sessions=(command.target,))
            if isinstance(begun, _BeginsNow):
                outcome = await carry_out(begun.found)
                await self._end(replace(begun.call, outcome=outcome.answer, made_of=outcome.made_of), told)
            else:
                told.set_result(begun)
        except Exception as error:
            _tell(told, error)

    async def _end(self, call: KeyedCall, told: asyncio.Future[_Told]) -> None:
        """Stores the answer, however long the store cannot take it; who waits has it at the latest after one try."""
        while True:
            try:
                await self._database.run(end_keyed_call, call, sessions=(call.session,))
            except Unavailable as error:
                self._storing.failed(error)
                is_stored = False
            else:
                self._storing.worked()
                is_stored = True
            if not told.done():
                told.set_result(call)
            if is_stored:
                return
            await anyio.sleep(RETRY_SECONDS)

    async def _is_over(self, call: KeyedCall) -> bool:
        found = await self._database.read(keyed_calls.find, call.id)
        if found is None or found.outcome is not None:
            return True
        return not await self._database.read(_is_carried_out, found, self._carries_out)

    def _carries_out(self, call: KeyedCall) -> bool | None:
        """Whether this process carries out the call; None if another one has begun it."""
        return None if call.begun_by != self._process else call.id in self._at_work


def _tell(told: asyncio.Future[_Told], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)


_Ours = Callable[[KeyedCall], bool | None]


async def begin_keyed_call(tx: Transaction, command: BeginKeyedCall) -> _BeginsNow | _Told:
    """Notes that the call begins now, with the rights that its caller has in this moment."""
    found = await find_caller(tx, command.rights, command.target, command.key)
    origin = found.caller.call_id
    if begun := await keyed_calls.find_by_origin(tx, origin):
        return begun
    if asked := await approvals.find_by_origin(tx, origin):
        return asked
    if command.is_one_too_many:
        raise Limited(f"{MAX_AT_WORK} of your calls with a key are at work. Wait for one.", code="too_many_calls")
    call = KeyedCall(
        id=command.id,
        session=found.caller.session,
        sha256=command.sha256,
        begun_at=moment(command.at_ms),
        begun_by=command.process,
    )
    await keyed_calls.insert(tx, call, origin)
    return _BeginsNow(call, found)


async def settle_keyed_call(tx: Transaction, call: KeyedCall, ours: _Ours) -> KeyedCall:
    """What became of the call: unknown if nobody carries it out and it has no outcome."""
    found = await keyed_calls.find(tx, call.id)
    if found is None or found.outcome is not None or await _is_carried_out(tx, found, ours):
        return found or call
    unknown = replace(found, outcome=UNKNOWN, made_of=PUBLIC)
    await end_keyed_call(tx, unknown)
    return unknown


async def end_keyed_call(tx: Transaction, call: KeyedCall) -> None:
    assert call.outcome is not None
    await keyed_calls.store_outcome(tx, call)
    tx.wake(call.session)


async def _is_carried_out(query: Query, call: KeyedCall, ours: _Ours) -> bool:
    is_ours = ours(call)
    return await processes.is_alive(query, call.begun_by) if is_ours is None else is_ours
