"""`/link`, `/unlink` and `/start`: one person's chats on several channels. Contract: access 3, channels 3."""

from antiphon.domain.commands import ChatCommand, Subcommand
from antiphon.domain.keys import ChatType
from antiphon.domain.person import person_of
from antiphon.engine.access.machines import refuse_machine_account
from antiphon.engine.access.who import Who
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.linking import ANSWERS, answer_asked, find_asked, make_link_code, redeem, undo_link
from antiphon.engine.rules import Rules
from antiphon.store.database import Transaction
from antiphon.store.people import find_standing_of_account

IN_PRIVATE = "Send /link in a private chat: whoever reads a code can use it."
ELSEWHERE = "Codes of /link are redeemed in chats of channels, by the account that is to be linked."
WHERE_TO_UNLINK = "Send /unlink in the private chat that was linked."
SHARED = (
    "Accounts cannot be linked here: every message of this webhook is the owner's. "
    "Send /link in a chat in which you are known by an account of your own."
)


async def link(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    """Makes a code for the sender, or redeems one that they were given in another chat of theirs."""
    if chat.chat_type is not ChatType.DIRECT:
        return IN_PRIVATE
    if chat.is_shared:
        return SHARED
    if chat.identity is not None:
        refuse_machine_account(rules, chat.identity)
    if command.argument is None:
        made = await make_link_code(tx, chat.rights(rules))
        return f"Your code is {made.code}. Send /link {made.code} yes in your other chat within an hour. It works once."
    if chat.identity is None:
        return await _answer_here(tx, chat, command, rules)
    account = chat.identity
    stored = await find_standing_of_account(tx, account.channel, account.account, account.platform_id)
    who = Who(identity=account, name=chat.sender_name, standing=chat.standing, stored=stored)
    return (await redeem(tx, who, command.argument, said=command.sub)).text


async def unlink(tx: Transaction, chat: Chat, rules: Rules) -> str:
    """Undoes what a code has done to the sender's account within a day."""
    if chat.identity is None or chat.chat_type is not ChatType.DIRECT:
        return WHERE_TO_UNLINK
    return await undo_link(tx, chat.identity)


async def _answer_here(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    """On the page and in the terminal, the maker of a code answers whether the account that waits is linked."""
    found = await find_asked(tx, command.argument or "")
    if (
        command.sub not in ANSWERS
        or found is None
        or found.asked is None
        or found.person != person_of(chat.standing.principal)
    ):
        return ELSEWHERE
    return (await answer_asked(tx, found, is_agreed=command.sub is Subcommand.YES)).text
