"""Rows of what writes no event: refusals, reads of people, releases, trust, rules. Contract: flow 12, answers 2, 6.

They are written by the unit that does it, where there is one. A refusal undoes its unit, so whoever ran the unit writes
the row afterwards; equal refusals of one caller within a minute become one row with a count.
"""

import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, TypeVarTuple

import anyio

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.audit import AuditKind
from antiphon.domain.classification import Classification, join_all
from antiphon.domain.errors import AntiphonError, Denied, Unavailable
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import JsonObject
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.reach import Rights, TokenHolder
from antiphon.policy.flow import is_public
from antiphon.store import audit
from antiphon.store.database import Database, Named, Query, Transaction
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

COUNTED = timedelta(minutes=1)
"""Equal refusals of one caller within it are one row."""
HOUR = timedelta(hours=1)
MOST_INPUTS = 100
"""Of one caller in an hour; further ones are counted together, so that nobody fills the disk with names."""
MOST_CALLERS = 1_000
"""In an hour; further ones are counted together."""
SETTLE_SECONDS = 5.0
MAX_INPUT = 200
OTHERS = "others"


class Trail:
    """The chain of this process. `run` must be running in a task."""

    def __init__(self, database: Database, clock: Clock, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        """`database` is the one that `RecordingDatabase` wraps."""
        self._settle_seconds = settle_seconds
        self._database = database
        self._clock = clock
        self._hour = 0
        self._inputs: dict[str, set[str]] = {}
        self._read: set[tuple[str, SessionRow]] = set()
        self._rows: list[tuple[AuditKind, JsonObject]] = []
        self._changed: Callable[[], None] = lambda: None
        self._writing = Trouble(
            logger, "Audit", action="audit_failed", means="Refusals and reads are not recorded until this is over."
        )

    def on_change(self, changed: Callable[[], None]) -> None:
        """Calls it after each row."""
        self._changed = changed

    async def run(self) -> None:
        """Makes rows of refusals whose minute is over, and of what was noted; until cancelled."""
        while True:
            await anyio.sleep(self._settle_seconds)
            await self.settle(COUNTED)

    async def settle(self, age: timedelta = timedelta(0)) -> None:
        """Makes rows of the refusals that were first counted so long ago, and of what was noted.

        Writes nothing if there is neither.
        """
        before_ms = self._clock.now_ms() - int(age.total_seconds() * 1000)
        rows, self._rows = self._rows, []
        try:
            if not rows and not await self._database.read(audit.has_denials):
                return
            settled = await self._database.run(_settle, tuple(rows), before_ms)
        except Exception as error:
            self._rows = [*rows, *self._rows]
            self._writing.failed(error)
            return
        self._writing.worked()
        if rows or settled:
            self._changed()

    async def record(self, kind: AuditKind, content: Mapping[str, object]) -> None:
        """Adds a row of something that has no unit of its own, such as rules that were loaded."""
        await self._database.run(audit.append, kind, content)
        self._changed()

    def note(self, kind: AuditKind, content: JsonObject) -> None:
        """Adds a row soon."""
        self._rows.append((kind, content))

    async def rules_loaded(self, sha256: str, count: int) -> None:
        """Adds a row for a set of rules that is in force from now on."""
        await self.record(AuditKind.RULES_LOADED, {"sha256": sha256, "rules": count})

    async def read(self, principal: Principal, session: SessionRow, events: Sequence[Event]) -> None:
        """Adds a row if a person read something above PUBLIC, one a session and hour."""
        if all(is_public(event.classification) for event in events):
            return
        await self.read_above(principal, session, join_all(event.classification for event in events))

    async def read_above(self, principal: Principal, session: SessionRow, made_of: Classification) -> None:
        """The same, of what is above PUBLIC."""
        self._begin_hour()
        key = (str(principal), session)
        if key in self._read:
            return
        self._read.add(key)
        try:
            await self.record(AuditKind.READ, {"by": str(principal), "session": session, "level": made_of.level.name})
        except BaseException:
            self._read.discard(key)
            raise

    def watch(self, principal: Principal, session: SessionRow) -> "WatchedStream":
        """For a stream that the person follows."""
        return WatchedStream(self, {"by": str(principal), "session": session})

    async def refused(self, error: AntiphonError, arguments: Sequence[object]) -> None:
        """Counts a refusal. Never raises: the refusal is what the caller gets."""
        content = self._bounded(content_of(error, arguments))
        caller = str(content["by"])
        digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:32]
        try:
            await self._database.run(audit.count_denial, caller, digest, content)
        except Unavailable as unavailable:
            self._writing.failed(unavailable)

    def _bounded(self, content: JsonObject) -> JsonObject:
        """The content, or one that stands for many, if the caller was refused too many different ones in this hour."""
        self._begin_hour()
        caller, named = str(content["by"]), repr(sorted(content.items()))
        inputs = self._inputs.get(caller)
        if inputs is None:
            if len(self._inputs) >= MOST_CALLERS:
                return {"by": OTHERS, "code": content["code"]}
            inputs = self._inputs[caller] = set()
        if named not in inputs:
            if len(inputs) >= MOST_INPUTS:
                return {"by": caller, "code": content["code"], "input": OTHERS}
            inputs.add(named)
        return content

    def _begin_hour(self) -> None:
        hour = self._clock.now_ms() // int(HOUR.total_seconds() * 1000)
        if hour != self._hour:
            self._hour, self._inputs, self._read = hour, {}, set()


