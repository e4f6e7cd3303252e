"""Persons, their identities on channels, and what a principal is at present."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.audit import AuditKind
from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, Level
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.person import (
    Identity,
    Person,
    PersonId,
    PersonRole,
    ShownPerson,
    person_of,
    person_principal,
    shown_name,
)
from antiphon.policy.sinks import GroupName
from antiphon.policy.standing import Standing
from antiphon.store import audit, codec, notes, origins
from antiphon.store.database import Query, Row, SqlValue, Transaction
from antiphon.store.scopes import Condition
from antiphon.store.select_list import Combined, SelectList


def _agents(text: str) -> frozenset[AgentId]:
    return frozenset(AgentId(agent) for agent in text.split())


_role = codec.member_of(PersonRole)
_PERSON = SelectList(
    Person,
    "p.id, p.name, p.role, p.agents, p.is_suspended, p.merged_into, p.created_at, p.clearance_level, "
    "p.clearance_compartments, p.clearance_person",
    role=_role,
    agents=_agents,
    is_suspended=bool,
    created_at=codec.moment,
    clearance=Combined(
        codec.optional_clearance,
        level="clearance_level",
        compartments="clearance_compartments",
        person="clearance_person",
    ),
)
_SELECT = f"SELECT {_PERSON.text} FROM people p"
_IS_KNOWN = "p.name <> ''"
"""Whether the row is not that of a removed person, which keeps the id from being anybody else's."""

NAMES = SessionRow(-4)
"""Woken when a person is called differently from now on, or has another role."""

PRESENT = "people p JOIN people q ON q.id = COALESCE(p.merged_into, p.id)"
"""Each person as `p`, with the person as whom they act as `q`."""


RIGHTS = (
    "q.id, q.role, q.agents, q.is_suspended, q.clearance_level, q.clearance_compartments, q.clearance_person, "
    "q.merged_into"
)
"""The columns of a person `q` that `standing_from` takes."""
PLAIN_ROLE = (
    "CASE WHEN q.merged_into IS NULL AND q.is_suspended = 0 AND q.agents = '' AND q.clearance_level IS NULL "
    "THEN q.role END"
)
"""The role of a person `q` of whom nothing else decides, for `standing_of_role`; NULL for others."""
_SELECT_RIGHTS = f"SELECT {RIGHTS} FROM people q WHERE q.id = ?"


CLASSIFIED = (
    ("events", "person"),
    ("indexed_messages", "person"),
    ("incarnations", "taint_person"),
    ("incarnations", "workspace_person"),
    ("sessions", "base_person"),
    ("sessions", "clearance_person"),
    ("sessions", "preview_person"),
    ("sessions", "description_person"),
    ("runs", "person"),
    ("deliveries", "person"),
    ("unnoticed_events", "person"),
    ("notes", "person"),
    ("incarnations", "memory_person"),
    ("tokens", "clearance_person"),
    ("standing_approvals", "person"),
    ("trusted_content", "person"),
    ("approvals", "shown_person"),
    ("quarantined_values", "person"),
    ("runner_states", "person"),
    ("calls", "person"),
    ("tasks", "person"),
)
"""Columns of classifications and clearances that name a person."""


OWNED = (
    ("runs", "principal"),
    ("exchanges", "principal"),
    ("reports", "principal"),
    ("tokens", "principal"),
    ("approvals", "principal"),
    ("standing_approvals", "principal"),
    ("tasks", "maker"),
)
"""Columns of principals that a merge changes, besides those of notes and participants."""


async def find_standing(query: Query, principal: Principal) -> Standing:
    """The principal's present role, and the person as whom it acts; a person without a row is a guest.

    One statement for a person, two for a merged one, none for others. Call it in the unit that decides, and keep it in
    no other.
    """
    id = person_of(principal)
    return await standing_from(query, principal, None if id is None else await query.fetch_one(_SELECT_RIGHTS, (id,)))


async def standing_from(query: Query, principal: Principal, rights: Row | None) -> Standing:
    """Like `find_standing`, from the rights that this unit has read; None for a principal without a row."""
    if rights is not None and rights[-1] is not None:
        rights = await query.fetch_one(_SELECT_RIGHTS, (rights[-1],))
    return standing_of(principal, rights)


