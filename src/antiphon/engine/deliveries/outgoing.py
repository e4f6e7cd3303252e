"""Messages that an agent sends out of the system, to a place of its choice or to where it answers, with files.

Contract: message 1, flow 7.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.attachments import Attachment, check_count
from antiphon.domain.classification import Classification
from antiphon.domain.delivery import FLOW, words_of_files
from antiphon.domain.errors import REFUSALS, Conflict, Denied, Invalid, NotFound, TooLarge, Unavailable
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.invisible import is_blank
from antiphon.domain.person import private_chat
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.caller import Caller, context_of, find_origin, refuse_called_off
from antiphon.engine.access.exits import Leaving, leave
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.releases import decide_released
from antiphon.engine.deliveries.outbox import name_of
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Decision, Deny
from antiphon.policy.flow import WRITE_DOWN, is_write_down
from antiphon.store import deliveries, people
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.deliveries import ChannelAccount, NewDelivery, QueuedText
from antiphon.store.people import LinkedAccount

OWNER_NAME = "owner"
"""The recipient that stands for the owner of the home, and the peer of a webhook on which everybody is the owner."""
PERSON_PREFIX = "person:"
MAX_TEXT_BYTES = 64 * 1024


ReadFiles = Callable[[Session, Sequence[str]], tuple[Attachment, ...]]
"""Reads files of a session's workspace, checked as they may go out; it blocks."""


class WantedGroup(Struct, frozen=True, kw_only=True):
    """A group that a caller names, on one of these accounts."""

    rules: Rules
    caller: Caller
    accounts: Sequence[ChannelAccount]
    named: str


FindGroup = Callable[[Query, WantedGroup], Awaitable[DeliveryContext | None]]
"""Finds its place; None alike for one that is unknown and for one that is not the caller's."""


class SendOut(Struct, frozen=True, kw_only=True):
    caller: Caller
    channel: str | None
    recipient: str | None
    """Both, or None for the place in which the reply goes."""
    text: str
    accounts: Mapping[ChannelAccount, int | None]
    """The accounts that send, with the largest file that each sends; None if it sends none."""
    names: tuple[str, ...] = ()
    """Of the files."""
    files: tuple[Attachment, ...] = ()
    """Read already; empty where the same call has been queued before."""
    incarnation: SessionId | None = None
    """That from whose workspace they were read."""
    find_group: FindGroup


class WantedMessage(Struct, frozen=True, kw_only=True):
    """What a caller wants to send."""

    text: str
    files: tuple[str, ...] = ()
    """Paths in its workspace, or of what people sent to it."""
    channel: str | None = None
    recipient: str | None = None


