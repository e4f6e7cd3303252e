"""Adds messages to the index of words, after the commits that stored them. Contract: search 1.

No acknowledgement waits for it. Its progress is in the database: `indexed_seq` and the rows of the index change in
one unit, so that it continues where it stopped, also if several processes index.
"""

import logging
from collections.abc import Collection, Sequence

import anyio
from msgspec import Struct

from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import text_of
from antiphon.domain.redaction import redact
from antiphon.domain.words import words_of
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.feed.notifier import Notifier
from antiphon.policy.system import system_grant
from antiphon.store import search as index
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.search import IndexedMessage, LogState, Unindexed
from antiphon.trouble import Setbacks, Trouble, is_of_all

logger = logging.getLogger(__name__)

COLLECT_SECONDS = 0.05
"""From a wake to the look, so that messages posted meanwhile are included."""
SWEEP_SECONDS = 0.5
"""Between looks at recent changes, for other processes' writes and lost wakes."""
FULL_SWEEP_SECONDS = 60.0
"""Between looks at every session."""
RECENT_MS = 60_000
"""How far before the newest change a change counts as recent; longer than clocks differ."""
SESSIONS_AT_ONCE = 32
MESSAGES_AT_ONCE = 32
"""Per unit; with a single writer, others wait for it."""
BYTES_AT_ONCE = 64 * 1024
"""A unit takes no further message after so many bytes."""
LISTED_AT_ONCE = 1_000
REST = 8.0
"""Pause after a unit, as a multiple of its duration, so that others can write."""
LONGEST_REST = 2.0
"""In seconds; a unit may have waited for others."""


class IndexStep(Struct, frozen=True):
    """The next step of indexing one session's log."""

    state: LogState
    messages: tuple[IndexedMessage, ...]
    indexed_seq: int
    """The index reaches up to here with these messages."""


class Indexer:
    def __init__(self, database: Database, notifier: Notifier, *, has_peers: bool = True) -> None:
        """Without peers no other process writes, so the indexer need not look for their messages."""
        self._database = database
        self._notifier = notifier
        self._pause_seconds = SWEEP_SECONDS if has_peers else FULL_SWEEP_SECONDS
        self._has_failed = anyio.Event()
        self._due: dict[SessionRow, None] = {}
        self._has_due = anyio.Event()
        means = "Search does not find new messages until this is over."
        self._indexing = Trouble(logger, "Indexing", action="index_failed", means=means)
        self._looking = Trouble(logger, "Looking for messages", action="index_sweep_failed", means=means)
        self._setbacks = Setbacks(
            logger,
            "Session",
            action="session_not_indexed",
            means="Search does not find its new messages.",
        )

    async def run(self) -> None:
        """Runs until cancelled; begins with messages not indexed yet, newest sessions first."""
        unsubscribe = self._notifier.subscribe_all(self._wake)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._work)
                tasks.start_soon(self._sweep)
        finally:
            unsubscribe()

    async def catch_up(self) -> None:
        """Indexes everything that was stored before this call."""
        while sessions := await self._database.read(index.list_backlog, LISTED_AT_ONCE):
            if all(map(self._setbacks.rests, sessions)):
                return
            await self._index_all(sessions, rest=0.0)

    def _wake(self, sessions: Collection[SessionRow]) -> None:
        self._due.update(dict.fromkeys(session for session in sessions if session > 0))
        if self._due:
            self._has_due.set()

    async def _work(self) -> None:
        while True:
            await self._has_due.wait()
            await anyio.sleep(COLLECT_SECONDS)
            self._has_due = anyio.Event()
            sessions, self._due = list(self._due), {}
            try:
                await self._index_all(sessions, rest=REST)
            except Exception as error:
                self._indexing.failed(error)
                self._has_failed.set()  # a sweep finds them again
            else:
                self._indexing.worked()

    async def _sweep(self) -> None:
        next_full, has_failed = 0.0, False
        while True:
            pause = self._pause_seconds
            try:
                now = anyio.current_time()
                if now >= next_full or has_failed:
                    found = await self._database.read(index.list_backlog, LISTED_AT_ONCE)
                    if len(found) < LISTED_AT_ONCE:
                        next_full = now + FULL_SWEEP_SECONDS
                    else:
                        pause = SWEEP_SECONDS
                else:
                    found = await self._database.read(_list_recent)
                self._wake(found)
                self._looking.worked()
            except Exception as error:
                self._looking.failed(error)
                pause = SWEEP_SECONDS
            with anyio.move_on_after(pause):
                await self._has_failed.wait()
                await anyio.sleep(SWEEP_SECONDS)
            has_failed = self._has_failed.is_set()
            if has_failed:
                self._has_failed = anyio.Event()

    async def _index_all(self, sessions: Sequence[SessionRow], *, rest: float) -> None:
        """Indexes each log up to its present end; later messages cause a wake of their own."""
        for start in range(0, len(sessions), SESSIONS_AT_ONCE):
            part = sessions[start : start + SESSIONS_AT_ONCE]
            states = await self._database.read(index.find_states, part)
            ends = {state.session: state.last_seq for state in states}
            while states:
                began = anyio.current_time()
                await self._advance_each(states)
                if rest:
                    await anyio.sleep(min(rest * (anyio.current_time() - began), LONGEST_REST))
                states = [
                    state
                    for state in await self._database.read(index.find_states, part)
                    if (state.is_to_take_out or state.indexed_seq < ends.get(state.session, 0))
                    and not self._setbacks.rests(state.session)
                ]

    async def _advance_each(self, states: Sequence[LogState]) -> None:
        """All in one step; if that fails, each alone, so that a log that cannot be indexed holds up no other."""
        states = [state for state in states if not self._setbacks.rests(state.session)]
        try:
            await self._advance(states)
        except Exception as error:
            if is_of_all(error):
                raise
            for state in states:
                with self._setbacks.attempt(state.session, session=state.session):
                    await self._advance((state,))

    async def _advance(self, states: Sequence[LogState]) -> None:
        for state in states:
            if state.is_to_take_out:
                await self._database.run(take_out, state)
        behind = tuple(state for state in states if state.last_seq > state.indexed_seq and not state.is_to_take_out)
        if behind:
            logs = await self._database.read(_read_logs, behind)
            size = size_of(event.message for log in logs for event in log.events)
            await self._database.run(put_in, await work_on(size, _steps, behind, logs))