def standing_of(principal: Principal, rights: Row | None) -> Standing:
    """Like `standing_from`, from the rights of the person as whom the principal acts."""
    limit = principal.clearance
    if rights is None:
        id = person_of(principal)
        if id is None:
            # The program of a channel reads what its token says; nothing else about it is stored.
            return Standing(principal=principal, role=None, clearance=PUBLIC if limit is None else limit)
        standing = Standing(principal=principal, role=PersonRole.GUEST, clearance=clearance_of(id))
    else:
        standing = _standing(tuple(rights[:-1]))
    return standing if limit is None else replace(standing, clearance=standing.clearance.meet(limit))


def standing_of_role(principal: Principal, id: PersonId, role: str) -> Standing:
    """Like `find_standing`, from the person's `PLAIN_ROLE`, which this unit has read."""
    standing, limit = _plain_standing(id, role), principal.clearance
    return standing if limit is None else replace(standing, clearance=standing.clearance.meet(limit))


class KnownAccount(NamedTuple):
    """An account that is linked to somebody."""

    standing: Standing
    """That of its person."""
    seen_ms: int | None
    """When they last wrote there, to the hour."""


async def find_account(query: Query, identity: Identity) -> KnownAccount | None:
    """The account of a channel; None if it is linked to nobody."""
    row = await query.fetch_one(
        f"SELECT n.seen_at, {RIGHTS} FROM identities n JOIN people q ON q.id = n.person "
        "WHERE n.channel = ? AND n.account = ? AND n.platform_id = ?",
        (identity.channel, identity.account, identity.platform_id),
    )
    if row is None:
        return None
    seen_ms, *rights = row
    return KnownAccount(await standing_from(query, person_principal(rights[0]), tuple(rights)), seen_ms)


async def find_standing_of_account(query: Query, channel: str, account: str, platform_id: str) -> Standing | None:
    """The standing of the person to whom the account of a channel is linked; None if it is linked to nobody."""
    found = await find_account(query, Identity(channel=channel, account=account, platform_id=platform_id))
    return None if found is None else found.standing


async def list_standings(query: Query, persons: Sequence[PersonId]) -> list[Standing | None]:
    """The standing of each of the persons, in their order; None for a person that does not exist. One statement."""
    marks = ", ".join("?" * len(persons))
    found = await query.fetch_all(f"SELECT {RIGHTS} FROM people q WHERE q.id IN ({marks}) AND q.name <> ''", persons)
    rights = {row[0]: row for row in found}
    return [await _standing_or_none(query, rights.get(person)) for person in persons]


async def list_standings_in_group(query: Query, group: GroupName) -> list[Standing | None]:
    """The standings of all who were met in the group; None for each account that is linked to nobody. One statement."""
    found = await query.fetch_all(
        f"SELECT {RIGHTS} FROM met_in_groups m LEFT JOIN identities n ON n.channel = m.channel "
        "AND n.account = m.account AND n.platform_id = m.platform_id LEFT JOIN people q ON q.id = n.person "
        "WHERE m.channel = ? AND m.account = ? AND m.group_id = ?",
        group,
    )
    return [await _standing_or_none(query, row) for row in found]


async def _standing_or_none(query: Query, rights: Row | None) -> Standing | None:
    if rights is None or rights[0] is None:
        return None
    return await standing_from(query, person_principal(rights[0]), rights)


async def list_merged(query: Query, principal: Principal) -> list[Principal]:
    """Those who were merged into the person."""
    rows = await query.fetch_all("SELECT id FROM people WHERE merged_into = ? ORDER BY id", (person_of(principal),))
    return [person_principal(id) for (id,) in rows]


