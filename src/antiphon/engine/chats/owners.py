"""What owners are asked in their private chats with a bot: who may write, and which groups it answers in.

Contract: access 3, groups 1.
"""

from antiphon.domain.own_text import Code, own_text
from antiphon.domain.person import Identity
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import shown_name
from antiphon.engine.access.recipients import account_of
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.deliveries.questions import queue_question, subject_of_group
from antiphon.store import arrivals, channel_groups, pairings, people
from antiphon.store.arrivals import ArrivalName, ArrivalOutcome, ArrivalRow
from antiphon.store.channel_groups import ChannelGroup
from antiphon.store.database import Query, Transaction
from antiphon.store.pairings import Pairing


async def find_owners_chats(query: Query, channel: str, account: str) -> list[Identity]:
    """The accounts of owners there, the oldest link first."""
    found = await people.list_owners_accounts(query)
    return [each.identity for each in found if (each.identity.channel, each.identity.account) == (channel, account)]


async def ask_about_sender(tx: Transaction, pairing: Pairing) -> None:
    """Asks each owner whether the sender may write."""
    channel, account = pairing.place.channel, pairing.place.account_id
    assert channel is not None and account is not None
    for chat in await find_owners_chats(tx, channel, account):
        await _ask_about_sender(tx, chat, pairing)


async def ask_about_group(tx: Transaction, group: ChannelGroup) -> None:
    """Asks each owner whether the bot may answer in the group."""
    for chat in await find_owners_chats(tx, group.channel, group.account):
        await _ask_about_group(tx, chat, group)


async def ask_what_waits(tx: Transaction, chat: Identity) -> None:
    """Asks an owner, whose account this is from now on, about all senders and groups that wait for a decision there."""
    for pairing in await pairings.list_open(tx, tx.now_ms):
        is_there = (pairing.place.channel, pairing.place.account_id) == (chat.channel, chat.account)
        if is_there and pairing.platform_id != chat.platform_id:
            await _ask_about_sender(tx, chat, pairing)
    for group in await channel_groups.list_all(tx):
        if group.is_asking and (group.channel, group.account) == (chat.channel, chat.account):
            await _ask_about_group(tx, chat, group)


async def tell_of_unproven(tx: Transaction, place: DeliveryContext, sender: str) -> None:
    """Tells owners, once a day for each account, that somebody may pretend to be the sender of a message."""
    text = (
        f"A message on {place.channel} was not taken in, because nothing proves that {shown_name(sender)} wrote it. "
        "If you expect it, ask its sender's provider why; docs/places says what proves a sender. There may be more: "
        "you are told of this once a day."
    )
    await tell_owners_once(tx, place, text, about=f"unproven {tx.now.date().isoformat()}")


async def tell_of_passed_over(tx: Transaction, place: DeliveryContext, number: int, *, name: str) -> None:
    """Tells owners, once by that name, that so many messages were not taken in after nobody had listened."""
    text = (
        f"{number} of the messages on {place.channel} that came while no gateway listened were not taken in: they are "
        "older than the setting `catch_up` allows, or more than it allows of one chat. They are still on the platform."
    )
    await tell_owners_once(tx, place, text, about=f"passed over {name}")


async def tell_owners_once(tx: Transaction, place: DeliveryContext, text: str, *, about: str) -> None:
    """Tells owners in their chats with the account, or in the oldest one elsewhere; nothing more about that later."""
    assert place.channel is not None
    account = account_of(place)
    told = ArrivalName(place.channel, account, f"told {about}")
    chats = await find_owners_chats(tx, place.channel, account)
    chats = chats or [each.identity for each in await people.list_owners_accounts(tx)][:1]
    if not chats or await arrivals.find(tx, told) is not None:
        return
    await arrivals.store(tx, told, ArrivalRow(ArrivalOutcome.IGNORED, None), tx.now_ms)
    for chat in chats:
        name = f"{about} {place.channel} {account} {chat.channel} {chat.account} {chat.platform_id}"
        await enqueue_notice(tx, place_of(chat), text, name=name)


async def _ask_about_sender(tx: Transaction, chat: Identity, pairing: Pairing) -> None:
    asked = own_text(
        Code(shown_name(pairing.name)),
        f" ({chat.channel} {shown_name(pairing.platform_id)}) wants to write to your agents. Admit them here if you "
        "know them, or with the code that they were given: ",
        Code("antiphon pair <code>"),
    )
    await queue_question(tx, place_of(chat), asked, subject=pairing.id)


async def _ask_about_group(tx: Transaction, chat: Identity, group: ChannelGroup) -> None:
    asked = own_text(
        "This bot is now in the group ",
        Code(shown_name(group.title)),
        f" ({shown_name(group.address)}). It stays silent there until an owner allows it, here or with: ",
        Code(f"antiphon groups allow {shown_name(group.group_id)}"),
    )
    subject = subject_of_group(group.channel, group.account, group.group_id)
    await queue_question(tx, place_of(chat), asked, subject=subject)


def place_of(chat: Identity) -> DeliveryContext:
    """The direct chat with the account."""
    return DeliveryContext(channel=chat.channel, to=chat.platform_id, account_id=chat.account)
