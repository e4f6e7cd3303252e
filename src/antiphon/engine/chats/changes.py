"""The unit that notes what happened to a chat: the bot or people were added to a group or left it, or it moved."""

from antiphon.domain.inbound import ChangeKind, ChatChange
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.chats.groups import (
    ask_owners,
    find_group,
    forget_met,
    leave_group,
    move_group,
    note_met,
    rename_group,
    standing_of,
)
from antiphon.engine.chats.take_in import Received, Stale, keep_lease, would_enter
from antiphon.engine.rules import Rules
from antiphon.policy.reception import GroupStanding
from antiphon.store.arrivals import ArrivalOutcome
from antiphon.store.database import Transaction


async def take_change(
    tx: Transaction, change: ChatChange, lease: AccountLease | None, rules: Rules
) -> Received | Stale:
    """May be called again for the same change: each states what is so now."""
    if not await keep_lease(tx, lease, change.place, change.position):
        return Stale()
    match change.kind:
        case ChangeKind.INVITED:
            return Received(outcome=ArrivalOutcome.IGNORED, may_enter=await _is_open_to(tx, change, rules))
        case ChangeKind.ADDED:
            group = await find_group(tx, change.place)
            if standing_of(rules, change.place, group) is GroupStanding.UNKNOWN:
                by = None if change.sender is None else change.sender.id
                await ask_owners(tx, change.place, group, title=change.title, by=by)
        case ChangeKind.LEFT:
            await leave_group(tx, change.place)
        case ChangeKind.MOVED:
            assert change.moved_to is not None
            await move_group(tx, change.place, change.moved_to)
        case ChangeKind.RENAMED:
            assert change.title is not None
            await rename_group(tx, rules, change.place, title=change.title, by=change.sender)
        case ChangeKind.JOINED:
            await note_met(tx, rules, change.place, change.people)
        case ChangeKind.PARTED:
            await forget_met(tx, change.place, change.people)
        case ChangeKind.BLOCKED:
            pass  # texts for the chat fail for good, and owners are told then
    return Received(outcome=ArrivalOutcome.IGNORED)


async def _is_open_to(tx: Transaction, change: ChatChange, rules: Rules) -> bool:
    """Whether the bot may join. Owners are asked about a group that they have not decided about, once."""
    sender = change.sender
    if sender is not None and change.place.to == sender.id:
        return await would_enter(tx, rules, change.place, sender)
    group = await find_group(tx, change.place)
    standing = standing_of(rules, change.place, group)
    if standing is GroupStanding.UNKNOWN:
        await ask_owners(tx, change.place, group, title=change.title, by=None if sender is None else sender.id)
    return standing is GroupStanding.ALLOWED