async def list_deciders(query: Query, accounts: Iterable[tuple[str, str]]) -> list[tuple[Identity, Standing]]:
    """The owners and users who are linked on these accounts of channels, the oldest link first."""
    served = tuple(accounts)
    marks = ", ".join(["(?, ?)"] * len(served))
    found = await query.fetch_all(
        f"SELECT n.channel, n.account, n.platform_id, {RIGHTS} FROM identities n JOIN people q ON q.id = n.person "
        "WHERE q.is_suspended = 0 AND q.role IN ('owner', 'user') "
        f"AND (n.channel, n.account) IN (VALUES {marks}) ORDER BY n.created_at, n.channel, n.account, n.platform_id",
        [part for account in served for part in account],
    )
    return [
        (
            Identity(channel=channel, account=account, platform_id=platform_id),
            await standing_from(query, person_principal(rights[0]), tuple(rights)),
        )
        for channel, account, platform_id, *rights in found
    ]


class LinkedAccount(NamedTuple):
    """An account of a person who is not suspended."""

    identity: Identity
    person: PersonId
    is_by_account: bool
    """Whether the account's own id was named."""
    is_by_person: bool = False
    """Whether its person was named, by id or name."""


_LINKED = (
    "FROM identities n JOIN people q ON q.id = n.person WHERE q.is_suspended = 0 AND {} "
    "ORDER BY n.created_at, n.channel, n.account, n.platform_id"
)


async def find_accounts(query: Query, named: str) -> list[LinkedAccount]:
    """The accounts with that id, and those of the persons with that id or name, the oldest link first.

    Guests are not found by their names, which they choose themselves.
    """
    person = (
        "(q.id = ? OR (q.name = ? AND q.role <> 'guest') OR q.id = (SELECT m.merged_into FROM people m WHERE m.id = ?))"
    )
    rows = await query.fetch_all(
        f"SELECT n.channel, n.account, n.platform_id, q.id, CASE WHEN COALESCE({person}, FALSE) THEN 1 ELSE 0 END "
        + _LINKED.format(f"(n.platform_id = ? OR {person})"),
        [named] * 7,
    )
    return [
        _linked(*row, is_by_account=row[2] == named)._replace(is_by_person=bool(is_by_person))
        for *row, is_by_person in rows
    ]


async def list_owners_accounts(query: Query) -> list[LinkedAccount]:
    """The accounts of owners, the oldest link first."""
    rows = await query.fetch_all(
        "SELECT n.channel, n.account, n.platform_id, q.id " + _LINKED.format("q.role = 'owner'")
    )
    return [_linked(*row, is_by_account=True) for row in rows]


def _linked(channel: str, account: str, platform_id: str, person: PersonId, *, is_by_account: bool) -> LinkedAccount:
    return LinkedAccount(Identity(channel=channel, account=account, platform_id=platform_id), person, is_by_account)


@functools.lru_cache(maxsize=1_000)
def _standing(rights: tuple[Any, ...]) -> Standing:
    """Made from a row that was just read; equal rows share it."""
    id, role, agents, is_suspended, level, compartments, cleared_person = rights
    cleared = codec.optional_clearance(level, compartments, cleared_person)
    return Standing(
        principal=person_principal(id),
        role=_role(role),
        agents=_agents(agents),
        is_suspended=bool(is_suspended),
        clearance=EVERYTHING if role == PersonRole.OWNER else clearance_of(id, cleared),
    )


@functools.lru_cache(maxsize=1_000)
def _plain_standing(id: PersonId, role: str) -> Standing:
    return _standing((id, role, "", 0, None, None, None))


@functools.lru_cache(maxsize=1_000)
def clearance_of(id: PersonId, stored: Classification | None = None) -> Classification:
    """What a person below owner may read: their own data besides what is stored for them, if anything is."""
    return (stored or PUBLIC).join(Classification(Level.PUBLIC, person=str(person_principal(id))))


async def find_roles(query: Query) -> dict[str, PersonRole]:
    """The present roles of owners and users, by their principals as text; merged persons have that of the other."""
    rows = await query.fetch_all(f"SELECT p.id, q.role FROM {PRESENT} WHERE q.role <> 'guest' AND q.is_suspended = 0")
    return {str(person_principal(id)): PersonRole(role) for id, role in rows}


_NAMES = f"SELECT p.id, q.id, q.name, q.role FROM {PRESENT} WHERE q.name <> ''"