class OutgoingMessages:
    """Texts and files that sessions send through channels, besides the replies of their own chats."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        accounts: Mapping[ChannelAccount, int | None],
        *,
        find_group: FindGroup,
        read_files: ReadFiles,
    ) -> None:
        self._database = database
        self._rules = rules
        self._accounts = accounts
        self._find_group = find_group
        self._read_files = read_files

    async def send(self, caller: Caller, wanted: WantedMessage) -> QueuedText:
        """Queues the message and returns what is stored; the same call again returns the same.

        `channel` is `<channel>` or `<channel>:<account>`; `recipient` is the id of a linked account, the name or id
        of its person, the id of a group in which the caller's agent answers, or `owner`. Raises `NotFound` alike for a
        channel and for a recipient that is unknown, `Conflict` (`no_place`, `idempotency_key_reused`), `Denied`
        (`write_down`, `send_denied`, `sandboxed`), `Invalid` (`empty_message`, `unsupported`), `TooLarge`
        (`message_too_large`, `attachment_too_large`), and as files are read and checked. The bytes are those of now.
        """
        command = self._command(caller, wanted)
        name = name_of(f"message {caller.call_id}")
        if not wanted.files or await self._database.read(deliveries.find_named, caller.session, name) is None:
            command = await self._with_files(command, wanted.files)
        return await self._database.run(send_out, command, self._rules, sessions=(caller.session,))

    async def foresee(self, caller: Caller, wanted: WantedMessage) -> ForeseenCall:
        """The place where the text would go, and whether it may. Raises as `send` does if there is no such place."""
        command = await self._with_files(self._command(caller, wanted), wanted.files)
        return await self._database.read(foresee_message, command, self._rules)

    async def _with_files(self, command: SendOut, paths: Sequence[str]) -> SendOut:
        """The command with the bytes of its files as they are now."""
        if not paths:
            return command
        check_count(len(paths))
        session = await self._database.read(rows.find_by_row, command.caller.session)
        run = command.caller.run
        if session is None or (run is not None and run.run.session_id != session.id):
            raise NotFound("Session not found: it was reset or deleted while this call was at work.")
        try:
            files = await to_thread.run_sync(self._read_files, session, paths)
        except Unavailable as error:
            raise Conflict(error.message, code=error.code) from error
        return replace(command, files=files, incarnation=SessionId(session.id))

    def _command(self, caller: Caller, wanted: WantedMessage) -> SendOut:
        text = wanted.text
        if is_blank(text) and not wanted.files:
            raise Invalid("Message is empty. Write some text, or name files.", code="empty_message")
        if (size := len(text.encode())) > MAX_TEXT_BYTES:
            raise TooLarge(
                f"Message is too large: {size} bytes, at most {MAX_TEXT_BYTES}. Send a part.", code="message_too_large"
            )
        return SendOut(
            caller=caller,
            channel=wanted.channel,
            recipient=wanted.recipient,
            text="" if is_blank(text) else text,
            names=tuple(path.rsplit("/", 1)[-1] for path in wanted.files),
            accounts=self._accounts,
            find_group=self._find_group,
        )


class _ToPlace(NamedTuple):
    """A text for a place, and whether it may go there."""

    session: Session
    """The caller's own."""
    place: DeliveryContext
    made_of: Classification
    decision: Decision
    release: str | None
    """The release by which it may."""


async def send_out(tx: Transaction, command: SendOut, rules: Rules) -> QueuedText:
    """Queues the text and its files after every check, in one unit."""
    caller = command.caller
    origin = await find_origin(tx, caller)
    name = name_of(f"message {caller.call_id}")
    if (sent := await deliveries.find_named(tx, caller.session, name)) is not None:
        return await _repeated(tx, command, sent, rules)
    judged = await _judge(tx, command, rules)
    refuse_called_off(origin)
    if isinstance(denied := judged.decision, Deny):
        raise Denied(denied.reason, code=denied.rule)
    listed = deliveries.listed(command.files)
    if caller.files and words_of_files(listed) != caller.files:
        raise Conflict("Files have changed since they were approved. Call again.", code="approval_outdated")
    delivery = NewDelivery(
        name=name,
        session=judged.session.row,
        incarnation=SessionId(judged.session.id),
        run_id=None if origin is None else RunId(origin.id),
        place=judged.place,
        text=command.text,
        files=command.files,
        made_of=judged.made_of,
        release=judged.release,
    )
    return QueuedText(await deliveries.insert(tx, delivery, tx.now_ms), judged.place, command.text, listed)


async def foresee_message(query: Query, command: SendOut, rules: Rules) -> ForeseenCall:
    judged = await _judge(query, command, rules)
    return _foreseen(command, judged.place, judged.decision, judged.made_of)


def _foreseen(command: SendOut, place: DeliveryContext, decision: Decision, made_of: Classification) -> ForeseenCall:
    return ForeseenCall(place, decision, command.text, made_of, words_of_files(deliveries.listed(command.files)))


async def _repeated(query: Query, command: SendOut, sent: QueuedText, rules: Rules) -> QueuedText:
    try:
        place = await _find_place(query, command, rules)
    except REFUSALS:
        place = sent.place
    names = tuple(each.name for each in sent.files)
    if place != sent.place or sent.text != command.text or names != command.names:
        raise Conflict("Idempotency-Key was used for another message. Use a new one.", code="idempotency_key_reused")
    return sent


