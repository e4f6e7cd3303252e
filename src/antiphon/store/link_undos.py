"""What was a guest's before a code made them somebody else, so that they can have it back. Contract: access 3."""

from typing import NamedTuple

from antiphon.domain.classification import PEOPLE
from antiphon.domain.ids import SessionRow
from antiphon.domain.person import Identity, PersonId, person_principal
from antiphon.store import origins
from antiphon.store.database import Transaction
from antiphon.store.people import CLASSIFIED, NAMES, OWNED, hold_sessions, rename_in
from antiphon.store.scopes import Condition

_ACCOUNT = "channel = ? AND account = ? AND platform_id = ?"
_EVENT = "CAST(session AS TEXT) || ' ' || CAST(seq AS TEXT)"
_KEYS = {
    "events": _EVENT,
    "unnoticed_events": _EVENT,
    "sessions": "CAST(id AS TEXT)",
    "tokens": "hash",
    "trusted_content": "CAST(session AS TEXT) || ' ' || sha256",
    "identities": "channel || ' ' || account || ' ' || platform_id",
}
"""What names a row of these tables as text; the others have an `id` that is text."""
_VALUES = {
    "notes": "version",
    "sessions": "last_seq",
    "incarnations": "(SELECT s.last_seq FROM sessions s WHERE s.id = incarnations.session)",
}
"""What tells whether the row was changed since."""
_OWNED = (*OWNED, ("notes", "holder"), ("notes", "made_by"))
"""Columns with a principal, which a merge changes."""
_NAMED = (("people", "merged_into"), ("identities", "person"))
"""Columns with the id of a person, which a merge changes."""
_ANCESTORS = ", ".join(f"CAST(s.ancestor_{depth} AS TEXT)" for depth in range(5))
_FROM_EVENTS = ("indexed_messages", "person")
"""It is what the event has, also if it was indexed later."""
_JOINED = frozenset(
    {
        ("incarnations", "taint_person"),
        ("incarnations", "workspace_person"),
        ("incarnations", "memory_person"),
        ("sessions", "preview_person"),
        ("sessions", "description_person"),
    }
)
"""Columns that tell whose data a whole conversation holds."""


class LinkUndo(NamedTuple):
    """An account that a code has linked."""

    source: PersonId | None
    """The guest whose account it was; None if it was nobody's."""
    survivor: PersonId
    created_at_ms: int


async def insert(tx: Transaction, account: Identity, undo: LinkUndo, *, expires_at_ms: int) -> None:
    """Notes all that is the guest's; call it before they are merged."""
    await tx.execute(f"DELETE FROM link_undos WHERE {_ACCOUNT}", _values(account))
    await tx.execute(
        "INSERT INTO link_undos (channel, account, platform_id, source, survivor, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*_values(account), *undo, expires_at_ms),
    )
    if undo.source is not None:
        await tx.execute("DELETE FROM link_undo_rows WHERE source = ?", (undo.source,))
        await _note(tx, account, undo.source, undo.survivor)


async def _note(tx: Transaction, account: Identity, source: PersonId, survivor: PersonId) -> None:
    old, new = str(person_principal(source)), str(person_principal(survivor))
    for columns, name in ((_OWNED + CLASSIFIED, old), (_NAMED, source)):
        for table, column in columns:
            if (table, column) == _FROM_EVENTS:
                continue
            await tx.execute(
                "INSERT INTO link_undo_rows (source, place, key, value) "
                f"SELECT CAST(? AS TEXT), CAST(? AS TEXT), {_KEYS.get(table, 'id')}, {_VALUES.get(table, '0')} "
                f"FROM {table} WHERE {column} = ?",
                (source, f"{table}.{column}", name),
            )
    await tx.execute(
        "INSERT INTO link_undo_rows (source, place, key, value) "
        "SELECT CAST(? AS TEXT), CASE WHEN EXISTS (SELECT 1 FROM participants o WHERE o.session = p.session "
        "AND o.principal = ?) THEN 'both' ELSE 'alone' END, CAST(p.session AS TEXT), p.stored_bytes "
        "FROM participants p WHERE p.principal = ?",
        (source, new, old),
    )
    await tx.execute(
        "INSERT INTO link_undo_rows (source, place, key, value) "
        "SELECT CAST(? AS TEXT), 'routes', thread, version FROM routes WHERE channel = ? AND account = ? AND peer = ?",
        (source, *_chat(account)),
    )
    for table, origin in await origins.list_of(tx, old):
        await tx.execute(
            "INSERT INTO link_undo_rows (source, place, key) VALUES (?, ?, ?)", (source, f"{table}.origin", origin)
        )