async def list_names(query: Query, limit: int) -> Mapping[PersonId, ShownPerson]:
    """Persons by their ids, merged ones as whom they act now; without guests who are known by an account alone."""
    rows = await query.fetch_all(
        f"{_NAMES} AND (q.role <> 'guest' OR p.merged_into IS NOT NULL OR p.id NOT LIKE 'w-%') "
        "ORDER BY p.created_at LIMIT ?",
        (limit,),
    )
    return {id: _shown(present, name, role) for id, present, name, role in rows}


async def find_names(query: Query, ids: Sequence[PersonId]) -> Mapping[PersonId, ShownPerson]:
    """These persons, merged ones as whom they act now, as far as they are known."""
    if not ids:
        return {}
    rows = await query.fetch_all(f"{_NAMES} AND p.id IN ({', '.join('?' * len(ids))})", tuple(ids))
    return {id: _shown(present, name, role) for id, present, name, role in rows}


def _shown(id: PersonId, name: str, role: str) -> ShownPerson:
    return ShownPerson(person_principal(id), shown_name(id, name, _role(role)))


async def find(query: Query, id: PersonId) -> Person | None:
    row = await query.fetch_one(f"{_SELECT} WHERE p.id = ? AND {_IS_KNOWN}", (id,))
    return None if row is None else _PERSON.read(row)


async def list_all(query: Query, *, after: PersonId | None, limit: int) -> list[Person]:
    """Persons in the order of their ids, also suspended and merged ones."""
    rows = await query.fetch_all(
        f"{_SELECT} WHERE p.id > ? AND {_IS_KNOWN} ORDER BY p.id LIMIT ?", (after or "", limit)
    )
    return [_PERSON.read(row) for row in rows]


async def find_identities(query: Query, ids: Sequence[PersonId]) -> Mapping[PersonId, list[Identity]]:
    """The accounts of each of these persons."""
    found: dict[PersonId, list[Identity]] = {id: [] for id in ids}
    if found:
        rows = await query.fetch_all(
            "SELECT person, channel, account, platform_id FROM identities "
            f"WHERE person IN ({', '.join('?' * len(found))}) ORDER BY channel, account, platform_id",
            tuple(found),
        )
        for person, channel, account, platform_id in rows:
            found[person].append(Identity(channel=channel, account=account, platform_id=platform_id))
    return found


async def find_seen(query: Query, ids: Sequence[PersonId]) -> Mapping[Identity, datetime]:
    """When the accounts of these persons were last seen, to the hour, as far as they were."""
    if not ids:
        return {}
    rows = await query.fetch_all(
        "SELECT channel, account, platform_id, seen_at FROM identities "
        f"WHERE person IN ({', '.join('?' * len(ids))}) AND seen_at IS NOT NULL",
        tuple(ids),
    )
    return {Identity(channel=row[0], account=row[1], platform_id=row[2]): codec.moment(row[3]) for row in rows}


async def find_newest_identity(query: Query, id: PersonId) -> Identity | None:
    """The account of the person, or of whom they act as, that was linked last."""
    row = await query.fetch_one(
        "SELECT n.channel, n.account, n.platform_id FROM people p JOIN identities n "
        "ON n.person = COALESCE(p.merged_into, p.id) WHERE p.id = ? "
        "ORDER BY n.created_at DESC, n.channel, n.account, n.platform_id LIMIT 1",
        (id,),
    )
    return None if row is None else Identity(channel=row[0], account=row[1], platform_id=row[2])


async def hold(tx: Transaction, id: PersonId) -> None:
    """Until this unit commits, no other that holds the person goes on."""
    await tx.execute("UPDATE people SET role = role WHERE id = ?", (id,))


async def hold_merges(tx: Transaction, principal: Principal) -> Principal:
    """The person as whom the principal acts, who is merged with nobody else until this unit commits."""
    id = person_of(principal)
    row = None if id is None else await tx.fetch_held("SELECT merged_into FROM people WHERE id = ?", (id,))
    return principal if row is None or row[0] is None else person_principal(row[0])


async def hold_owners(tx: Transaction) -> None:
    """Until this unit commits, no other changes who is an owner."""
    await tx.execute("UPDATE people SET role = role WHERE role = 'owner'")


