"""How the places for runs are shared: some are kept for the owner, and guests share the rest. Contract: runs 1."""

from antiphon.domain.actor import Principal

FEW = 6
"""Below so many places, one is kept for the owner, else two."""


def reserve_of(count: int) -> int:
    """How many of the places only the owner's runs may take; none where there is but one place."""
    return 0 if count == 1 else 1 if count < FEW else 2


def most_of_one(count: int) -> int:
    """How many places one guest may hold: half of what guests have, so that another guest finds one."""
    return max(1, (count - reserve_of(count) + 1) // 2)


def is_favoured(principal: Principal) -> bool:
    """Whether places, requests and storage are kept for the principal; every other one has a share."""
    return principal.is_owner
