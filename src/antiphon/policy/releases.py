"""Which refused words an owner may let go. Contract: flow 4, 11."""

from collections.abc import Sequence

from antiphon.domain.classification import PEOPLE, Classification, Level
from antiphon.domain.distrust import MAX_SHOWN, ReadSource
from antiphon.policy.approvals import UntrustedRule
from antiphon.policy.decision import Deny
from antiphon.policy.rights import reaches_all
from antiphon.policy.standing import Standing

OUTDATED = Deny(
    "release_outdated",
    "What was released is not what would be sent now: its words, its place, who reads there, or what it was made of "
    "has changed. Nothing was sent. Call again, and an owner is asked again.",
)


def may_ask_release(standing: Standing, read: Sequence[ReadSource], rule: UntrustedRule) -> bool:
    """Whether words that may not go where a run sends them wait for an owner's release, instead of being refused.

    Only with the rights of an owner. `read` are the words of others that may have steered the run: the owner must be
    able to trust all of them together with the release, so the question shows each of them.
    """
    if read and (rule is UntrustedRule.BLOCK or len(read) > MAX_SHOWN or not all(each.sha256 for each in read)):
        return False
    return reaches_all(standing)


def may_stand(made_of: Classification) -> bool:
    """Whether words that were made so may be allowed always to go to a place: one person's own data, not secret."""
    is_of_one = made_of.person is not None and made_of.person != PEOPLE
    return is_of_one and made_of.level <= Level.INTERNAL and not made_of.compartments
