"""What a run gets of its memory: working memory, and the newest and best-matching notes. Contract: checkpoints 2."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from antiphon.domain.actor import AGENT
from antiphon.domain.classification import PUBLIC, Classification, Integrity, join_all
from antiphon.domain.distrust import MEMORY, ReadSource, source_from
from antiphon.domain.message import UserMessage, text_content
from antiphon.domain.note import MAX_SHOWN_BYTES, Note, ReadableNotes
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.engine.memory.notes import find_notes
from antiphon.engine.memory.scopes import find_scope_of_run
from antiphon.engine.rules import Rules
from antiphon.policy.flow import is_held
from antiphon.store import notes as rows
from antiphon.store.database import Query

NOTE_OVERHEAD = 64
"""Bytes that a note takes in a prompt beside its text: its id, its day, a line break."""
MATCHING_BYTES = MAX_SHOWN_BYTES // 2
"""For the notes that match best; the newest have the rest."""
MOST_SHOWN = MAX_SHOWN_BYTES // (NOTE_OVERHEAD + 1)


class ShownMemory(Struct, frozen=True, kw_only=True):
    """What stands in the prompts of one run, whatever changes meanwhile."""

    notes: Sequence[Note] = ()
    working_memory: str = ""
    made_of: Classification = PUBLIC
    """The join of all of it. Contract: flow 2."""
    sources: Sequence[ReadSource] = ()
    """What of it is not trusted by itself."""


NOTHING_SHOWN = ShownMemory()


class AskMemory(Struct, frozen=True):
    run: Run
    session: Session
    """Its row, as the run found it."""
    taint: Classification
    """What the session holds: notes above it are found by searching alone, which raises the session."""
    words: Sequence[str]
    """Those of the message that the run answers."""


async def find_shown(query: Query, asked: AskMemory, rules: Rules) -> ShownMemory:
    """What the run may take in of its memory."""
    session, run, words = asked.session, asked.run, asked.words
    scope = await find_scope_of_run(query, session, run, rules)
    if scope is None and not session.working_memory:
        return NOTHING_SHOWN
    chosen: list[Note] = []
    if scope is not None:
        readable = ReadableNotes(scope, asked.taint)
        newest = await rows.list_newest(query, readable, MOST_SHOWN + 1)
        chosen = _within(newest, MAX_SHOWN_BYTES)
        if len(chosen) < len(newest):
            best = _within(await find_notes(query, readable, words, MOST_SHOWN) if words else [], MATCHING_BYTES)
            chosen = _within(dict.fromkeys([*best, *newest]), MAX_SHOWN_BYTES)
    working, made_of = session.working_memory, session.working_memory_made_of
    if not is_held(made_of, asked.taint):
        working = ""
    parts = [note.made_of for note in chosen]
    return ShownMemory(
        notes=sorted(chosen, key=lambda note: (note.created_at, note.id)),
        working_memory=working,
        made_of=join_all([*parts, made_of] if working else parts),
        sources=[
            *(source for note in chosen for source in _sources(note.text, note.made_of, note.made_by)),
            *(_sources(working, made_of, AGENT) if working else ()),
        ],
    )


def _sources(text: str, made_of: Classification, author: str) -> Sequence[ReadSource]:
    """The text, if it is not trusted by itself."""
    if made_of.integrity is Integrity.TRUSTED:
        return ()
    message = UserMessage(message_id="", content=text_content(text))
    return (source_from(message, seq=0, integrity=made_of.integrity, actor=author, tool=MEMORY),)


def _within(notes: Iterable[Note], size: int) -> list[Note]:
    """The first of the notes that fit."""
    chosen: list[Note] = []
    for note in notes:
        size -= NOTE_OVERHEAD + len(note.text.encode())
        if size < 0:
            break
        chosen.append(note)
    return chosen
