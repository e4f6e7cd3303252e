"""`/memory` and `/forget`: what is remembered of the person or group of a chat. Contract: checkpoints 2, channels 3.

In a direct chat that is the sender's own memory, whichever session the chat uses; in a group it is the group's.
"""

from antiphon.domain.classification import PUBLIC, Classification, join_all
from antiphon.domain.commands import ChatCommand, CommandName
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import NoteId
from antiphon.domain.keys import ChatType
from antiphon.domain.note import MemoryScope, Note, ReadableNotes
from antiphon.domain.text import one_line, plain
from antiphon.domain.words import query_words, words_of
from antiphon.engine.access.ceilings import find_place_clearance
from antiphon.engine.chats.chat import Chat
from antiphon.engine.memory.notes import find_notes
from antiphon.engine.rules import Rules
from antiphon.policy.memory import group_holder, session_holder
from antiphon.policy.shown import is_shown
from antiphon.store import notes as rows
from antiphon.store.database import Query, Transaction

MOST_LISTED = 10
SHOWN_CHARACTERS = 200
NOTHING = "Nothing is remembered."
UNKNOWN = "This chat has no memory of its own."


async def show_memory(query: Query, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    """The newest notes, or those that match best."""
    readable = await _readable(query, chat, rules)
    if readable is None:
        return UNKNOWN
    found = await _find_asked(query, readable, command)
    if isinstance(found, Invalid):
        return found.message
    if not found:
        return NOTHING
    lines = [_line(note) for note in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        lines.append("There are more. /memory with words finds others.")
    return "\n".join([*lines, "/forget with an id, or with words of one note, forgets it."])


async def made_of_answer(query: Query, chat: Chat, command: ChatCommand, rules: Rules) -> Classification:
    """What the answer to the command is made of, before it is carried out: whoever cites it carries that on."""
    is_memory, is_forget = command.name is CommandName.MEMORY, command.name is CommandName.FORGET
    if command.usage is not None or not (is_memory or is_forget):
        return PUBLIC
    readable = await _readable(query, chat, rules)
    if readable is None:
        return PUBLIC
    if is_forget:
        found = await _find_named(query, readable, command.argument or "")
    else:
        found = await _find_asked(query, readable, command)
    return PUBLIC if isinstance(found, Invalid) else join_all(note.made_of for note in found[:MOST_LISTED])


async def forget(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    """Deletes the note with that id, or the only one with all these words."""
    assert command.argument is not None
    readable = await _readable(tx, chat, rules)
    if readable is None:
        return UNKNOWN
    found = await _find_named(tx, readable, command.argument)
    if not found:
        return "No such note of this chat. /memory shows its notes; owners forget shared ones on the page."
    if len(found) > 1:
        lines = [_line(note) for note in found[:MOST_LISTED]]
        return "\n".join(["Several notes have these words. Name one by its id:", *lines])
    await rows.delete(tx, found[0].id)
    return f"Forgotten: {_short(found[0])}"


async def _find_asked(query: Query, readable: ReadableNotes, command: ChatCommand) -> list[Note] | Invalid:
    """One more than are listed."""
    try:
        words = [] if command.argument is None else query_words(command.argument)
    except Invalid as error:
        return error
    return await find_notes(query, readable, words, MOST_LISTED + 1)


async def _find_named(query: Query, readable: ReadableNotes, named: str) -> list[Note]:
    """Own notes of the scope with that id or all these words; shared ones are not the chat's to forget."""
    note = await rows.find(query, NoteId(named))
    scope = readable.scope
    if note is not None:
        is_own = (note.agent_id, note.holder) == (scope.agent_id, scope.holder)
        return [note] if is_own and is_shown(note.made_of, readable.clearance) else []
    try:
        words = query_words(named)
    except Invalid:
        return []
    found = await find_notes(query, readable, words, rows.NOTES_OF_WORD)
    return [each for each in found if not each.is_shared and set(words) <= set(words_of(each.text))]


async def _readable(query: Query, chat: Chat, rules: Rules) -> ReadableNotes | None:
    """The notes that may be shown in the chat; None if it belongs to no person and no group."""
    if chat.chat_type is ChatType.DIRECT:
        holder = None if chat.is_shared else str(chat.standing.principal)
    else:
        holder = group_holder(chat.route.session_key) or (chat.session and session_holder(chat.session.row))
    if holder is None:
        return None
    scope = MemoryScope(chat.route.agent_id, holder)
    return ReadableNotes(scope, await _clearance(query, chat, rules))


async def _clearance(query: Query, chat: Chat, rules: Rules) -> Classification:
    """What may be shown where the answer goes."""
    clearance = await find_place_clearance(query, rules.sinks, chat.place)
    return clearance if chat.place.is_outside else chat.standing.clearance


def _line(note: Note) -> str:
    return f"{note.id}: {_short(note)}{' (shared)' if note.is_shared else ''}"


def _short(note: Note) -> str:
    return plain(one_line(note.text, SHOWN_CHARACTERS))