async def take(tx: Transaction, account: Identity, at_ms: int) -> LinkUndo | None:
    """What undoes the link of the account, once; None if it is too late, or there is nothing to undo."""
    row = await tx.fetch_one(
        f"DELETE FROM link_undos WHERE {_ACCOUNT} AND expires_at > ? RETURNING source, survivor, created_at",
        (*_values(account), at_ms),
    )
    return None if row is None else LinkUndo(*row)


async def forget_account(tx: Transaction, account: Identity, survivor: PersonId) -> None:
    """Makes the account nobody's, as it was."""
    await tx.execute(f"DELETE FROM identities WHERE {_ACCOUNT} AND person = ?", (*_values(account), survivor))
    await tx.execute("DELETE FROM routes WHERE channel = ? AND account = ? AND peer = ?", _chat(account))


async def give_back(tx: Transaction, account: Identity, source: PersonId, undo: LinkUndo) -> list[SessionRow]:
    """Gives the guest all that was theirs; returns the sessions that the other one loses, with a run of theirs at work.

    What came to be after the link stays with whoever made it. The runs of the other one in these sessions end.
    """
    survivor = undo.survivor
    old, new = str(person_principal(source)), str(person_principal(survivor))
    await hold_sessions(tx, new)
    for table, column in _OWNED + CLASSIFIED:
        if (table, column) != _FROM_EVENTS:
            await _give(tx, table, column, source, old=old, new=new)
    await tx.execute(
        "UPDATE indexed_messages SET person = ? WHERE person = ? AND EXISTS (SELECT 1 FROM link_undo_rows u "
        f"WHERE u.source = ? AND u.place = 'events.person' AND u.key = {_EVENT})",
        (old, new, source),
    )
    await tx.execute(
        "UPDATE note_words SET holder = ? WHERE holder = ? AND note IN (SELECT n.id FROM notes n WHERE n.holder = ?)",
        (old, new, old),
    )
    for table, column in _NAMED:
        await _give(tx, table, column, source, old=source, new=survivor)
    noted = await tx.fetch_all("SELECT place, key FROM link_undo_rows WHERE source = ?", (source,))
    for place, key in noted:
        if place.endswith(".origin"):
            await origins.give_back(tx, place.removesuffix(".origin"), key, old=old, new=new)
    at_work = await _give_sessions(tx, source, old=old, new=new, since_ms=undo.created_at_ms)
    await tx.execute(
        "DELETE FROM routes WHERE channel = ? AND account = ? AND peer = ? AND NOT EXISTS (SELECT 1 FROM "
        "link_undo_rows u WHERE u.source = ? AND u.place = 'routes' AND u.key = thread AND u.value = version)",
        (*_chat(account), source),
    )
    await _split(tx, source, survivor)
    await tx.execute("DELETE FROM link_undo_rows WHERE source = ?", (source,))
    return at_work


async def _give(tx: Transaction, table: str, column: str, source: PersonId, *, old: str, new: str) -> None:
    """Renames what was the guest's in the column.

    A note that was changed since stays. A conversation that went on since holds data of both, so it is neither's.
    """
    is_checked = table == "notes" or (table, column) in _JOINED
    unchanged = f" AND u.value = {_VALUES[table]}" if is_checked else ""
    noted = f"{_KEYS.get(table, 'id')} IN (SELECT u.key FROM link_undo_rows u WHERE u.source = ? AND u.place = ?"
    place = f"{table}.{column}"
    noted_there = Condition(f"{column} = ? AND {noted}{unchanged})", (new, source, place))
    await rename_in(tx, (table, column), old, noted_there)
    if (table, column) in _JOINED:
        await rename_in(tx, (table, column), PEOPLE, Condition(f"{column} = ? AND {noted})", (new, source, place)))


