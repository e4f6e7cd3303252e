"""Makes persons of the principals that named a role: `owner:owner` and `guest:<channel>:<account>:<id>`."""

import logging
from functools import lru_cache

from antiphon.domain.actor import OWNER
from antiphon.domain.person import Identity, PersonRole, person_principal
from antiphon.store.step import Asking, Statement

logger = logging.getLogger(__name__)

_HOLDERS = ("participants", "runs", "exchanges", "reports", "tokens")
"""The tables with a column `principal`. Events keep their actors; `present_actor` reads them."""
_OLD_KINDS = ("owner", "user", "guest", "channel", "schedule")
_NAME_BYTES = 200


def identity_of(old: str) -> Identity | None:
    """The account that an old principal named; None for the owner, and for principals of today."""
    kind, _, rest = old.partition(":")
    if kind not in _OLD_KINDS or kind == "owner":
        return None
    channel, account, platform_id = (*rest.split(":", 2), "", "")[:3] if kind == "guest" else (kind, "", rest)
    return Identity(channel=channel, account=account, platform_id=platform_id)


@lru_cache(maxsize=4096)
def present_actor(actor: str) -> str:
    """The actor of an event, as principals are written now."""
    if actor.startswith("owner:"):
        return str(OWNER)
    identity = identity_of(actor)
    return actor if identity is None else str(person_principal(identity.person_id))


def name_people() -> Asking:
    """Stores the owner and each guest as persons, and rewrites the stored principals; logs how many."""
    began = "COALESCE((SELECT MIN(applied_at) FROM schema_migrations), 0)"
    insert = f"INSERT INTO people (id, name, role, created_at) VALUES (?, ?, ?, {began}) ON CONFLICT DO NOTHING"
    yield Statement(insert, (OWNER.name, OWNER.name, PersonRole.OWNER.value))
    yield Statement("CREATE TABLE old_principals (old TEXT PRIMARY KEY, new TEXT NOT NULL)")
    named = " UNION ".join(f"SELECT principal FROM {table}" for table in _HOLDERS)
    renamed = 0
    for (old,) in (yield Statement(named)):
        new = present_actor(old)
        if new == old:
            continue
        yield Statement("INSERT INTO old_principals VALUES (?, ?)", (old, new))
        renamed += 1
        identity = identity_of(old)
        if identity is not None and identity.platform_id:
            id = identity.person_id
            name = identity.platform_id.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
            yield Statement(insert, (id, name, PersonRole.GUEST.value))
            yield Statement(
                "INSERT INTO identities (channel, account, platform_id, person, created_at) "
                f"VALUES (?, ?, ?, ?, {began}) ON CONFLICT DO NOTHING",
                (identity.channel, identity.account, identity.platform_id, id),
            )
    for table in _HOLDERS:
        yield Statement(
            f"UPDATE {table} SET principal = (SELECT o.new FROM old_principals o WHERE o.old = {table}.principal) "
            "WHERE principal IN (SELECT old FROM old_principals)"
        )
    ((people,),) = yield Statement("SELECT COUNT(*) FROM people")
    yield Statement("DROP TABLE old_principals")
    if renamed:  # a new home has none
        logger.info(
            "Principals name persons now", extra={"action": "people_named", "people": people, "principals": renamed}
        )
