"""Notes of one scope: added, replaced, deleted and found, within what the writer has read. Contract: checkpoints 2.

Each unit may be a part of another one. What does not flow to the author's ceiling does not exist for it.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.ids import NoteId, SessionRow
from antiphon.domain.note import MAX_NOTES, MemoryScope, Note, ReadableNotes, parse_note
from antiphon.policy.decision import Deny
from antiphon.policy.flow import may_hold
from antiphon.policy.memory import decide_change
from antiphon.store import notes as rows
from antiphon.store.codec import moment
from antiphon.store.database import Query, Transaction

MOST_WORDS = 32
"""How many words of a text are looked for; longer ones say more."""


class NoteAuthor(Struct, frozen=True, kw_only=True):
    """What writes notes: a run, or the runtime in its place."""

    scope: MemoryScope
    made_of: Classification
    """Its context: what it writes was made of it."""
    ceiling: Classification
    """What it may read."""
    made_by: str
    session: SessionRow | None = None
    seq: int | None = None
    """The message from which it learnt."""
    call_id: str | None = None
    """Names the call of a tool, so that a repeated one makes no second note."""


async def add_note(tx: Transaction, author: NoteAuthor, text: str) -> Note:
    """The new note; for a repeated call, the note that the first one made."""
    text = parse_note(text)
    scope = author.scope
    if author.call_id is not None and (made := await rows.find_made_in(tx, author.call_id)) is not None:
        return made
    if await rows.count(tx, ReadableNotes(scope, author.made_of)) >= MAX_NOTES:
        raise Conflict(
            f"Memory is full: it has {MAX_NOTES} notes, and takes no more. Delete or shorten some first.",
            code="memory_full",
        )
    note = Note(
        id=NoteId(tx.new_id("note")),
        agent_id=scope.agent_id,
        holder=scope.holder,
        text=text,
        made_of=author.made_of,
        made_by=author.made_by,
        session=author.session,
        seq=author.seq,
        created_at=moment(tx.now_ms),
        updated_at=moment(tx.now_ms),
    )
    await rows.insert(tx, note, author.call_id)
    return note


async def update_note(tx: Transaction, author: NoteAuthor, id: NoteId, text: str) -> Note:
    """The note with another text. It stays at least as classified as it was."""
    text = parse_note(text)
    note = await _find_changeable(tx, author, id)
    if note.text == text:
        return note
    changed = replace(
        note,
        text=text,
        made_of=note.made_of.join(author.made_of),
        made_by=author.made_by,
        version=note.version + 1,
        updated_at=moment(tx.now_ms),
    )
    await rows.update(tx, changed)
    return changed


async def delete_note(tx: Transaction, author: NoteAuthor, id: NoteId) -> Note:
    """The note that was deleted."""
    note = await _find_changeable(tx, author, id)
    await rows.delete(tx, id)
    return note


async def _find_changeable(tx: Transaction, author: NoteAuthor, id: NoteId) -> Note:
    await rows.lock(tx, id)
    note, scope = await rows.find(tx, id), author.scope
    if note is None or note.agent_id != scope.agent_id or not (note.is_shared or note.holder == scope.holder):
        raise _missing(id)
    if not may_hold(note.made_of, author.ceiling):
        raise _missing(id)
    decision = decide_change(note, author.made_of)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)
    return note


def _missing(id: NoteId) -> NotFound:
    return NotFound(f"Note not found: {id[:80]!r}. Search the memory for its id.")


async def find_notes(query: Query, readable: ReadableNotes, words: Sequence[str], limit: int) -> list[Note]:
    """The notes with any of the words, the best match first; without words, the newest first.

    A word counts the more, the fewer of the readable notes have it.
    """
    if not words:
        return await rows.list_newest(query, readable, limit)
    asked = sorted(dict.fromkeys(words), key=len, reverse=True)[:MOST_WORDS]
    found = await rows.find_with_words(query, readable, asked)
    by_word: dict[str, list[NoteId]] = {}
    for id, word in found:
        by_word.setdefault(word, []).append(id)
    scores: dict[NoteId, float] = {}
    for ids in by_word.values():
        for id in ids:
            scores[id] = scores.get(id, 0.0) + 1 / len(ids)
    best = sorted(sorted(scores, reverse=True), key=lambda id: -scores.get(id, inf))[:limit]
    notes = await rows.find_several(query, best)
    return [notes[id] for id in best if id in notes]
