"""Who writes on a channel: the person to whom the account is linked. Contract: access 3, keys 5."""

from msgspec import Struct

from antiphon.domain.inbound import Sender
from antiphon.domain.keys import DmScope
from antiphon.domain.person import Identity, Person, PersonId, PersonRole, is_id_of_account, person_principal
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.machines import is_machine_person
from antiphon.engine.access.recipients import account_of
from antiphon.engine.rules import Rules
from antiphon.policy.rights import is_guest
from antiphon.policy.standing import Standing
from antiphon.store import pairings, people
from antiphon.store.codec import moment
from antiphon.store.database import Query, Transaction

SEEN_MS = 3_600_000
"""How much later somebody is seen before that is stored again."""


class Who(Struct, frozen=True, kw_only=True):
    """A sender, as the unit has found them."""

    identity: Identity
    name: str
    standing: Standing
    """That of the person as whom the sender acts."""
    stored: Standing | None
    """That of the person to whom the account is linked already; None if it is linked to nobody."""
    linked_by_settings: PersonId | None = None
    """The person whom `session.identityLinks` names for the account, if it is not linked to them yet."""
    seen_ms: int | None = None
    """When the account was last seen, to the hour."""
    folded: str | None = None
    """The person's id, if their chats on all channels are one peer."""

    @property
    def is_linked(self) -> bool:
        return self.stored is not None


def identity_of(place: DeliveryContext, sender: Sender) -> Identity:
    assert place.channel is not None
    return Identity(channel=place.channel, account=account_of(place), platform_id=sender.id)


async def find_who(query: Query, rules: Rules, place: DeliveryContext, sender: Sender) -> Who:
    """The sender's person; one whom nobody knows is a guest."""
    identity = identity_of(place, sender)
    named = await _named_in_settings(query, rules, identity)
    known = await people.find_account(query, identity)
    stored = None if known is None else known.standing
    standing, linked_by_settings = stored, None
    if named is not None and (stored is None or (is_guest(stored) and not stored.is_suspended)):
        standing = await people.find_standing(query, person_principal(named))
        is_new = stored is None or stored.principal != standing.principal
        linked_by_settings = PersonId(standing.principal.name) if is_new else None
    if standing is None:
        standing = await people.find_standing(query, person_principal(identity.person_id))
    return Who(
        identity=identity,
        name=bracketed_name(sender.name or sender.id),
        standing=standing,
        stored=stored,
        linked_by_settings=linked_by_settings,
        seen_ms=None if known is None else known.seen_ms,
        folded=await _folded(query, rules, identity, standing),
    )


async def _named_in_settings(query: Query, rules: Rules, identity: Identity) -> PersonId | None:
    """The person to whom the settings link the account; None if a program is stored as that person."""
    named = rules.chats.person_of(identity.channel, identity.platform_id)
    if named is None:
        return None
    person = PersonId(named)
    is_machine = is_id_of_account(person) and await is_machine_person(query, rules, person)
    return None if is_machine else person


async def _folded(query: Query, rules: Rules, identity: Identity, standing: Standing) -> str | None:
    if rules.chats.dm_scope is not DmScope.PER_PEER:
        return None
    person = PersonId(standing.principal.name)
    if person != identity.person_id:
        return person
    accounts = (await people.find_identities(query, [person]))[person]
    return person if any(account != identity for account in accounts) else None


async def is_admitted(query: Query, who: Who) -> bool:
    """Whether an owner has admitted the sender to direct chats, or they are a person beyond this account.

    A member of a group is a guest by this account alone, and still has to be admitted.
    """
    identity = who.identity
    if who.linked_by_settings is not None or not is_guest(who.standing):
        return True
    if who.is_linked and who.standing.principal.name != identity.person_id:
        return True
    return await pairings.is_approved(query, identity.channel, identity.account, identity.platform_id)


async def introduce(tx: Transaction, who: Who, person: PersonId) -> None:
    """Stores that the account is this person's; one whom nobody knows becomes a guest."""
    own = who.identity.person_id
    name = who.name if person == own else person
    await people.insert(tx, Person(id=person, name=name, role=PersonRole.GUEST, created_at=moment(tx.now_ms)))
    await people.insert_identity(tx, who.identity, person, tx.now_ms)


async def note_seen(tx: Transaction, who: Who) -> None:
    """Stores that the sender's person was seen at the account, unless that was within the hour."""
    if who.stored is not None and (who.seen_ms is None or not 0 <= tx.now_ms - who.seen_ms < SEEN_MS):
        await people.set_seen(tx, who.identity, tx.now_ms)
