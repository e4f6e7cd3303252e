"""Links accounts of channels to persons, by codes that are typed on the other channel. Contract: access 3."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.codes import RANDOM_DIGITS, code_from_hex, parse_code
from antiphon.domain.commands import Subcommand
from antiphon.domain.errors import Denied
from antiphon.domain.own_text import own_text
from antiphon.domain.person import Identity, PersonId, PersonRole, person_of, person_principal
from antiphon.domain.text import DESCRIPTION_LENGTH, bracketed_name, exact, one_line
from antiphon.engine.access.machines import refuse_machine
from antiphon.engine.access.people import merge_into, split_from
from antiphon.engine.access.reach import Rights
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.access.who import Who, introduce
from antiphon.engine.chats.owners import ask_what_waits, find_owners_chats, place_of
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.deliveries.questions import link_asked, queue_question, show_link_decision, subject_of_link
from antiphon.engine.rules import Rules
from antiphon.policy.reception import MOST_WRONG_CODES
from antiphon.policy.rights import SUSPENDED, is_guest
from antiphon.store import link_codes, link_undos, people, sessions
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.link_codes import OpenCode
from antiphon.store.link_undos import LinkUndo
from antiphon.store.people import find_standing

ANSWERS = frozenset({Subcommand.YES, Subcommand.NO})
"""What the maker of a code types to answer."""
CODE_LIFE = timedelta(hours=1)
UNDO_LIFE_MS = 24 * 3_600_000
WRONG_CODES_LIFE_MS = 3_600_000
"""How long wrong codes count."""


class LinkCode(Struct, frozen=True):
    """A code that links one account to the person who made it; shown only once."""

    code: str
    expires_at: datetime


class Linked(StrEnum):
    """What a code has done."""

    LINKED = "linked"
    ASKED = "asked"
    """The sender is asked whether they mean it; the code is as good as before."""
    WAITING = "waiting"
    """The maker of the code is asked, because the account has a history."""
    ALREADY = "already"
    """The account was this person's before."""
    WRONG = "wrong"
    """The code is unknown, used or too old."""
    LOCKED = "locked"
    """The sender has tried too many wrong codes."""
    REFUSED = "refused"
    """The maker of the code does not want the account that waits."""
    TAKEN = "taken"
    """The account belongs to somebody who is more than a guest; only an owner can merge them."""


class Redeemed(Struct, frozen=True):
    """What became of a code, and what its sender is told."""

    linked: Linked
    text: str


LINK_ANSWERS = {
    Linked.WAITING: "You have written here before. Whoever made the code is asked whether these chats become theirs.",
    Linked.LINKED: (
        "This chat is linked: you are the same person here and where you made the code. "
        "To undo this within 24 hours, send /unlink."
    ),
    Linked.ALREADY: "This chat is linked to you already.",
    Linked.WRONG: "Code is not valid. It may have been used, or be older than an hour. Make another one with /link.",
    Linked.LOCKED: "Too many wrong codes. Try again in an hour.",
    Linked.REFUSED: "Refused. Nothing was linked, and the code is used up.",
    Linked.TAKEN: "This account belongs to another person already. An owner can merge the two.",
}
"""What the sender is told."""

NOT_AGREED = "Whoever made the code did not agree. Your chats stay yours alone."
"""What the sender of a refused account is told."""
UNLINKED = "This chat is linked no more: it is yours alone, with what was yours before. Others do not read it now."
NOTHING_TO_UNDO = (
    "There is nothing to undo: no code has linked this account within the last 24 hours, or its person was merged "
    "again since. An owner can help."
)

NOBODY_WAITS = "Nobody waits for this answer: it was given already, the code is too old, or it is not yours."

NO_GUESTS = (
    "Guests cannot make codes. If you are known in another chat, send /link there, and then send its code here. "
    "Otherwise ask an owner to make you a user."
)
"""A guest is known by one account alone: a code of theirs would let others in whom no owner has admitted."""