async def _list_recent(query: Query) -> list[SessionRow]:
    newest = await index.newest_change(query)
    return await index.list_recent_backlog(query, newest - RECENT_MS, LISTED_AT_ONCE)


async def _read_logs(query: Query, states: Sequence[LogState]) -> list[Unindexed]:
    """The next messages of each log, as many as fit into one unit; the others have to wait."""
    messages, size = MESSAGES_AT_ONCE, BYTES_AT_ONCE
    logs: list[Unindexed] = []
    for state in states:
        if messages <= 0 or size <= 0:
            break
        grant = system_grant(state.session)
        logs.append(await index.read_unindexed(query, grant, state, limit=messages, max_bytes=size))
        messages -= len(logs[-1].events)
        size -= logs[-1].size
    return logs


def _steps(states: Sequence[LogState], logs: Sequence[Unindexed]) -> tuple[IndexStep, ...]:
    steps: list[IndexStep] = []
    for state, log in zip(states, logs, strict=False):
        readable = [event for event in log.events if not event.is_unreadable]
        messages = tuple(message for event in readable if (message := _indexed(event)).words)
        steps.append(IndexStep(state, messages, state.last_seq if log.is_whole else log.events[-1].seq))
    return tuple(steps)


def _indexed(event: Event) -> IndexedMessage:
    """The words of the event, without those of secrets, which nobody may find by searching."""
    assert event.message is not None
    return IndexedMessage(
        session=event.session,
        seq=event.seq,
        incarnation=event.session_id,
        created_at_ms=milliseconds(event.created_at),
        classification=event.classification,
        words=words_of(redact(text_of(event.message.content)).text),
    )


async def put_in(tx: Transaction, steps: tuple[IndexStep, ...]) -> None:
    """Adds the messages of each step, unless another process has already added them."""
    await index.take_turn(tx)
    taken = [step for step in steps if await index.advance(tx, step.state, step.indexed_seq)]
    await index.insert(tx, [message for step in taken for message in step.messages])


async def take_out(tx: Transaction, state: LogState) -> None:
    """Removes from the index a part of the messages that were pruned, deleted, or indexed by older rules."""
    await index.take_turn(tx)
    await index.delete_below(tx, state, MESSAGES_AT_ONCE)
