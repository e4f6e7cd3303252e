"""Groups in which an agent answers, as places that its sessions may write to. Contract: message 1, groups 1."""

from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.answered_groups import GroupAsker, find_answered
from antiphon.engine.deliveries.outgoing import WantedGroup
from antiphon.store.database import Query


async def find_answered_group(query: Query, wanted: WantedGroup) -> DeliveryContext | None:
    """The place of the group with that id or present address, if the caller's agent answers there on an account.

    None as well for a group that the caller's person takes no part in, unless that person is an owner.
    """
    asker = GroupAsker(wanted.rules, wanted.caller.principal, wanted.caller.agent_id)
    for account in wanted.accounts:
        if (found := await find_answered(query, asker, account, wanted.named)) is not None:
            return found
    return None
