"""Rows of notes, and the words by which they are found."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import EVERYONE, Note, ReadableNotes
from antiphon.domain.words import words_of
from antiphon.store import codec
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.scopes import Condition, all_of, flow
from antiphon.store.select_list import Combined, SelectList

NOTES_OF_WORD: Final = 64
"""How many of the newest notes with a word one search looks at; a word of more notes says little."""
WORDS_AT_ONCE: Final = 200

_NOTE = SelectList(
    Note,
    "n.id, n.agent_id, n.holder, n.text, n.level, n.compartments, n.integrity, n.person, n.made_by, n.session, n.seq, "
    "s.key AS session_key, n.version, n.created_at, n.updated_at",
    made_of=Combined(
        codec.classification, level="level", compartments="compartments", integrity="integrity", person="person"
    ),
    created_at=codec.moment,
    updated_at=codec.moment,
)
_SELECT = (
    f"SELECT {_NOTE.text} FROM notes n "
    "LEFT JOIN sessions s ON s.id = n.session AND s.deleted_at IS NULL AND n.seq >= s.first_seq"
)
"""The source of a note is gone once its session was deleted, or the message pruned."""


class NoteFilter(Struct, frozen=True, kw_only=True):
    holders: Collection[str] | None = None
    """Only theirs; None for everybody's."""
    agent_id: AgentId | None = None
    before: NoteId | None = None
    """Ids sort by time; a page begins after the last id of the previous one."""


async def insert(tx: Transaction, note: Note, call_id: str | None = None) -> None:
    columns: dict[str, SqlValue] = {
        "id": note.id,
        "agent_id": note.agent_id,
        "holder": note.holder,
        "session": note.session,
        "seq": note.seq,
        "call_id": call_id,
        "created_at": codec.milliseconds(note.created_at),
        **_changing(note),
    }
    await tx.execute(
        f"INSERT INTO notes ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values())
    )
    await _insert_words(tx, note)


async def update(tx: Transaction, note: Note) -> None:
    """Stores the note's present text."""
    changes = _changing(note)
    assignments = ", ".join(f"{column} = ?" for column in changes)
    await tx.execute(f"UPDATE notes SET {assignments} WHERE id = ?", (*changes.values(), note.id))
    await tx.execute("DELETE FROM note_words WHERE note = ?", (note.id,))
    await _insert_words(tx, note)


async def move(tx: Transaction, id: NoteId, holder: str) -> None:
    """Gives the note to another holder."""
    await tx.execute("UPDATE notes SET holder = ?, version = version + 1 WHERE id = ?", (holder, id))
    await tx.execute("UPDATE note_words SET holder = ? WHERE note = ?", (holder, id))


async def lock(tx: Transaction, id: NoteId) -> None:
    """Until this unit commits, no other one that locks or writes the note goes on."""
    await tx.execute("UPDATE notes SET version = version WHERE id = ?", (id,))


async def delete(tx: Transaction, id: NoteId) -> None:
    await tx.execute("DELETE FROM notes WHERE id = ?", (id,))  # first: a unit that writes its words then comes before
    await tx.execute("DELETE FROM note_words WHERE note = ?", (id,))


async def delete_of(tx: Transaction, holder: str) -> None:
    """Deletes all that the holder has, with every agent."""
    await tx.execute("DELETE FROM notes WHERE holder = ?", (holder,))
    await tx.execute("DELETE FROM note_words WHERE holder = ?", (holder,))


async def merge(tx: Transaction, old: str, new: str) -> None:
    """Gives all that the one person has to the other."""
    for table in ("notes", "note_words"):
        await tx.execute(f"UPDATE {table} SET holder = ? WHERE holder = ?", (new, old))
    await tx.execute("UPDATE notes SET made_by = ? WHERE made_by = ?", (new, old))


async def find(query: Query, id: NoteId) -> Note | None:
    row = await query.fetch_one(f"{_SELECT} WHERE n.id = ?", (id,))
    return None if row is None else _NOTE.read(row)


async def find_made_in(query: Query, call_id: str) -> Note | None:
    """The note that the call made, if it still exists."""
    row = await query.fetch_one(f"{_SELECT} WHERE n.call_id = ?", (call_id,))
    return None if row is None else _NOTE.read(row)


async def count(query: Query, readable: ReadableNotes) -> int:
    """How many of them are the scope's own."""
    within = _all_of(readable, with_shared=False)
    row = await query.fetch_one(f"SELECT COUNT(*) FROM notes n WHERE {within.text}", within.values)
    assert row is not None
    return row[0]


