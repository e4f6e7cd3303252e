"""Persons: invited, given a role, suspended, merged and removed by owners. Contract: access 1, 3, 4."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import PEOPLE, NamedClassification
from antiphon.domain.errors import Conflict, Invalid, NotFound
from antiphon.domain.ids import AgentId, Ids
from antiphon.domain.label import parse_label
from antiphon.domain.person import (
    Identity,
    Person,
    PersonId,
    PersonRole,
    id_from_name,
    is_id_of_account,
    person_principal,
)
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.engine.access.machines import refuse_machine, refuse_machine_name
from antiphon.engine.access.reach import Rights, find_reach, find_reach_if_any
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.access.tokens import read_clearance, refuse_clearance, refuse_credential
from antiphon.engine.ledger.spending import day_of
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.rights import is_promotion
from antiphon.store import link_undos, tokens
from antiphon.store import people as rows
from antiphon.store.codec import clearance_columns
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.link_undos import LinkUndo
from antiphon.store.people import find_standing
from antiphon.store.spawns import DUE
from antiphon.store.usage import move_spent, return_spent

INVITATION_LIFE = timedelta(hours=24)


class KnownPerson(Struct, frozen=True):
    """A person, with their accounts on channels."""

    person: Person
    identities: list[Identity]
    seen_at: Mapping[Identity, datetime] = {}
    """When they last wrote by each account, to the hour, as far as they did."""


class Invitation(Struct, frozen=True):
    """A person who was invited, and the code of a link that signs one browser in as them; shown only once."""

    person: Person
    code: str


class ChangePerson(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: PersonId
    role: PersonRole | None = None
    is_suspended: bool | None = None
    """None and an absent role leave what is stored."""
    held: frozenset[TokenScope] = ALL_SCOPES
    """The scopes of the credential that asks."""


class ClearPerson(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: PersonId
    clearance: NamedClassification | None
    """None for public data."""


class MergePeople(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: PersonId
    into: PersonId
    held: frozenset[TokenScope]
    """The scopes of the credential that asks."""


class AddPerson(Struct, frozen=True, kw_only=True):
    rights: Rights
    person: Person
    code_hash: str


class MakeLink(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: PersonId
    code_hash: str


class People:
    """Use cases of persons. All raise `Denied` for anyone but owners, `NotFound` for an unknown person."""

    def __init__(self, database: Database, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def may(self, principal: Principal, act: Act) -> bool:
        """Whether the principal may do this at all now. Only for what to offer: each use case decides for itself."""
        return await self._database.read(find_reach_if_any, Rights(principal, self._rules), act) is not None

    async def list(self, principal: Principal, *, after: str | None, limit: int) -> list[KnownPerson]:
        """Persons in the order of their ids, beginning after that one."""
        start = None if after is None else PersonId(after)
        return await self._database.read(_list, Rights(principal, self._rules), start, limit)

    async def get(self, principal: Principal, id: str) -> KnownPerson:
        return await self._database.read(_get, Rights(principal, self._rules), PersonId(id))

    async def invite(
        self,
        principal: Principal,
        name: str,
        role: PersonRole,
        agents: frozenset[AgentId] = frozenset(),
        *,
        held: frozenset[TokenScope] = ALL_SCOPES,
    ) -> Invitation:
        """A new person, and a code that signs in one browser as them, once, within 24 hours.

        `agents` are those with which a user may open sessions. Raises `Invalid` for an agent that is not configured,
        for a name that is not visible text on one line, `Conflict` for a guest (`cannot_sign_in`) and for the name of
        a program (`machine_account`), and `Denied` (`scope_beyond_maker`) unless the credential that asks holds all
        scopes, as a browser does.
        """
        refuse_credential(held)
        refuse_clearance(principal, None)
        try:
            name = parse_label(name)
        except ValueError as error:
            raise Invalid(f"Name {error}.", code="invalid_request") from error
        for agent in agents:
            self._rules.agent(agent)
        code = self._ids.random_hex(48)
        person = Person(id=id_from_name(name), name=name, role=role, agents=agents, created_at=self._clock.now())
        command = AddPerson(
            rights=Rights(principal, self._rules),
            person=person,
            code_hash=hash_of(code),
        )
        return Invitation(await self._database.run(_invite, command), code)

    async def new_link(self, principal: Principal, id: str, *, held: frozenset[TokenScope] = ALL_SCOPES) -> Invitation:
        """Another code that signs in one browser as the person, once, within 24 hours; their unused codes end.

        Raises `Conflict` (`cannot_sign_in`) for guests and suspended persons, `Conflict` (`merged`) for one who acts as
        another, `Conflict` (`machine_account`) for a program, and `Denied` (`scope_beyond_maker`) as `invite` does.
        """
        refuse_credential(held)
        refuse_clearance(principal, None)
        code = self._ids.random_hex(48)
        command = MakeLink(
            rights=Rights(principal, self._rules),
            id=PersonId(id),
            code_hash=hash_of(code),
        )
        return Invitation(await self._database.run(_make_link, command), code)

    async def change_role(
        self, principal: Principal, id: str, role: PersonRole, *, held: frozenset[TokenScope] = ALL_SCOPES
    ) -> KnownPerson:
        """Promotes or demotes the person, at once and everywhere.

        `held` are the scopes of the credential that asks. Raises `Conflict` for the last owner, and for a program
        (`machine_account`), and `Denied` (`scope_beyond_maker`, `clearance_beyond_maker`) for a promotion by a
        credential that lacks a scope or has a clearance.
        """
        return await self._change(principal, id, role=role, held=held)

    async def suspend(self, principal: Principal, id: str) -> KnownPerson:
        """Ends all that the person does, until they are resumed. Raises `Conflict` for the last owner."""
        return await self._change(principal, id, is_suspended=True)

    async def resume(self, principal: Principal, id: str) -> KnownPerson:
        """Lets a suspended person act again. Their cancelled runs stay cancelled."""
        return await self._change(principal, id, is_suspended=False)

    async def clear(self, principal: Principal, id: str, clearance: NamedClassification | None) -> KnownPerson:
        """Says what the person may read from now on besides their own data, also on open streams.

        None for public data. Owners read everything, whatever is said here. Raises `Invalid` for an unknown level or
        compartment, and for a person in the clearance other than `people`; `Denied` (`clearance_beyond_maker`) for more
        than the credential that asks may read.
        """
        command = ClearPerson(rights=Rights(principal, self._rules), id=PersonId(id), clearance=clearance)
        return await self._database.run(_clear, command)

    async def merge(
        self, principal: Principal, id: str, into: str, *, held: frozenset[TokenScope] = ALL_SCOPES
    ) -> KnownPerson:
        """Makes the person act as another one, with their accounts, sessions, tokens and queued runs.

        Past events keep their actor. `held` are the scopes of the credential that asks. Raises `Invalid` for a person
        merged into themselves, `Conflict` for one that is merged already, for the last owner, and for a program on
        either side (`machine_account`), and `Denied` (`scope_beyond_maker`, `clearance_beyond_maker`) for a credential
        that lacks a scope or has a clearance: a merge gives each of the two what the other may read.
        """
        command = MergePeople(
            rights=Rights(principal, self._rules),
            id=PersonId(id),
            into=PersonId(into),
            held=held,
        )
        return await self._database.run(_merge, command)

    async def remove(self, principal: Principal, id: str) -> None:
        """Forgets the person: their name, accounts, credentials and participation; nobody else gets their id.

        Raises `Conflict` for the last owner, and for the person as whom the home's own programs act (`home_owner`).
        """
        command = ChangePerson(rights=Rights(principal, self._rules), id=PersonId(id))
        await self._database.run(_remove, command)

    async def _change(
        self,
        principal: Principal,
        id: str,
        *,
        role: PersonRole | None = None,
        is_suspended: bool | None = None,
        held: frozenset[TokenScope] = ALL_SCOPES,
    ) -> KnownPerson:
        command = ChangePerson(
            rights=Rights(principal, self._rules),
            id=PersonId(id),
            role=role,
            is_suspended=is_suspended,
            held=held,
        )
        return await self._database.run(_change, command)


async def _list(query: Query, rights: Rights, after: PersonId | None, limit: int) -> list[KnownPerson]:
    await find_reach(query, rights, Act.PEOPLE)
    found = await rows.list_all(query, after=after, limit=limit)
    ids = [person.id for person in found]
    identities, seen = await rows.find_identities(query, ids), await rows.find_seen(query, ids)
    return [KnownPerson(person, identities[person.id], seen) for person in found]


async def _get(query: Query, rights: Rights, id: PersonId) -> KnownPerson:
    await find_reach(query, rights, Act.PEOPLE)
    return await _known(query, id)


async def _known(query: Query, id: PersonId) -> KnownPerson:
    person = await rows.find(query, id)
    if person is None:
        raise NotFound(f"Person not found: {id[:80]!r}. `antiphon people list` shows them.")
    return KnownPerson(person, (await rows.find_identities(query, [id]))[id], await rows.find_seen(query, [id]))


async def _invite(tx: Transaction, command: AddPerson) -> Person:
    await find_reach(tx, command.rights, Act.PEOPLE)
    person = command.person
    refuse_machine_name(command.rights.rules, person.name)
    _refuse_link(person)
    if is_id_of_account(person.id) or not await rows.insert(tx, person):
        person = replace(person, id=PersonId(f"{person.id}-{tx.random_hex(8)}"))
        await rows.insert(tx, person)
    tx.wake(rows.NAMES)
    await _insert_link(tx, person, command.code_hash)
    return person


async def _make_link(tx: Transaction, command: MakeLink) -> Person:
    person = await _find_changeable(tx, command.rights, command.id)
    await refuse_machine(tx, command.rights.rules, person.id)
    _refuse_link(person)
    await tokens.delete_links(tx, person.principal)
    await _insert_link(tx, person, command.code_hash)
    return person


async def _insert_link(tx: Transaction, person: Person, code_hash: str) -> None:
    expires_at_ms = tx.now_ms + int(INVITATION_LIFE.total_seconds() * 1000)
    await tokens.delete_expired(tx, tx.now_ms)
    await tokens.insert_link(tx, code_hash, person.principal, at_ms=tx.now_ms, expires_at_ms=expires_at_ms)


def _refuse_link(person: Person) -> None:
    """Raises if a link would sign in somebody to whom the page shows nothing."""
    if person.is_suspended:
        why = f"{person.id!r} is suspended. Let them act again first, with `antiphon people resume {person.id}`"
    elif person.role is PersonRole.GUEST:
        why = f"{person.id!r} is a guest. The page shows guests nothing. Make them a user, or let them use a channel"
    else:
        return
    raise Conflict(f"Person cannot sign in: {why}.", code="cannot_sign_in")


async def _find_changeable(tx: Transaction, rights: Rights, id: PersonId) -> Person:
    """The person, held with all owners until this unit commits; refused if they act as another one."""
    await find_reach(tx, rights, Act.PEOPLE)
    await rows.hold_owners(tx)
    await find_reach(tx, rights, Act.PEOPLE)  # another owner may have been faster
    known = await _known(tx, id)
    if known.person.merged_into is not None:
        raise Conflict(f"Person is merged: {id!r} acts as {known.person.merged_into!r}. Name that one.", code="merged")
    return known.person


async def _refuse_last(tx: Transaction, person: Person) -> None:
    """Raises if nobody would be left who may do everything."""
    if person.role is not PersonRole.OWNER or person.is_suspended or await rows.has_other_owner(tx, person.id):
        return
    raise Conflict(
        f"Owner is the last one: {person.id!r}. Make somebody else an owner first, with `antiphon people role`.",
        code="last_owner",
    )


def _refuse_limited(rights: Rights, held: frozenset[TokenScope]) -> None:
    """Raises if the credential that asks may do less than its person."""
    refuse_credential(held)
    refuse_clearance(rights.principal, None)


async def _change(tx: Transaction, command: ChangePerson) -> KnownPerson:
    person = await _find_changeable(tx, command.rights, command.id)
    role = person.role if command.role is None else command.role
    if is_promotion(person.role, role):
        _refuse_limited(command.rights, command.held)
    is_promoted = command.role not in (None, PersonRole.GUEST)
    if is_promoted:
        await refuse_machine(tx, command.rights.rules, person.id)
    is_suspended = person.is_suspended if command.is_suspended is None else command.is_suspended
    stays_owner = role is PersonRole.OWNER and not is_suspended
    if not stays_owner:
        await _refuse_last(tx, person)
    if (role, is_suspended) != (person.role, person.is_suspended):
        columns: dict[str, SqlValue] = {"role": role.value, "is_suspended": int(is_suspended)}
        await rows.change(tx, person.id, columns)
    if is_suspended:
        await _call_off_runs(tx, person.id)
    return await _known(tx, person.id)


async def _clear(tx: Transaction, command: ClearPerson) -> KnownPerson:
    person = await _find_changeable(tx, command.rights, command.id)
    clearance = None
    if command.clearance is not None:
        read = await read_clearance(tx, command.clearance)
        clearance = read
        if clearance.person not in (None, PEOPLE, str(person.principal)):
            raise Invalid(
                f"Person in a clearance must be 'people', for the data of all persons: {clearance.person!r}. Each "
                "person may read their own data anyway.",
                code="invalid_classification",
            )
        refuse_clearance(command.rights.principal, clearance)
    if clearance != person.clearance:
        await rows.change(tx, person.id, clearance_columns(clearance))
    return await _known(tx, person.id)


async def _call_off_runs(tx: Transaction, id: PersonId) -> None:
    for session in await rows.call_off_runs(tx, person_principal(id)):
        tx.interrupt(session)
    tx.wake(DUE)


async def _merge(tx: Transaction, command: MergePeople) -> KnownPerson:
    source = await _find_changeable(tx, command.rights, command.id)
    if command.id == command.into:
        raise Invalid(f"Person cannot be merged into themselves: {command.id!r}.", code="invalid_request")
    _refuse_limited(command.rights, command.held)
    target = await _find_changeable(tx, command.rights, command.into)
    for person in (source, target):
        await refuse_machine(tx, command.rights.rules, person.id)
    is_owners = target.role is PersonRole.OWNER and not target.is_suspended
    if not is_owners:
        await _refuse_last(tx, source)
    await merge_into(tx, source.id, target.id)
    return await _known(tx, target.id)


async def merge_into(tx: Transaction, source: PersonId, target: PersonId) -> None:
    """Makes the one person act as the other; what a suspended person has become goes on no more."""
    await rows.merge(tx, source, target)
    await move_spent(tx, day_of(tx.now_ms), str(person_principal(source)), str(person_principal(target)))
    if (await find_standing(tx, person_principal(target))).is_suspended:
        await _call_off_runs(tx, target)


async def split_from(tx: Transaction, account: Identity, undo: LinkUndo) -> None:
    """Makes the account what it was before a code linked it; the other one's runs in the guest's sessions end."""
    if undo.source is None:
        await link_undos.forget_account(tx, account, undo.survivor)
        return
    old, new = str(person_principal(undo.source)), str(person_principal(undo.survivor))
    await return_spent(tx, day_of(undo.created_at_ms), old, new)
    for session in await link_undos.give_back(tx, account, undo.source, undo):
        tx.interrupt(session)
    tx.wake(DUE)


async def _remove(tx: Transaction, command: ChangePerson) -> None:
    person = await _find_changeable(tx, command.rights, command.id)
    await _refuse_last(tx, person)
    if (await find_standing(tx, OWNER)).principal == person.principal:
        raise Conflict(
            f"Person is the home's own owner: {person.id!r}. Its token and command line act as them; "
            "change their role, suspend them, or merge them into another owner.",
            code="home_owner",
        )
    await _call_off_runs(tx, person.id)
    await rows.delete(tx, person.id)