async def has_other_owner(query: Query, id: PersonId) -> bool:
    """Whether somebody else is an owner, and neither suspended nor merged."""
    row = await query.fetch_one(
        "SELECT 1 FROM people WHERE role = 'owner' AND is_suspended = 0 AND merged_into IS NULL AND id <> ? LIMIT 1",
        (id,),
    )
    return row is not None


async def insert(tx: Transaction, person: Person) -> bool:
    """Stores the person; False if there is or was one with this id."""
    inserted = await tx.change(
        "INSERT INTO people (id, name, role, agents, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            person.id,
            person.name,
            person.role.value,
            " ".join(sorted(person.agents)),
            codec.milliseconds(person.created_at),
        ),
    )
    return inserted == 1


async def insert_identity(tx: Transaction, identity: Identity, person: PersonId, at_ms: int) -> None:
    """Stores that the account is this person's, who was seen there, unless it is somebody's already."""
    await tx.execute(
        "INSERT INTO identities (channel, account, platform_id, person, created_at, seen_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (identity.channel, identity.account, identity.platform_id, person, at_ms, at_ms),
    )


async def set_seen(tx: Transaction, identity: Identity, at_ms: int) -> None:
    await tx.execute(
        "UPDATE identities SET seen_at = ? WHERE channel = ? AND account = ? AND platform_id = ?",
        (at_ms, identity.channel, identity.account, identity.platform_id),
    )