async def list_newest(query: Query, readable: ReadableNotes, limit: int) -> list[Note]:
    """The latest change first."""
    within = _all_of(readable)
    rows = await query.fetch_all(
        f"{_SELECT} WHERE {within.text} ORDER BY n.updated_at DESC, n.id DESC LIMIT ?", (*within.values, limit)
    )
    return [_NOTE.read(row) for row in rows]


async def list_page(query: Query, where: NoteFilter, clearance: Classification, limit: int) -> list[Note]:
    """The newest first; those that do not flow to the clearance are left out before the limit."""
    met = [flow("n.", clearance)]
    if where.holders is not None:
        met.append(Condition(f"n.holder IN ({_marks(where.holders)})", tuple(where.holders)))
    if where.agent_id is not None:
        met.append(Condition("n.agent_id = ?", (where.agent_id,)))
    if where.before is not None:
        met.append(Condition("n.id < ?", (where.before,)))
    within = all_of(met)
    rows = await query.fetch_all(f"{_SELECT} WHERE {within.text} ORDER BY n.id DESC LIMIT ?", (*within.values, limit))
    return [_NOTE.read(row) for row in rows]


async def find_with_words(query: Query, readable: ReadableNotes, words: Sequence[str]) -> list[tuple[NoteId, str]]:
    """The newest notes with each of the words, each with the word.

    At most `NOTES_OF_WORD` for each word of the scope's own, and as many of the shared ones.
    """
    flowing, scope = flow("n.", readable.clearance), readable.scope
    holders = dict.fromkeys((scope.holder, EVERYONE))
    part = (
        "SELECT * FROM (SELECT w.note, w.word FROM note_words w JOIN notes n ON n.id = w.note "
        f"WHERE w.holder = ? AND w.agent_id = ? AND w.word = ? AND {flowing.text} "
        f"ORDER BY w.note DESC LIMIT {NOTES_OF_WORD}) p"
    )
    values: list[SqlValue] = []
    for word in words:
        for holder in holders:
            values += (holder, scope.agent_id, word, *flowing.values)
    if not values:
        return []
    rows = await query.fetch_all(" UNION ALL ".join([part] * (len(words) * len(holders))), values)
    return [(id, word) for id, word in rows]


async def find_several(query: Query, ids: Sequence[NoteId]) -> dict[NoteId, Note]:
    if not ids:
        return {}
    rows = await query.fetch_all(f"{_SELECT} WHERE n.id IN ({_marks(ids)})", tuple(ids))
    found = map(_NOTE.read, rows)
    return {note.id: note for note in found}


async def find_working_memory(query: Query, session_id: str) -> tuple[str, Classification] | None:
    """The working memory of an incarnation, with what it was made of; None if there is no such incarnation."""
    row = await query.fetch_one(
        f"SELECT i.working_memory, {codec.classification_columns('i.memory_')} FROM incarnations i WHERE i.id = ?",
        (session_id,),
    )
    return None if row is None else (row[0] or "", codec.classification(*row[1:]))


async def set_working_memory(tx: Transaction, session_id: str, text: str, made_of: Classification) -> None:
    await tx.execute(
        "UPDATE incarnations SET working_memory = ?, memory_level = ?, memory_compartments = ?, memory_integrity = ?, "
        "memory_person = ? WHERE id = ?",
        (text, *codec.classification_values(made_of), session_id),
    )


def _all_of(readable: ReadableNotes, *, with_shared: bool = True) -> Condition:
    scope = readable.scope
    holders = dict.fromkeys((scope.holder, EVERYONE) if with_shared else (scope.holder,))
    within = Condition(f"n.agent_id = ? AND n.holder IN ({_marks(holders)})", (scope.agent_id, *holders))
    return all_of([within, flow("n.", readable.clearance)])


def _changing(note: Note) -> dict[str, SqlValue]:
    level, compartments, integrity, person = codec.classification_values(note.made_of)
    return {
        "text": note.text,
        "level": level,
        "compartments": compartments,
        "integrity": integrity,
        "person": person,
        "made_by": note.made_by,
        "version": note.version,
        "updated_at": codec.milliseconds(note.updated_at),
    }


async def _insert_words(tx: Transaction, note: Note) -> None:
    words = words_of(note.text)
    for start in range(0, len(words), WORDS_AT_ONCE):
        part = words[start : start + WORDS_AT_ONCE]
        values: list[SqlValue] = []
        for word in part:
            values += (note.id, word, note.agent_id, note.holder)
        await tx.execute(
            f"INSERT INTO note_words (note, word, agent_id, holder) VALUES {', '.join(['(?, ?, ?, ?)'] * len(part))}",
            values,
        )


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))
