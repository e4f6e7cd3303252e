"""Persons: who they are, their role, and their identities on channels. Contract: access 1, 3."""

import hashlib
import re
import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import plain

PersonId = NewType("PersonId", str)
MAX_ID = 40


class PersonRole(StrEnum):
    """What a person may, from all to least. Contract: access 4."""

    OWNER = "owner"
    USER = "user"
    GUEST = "guest"


class Person(Struct, frozen=True, kw_only=True):
    id: PersonId
    name: str
    role: PersonRole
    agents: frozenset[AgentId] = frozenset()
    """Agents with which a user may open sessions, besides those that the settings name."""
    is_suspended: bool = False
    merged_into: PersonId | None = None
    """The person as whom this one acts, never one that is merged itself; None for a person of their own."""
    clearance: Classification | None = None
    """What they may read besides their own data; None for public data. Owners read everything. Contract: flow 3."""
    created_at: datetime

    @property
    def principal(self) -> Principal:
        return person_principal(self.id)


class ShownPerson(Struct, frozen=True):
    """A person as others see them named."""

    principal: Principal
    """As whom they act."""
    shown: str
    """Their name, with the role or id if it could be mistaken for somebody else's."""


class Identity(Struct, frozen=True, kw_only=True):
    """An account of a person on a channel, named by the platform's immutable id, never by a display name."""

    channel: str
    account: str
    """Which of the channel's own accounts sees the id, such as the name of a webhook."""
    platform_id: str

    @property
    def person_id(self) -> PersonId:
        """The id of the person who is known by this identity first; the same wherever it is computed."""
        named = "\0".join((self.channel, self.account, self.platform_id))
        return PersonId(f"w-{hashlib.sha256(named.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}")


def private_chat(identity: Identity) -> DeliveryContext:
    """The place where only the account's person reads."""
    return DeliveryContext(channel=identity.channel, to=identity.platform_id, account_id=identity.account or None)


def is_id_of_account(id: PersonId) -> bool:
    """Whether the id has the form of those that accounts have: `Identity.person_id`."""
    return re.fullmatch(r"w-[0-9a-f]{24}", id) is not None


def shown_name(id: PersonId, name: str, role: PersonRole) -> str:
    """The name as others read it. Guests choose theirs; of two people with one name, the later has a longer id."""
    if role is PersonRole.GUEST:
        return f"{plain(name)} (guest)"
    return plain(name) if id == id_from_name(name) else f"{plain(name)} ({id})"


def id_from_name(name: str) -> PersonId:
    """A short id in plain letters, from the name."""
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return PersonId(re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:MAX_ID].strip("-") or "person")


def person_principal(id: PersonId) -> Principal:
    return Principal(PrincipalKind.PERSON, id)


def person_named(actor: str) -> PersonId | None:
    """The person whom an event names as its actor; None for anybody else."""
    kind, _, name = actor.partition(":")
    return PersonId(name) if kind == PrincipalKind.PERSON and name else None


def person_of(principal: Principal) -> PersonId | None:
    """The person that the principal names; None for sessions and the system."""
    return PersonId(principal.name) if principal.kind is PrincipalKind.PERSON else None
