"""Admitting strangers: each gets a code, tells it to an owner, and is admitted or refused. Contract: access 3.

The first message waits, and is posted in the unit that admits its sender.
"""

import hmac
from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.codes import RANDOM_DIGITS, code_from_hex, parse_code
from antiphon.domain.errors import REFUSALS, Invalid, NotFound, Unavailable
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType, SessionKey
from antiphon.domain.message import Attribution, JsonObject
from antiphon.domain.person import PersonId
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.domain.text import PREVIEW_LENGTH, one_line, plain
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.engine.access.machines import refuse_machine, refuse_machine_account
from antiphon.engine.access.reach import Rights, find_reach, find_reach_if_any
from antiphon.engine.access.recipients import account_of
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.access.tokens import refuse_clearance, refuse_credential
from antiphon.engine.access.who import Who, find_who, introduce
from antiphon.engine.chats.accounts import milliseconds_of
from antiphon.engine.chats.entry import Arrived, SessionMoved, content_of, find_chat, post_in_chat, target_of
from antiphon.engine.chats.linking import Linked, foresee_link, link
from antiphon.engine.chats.owners import ask_about_sender
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.deliveries.questions import show_decision
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted
from antiphon.policy.acts import Act
from antiphon.store import arrivals, chat_names, people, sessions
from antiphon.store import pairings as rows
from antiphon.store.arrivals import ArrivalOutcome, ArrivalRow, PostedRow
from antiphon.store.codec import json_object, json_text, milliseconds, stored_key
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.pairings import Pairing, PairingState

CODE_LIFE = timedelta(hours=1)
ANSWER_PAUSE = timedelta(hours=1)
"""A sender gets at most one answer in this time."""
REFUSAL_LIFE = timedelta(hours=24)
"""How long a refused sender gets no other code."""
KEPT = timedelta(days=1)
"""How long unanswered requests are kept after their end."""
MAX_WAITING_BYTES = 16 * 1024
MOST_TRIES = 5


class WaitingSender(Struct, frozen=True, kw_only=True):
    """A sender who waits to be admitted, as owners see them."""

    id: str
    channel: str
    account: str
    platform_id: str
    name: str
    """Chosen by the sender."""
    preview: str | None
    """The beginning of the first message."""
    created_at_ms: int
    expires_at_ms: int


class AdmittedSender(Struct, frozen=True, kw_only=True):
    """A sender who was admitted, and the message that had waited."""

    person: PersonId
    sender: WaitingSender
    posted: Posted | None


class DecidePairing(Struct, frozen=True, kw_only=True):
    rights: Rights
    named: str
    """The request's id, or the code that its sender was given."""
    into: PersonId | None
    """The person whose account it is; None for a guest of its own."""


class InvitedSender(Struct, frozen=True, kw_only=True):
    """Somebody who follows an invitation."""

    rights: Rights
    """Those of who has made it."""
    into: PersonId | None
    sender: Sender = Sender(id="", name="")
    place: DeliveryContext = NOWHERE
    """Their direct chat."""