async def _judge(query: Query, command: SendOut, rules: Rules) -> _ToPlace:
    """Finds the place and decides. Raises `NotFound`, `Conflict` (`no_place`)."""
    session = await rows.find_by_row(query, command.caller.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    place, made_of = await _find_place(query, command, rules), context_of(command.caller, session)
    if command.files:
        if session.id != command.incarnation:
            raise NotFound("Session not found: it was reset while this call was at work.")
        _check_limit(command, place)
        made_of = made_of.join(session.workspace)  # what a file was made of is known of them all together
    decision = await _decide(query, command, Leaving(session, place, made_of), rules)
    release = command.caller.release
    if release is None or not is_write_down(decision):
        return _ToPlace(session, place, made_of, decision, None)
    call = _foreseen(command, place, decision, made_of)
    return _ToPlace(session, place, made_of, await decide_released(query, call, release, rules), release)


async def _decide(query: Query, command: SendOut, words: Leaving, rules: Rules) -> Decision:
    assert isinstance(words.session, Session)
    is_reply = command.recipient is None
    if not is_reply and (command.caller.is_sandboxed or rules.are_sandboxed(words.session)):
        return Deny("sandboxed", "Message may not be sent: this session is sandboxed. Write the text in the reply.")
    name = "this chat" if command.recipient is None else repr(command.recipient[:200])
    denied = await leave(query, words, rules)
    if not isinstance(denied, Deny):
        return denied
    if denied.rule == FLOW:
        return Deny(WRITE_DOWN, f"Message may not be sent to {name}: this turn has read data that may not go there.")
    return Deny(denied.rule, f"Message may not be sent to {name}: {denied.reason}")


async def _find_place(query: Query, command: SendOut, rules: Rules) -> DeliveryContext:
    """The place of the recipient on an account that sends; the oldest link counts."""
    if command.channel is None or command.recipient is None:
        return await _find_reply_place(query, command)
    channel, _, account = command.channel.partition(":")
    accounts = [each for each in command.accounts if each.channel == channel and account in ("", each.account_id)]
    served = {(each.channel, each.account_id or "") for each in accounts}
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
        for each in accounts:
            if f"{each.channel}:{each.account_id}" in rules.sinks.owners:
                return DeliveryContext(channel=channel, to=OWNER_NAME, account_id=each.account_id)
        raise Conflict(
            f"Owner has no linked account on channel {command.channel[:80]!r}. Write the text in the reply.",
            code="no_place",
        )
    wanted = WantedGroup(rules=rules, caller=command.caller, accounts=accounts, named=command.recipient)
    if (group := await command.find_group(query, wanted)) is not None:
        return group
    raise NotFound(
        f"Recipient not found: {command.recipient[:200]!r} on channel {command.channel[:80]!r}. Name a person with "
        "a linked account there, that account's own id, a group in which you answer, or 'owner'."
    )


async def _find_reply_place(query: Query, command: SendOut) -> DeliveryContext:
    """Where the reply of the run goes. Raises `Conflict` (`no_place`) if it stays within."""
    session, run = await rows.find_by_row(query, command.caller.session), await find_origin(query, command.caller)
    speaks = run is None or run.purpose.speaks_for_itself
    place = (run and run.place) or (None if session is None else session.delivery)
    if place is None or not place.is_outside or not speaks:
        raise Conflict(
            "Reply of this turn goes to no chat of a channel. Name a channel and a recipient.", code="no_place"
        )
    return place


def _check_limit(command: SendOut, place: DeliveryContext) -> None:
    """Raises `Invalid` (`unsupported`) and `TooLarge` (`attachment_too_large`) for what the channel does not send."""
    where = place.channel, place.account_id or ""
    most = next(
        (most for each, most in command.accounts.items() if (each.channel, each.account_id or "") == where), None
    )
    if most is None:
        able = sorted({each.channel for each, limit in command.accounts.items() if limit is not None})
        others = f"Channels that do: {', '.join(able)}." if able else "No channel here does."
        raise Invalid(
            f"Channel sends no files: {place.channel!r}. {others} Or send the content as text.", code="unsupported"
        )
    for file in command.files:
        if len(file.data) > most:
            raise TooLarge(
                f"File is too large for {place.channel}: {file.name!r} has {len(file.data)} bytes, at most {most}. "
                "Send a part of it.",
                code="attachment_too_large",
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
