"""Messages that an agent sends out of the system, to a place of its choice. Contract: message 1, flow 7."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.classification import Classification
from antiphon.domain.errors import AntiphonError, Conflict, Denied, Invalid, NotFound, TooLarge
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.person import private_chat
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.caller import Caller, context_of, find_origin, refuse_called_off
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.access.send_policy import may_deliver
from antiphon.engine.deliveries.outbox import name_of
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.store import deliveries, people
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.deliveries import ChannelAccount, NewDelivery, QueuedText
from antiphon.store.people import LinkedAccount

OWNER_NAME = "owner"
"""The recipient that stands for the owner of the home."""
PERSON_PREFIX = "person:"
MAX_TEXT_BYTES = 64 * 1024


class SendOut(Struct, frozen=True, kw_only=True):
    caller: Caller
    channel: str
    recipient: str
    text: str
    accounts: tuple[ChannelAccount, ...]
    """The accounts that send."""
    at_ms: int


class OutgoingMessages:
    """Texts that sessions send through channels, besides the replies of their own chats."""

    def __init__(self, database: Database, rules: Rules, accounts: Collection[ChannelAccount], *, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._accounts = tuple(accounts)
        self._clock = clock

    async def send(self, caller: Caller, channel: str, recipient: str, text: str) -> str:
        """Queues the text and returns the id of its delivery; the same call again returns the same id.

        `channel` is `<channel>` or `<channel>:<account>`; `recipient` is the id of a linked account, the name or id
        of its person, or `owner`. Raises `NotFound` alike for a channel and for a recipient that is unknown,
        `Conflict` (`no_place`, `idempotency_key_reused`), `Denied` (`write_down`, `send_denied`, `sandboxed`),
        `Invalid` (`empty_message`), `TooLarge` (`message_too_large`).
        """
        if not text.strip():
            raise Invalid("Message is empty. Write some text.", code="empty_message")
        if (size := len(text.encode())) > MAX_TEXT_BYTES:
            raise TooLarge(
                f"Message is too large: {size} bytes, at most {MAX_TEXT_BYTES}. Send a part.", code="message_too_large"
            )
        command = SendOut(
            caller=caller,
            channel=channel,
            recipient=recipient,
            text=text,
            accounts=self._accounts,
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(send_out, command, self._rules, sessions=(caller.session,)))


async def send_out(tx: Transaction, command: SendOut, rules: Rules) -> str | Refusal:
    """Queues the text after every check, in one unit."""
    caller = command.caller
    origin = await find_origin(tx, caller)
    session = await rows.find_by_row(tx, caller.session)
    if session is None:
        return Refusal(NotFound("Session not found: the caller's own session was deleted."))
    name = name_of(f"message {caller.call_id}")
    place = await _find_place(tx, command)
    if (sent := await deliveries.find_named(tx, caller.session, name)) is not None:
        return _repeated(command, sent, place)
    if refusal := refuse_called_off(origin):
        return refusal
    if isinstance(place, Refusal):
        return place
    made_of = context_of(caller, session)
    if refusal := await _refuse(tx, command, session, place, made_of=made_of, rules=rules):
        return Refusal(refusal)
    delivery = NewDelivery(
        name=name,
        session=session.row,
        incarnation=SessionId(session.id),
        run_id=None if origin is None else RunId(origin.id),
        place=place,
        text=command.text,
        made_of=made_of,
    )
    return await deliveries.insert(tx, delivery, command.at_ms)


def _repeated(command: SendOut, sent: QueuedText, place: DeliveryContext | Refusal) -> str | Refusal:
    is_elsewhere = not isinstance(place, Refusal) and place != sent.place
    if is_elsewhere or sent.text != command.text:
        return Refusal(
            Conflict("Idempotency-Key was used for another message. Use a new one.", code="idempotency_key_reused")
        )
    return sent.id


async def _refuse(
    query: Query,
    command: SendOut,
    session: Session,
    place: DeliveryContext,
    *,
    made_of: Classification,
    rules: Rules,
) -> AntiphonError | None:
    if command.caller.is_sandboxed or rules.are_sandboxed(session):
        return Denied(
            "Message may not be sent: this session is sandboxed. Write the text in the reply.", code="sandboxed"
        )
    name = repr(command.recipient[:200])
    if not await may_leave(query, made_of, place, rules.sinks):
        return Denied(
            f"Message may not be sent to {name}: this turn has read data that may not go there.", code="write_down"
        )
    if isinstance(denied := may_deliver(session, place, rules), Deny):
        return Denied(f"Message may not be sent to {name}: {denied.reason}", code="send_denied")
    return None


async def _find_place(query: Query, command: SendOut) -> DeliveryContext | Refusal:
    """The place of the recipient on an account that sends; the oldest link counts."""
    channel, _, account = command.channel.partition(":")
    served = {
        (each.channel, each.account_id or "")
        for each in command.accounts
        if each.channel == channel and account in ("", each.account_id)
    }
    is_to_owner = command.recipient == OWNER_NAME
    named = command.recipient.removeprefix(PERSON_PREFIX)
    linked = await people.list_owners_accounts(query) if is_to_owner else await people.find_accounts(query, named)
    is_person = command.recipient.startswith(PERSON_PREFIX)
    found = _chosen(
        [each for each in linked if (each.identity.channel, each.identity.account) in served], is_person=is_person
    )
    if found is not None:
        return private_chat(found.identity)
    if is_to_owner:
        return Refusal(
            Conflict(
                f"Owner has no linked account on channel {command.channel[:80]!r}. Write the text in the reply.",
                code="no_place",
            )
        )
    return Refusal(
        NotFound(
            f"Recipient not found: {command.recipient[:200]!r} on channel {command.channel[:80]!r}. Name a person with "
            "a linked account there, that account's own id, or 'owner'."
        )
    )


def _chosen(linked: Sequence[LinkedAccount], *, is_person: bool) -> LinkedAccount | None:
    """An account of the one person with that id or name, else the account with that id.

    Guests choose the ids of their accounts, so these do not stand before persons; `is_person` finds persons alone.
    """
    named = [each for each in linked if each.is_by_person]
    if not named:
        return linked[0] if linked and not is_person else None
    if len({each.person for each in named}) > 1:
        return None
    return next((each for each in named if each.is_by_account), named[0])