class Pairings:
    """Use cases of requests to be admitted. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(self, principal: Principal) -> Sequence[WaitingSender]:
        """The senders who wait, the oldest request first."""
        return await self._database.read(list_waiting, self._rights(principal))

    async def count_waiting(self, principal: Principal) -> int | None:
        """How many people and groups wait for an owner; None for anybody else."""
        return await self._database.read(count_waiting, self._rights(principal))

    async def approve(
        self,
        principal: Principal,
        named: str,
        *,
        into: str | None = None,
        held: frozenset[TokenScope] = ALL_SCOPES,
    ) -> AdmittedSender:
        """Admits the sender, and posts the message that waits. `named` is the request's id or its code.

        The sender is a guest, or with `into` that person; a merged one stands for the person as whom they act. `held`
        are the scopes of the credential that asks. Raises `NotFound` for a code that is wrong, answered or too old, and
        for an unknown person, `Conflict` (`machine_account`) for a program, and `Denied` (`scope_beyond_maker`,
        `clearance_beyond_maker`) for `into` with a credential that lacks a scope or has a clearance.
        """
        if into is not None:
            refuse_credential(held)
            refuse_clearance(principal, None)
        command = self._command(principal, named, None if into is None else PersonId(into))
        key: SessionKey | None = None
        for _ in range(MOST_TRIES):
            locked = () if key is None else (target_of(key),)
            try:
                return await self._database.run(approve_pairing, command, key, sessions=locked)
            except SessionMoved as moved:
                key = moved.key
        raise Unavailable("Chat is routed elsewhere again and again. Try once more.", code="store_busy")

    async def check_invitation(
        self, principal: Principal, *, into: str | None, held: frozenset[TokenScope] = ALL_SCOPES
    ) -> None:
        """Raises what `approve` raises for somebody who may not admit people as `into`."""
        if into is not None:
            refuse_credential(held)
            refuse_clearance(principal, None)
        named = None if into is None else PersonId(into)
        await self._database.read(may_invite, InvitedSender(rights=self._rights(principal), into=named))

    async def admit_invited(
        self, principal: Principal, into: str | None, sender: Sender, place: DeliveryContext
    ) -> None:
        """Admits somebody who has followed an invitation of the principal, who must still have the right."""
        named = None if into is None else PersonId(into)
        command = InvitedSender(rights=self._rights(principal), into=named, sender=sender, place=place)
        await self._database.run(admit_invited, command)

    async def refuse(self, principal: Principal, named: str) -> WaitingSender:
        """Refuses the sender, who is not told, and gets no other code for a day. Raises `NotFound`."""
        return await self._database.run(refuse_pairing, self._command(principal, named, None))

    def _command(self, principal: Principal, named: str, into: PersonId | None) -> DecidePairing:
        return DecidePairing(rights=self._rights(principal), named=named, into=into)

    def _rights(self, principal: Principal) -> Rights:
        return Rights(principal, self._rules)


async def open_pairing(tx: Transaction, who: Who, inbound: Inbound, *, message: Inbound | None) -> None:
    """Gives the sender a code, keeps their first message, and tells the owners who wants to write."""
    identity, at = who.identity, tx.now
    id, code = tx.new_id("pair"), code_from_hex(tx.random_hex(RANDOM_DIGITS))
    await rows.expire(tx, tx.now_ms, milliseconds_of(KEPT))
    place = DeliveryContext(
        channel=identity.channel, to=inbound.place.to, account_id=identity.account, thread_id=inbound.place.thread_id
    )
    pairing = Pairing(
        id=id,
        platform_id=identity.platform_id,
        name=who.name,
        code_hash=hash_of(code),
        place=place,
        message=None if message is None else _stored(message),
        state=PairingState.OPEN,
        told_at=at,
        created_at=at,
        expires_at=at + CODE_LIFE,
    )
    await rows.insert(tx, pairing)
    text = (
        f"You are not known here yet. Your code is {code}. Tell it to the owner of this bot within an hour: they "
        "admit you with it, and your message is answered then."
    )
    await enqueue_notice(tx, inbound.place, text, name=f"code {id}")
    await ask_about_sender(tx, pairing)


async def keep_first(tx: Transaction, who: Who, inbound: Inbound) -> bool:
    """Keeps the message if the sender's request has none yet, because it began with a command; says whether it did."""
    identity = who.identity
    newest = await rows.find_newest(tx, identity.channel, identity.account, identity.platform_id)
    if newest is None or newest.state is not PairingState.OPEN or newest.message is not None:
        return False
    await rows.keep_message(tx, newest.id, _stored(inbound))
    return True


def is_over(pairing: Pairing, at_ms: int) -> bool:
    return milliseconds(pairing.expires_at) <= at_ms


