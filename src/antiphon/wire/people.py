"""The JSON of persons. Contract: access 1, 3."""

from collections.abc import Sequence
from datetime import datetime

from antiphon.domain.classification import Compartments
from antiphon.domain.person import Identity, PersonRole
from antiphon.engine.access.people import KnownPerson
from antiphon.wire.compartments import ClearanceShape, clearance
from antiphon.wire.encoding import Shape, milliseconds


class IdentityShape(Shape, frozen=True, kw_only=True):
    """An account on a channel."""

    channel: str
    account: str
    platform_id: str
    seen_at: int | None = None
    """When the person last wrote there, to the hour; absent if they have not since that is stored."""


class PersonShape(Shape, frozen=True, kw_only=True):
    person_id: str
    name: str
    role: PersonRole
    agents: Sequence[str] = ()
    """Agents with which a user may open sessions, besides those of the settings."""
    clearance: ClearanceShape | None = None
    """What they may read besides their own data; absent for public data. Owners read everything."""
    suspended: bool = False
    merged_into: str | None = None
    """The person as whom this one acts."""
    identities: Sequence[IdentityShape] = ()
    created_at: int


class PeopleList(Shape, frozen=True, kw_only=True):
    count: int
    people: Sequence[PersonShape]
    next: str | None = None
    """The `after` of the next page; absent on the last."""


class InvitationShape(Shape, frozen=True, kw_only=True):
    """A person who was invited, and the code of their sign-in link."""

    person: PersonShape
    code: str
    """Works once."""
    expires_in_seconds: int
    public_url: str | None = None
    """The address in `gateway.public_url`, which the link begins with."""


def person(known: KnownPerson, compartments: Compartments) -> PersonShape:
    each = known.person
    return PersonShape(
        person_id=each.id,
        name=each.name,
        role=each.role,
        agents=sorted(each.agents),
        clearance=clearance(each.clearance, compartments),
        suspended=each.is_suspended,
        merged_into=each.merged_into,
        identities=[_identity(account, known.seen_at.get(account)) for account in known.identities],
        created_at=milliseconds(each.created_at),
    )


def _identity(account: Identity, seen_at: datetime | None) -> IdentityShape:
    return IdentityShape(
        channel=account.channel,
        account=account.account,
        platform_id=account.platform_id,
        seen_at=None if seen_at is None else milliseconds(seen_at),
    )
