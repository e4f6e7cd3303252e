"""Groups: the bot answers in one only after an owner has allowed it. Contract: groups 1."""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import NotFound
from antiphon.domain.inbound import Sender
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.answered_groups import standing_of
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.recipients import account_of, name_group
from antiphon.engine.chats.owners import ask_about_group
from antiphon.engine.deliveries.questions import show_decision, subject_of_group
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.reception import GroupStanding
from antiphon.policy.rights import reaches_all
from antiphon.store import channel_groups as rows
from antiphon.store import chat_names, thread_bindings
from antiphon.store.channel_accounts import AccountName
from antiphon.store.channel_groups import ChannelGroup, GroupState
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing_of_account

MOST_ASKED = 10
"""How many groups of an account may wait for an owner at a time; further groups are not stored."""


class DecideGroup(Struct, frozen=True, kw_only=True):
    rights: Rights
    channel: str
    account: str
    named: str
    state: GroupState


class Groups:
    """Use cases of groups. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(self, principal: Principal) -> list[ChannelGroup]:
        """The groups that the bots of this home are or were in, by channel and account, the oldest first."""
        return await self._database.read(list_groups, Rights(principal, self._rules))

    async def allow(self, principal: Principal, channel: str, account: str, group: str) -> ChannelGroup:
        """Lets the bot answer in the group from the next message on. `group` is its id. Raises `NotFound`."""
        return await self._decide(principal, GroupState.ALLOWED, channel=channel, account=account, group=group)

    async def refuse(self, principal: Principal, channel: str, account: str, group: str) -> ChannelGroup:
        """Keeps the bot silent in the group, and stores nothing of it. Raises `NotFound`."""
        return await self._decide(principal, GroupState.REFUSED, channel=channel, account=account, group=group)

    async def _decide(
        self, principal: Principal, state: GroupState, *, channel: str, account: str, group: str
    ) -> ChannelGroup:
        command = DecideGroup(
            rights=Rights(principal, self._rules),
            channel=channel,
            account=account,
            named=group,
            state=state,
        )
        return await self._database.run(decide_group, command)


async def list_groups(query: Query, rights: Rights) -> list[ChannelGroup]:
    """All groups, by channel and account, the oldest first; refused for anyone but owners."""
    await find_reach(query, rights, Act.CHATS)
    return await rows.list_all(query)


async def decide_group(tx: Transaction, command: DecideGroup) -> ChannelGroup:
    await find_reach(tx, command.rights, Act.CHATS)
    found = await rows.find(tx, command.channel, command.account, command.named) or await rows.find_by_address(
        tx, command.channel, command.account, command.named
    )
    if found is None:
        raise NotFound(f"Group not found: {command.named[:80]!r}. `antiphon groups list` shows them.")
    await rows.set_state(tx, found, command.state, by=str(command.rights.principal), at_ms=tx.now_ms)
    await show_decision(tx, subject_of_group(found.channel, found.account, found.group_id))
    decided = await rows.find(tx, found.channel, found.account, found.group_id)
    assert decided is not None
    return decided


async def find_group(query: Query, place: DeliveryContext) -> ChannelGroup | None:
    """The group whose present id the place names."""
    assert place.channel is not None and place.to is not None
    return await rows.find_by_address(query, place.channel, account_of(place), place.to)


async def ask_owners(
    tx: Transaction,
    place: DeliveryContext,
    group: ChannelGroup | None,
    *,
    title: str | None,
    by: str | None,
) -> None:
    """Notes the group, and asks the owners in their private chats with the bot whether it may answer there."""
    assert place.channel is not None and place.to is not None
    account = account_of(place)
    if await rows.count_asked(tx, place.channel, account) >= MOST_ASKED:
        return
    shown = bracketed_name(title or place.to)
    if group is None:
        group = ChannelGroup(
            channel=place.channel,
            account=account,
            group_id=place.to,
            address=place.to,
            title=shown,
            state=GroupState.ASKED,
            added_by=by,
            created_at=moment(tx.now_ms),
        )
        await rows.insert(tx, group)
    else:
        await rows.set_state(tx, group, GroupState.ASKED)
        await rows.set_title(tx, group, shown)
        await chat_names.put(tx, place, shown)
    await ask_about_group(tx, replace(group, title=shown, address=place.to))


async def note_allowed(tx: Transaction, place: DeliveryContext, *, title: str | None) -> None:
    """Stores a group that the settings allow, so that it keeps its session if it moves; keeps its present title."""
    shown = bracketed_name(title or place.to or "")
    if title is not None:
        await chat_names.put(tx, place, shown)
    if await find_group(tx, place) is None:
        await _insert_allowed(tx, place, title=shown)


async def _insert_allowed(tx: Transaction, place: DeliveryContext, *, title: str) -> None:
    assert place.channel is not None and place.to is not None
    allowed = ChannelGroup(
        channel=place.channel,
        account=account_of(place),
        group_id=place.to,
        address=place.to,
        title=title,
        state=GroupState.ALLOWED,
        created_at=moment(tx.now_ms),
    )
    await rows.insert(tx, allowed)


async def rename_group(tx: Transaction, rules: Rules, place: DeliveryContext, *, title: str, by: Sender | None) -> None:
    """Keeps the group's new title, of a group in which the bot may answer. May be called twice.

    An owner vouches for the title that they give. Contract: flow 2.
    """
    group, shown = await find_group(tx, place), bracketed_name(title)
    if standing_of(rules, place, group) is not GroupStanding.ALLOWED:
        return
    await chat_names.put(tx, place, shown)
    is_vouched_for = by is not None and await _is_owner(tx, place, by)
    if group is None:
        await _insert_allowed(tx, place, title=shown if is_vouched_for else "")
    elif is_vouched_for:
        await rows.set_title(tx, group, shown)


async def _is_owner(query: Query, place: DeliveryContext, sender: Sender) -> bool:
    assert place.channel is not None
    standing = await find_standing_of_account(query, place.channel, account_of(place), sender.id)
    return standing is not None and reaches_all(standing)


async def move_group(tx: Transaction, place: DeliveryContext, moved_to: str) -> None:
    """Gives a group its new id; its session, its routes and what an owner decided stay. May be called twice."""
    group = await find_group(tx, place)
    assert place.channel is not None and place.to is not None
    if group is not None:
        await rows.move(tx, group, moved_to)
        await rows.move_answers(tx, group, moved_to)
        await chat_names.move(tx, place, moved_to)
        await thread_bindings.move(tx, AccountName(place.channel, account_of(place)), place.to, moved_to)


async def note_met(tx: Transaction, rules: Rules, place: DeliveryContext, people: Collection[str]) -> None:
    """Notes who was met in the group, and so reads there, if the settings name the members of any. Contract: flow 2."""
    if rules.sinks.groups:
        group = await name_group(tx, place)
        for account in people:
            await rows.insert_met(tx, group, account)


async def forget_met(tx: Transaction, place: DeliveryContext, people: Collection[str]) -> None:
    """Forgets who has left the group."""
    group = await name_group(tx, place)
    for account in people:
        await rows.delete_met(tx, group, account)


async def leave_group(tx: Transaction, place: DeliveryContext) -> None:
    """Notes that the bot is not in the group any more; owners are asked again if it comes back."""
    group = await find_group(tx, place)
    if group is not None and group.state is not GroupState.REFUSED:
        await rows.set_state(tx, group, GroupState.LEFT)