async def _give_sessions(tx: Transaction, source: PersonId, *, old: str, new: str, since_ms: int) -> list[SessionRow]:
    """Also those that were made below them since, which may hold copies. The other one's tasks there end."""
    noted = "(SELECT u.key FROM link_undo_rows u WHERE u.source = ? AND u.place = ?)"
    await tx.execute(
        "INSERT INTO link_undo_rows (source, place, key) SELECT DISTINCT CAST(? AS TEXT), 'alone', "
        "CAST(t.session AS TEXT) FROM participants t JOIN sessions s ON s.id = t.session "
        f"JOIN link_undo_rows u ON u.source = ? AND u.place = 'alone' AND u.key IN ({_ANCESTORS}) "
        "WHERE t.principal = ? AND s.created_at >= ? ON CONFLICT DO NOTHING",
        (source, source, new, since_ms),
    )
    await tx.execute(
        f"UPDATE participants SET principal = ? WHERE principal = ? AND CAST(session AS TEXT) IN {noted}",
        (old, new, source, "alone"),
    )
    await tx.execute(
        "INSERT INTO participants (session, principal, stored_bytes) SELECT s.id, CAST(? AS TEXT), u.value "
        "FROM link_undo_rows u JOIN sessions s ON CAST(s.id AS TEXT) = u.key "
        "WHERE u.source = ? AND u.place = 'both' ON CONFLICT DO NOTHING",
        (old, source),
    )
    await tx.execute(
        "UPDATE participants SET stored_bytes = stored_bytes - (SELECT u.value FROM link_undo_rows u "
        "WHERE u.source = ? AND u.place = 'both' AND u.key = CAST(participants.session AS TEXT)) "
        f"WHERE principal = ? AND CAST(session AS TEXT) IN {noted}",
        (source, new, source, "both"),
    )
    of = (new, source, "alone")
    there = f"CAST(session AS TEXT) IN {noted}"
    theirs = f"principal = ? AND {there}"
    await tx.execute(f"DELETE FROM task_slots WHERE task IN (SELECT id FROM tasks WHERE maker = ? AND {there})", of)
    await tx.execute(f"DELETE FROM tasks WHERE maker = ? AND {there}", of)
    await tx.execute(f"UPDATE approvals SET expires_at = 0 WHERE state = 'pending' AND {theirs}", of)
    await tx.execute(f"UPDATE runs SET cancel_requested = 1 WHERE status = 'queued' AND {theirs}", of)
    await tx.execute(f"UPDATE runs SET cancel_requested = 1 WHERE is_parked = 1 AND {theirs}", of)
    rows = await tx.fetch_all(
        f"UPDATE runs SET cancel_requested = 1 WHERE status IN ('running', 'awaiting_approval') AND {theirs} "
        "RETURNING session",
        of,
    )
    return [SessionRow(session) for (session,) in rows]


async def _split(tx: Transaction, source: PersonId, survivor: PersonId) -> None:
    """The guest is themselves again; open requests of both end, since their rights are others."""
    await tx.execute(
        "UPDATE people SET merged_into = NULL, "
        "revision = revision + 1 + (SELECT o.revision FROM people o WHERE o.id = ?) WHERE id = ?",
        (survivor, source),
    )
    await tx.execute("UPDATE people SET revision = revision + 1 WHERE id = ?", (survivor,))
    tx.wake(NAMES)


async def delete_expired(tx: Transaction, at_ms: int) -> None:
    """Deletes also what was noted for links that cannot be undone for another reason."""
    await tx.execute("DELETE FROM link_undos WHERE expires_at <= ?", (at_ms,))
    await tx.execute(
        "DELETE FROM link_undo_rows WHERE source NOT IN (SELECT u.source FROM link_undos u WHERE u.source IS NOT NULL)"
    )


def _values(account: Identity) -> tuple[str, str, str]:
    return account.channel, account.account, account.platform_id


def _chat(account: Identity) -> tuple[str, str, str]:
    return account.channel, account.account, f"direct:{account.platform_id}"
