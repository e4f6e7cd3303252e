"""Persons of tests: guests who have no row yet, and standings without a database."""

from antiphon.domain.actor import OWNER, Asker, Principal, PrincipalKind
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.policy.standing import Standing


def guest(name: str) -> Principal:
    """A person without a row, who is a guest."""
    return person_principal(PersonId(name))


def standing_of(principal: Principal) -> Standing:
    """The standing of the owner, of a guest or of a session, as a fresh home has them."""
    if principal.kind is not PrincipalKind.PERSON:
        return Standing(principal=principal, role=None)
    return Standing(principal=principal, role=PersonRole.OWNER if principal == OWNER else PersonRole.GUEST)


def asker(principal: Principal) -> Asker:
    """The principal as the asker of a run that is queued now."""
    return Asker(principal, is_favoured=principal == OWNER)