def was_told(pairing: Pairing, at_ms: int) -> bool:
    """Whether it is too early to give the sender another code."""
    pause = REFUSAL_LIFE if pairing.state is PairingState.REFUSED else ANSWER_PAUSE
    since_ms = at_ms - milliseconds(pairing.told_at)
    return 0 <= since_ms < milliseconds_of(pause)  # a time ahead is of a clock that went back since


def _stored(inbound: Inbound) -> str:
    text = inbound.text.encode("utf-8", "replace")[:MAX_WAITING_BYTES].decode("utf-8", "ignore")
    stored: JsonObject = {"platformId": inbound.platform_id, "text": text, "name": inbound.sender.name}
    if inbound.attribution is not None:
        stored["attribution"] = msgspec.to_builtins(inbound.attribution)
    return json_text(stored)


def _waiting_message(pairing: Pairing) -> Inbound | None:
    if pairing.message is None:
        return None
    stored = json_object(pairing.message)
    return Inbound(
        platform_id=str(stored["platformId"]),
        place=pairing.place,
        chat_type=ChatType.DIRECT,
        sender=Sender(id=pairing.platform_id, name=str(stored["name"])),
        text=str(stored["text"]),
        attribution=msgspec.convert(stored.get("attribution"), Attribution | None),
    )


async def list_waiting(query: Query, rights: Rights) -> list[WaitingSender]:
    """The senders who wait, the oldest request first; refused for anyone but owners."""
    await find_reach(query, rights, Act.CHATS)
    return [_shown(pairing) for pairing in await rows.list_open(query, query.now_ms)]


async def count_waiting(query: Query, rights: Rights) -> int | None:
    """How many people and groups wait for an owner; None for anybody else."""
    reach = await find_reach_if_any(query, rights, Act.CHATS)
    return None if reach is None else await rows.count_waiting(query, query.now_ms)


def _shown(pairing: Pairing) -> WaitingSender:
    message, place = _waiting_message(pairing), pairing.place
    assert place.channel is not None
    return WaitingSender(
        id=pairing.id,
        channel=place.channel,
        account=account_of(place),
        platform_id=pairing.platform_id,
        name=pairing.name,
        preview=None if message is None else one_line(plain(_begins(message)), PREVIEW_LENGTH),
        created_at_ms=milliseconds(pairing.created_at),
        expires_at_ms=milliseconds(pairing.expires_at),
    )


def _begins(message: Inbound) -> str:
    return message.text if message.attribution is None else f"({message.attribution.for_people}) {message.text}"


async def _find(query: Query, command: DecidePairing) -> Pairing:
    """The open request of that id or code."""
    await find_reach(query, command.rights, Act.CHATS)
    code, found = parse_code(command.named), None
    for pairing in await rows.list_open(query, query.now_ms):
        is_code = code is not None and hmac.compare_digest(pairing.code_hash, hash_of(code))
        if is_code or pairing.id == command.named:
            found = pairing
    if found is None:
        raise NotFound(
            f"Nobody waits with this code or id: {command.named[:80]!r}. It is wrong, answered already, or older than "
            "an hour; `antiphon pair list` shows who waits."
        )
    return found