class WatchedStream:
    """Adds a row once something above PUBLIC comes in a stream, and one at the stream's end."""

    def __init__(self, trail: Trail, content: JsonObject) -> None:
        self._trail = trail
        self._content = content

    def show(self, made_of: Classification) -> None:
        self._trail.note(AuditKind.STREAM_OPENED, {**self._content, "level": made_of.level.name})

    def end(self) -> None:
        self._trail.note(AuditKind.STREAM_ENDED, self._content)


async def _settle(tx: Transaction, rows: Sequence[tuple[AuditKind, JsonObject]], before_ms: int) -> int:
    for kind, content in rows:
        await audit.append(tx, kind, content)
    settled = 0
    while (some := await audit.settle_denials(tx, before_ms)) == audit.ROWS_AT_ONCE:
        settled += some
    return settled + some


class RecordingDatabase:
    """Implements `Database`: runs units and queries, and then records the refusals that they raise."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail

    @property
    def failure(self) -> Unavailable | None:
        return self._database.failure

    @property
    def trouble(self) -> Unavailable | None:
        return self._database.trouble

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        try:
            return await self._database.run(unit, *arguments, sessions=sessions)
        except AntiphonError as error:
            if is_recorded(error):
                await self._trail.refused(error, arguments)
            raise

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        try:
            return await self._database.read(query, *arguments)
        except AntiphonError as error:
            if is_recorded(error):
                await self._trail.refused(error, arguments)
            raise

    async def close(self) -> None:
        await self._database.close()


def is_recorded(error: AntiphonError) -> bool:
    """Whether policy said no: openly, or as if nothing were there."""
    return isinstance(error, Denied) or error.asked_for is not None


def content_of(error: AntiphonError, arguments: Sequence[object]) -> JsonObject:
    """Who was refused, by which rule, and the name that they gave."""
    content: JsonObject = {**_who(arguments), "code": error.code}
    if error.asked_for is not None:
        content["input"] = error.asked_for[:MAX_INPUT]
    return content


_NAMED = ("rights", "caller", "principal", "actor", "sender")


def _who(arguments: Sequence[object]) -> JsonObject:
    """Who asks, as far as the arguments of the unit name them."""
    for argument in arguments:
        for each in (argument, *(getattr(argument, name, None) for name in _NAMED)):
            if isinstance(each, Rights):
                each = each.actor
            if isinstance(each, Principal):
                return {"by": str(each)}
            if isinstance(each, TokenHolder):
                return {"by": str(each.principal), "session": each.session}
            if isinstance(each, Caller):
                return {"by": f"session:{each.session}", "for": str(each.principal)}
    return {"by": "unknown"}
