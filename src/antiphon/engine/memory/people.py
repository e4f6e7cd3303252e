"""Notes as people see, correct and delete them. Contract: checkpoints 2, access 1."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound
from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import EVERYONE, MemoryScope, Note, parse_note
from antiphon.domain.person import PersonId, person_principal
from antiphon.engine.access.reach import Rights, find_reach, refuse_act
from antiphon.engine.memory.notes import NoteAuthor, add_note
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.flow import classify_message
from antiphon.policy.memory import group_holder, may_change_note, may_read_note
from antiphon.policy.rights import reaches_all
from antiphon.policy.standing import Standing
from antiphon.store import notes as rows
from antiphon.store import sessions
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.notes import NoteFilter
from antiphon.store.people import find_standing


class NoteSearch(Struct, frozen=True, kw_only=True):
    """Which notes a person asks for."""

    agent_id: AgentId | None = None
    person: PersonId | None = None
    """Only those of this person; None for all that the reader sees."""
    before: NoteId | None = None
    """The last note of the page before."""


class ChangeNote(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: NoteId
    text: str | None = None
    """None leaves it."""
    is_shared: bool = False
    version: int | None = None
    """The version that was read: the note is changed only if it is still that one."""


class NewNote(Struct, frozen=True, kw_only=True):
    rights: Rights
    agent_id: AgentId
    text: str
    is_shared: bool


class Notes:
    """What agents remember, for those whom it concerns: people see and change their own notes, owners all."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(self, principal: Principal, where: NoteSearch, *, limit: int) -> list[Note]:
        """The newest first: the reader's own, and those of groups in which they take part; for owners everybody's."""
        return await self._database.read(_list, Rights(principal, self._rules), where, limit)

    async def get(self, principal: Principal, id: NoteId) -> Note:
        """Raises `NotFound`."""
        return await self._database.read(_get, Rights(principal, self._rules), id)

    async def add(self, principal: Principal, agent_id: AgentId, text: str, *, is_shared: bool = False) -> Note:
        """A note of the person with that agent, or one that an owner shares with all chats of the agent.

        Raises `Invalid` (`invalid_note`, `unknown_agent`), `Conflict` (`memory_full`), `Denied`.
        """
        command = NewNote(
            rights=Rights(principal, self._rules),
            agent_id=self._rules.agent(agent_id).id,
            text=text,
            is_shared=is_shared,
        )
        return await self._database.run(_add, command)

    async def change(
        self,
        principal: Principal,
        id: NoteId,
        text: str | None = None,
        *,
        is_shared: bool = False,
        version: int | None = None,
    ) -> Note:
        """Replaces the text, or shares the note with all chats of its agent.

        Raises `NotFound`, `Invalid` (`invalid_note`), `Denied` for a note of others, and `Conflict` (`note_changed`) if
        it has another version by now.
        """
        command = ChangeNote(
            rights=Rights(principal, self._rules),
            id=id,
            text=text,
            is_shared=is_shared,
            version=version,
        )
        return await self._database.run(_change, command)

    async def delete(self, principal: Principal, id: NoteId) -> Note:
        """Forgets the note, at once. Raises `NotFound`, `Denied` for a note of others."""
        command = ChangeNote(rights=Rights(principal, self._rules), id=id)
        return await self._database.run(_delete, command)


async def _list(query: Query, rights: Rights, where: NoteSearch, limit: int) -> list[Note]:
    reach = await find_reach(query, rights, Act.REMEMBER)
    standing = await find_standing(query, rights.principal)
    own = str(standing.principal)
    named = None
    if where.person is not None:
        named = str((await find_standing(query, person_principal(where.person))).principal)
    if reaches_all(standing):
        holders = None if named is None else (named,)
    elif named is None:
        holders = (own, *await _groups_of(query, standing))
    else:
        holders = (own,) if named == own else ()
    if holders == ():
        return []
    found = NoteFilter(holders=holders, agent_id=where.agent_id, before=where.before)
    return await rows.list_page(query, found, reach.clearance, limit)


async def _get(query: Query, rights: Rights, id: NoteId) -> Note:
    found = await _find(query, rights, id)
    return found[0]


async def _find(query: Query, rights: Rights, id: NoteId) -> tuple[Note, Standing]:
    reach = await find_reach(query, rights, Act.REMEMBER)
    standing = await find_standing(query, rights.principal)
    note, groups = await rows.find(query, id), await _groups_of(query, standing)
    if note is None or not may_read_note(standing, note, groups, reach.clearance):
        raise NotFound(f"Note not found: {id[:80]!r}. `antiphon memory list` shows them.")
    return note, standing


async def _groups_of(query: Query, standing: Standing) -> list[str]:
    """The holders of the notes of groups in which the person takes part; nothing for owners, who see all."""
    if reaches_all(standing):
        return []
    keys = await sessions.list_groups_of(query, str(standing.principal))
    return [holder for key in keys if (holder := group_holder(key)) is not None]


async def _find_changeable(tx: Transaction, command: ChangeNote) -> tuple[Note, Standing]:
    await rows.lock(tx, command.id)
    found = await _find(tx, command.rights, command.id)
    note, standing = found
    if not may_change_note(standing, note):
        raise Denied("Note belongs to a group: only owners correct and delete it.")
    if command.version not in (None, note.version):
        raise Conflict(
            f"Note was changed meanwhile: {note.id!r} has version {note.version}. Read it again, then change it.",
            code="note_changed",
        )
    return found


async def _add(tx: Transaction, command: NewNote) -> Note:
    reach = await find_reach(tx, command.rights, Act.SHARE if command.is_shared else Act.REMEMBER)
    standing = await find_standing(tx, command.rights.principal)
    made_by = str(standing.principal)
    author = NoteAuthor(
        scope=MemoryScope(command.agent_id, EVERYONE if command.is_shared else made_by),
        made_of=classify_message(standing, PUBLIC),
        ceiling=reach.clearance,
        made_by=made_by,
    )
    return await add_note(tx, author, command.text)


async def _change(tx: Transaction, command: ChangeNote) -> Note:
    found = await _find_changeable(tx, command)
    note, standing = found
    if command.is_shared or note.is_shared:
        refuse_act(standing, Act.SHARE)
    if command.text is None and not command.is_shared:
        raise Invalid("Request changes nothing: give 'text' or 'shared'.", code="invalid_request")
    changed = note
    if command.text is not None:
        text = parse_note(command.text)
        changed = replace(
            note,
            text=text,
            made_of=note.made_of.join(classify_message(standing, PUBLIC)),
            made_by=str(standing.principal),
            version=note.version + 1,
            updated_at=moment(tx.now_ms),
        )
        await rows.update(tx, changed)
    if command.is_shared and not note.is_shared:
        changed = replace(changed, holder=EVERYONE, version=changed.version + 1)
        await rows.move(tx, note.id, EVERYONE)
    return changed


async def _delete(tx: Transaction, command: ChangeNote) -> Note:
    found = await _find_changeable(tx, command)
    await rows.delete(tx, found[0].id)
    return found[0]