async def approve_pairing(tx: Transaction, command: DecidePairing, foreseen: SessionKey | None) -> AdmittedSender:
    pairing = await _find(tx, command)
    rules = command.rights.rules
    sender = Sender(id=pairing.platform_id, name=pairing.name)
    who = await find_who(tx, rules, pairing.place, sender)
    if command.into is not None and await people.find(tx, command.into) is None:
        raise NotFound(f"Person not found: {command.into[:80]!r}. `antiphon people list` shows them.")
    await _refuse_program(tx, command, who)
    if command.into is not None and (await foresee_link(tx, who, command.into))[0] is Linked.TAKEN:
        raise Invalid("Account belongs to another person already. Merge the two.", code="invalid_request")
    by, at_ms = str(command.rights.principal), tx.now_ms
    if not await rows.decide(tx, pairing.id, PairingState.APPROVED, by=by, at_ms=at_ms):
        raise NotFound(f"Nobody waits with this code or id: {command.named[:80]!r}.")
    if command.into is not None:
        await link(tx, who, command.into)
    elif not who.is_linked:
        await introduce(tx, who, who.identity.person_id)
    who = await find_who(tx, rules, pairing.place, sender)
    posted = await _post_waiting(tx, command, pairing, who, foreseen=foreseen)
    await show_decision(tx, pairing.id)
    if posted is None:
        await enqueue_notice(
            tx,
            pairing.place,
            "You are admitted. Write a message to begin.",
            name=f"admitted {pairing.id}",
        )
    return AdmittedSender(person=PersonId(who.standing.principal.name), sender=_shown(pairing), posted=posted)


async def may_invite(query: Query, command: InvitedSender) -> None:
    await find_reach(query, command.rights, Act.CHATS)
    if command.into is not None:
        if await people.find(query, command.into) is None:
            raise NotFound(f"Person not found: {command.into[:80]!r}. `antiphon people list` shows them.")
        await refuse_machine(query, command.rights.rules, command.into)


async def admit_invited(tx: Transaction, command: InvitedSender) -> None:
    await may_invite(tx, command)
    rules, place = command.rights.rules, command.place
    who = await find_who(tx, rules, place, command.sender)
    await _refuse_program(tx, command, who)
    if command.into is not None and (await foresee_link(tx, who, command.into))[0] is Linked.LINKED:
        await link(tx, who, command.into)
    elif not who.is_linked:
        await introduce(tx, who, who.identity.person_id)
    text = "You are admitted. Write a message to begin."
    await enqueue_notice(tx, place, text, name=f"invited {place.channel} {account_of(place)} {place.to} {tx.now_ms}")


async def _refuse_program(query: Query, command: DecidePairing | InvitedSender, who: Who) -> None:
    """Raises if a program speaks with the account, or is the person whose account it is to be."""
    rules = command.rights.rules
    refuse_machine_account(rules, who.identity)
    if command.into is not None:
        await refuse_machine(query, rules, command.into)


async def _post_waiting(
    tx: Transaction, command: DecidePairing, pairing: Pairing, who: Who, *, foreseen: SessionKey | None
) -> Posted | None:
    """Posts the message that waited, if there is one and it can be stored."""
    inbound, rules = _waiting_message(pairing), command.rights.rules
    if inbound is None or not (content := content_of(inbound)):
        return None
    chat = await find_chat(tx, rules, inbound, who)
    if chat.route.session_key != foreseen:
        raise SessionMoved(chat.route.session_key)
    await chat_names.put(tx, inbound.place, who.name)
    arrived = Arrived(inbound=inbound, content=content)
    try:
        async with tx.attempt():
            posted = await post_in_chat(tx, rules, chat, who, arrived=arrived)
    except REFUSALS:
        return None
    head = await sessions.find_head_by_key(tx, stored_key(posted.session_key))
    assert head is not None and pairing.place.channel is not None
    place = arrivals.ArrivalName(pairing.place.channel, account_of(pairing.place), inbound.platform_id)
    row = PostedRow(head.row, posted.session_key, posted.message_id, posted.seq, posted.run_id)
    await arrivals.store(tx, place, ArrivalRow(ArrivalOutcome.POSTED, row), tx.now_ms)
    return posted


async def refuse_pairing(tx: Transaction, command: DecidePairing) -> WaitingSender:
    pairing = await _find(tx, command)
    by, at_ms = str(command.rights.principal), tx.now_ms
    if not await rows.decide(tx, pairing.id, PairingState.REFUSED, by=by, at_ms=at_ms):
        raise NotFound(f"Nobody waits with this code or id: {command.named[:80]!r}.")
    await show_decision(tx, pairing.id)
    return _shown(pairing)