class Links:
    """Codes for accounts, made by persons for themselves."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def make_code(self, principal: Principal) -> LinkCode:
        """A code that links the account that sends it to the person who asks, once, within an hour.

        Its sender writes `/link <code>`, or opens the chat with it (`/start <code>`). Raises `Denied` for a principal
        that is no person, and for guests and suspended persons, and `Conflict` (`machine_account`) for a program.
        """
        return await self._database.run(make_link_code, Rights(principal, self._rules))

    async def has_owner(self, channel: str, account: str) -> bool:
        """Whether an account on the channel's account is an owner's, so that owners can be asked there."""
        return bool(await self._database.read(find_owners_chats, channel, account))


async def make_link_code(tx: Transaction, rights: Rights) -> LinkCode:
    """A code for the person."""
    standing = await find_standing(tx, rights.principal)
    person = person_of(standing.principal)
    if standing.is_suspended:
        raise Denied(SUSPENDED.reason, code=SUSPENDED.rule)
    if person is None:
        raise Denied("Only persons can link accounts", code="forbidden")
    await refuse_machine(tx, rights.rules, person)
    if is_guest(standing):
        raise Denied(NO_GUESTS, code="forbidden")
    return await store_code(tx, person)


async def store_code(tx: Transaction, person: PersonId) -> LinkCode:
    """Stores a code for the person, whose right to it the caller has checked."""
    code = code_from_hex(tx.random_hex(RANDOM_DIGITS))
    expires_at_ms = tx.now_ms + CODE_LIFE // timedelta(milliseconds=1)
    await link_codes.insert(tx, hash_of(code), person, at_ms=tx.now_ms, expires_at_ms=expires_at_ms)
    return LinkCode(code, moment(expires_at_ms))


async def redeem(tx: Transaction, who: Who, text: str, *, said: Subcommand) -> Redeemed:
    """Links the sender's account to the person who made the code, once its sender has said that they mean it.

    If that account has a history, its maker must agree too, by the same words: from then on they read it. A wrong code
    is counted; so is one whose maker is a guest or suspended by now. The sender must not be suspended.
    """
    sender, since_ms = who.identity, tx.now_ms - WRONG_CODES_LIFE_MS
    if await link_codes.count_wrong(tx, sender, since_ms) >= MOST_WRONG_CODES:
        return _redeemed(Linked.LOCKED)
    code = parse_code(text)
    found = None if code is None else await find_code(tx, code)
    if code is None or found is None or (found.asked not in (None, sender) and not _is_makers(found, who)):
        await link_codes.note_wrong(tx, sender, at_ms=tx.now_ms, since_ms=since_ms)
        return _redeemed(Linked.WRONG)
    if _is_makers(found, who):
        if said not in ANSWERS:
            return _redeemed(Linked.ALREADY)
        return await answer_asked(tx, found, is_agreed=said is Subcommand.YES)
    if said is not Subcommand.YES:
        return Redeemed(Linked.ASKED, await _question(tx, found.person, code))
    if who.stored is not None and is_guest(who.stored) and not who.stored.is_suspended:
        words = await sessions.find_first_words(tx, str(who.stored.principal))
        if words is not None:
            if await link_codes.ask(tx, hash_of(code), sender, who.name):
                await _ask_maker(tx, found.person, who, code, words=words)
            return _redeemed(Linked.WAITING)
    await link_codes.use_up(tx, hash_of(code))
    return _redeemed(await _link_by_code(tx, who, found.person))


async def press_answer(tx: Transaction, person: PersonId | None, beginning: str, *, is_agreed: bool) -> str:
    """The maker of a code answers by a button; anybody else learns no more than for a code that there is not."""
    found = await link_codes.find_asking(tx, beginning, tx.now_ms)
    known = None if found is None else await _by_maker(tx, found)
    if known is None or known.person != person:
        return NOBODY_WAITS
    return (await answer_asked(tx, known, is_agreed=is_agreed)).text


class AskedLink(Struct, frozen=True, kw_only=True):
    """An account that waits until the maker of a code answers."""

    subject: str
    """What the maker names in `/link <subject> yes` where the code itself is not known any more."""
    name: str
    channel: str
    platform_id: str


async def list_asked(query: Query, principal: Principal) -> list[AskedLink]:
    """The accounts that wait for this person's answer."""
    person = person_of((await find_standing(query, principal)).principal)
    known = [await _by_maker(query, each) for each in await link_codes.list_asking(query, query.now_ms)]
    return [
        AskedLink(
            subject=subject_of_link(each.hash),
            name=each.name,
            channel=each.asked.channel,
            platform_id=each.asked.platform_id,
        )
        for each in known
        if each is not None and each.asked is not None and each.person == person
    ]


async def find_asked(query: Query, text: str) -> OpenCode | None:
    """The code, or the subject of the question about it, about which its maker is asked."""
    if (beginning := link_asked(text)) is not None:
        found = await link_codes.find_asking(query, beginning, query.now_ms)
        return None if found is None else await _by_maker(query, found)
    code = parse_code(text)
    return None if code is None else await find_code(query, code)


async def find_code(query: Query, code: str) -> OpenCode | None:
    """The code as it stands, with the person as whom its maker acts now; None if it is wrong, or theirs no more."""
    found = await link_codes.find(query, hash_of(code), query.now_ms)
    return None if found is None else await _by_maker(query, found)


async def _by_maker(query: Query, found: OpenCode) -> OpenCode | None:
    standing = await find_standing(query, person_principal(found.person))
    person = None if is_guest(standing) else person_of(standing.principal)
    return None if person is None else replace(found, person=person)