async def change(tx: Transaction, id: PersonId, columns: Mapping[str, SqlValue]) -> None:
    """Sets columns that the person's rights depend on; open requests with the person's credentials end."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    await tx.execute(f"UPDATE people SET {assignments}, revision = revision + 1 WHERE id = ?", (*columns.values(), id))
    tx.wake(NAMES)


async def call_off_runs(tx: Transaction, principal: Principal) -> list[SessionRow]:
    """Cancels the person's runs that have not ended, with all that they asked for; returns sessions with one at work.

    What stands for somebody who was merged into the person is the person's.
    Open requests for approval are due at once: each is then withdrawn in its own session's unit.
    """
    set_cancelled, of = "UPDATE runs SET cancel_requested = 1", (principal.name, principal.name)
    is_theirs = "principal IN (SELECT 'person:' || p.id FROM people p WHERE p.id = ? OR p.merged_into = ?)"
    changed = await tx.fetch_all(
        "SELECT session FROM runs WHERE (status IN ('queued', 'running', 'awaiting_approval') OR is_parked = 1) "
        f"AND {is_theirs} UNION SELECT session FROM approvals WHERE state = 'pending' AND {is_theirs}",
        of + of,
    )
    tx.hold(*(session for (session,) in changed))
    rows = await tx.fetch_all(
        f"{set_cancelled} WHERE status IN ('running', 'awaiting_approval') AND {is_theirs} RETURNING session", of
    )
    await tx.execute(f"{set_cancelled} WHERE status = 'queued' AND {is_theirs}", of)
    await tx.execute(f"{set_cancelled} WHERE is_parked = 1 AND {is_theirs}", of)
    await tx.execute(f"UPDATE approvals SET expires_at = 0 WHERE state = 'pending' AND {is_theirs}", of)
    return [SessionRow(session) for (session,) in rows]


async def hold_sessions(tx: Transaction, principal: str) -> None:
    """Holds the sessions with rows that name the principal."""
    rows = await tx.fetch_all(
        "SELECT session FROM participants WHERE principal = ? UNION SELECT session FROM runs WHERE principal = ? "
        "UNION SELECT session FROM approvals WHERE principal = ? "
        "UNION SELECT session FROM incarnations WHERE taint_person = ?",
        [principal] * 4,
    )
    tx.hold(*(session for (session,) in rows))


async def rename_in(tx: Transaction, place: tuple[str, str], new: str, which: Condition) -> None:
    """Names another person in the column of the table, where the condition holds."""
    table, column = place
    if table == "events":  # the hash stays that over whom it was
        hashed = "COALESCE(hashed_person, person)"
        set = f"person = ?, hashed_person = CASE WHEN {hashed} = ? THEN NULL ELSE {hashed} END"
        await tx.execute(f"UPDATE events SET {set} WHERE {which.text}", (new, new, *which.values))
        return
    if table != "sessions":
        await tx.execute(f"UPDATE {table} SET {column} = ? WHERE {which.text}", (new, *which.values))
        return
    rows = await tx.fetch_all(f"SELECT id FROM sessions WHERE {which.text}", which.values)
    tx.hold(*(session for (session,) in rows))
    for (session,) in rows:
        await tx.execute(f"UPDATE sessions SET {column} = ? WHERE id = ?", (new, session))


async def merge(tx: Transaction, source: PersonId, into: PersonId) -> None:
    """Makes `source` act as `into`, with all that names them; `into` must not be merged itself."""
    old, new = str(person_principal(source)), str(person_principal(into))
    await hold_sessions(tx, old)
    await audit.append(tx, AuditKind.MERGED, {"person": old, "into": new})
    await tx.execute("DELETE FROM link_undos WHERE survivor = ?", (source,))
    await tx.execute("UPDATE people SET merged_into = ? WHERE merged_into = ?", (into, source))
    await tx.execute(
        "UPDATE people SET revision = revision + 1 + (SELECT o.revision FROM people o WHERE o.id = ?) WHERE id = ?",
        (source, into),
    )
    await change(tx, source, {"merged_into": into})
    await tx.execute("UPDATE identities SET person = ? WHERE person = ?", (into, source))
    await tx.execute(
        "UPDATE participants SET stored_bytes = stored_bytes + COALESCE((SELECT o.stored_bytes FROM participants o "
        "WHERE o.session = participants.session AND o.principal = ?), 0) WHERE principal = ?",
        (old, new),
    )
    await tx.execute(
        "INSERT INTO participants (session, principal, stored_bytes) "
        "SELECT session, CAST(? AS TEXT), stored_bytes FROM participants WHERE principal = ? ON CONFLICT DO NOTHING",
        (new, old),
    )
    await tx.execute("DELETE FROM participants WHERE principal = ?", (old,))
    for table, column in OWNED:
        await tx.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))
    await origins.merge(tx, old, new)
    await notes.merge(tx, old, new)
    for table, column in CLASSIFIED:
        # What is the one's is the other's from now on. Contract: flow 1.
        await rename_in(tx, (table, column), new, Condition(f"{column} = ?", (old,)))


async def delete(tx: Transaction, id: PersonId) -> None:
    """Deletes the person, those merged into them, their accounts, credentials and participation.

    Ids that an invitation made stay taken, by rows without a name that may do nothing: past events and work name them.
    Persons of a channel may come back by their accounts, and get the same id.
    """
    principal = str(person_principal(id))
    await hold_sessions(tx, principal)
    accounts = (await find_identities(tx, [id]))[id]
    for account in accounts:
        await tx.execute(
            "DELETE FROM pairings WHERE channel = ? AND account = ? AND platform_id = ?",
            (account.channel, account.account, account.platform_id),
        )
    returning = [account.person_id for account in accounts]
    await tx.execute("DELETE FROM link_codes WHERE person = ?", (id,))
    await tx.execute("DELETE FROM link_undos WHERE survivor = ?", (id,))
    await tx.execute("DELETE FROM identities WHERE person = ?", (id,))
    await tx.execute("DELETE FROM tokens WHERE principal = ?", (principal,))
    await tx.execute("DELETE FROM participants WHERE principal = ?", (principal,))
    await notes.delete_of(tx, principal)
    await tx.execute("DELETE FROM standing_approvals WHERE principal = ? OR created_by = ?", (principal, principal))
    await tx.execute("DELETE FROM task_slots WHERE task IN (SELECT id FROM tasks WHERE maker = ?)", (principal,))
    await tx.execute("DELETE FROM tasks WHERE maker = ?", (principal,))
    await tx.execute(
        "UPDATE people SET name = '', role = 'guest', agents = '', is_suspended = 1, merged_into = NULL, "
        "revision = revision + 1 WHERE merged_into = ? OR id = ?",
        (id, id),
    )
    tx.wake(NAMES)
    for person in returning:
        await tx.execute("DELETE FROM people WHERE id = ? AND name = ''", (person,))
