"""Notes as sessions use them by the tool `memory`: those of their own memory alone. Contract: checkpoints 2."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.classification import Classification, join_all
from antiphon.domain.errors import Denied, Limited, NotFound
from antiphon.domain.ids import NoteId
from antiphon.domain.note import MemoryScope, Note, ReadableNotes
from antiphon.domain.session import Session
from antiphon.domain.words import query_words
from antiphon.engine.access.caller import Caller, context_of, find_origin
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.memory.notes import NoteAuthor, add_note, delete_note, find_notes, update_note
from antiphon.engine.memory.scopes import find_scope, find_scope_of_run
from antiphon.engine.rules import Rules
from antiphon.policy.session_tools import MEMORY_TOOL
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction

MOST_CALLS = 40
"""Calls of the tool in one run."""


class FoundNotes(Struct, frozen=True):
    notes: Sequence[Note]
    made_of: Classification
    """What the reader takes in with them. Contract: flow 2."""


class ChangeMemory(Struct, frozen=True, kw_only=True):
    caller: Caller
    rules: Rules
    id: NoteId | None
    """Of the note to change; None for a new one."""
    text: str | None
    """None deletes the note."""


class _Memory(Struct, frozen=True):
    """The memory of the calling session, as this unit finds it."""

    session: Session
    scope: MemoryScope
    ceiling: Classification


class Memories:
    """Each raises `Denied` (`no_memory`) for a session without memory, `Limited` (`memory_limit`) after many calls."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def search(self, caller: Caller, query: str | None, *, limit: int) -> FoundNotes:
        """The best matches; the newest notes without a query. Raises `Invalid` (`invalid_query`)."""
        _count(caller)
        words = tuple(query_words(query)) if query is not None else ()
        return await self._database.read(_search, caller, self._rules, (words, limit))

    async def add(self, caller: Caller, text: str) -> Note:
        """Raises `Invalid` (`invalid_note`), `Conflict` (`memory_full`)."""
        return await self._change(caller, None, text)

    async def update(self, caller: Caller, id: NoteId, text: str) -> Note:
        """Raises `Invalid` (`invalid_note`), `NotFound`, `Denied` (`write_down`, `shared_note`)."""
        return await self._change(caller, id, text)

    async def delete(self, caller: Caller, id: NoteId) -> Note:
        """Raises `NotFound`, `Denied` (`write_down`, `shared_note`)."""
        return await self._change(caller, id, None)

    async def _change(self, caller: Caller, id: NoteId | None, text: str | None) -> Note:
        _count(caller)
        command = ChangeMemory(caller=caller, rules=self._rules, id=id, text=text)
        return await self._database.run(change_memory, command, sessions=(caller.session,))


def _count(caller: Caller) -> None:
    if caller.run is not None and caller.run.count_call(MEMORY_TOOL) > MOST_CALLS:
        raise Limited(
            f"Memory was called {MOST_CALLS} times in this run, which is its limit. Answer with what you know.",
            code="memory_limit",
        )


async def _search(query: Query, caller: Caller, rules: Rules, asked: tuple[Sequence[str], int]) -> FoundNotes:
    memory = await _find_memory(query, caller, rules)
    words, limit = asked
    notes = await find_notes(query, ReadableNotes(memory.scope, memory.ceiling), words, limit)
    return FoundNotes(notes, join_all(note.made_of for note in notes))


async def change_memory(tx: Transaction, command: ChangeMemory) -> Note:
    caller = command.caller
    memory = await _find_memory(tx, caller, command.rules)
    origin = await find_origin(tx, caller)
    author = NoteAuthor(
        scope=memory.scope,
        made_of=context_of(caller, memory.session),
        ceiling=memory.ceiling,
        made_by=AGENT_ACTOR,
        session=memory.session.row,
        seq=memory.session.last_seq if origin is None else origin.newest_seq,
        call_id=caller.call_id,
    )
    id, text = command.id, command.text
    if id is None:
        return await add_note(tx, author, text or "")
    return await (delete_note(tx, author, id) if text is None else update_note(tx, author, id, text))


async def _find_memory(query: Query, caller: Caller, rules: Rules) -> _Memory:
    session = await rows.find_by_row(query, caller.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    run = None if caller.run is None else caller.run.run
    if run is None:
        scope = await find_scope(query, session, caller.principal, rules)
    else:
        scope = await find_scope_of_run(query, session, run, rules)
    if scope is None:
        raise Denied(
            "Session has no memory here: notes are kept for direct chats of one person and for groups, in turns "
            "that answer people. Do without it.",
            code="no_memory",
        )
    place = None if run is None else run.place
    return _Memory(session, scope, await find_ceiling(query, session, rules.sinks, place=place))