async def answer_asked(tx: Transaction, found: OpenCode, *, is_agreed: bool) -> Redeemed:
    """The maker of the code answers: the account that waits becomes theirs, or stays what it is; it is told there."""
    asked = found.asked
    if asked is None:
        return _redeemed(Linked.ALREADY)
    await link_codes.use_up(tx, found.hash)
    await show_link_decision(tx, found.hash, is_agreed=is_agreed)
    if not is_agreed:
        await enqueue_notice(tx, place_of(asked), NOT_AGREED, name=f"not linked {found.hash}")
        return _redeemed(Linked.REFUSED)
    stored = await people.find_standing_of_account(tx, asked.channel, asked.account, asked.platform_id)
    standing = stored or await find_standing(tx, person_principal(asked.person_id))
    who = Who(identity=asked, name=found.name, standing=standing, stored=stored)
    linked = await _link_by_code(tx, who, found.person)
    if linked is Linked.LINKED:
        await enqueue_notice(tx, place_of(asked), LINK_ANSWERS[linked], name=f"linked {found.hash}")
    return _redeemed(linked)


def _is_makers(found: OpenCode, who: Who) -> bool:
    return who.stored is not None and person_of(who.stored.principal) == found.person


def _redeemed(linked: Linked) -> Redeemed:
    return Redeemed(linked, LINK_ANSWERS[linked])


async def _question(query: Query, id: PersonId, code: str) -> str:
    person = await people.find(query, id)
    name = id if person is None else person.name
    name = "the owner" if id == name == person_of(OWNER) else exact(bracketed_name(name))
    return (
        f"This makes your chats {name}'s: {name} will read them, also what you wrote before, and you act as {name} "
        f"here. If you want that, send: /link {code} yes"
    )


async def _ask_maker(tx: Transaction, maker: PersonId, who: Who, code: str, *, words: str) -> None:
    """Asks the maker in all their chats, with buttons; on the page and in the terminal the command works too."""
    shown = exact(one_line(words, DESCRIPTION_LENGTH))
    begun = f" Their first words here were: “{shown}”." if words else ""
    account = f"{who.identity.channel} {who.identity.platform_id}"
    text = (
        f"{exact(bracketed_name(who.name))} ({account}) wants to be linked to you by your code. "
        f"Their chats become yours, and they act as you.{begun} If that is you, agree here or send: /link {code} yes. "
        f"If it is not, refuse, or send: /link {code} no"
    )
    subject = subject_of_link(hash_of(code))
    for chat in (await people.find_identities(tx, [maker]))[maker]:
        await queue_question(tx, place_of(chat), own_text(text), subject=subject)


async def link(tx: Transaction, who: Who, person: PersonId) -> Linked:
    """Makes the account the person's; merges the guest whose account it was into them.

    A merged person stands for the one as whom they act. An owner is asked there about all who have waited for one.
    """
    linked = await _link(tx, who, person)
    if linked is Linked.LINKED and (await find_standing(tx, person_principal(person))).role is PersonRole.OWNER:
        await ask_what_waits(tx, who.identity)
    return linked


async def _link_by_code(tx: Transaction, who: Who, named: PersonId) -> Linked:
    """Like `link`, and notes what the sender needs to undo it."""
    linked, person = await foresee_link(tx, who, named)
    if linked is Linked.LINKED:
        before = None if who.stored is None else person_of(who.stored.principal)
        undo = LinkUndo(source=before, survivor=person, created_at_ms=tx.now_ms)
        await link_undos.insert(tx, who.identity, undo, expires_at_ms=tx.now_ms + UNDO_LIFE_MS)
    return await link(tx, who, named)


async def undo_link(tx: Transaction, account: Identity) -> str:
    """Undoes what a code has done to the account within a day, for its sender alone; the answer to them."""
    await people.hold_owners(tx)
    undo = await link_undos.take(tx, account, tx.now_ms)
    if undo is None:
        return NOTHING_TO_UNDO
    await split_from(tx, account, undo)
    return UNLINKED


async def foresee_link(tx: Transaction, who: Who, named: PersonId) -> tuple[Linked, PersonId]:
    """What `link` will do, and the person as whom that one acts. Holds who is an owner until the unit commits."""
    await people.hold_owners(tx)
    person = PersonId((await find_standing(tx, person_principal(named))).principal.name)
    before = None if who.stored is None else person_of(who.stored.principal)
    if before == person:
        return Linked.ALREADY, person
    is_taken = who.stored is not None and before is not None and (not is_guest(who.stored) or who.stored.is_suspended)
    return Linked.TAKEN if is_taken else Linked.LINKED, person


async def _link(tx: Transaction, who: Who, named: PersonId) -> Linked:
    linked, person = await foresee_link(tx, who, named)
    if linked is not Linked.LINKED:
        return linked
    before = None if who.stored is None else person_of(who.stored.principal)
    if before is None:
        await introduce(tx, who, person)
        return linked
    target = await people.find(tx, person)
    if target is None:
        await introduce(tx, who, person)  # a person whom only the settings name
    await merge_into(tx, before, person)
    return linked
