"""Accepting messages: `post` stores one and queues the run that answers it, `append` only stores it.

Contract: sessions 4, 5, runs 2, 4, 7.
"""

from datetime import datetime
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.domain.checkpoint import has_checkpoints, on_message_untriggered
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import Ids, MessageId, RunId, SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.message import (
    EXTERNAL,
    SYNTHETIC,
    AssistantMessage,
    Attribution,
    Message,
    Part,
    Role,
    UserMessage,
    check_content,
    text_of,
)
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Purpose, Run, RunStatus
from antiphon.domain.session import HERE, DeliveryContext, SessionType
from antiphon.domain.session_ids import is_of_task
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.allowances import refuse_bytes, refuse_pace, refuse_run, stored_bytes
from antiphon.engine.access.ceilings import find_ceiling, refuse_above
from antiphon.engine.access.mains import new_main
from antiphon.engine.access.reach import FoundHead, H, admit_head, find_head, reach_of, refuse_act
from antiphon.engine.access.send_policy import may_post
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing
from antiphon.engine.ledger.append import Arrival, NewMessage, Untriggered, append_words, may_be_noticed
from antiphon.engine.ledger.queue import join_run, new_run_id, queue_run
from antiphon.engine.rules import Rules
from antiphon.engine.runs.ends import CANCELLED_AWAITING, call_off
from antiphon.engine.sessions.resets import begin_anew_if_stale
from antiphon.engine.sessions.senders import (
    AdmitSender,
    JudgedSender,
    Speaker,
    admit_sender,
    judge_sender,
    principal_of,
)
from antiphon.engine.sessions.sessions import create_session, head_of_new, of_task, opening_of_main
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.flow import classify_message, is_public
from antiphon.policy.reach import Grant
from antiphon.policy.rights import STAYS, is_favoured
from antiphon.policy.standing import Standing
from antiphon.policy.trigger import is_triggering
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.askers import HEAD, LOG
from antiphon.store.codec import stored_key
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun
from antiphon.store.sessions import LogHead, SessionHead

MAX_MESSAGE_ID = 200


class Envelope(Struct, frozen=True, kw_only=True):
    """What comes with a message besides its content."""

    sender: str | None = None
    """The name of its author in a group."""
    mentioned: bool = True
    """Whether it addresses the agent."""
    attribution: Attribution | None = None
    """Whose words it holds; None for the author's own."""
    is_of_channel: bool = False
    """Whether a channel brings it, which may sign and date what its senders write."""
    place: DeliveryContext | None = None
    """The place of the reply, as given by the channel that brings the message; None outside channels."""
    channel: str | None = None
    """The channel whose reader reads the log itself, such as `webchat`; None for programs."""
    queue_mode: QueueMode | None = None
    """The mode of messages from this channel; None outside channels."""
    classification: Classification = PUBLIC
    """The classification of the route on which it came."""
    deliver: bool = False
    """Whether message and reply are sent through the session's channel, for messages that did not come through it."""


PLAIN = Envelope()


class PostMessage(Struct, frozen=True, kw_only=True, gc=False):
    principal: Principal
    target: NamedTarget
    message: UserMessage
    may_repeat: bool
    """Whether the caller chose the message id; a drawn id is always new."""
    mode: QueueMode
    is_mode_chosen: bool
    """Whether the sender chose the mode; otherwise the session's own mode goes before it."""
    rules: Rules
    place: DeliveryContext | None
    """The place of the reply, as given by the channel that brought the message."""
    route: Classification
    """What the route on which it came adds to every message."""
    is_delivered: bool
    """Whether message and reply go to the session's place."""
    is_of_channel: bool
    """Whether a channel brings it, which may sign it."""
    brought: AdmitSender | None = None
    """The sender for whom a channel's program speaks; the principal is then theirs."""
    file_bytes: int = 0
    """The size of files that came with it and lie beside the session's workspace."""
    sent_ms: int | None = None
    """When it was written, if its platform says so and that was before now: it counts among messages of that time."""
    held_bytes: int | None = None
    """What is held for it of its sender's share, if it waited; then it was counted when it came in."""


class Posted(Struct, frozen=True, gc=False):
    """The result of a message; the same for every repetition."""

    session: SessionRow
    session_key: str
    message_id: MessageId
    seq: int
    run_id: RunId | None
    triggered: bool


class AppendMessage(Struct, frozen=True, gc=False):
    speaker: Speaker
    target: NamedTarget
    message: UserMessage | AssistantMessage
    may_repeat: bool
    rules: Rules
    occurred_at: datetime | None
    is_of_channel: bool

    @property
    def is_signed(self) -> bool:
        """Whether somebody else than the runtime says who wrote it, or when."""
        return self.occurred_at is not None or _is_signed(self.message)


class Inbox:
    """The entry of messages into sessions."""

    def __init__(self, database: Database, rules: Rules, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._ids = ids

    async def post(
        self,
        speaker: Speaker,
        target: NamedTarget,
        content: tuple[Part, ...],
        *,
        message_id: str | None = None,
        mode: QueueMode | None = None,
        envelope: Envelope = PLAIN,
    ) -> Posted:
        """Stores the message and queues its run, in one transaction; returns before any model is called.

        The same `message_id` again returns the first answer. The envelope's `place` is for channels: the reply goes
        there, and the send policy does not apply to the incoming message. A sender for whom a channel's
        program speaks takes part from now on. Raises `NotFound`, `Invalid`, `Denied`
        (`send_denied`), and `Conflict` for an id that was used with another body (`message_id_reused`) or a busy
        session (`session_busy`).
        """
        command = self.posting(speaker, target, content, message_id=message_id, mode=mode, envelope=envelope)
        return await self._database.run(post_message, command, sessions=(target,))

    def posting(
        self,
        speaker: Speaker,
        target: NamedTarget,
        content: tuple[Part, ...],
        *,
        message_id: str | None = None,
        mode: QueueMode | None = None,
        envelope: Envelope = PLAIN,
    ) -> PostMessage:
        """The command of `post`, for a unit that does more. Raises `Invalid`."""
        check_content(content)
        message = UserMessage(
            message_id=self._message_id(message_id),
            content=content,
            sender=envelope.sender,
            mentioned=envelope.mentioned,
            attribution=envelope.attribution,
            provenance=replace(EXTERNAL, source_channel=envelope.channel),
        )
        return PostMessage(
            principal=principal_of(speaker),
            brought=_brought(speaker),
            target=target,
            message=message,
            may_repeat=message_id is not None,
            mode=mode or envelope.queue_mode or self._rules.queue_mode,
            is_mode_chosen=mode is not None,
            rules=self._rules,
            place=envelope.place,
            route=envelope.classification,
            is_delivered=envelope.deliver,
            is_of_channel=envelope.is_of_channel,
        )

    async def append(
        self,
        speaker: Speaker,
        target: NamedTarget,
        content: tuple[Part, ...],
        *,
        message_id: str | None = None,
        role: Role = Role.USER,
        envelope: Envelope = PLAIN,
        occurred_at: datetime | None = None,
    ) -> Posted:
        """Stores the message for later turns, without a run; an assistant's message is marked synthetic."""
        check_content(content)
        name = self._message_id(message_id)
        message: UserMessage | AssistantMessage
        if role is Role.ASSISTANT:
            message = AssistantMessage(message_id=name, content=content, provenance=SYNTHETIC)
        elif role is Role.USER:
            sender, attribution = envelope.sender, envelope.attribution
            message = UserMessage(
                message_id=name,
                content=content,
                sender=sender,
                attribution=attribution,
                is_dated=occurred_at is not None,
            )
        else:
            raise Invalid(f"Role cannot be appended: {role.value!r}. Use 'user' or 'assistant'.", code="invalid_role")
        may_repeat, is_of_channel = message_id is not None, envelope.is_of_channel
        command = AppendMessage(speaker, target, message, may_repeat, self._rules, occurred_at, is_of_channel)
        return await self._database.run(append_message, command, sessions=(target,))

    def _message_id(self, given: str | None) -> MessageId:
        if given is None:
            return MessageId(self._ids.new("msg"))
        if not 0 < len(given) <= MAX_MESSAGE_ID or not given.isprintable():
            raise Invalid(
                f"Message id is not valid: {given[:40]!r}. Use 1 to {MAX_MESSAGE_ID} printable characters.",
                code="invalid_message_id",
            )
        return MessageId(given)


def _brought(speaker: Speaker) -> AdmitSender | None:
    return None if isinstance(speaker, Principal) else speaker


class Destination(Struct, frozen=True, gc=False):
    """Where a message goes, and as whose."""

    standing: Standing
    head: SessionHead
    grant: Grant | None
    """None for a session that does not exist yet."""


class JudgedPost(Struct, frozen=True, kw_only=True, gc=False):
    """A message that may be stored; nothing of it is written yet."""

    command: PostMessage
    """With its place and its mode settled."""
    destination: Destination
    place: DeliveryContext
    triggers: bool
    joined: RunId | None = None
    """The run that it joins."""
    interrupted: Run | None = None
    """The run that it ends."""


async def post_message(tx: Transaction, command: PostMessage) -> Posted:
    if command.brought is not None:
        return await _post_for_sender(tx, command, command.brought)
    try:
        standing, found = await find_head(tx, command.principal, Act.SEND, command.target, portion=HEAD)
    except NotFound as missing:
        return await _post_in_new_main(tx, command, missing)
    judged = await judge_post(tx, command, Destination(standing, found.head, found.grant))
    return await store_post(tx, judged, judged.destination.head) if isinstance(judged, JudgedPost) else judged


async def _post_in_new_main(tx: Transaction, command: PostMessage, missing: NotFound) -> Posted:
    standing = await find_standing(tx, command.principal)
    new = new_main(command.target, standing, command.rules)
    if new is None:
        raise missing
    opening = opening_of_main(new)
    judged = await judge_post(tx, command, Destination(standing, head_of_new(opening), None))
    if not isinstance(judged, JudgedPost):
        return judged
    return await store_in(tx, judged, (await create_session(tx, opening, standing)).row)


async def _post_for_sender(tx: Transaction, command: PostMessage, brought: AdmitSender) -> Posted:
    sender = await judge_sender(tx, brought)
    found = await _as_sender(tx, sender, await rows.find_head(tx, sender.session.row))
    command = replace(command, principal=sender.standing.principal)
    judged = await judge_post(tx, command, Destination(sender.standing, found.head, found.grant))
    await admit_sender(tx, sender)
    return judged if isinstance(judged, Posted) else await store_post(tx, judged, found.head)


async def _as_sender(query: Query, sender: JudgedSender, head: H | None) -> FoundHead[H]:
    """The session as its sender reaches it once they take part."""
    reach = reach_of(sender.standing, Act.SEND)
    found = await admit_head(query, reach, head, is_joining=sender.is_joining)
    assert found is not None
    return found


async def judge_post(
    tx: Transaction, command: PostMessage, destination: Destination, *, is_counted: bool = True
) -> JudgedPost | Posted:
    """Whether the message may be stored, and how; the first answer to one that was stored before.

    Writes nothing but the count of a guest's messages, which holds for refused ones too. Without `is_counted`, how
    many came within the minute is not asked.
    """
    session, standing = destination.head, destination.standing
    if standing.principal is not command.principal:
        command = replace(command, principal=standing.principal)
    if (key := _key_of_task(session.key)) is not None:
        raise of_task(key)
    if not command.is_of_channel and _is_signed(command.message):
        refuse_act(standing, Act.SIGN)
    message, named, grant = command.message, MessageId(command.message.message_id), destination.grant
    if command.may_repeat and grant is not None and (first := await log.find_message(tx, grant, named)):
        return await _repeated(tx, session, first, principal=command.principal, message=message)
    place = await _place_of_answers(tx, session, command, standing)
    await _refuse_route(tx, session, command, place)
    from_channel = message.provenance.source_channel
    denied = None if command.place is not None else may_post(session, command.rules, from_channel=from_channel)
    if isinstance(denied, Deny):
        raise Denied(f"Message may not be sent in {session.key!r}: {denied.reason}", code="send_denied")
    shares = command.rules.shares
    if is_counted and command.held_bytes is None:
        at_ms = tx.now_ms if command.sent_ms is None else command.sent_ms
        await refuse_pace(tx, standing, shares, at_ms=at_ms)
    await refuse_bytes(tx, standing, _size_of(command) - (command.held_bytes or 0), shares)
    judged = JudgedPost(
        command=command,
        destination=destination,
        place=place,
        triggers=is_triggering(
            _type_for_triggers(session),
            standing,
            mentioned=message.mentioned,
            owner_trigger=command.rules.owner_trigger,
        ),
    )
    return await _judge_run(tx, judged) if judged.triggers else judged


def _type_for_triggers(head: SessionHead) -> SessionType:
    """What is written in a thread of a sub-agent is for it, also in a group's."""
    return SessionType.DIRECT if stored_key(head.key).subagent_depth else SessionType(head.type)


async def _judge_run(query: Query, judged: JudgedPost) -> JudgedPost:
    """With the run that answers the message: one that it joins, or its own, for which an active one may have to end."""
    destination, command = judged.destination, judged.command
    mode = await _mode_for(query, destination.head, command, destination.standing)
    command = replace(command, mode=mode, place=judged.place)
    taken = await _run_to_take(query, destination.head, command)
    if taken is not None and command.mode is not QueueMode.INTERRUPT:
        return replace(judged, command=command, joined=taken.id)
    await refuse_run(query, destination.standing, command.rules.shares)
    return replace(judged, command=command, interrupted=taken)


async def store_in(tx: Transaction, judged: JudgedPost, row: SessionRow) -> Posted:
    """Stores the message in the session, which this unit has opened."""
    session = await rows.find_head(tx, row)
    assert session is not None
    return await store_post(tx, judged, session)


async def store_post(tx: Transaction, judged: JudgedPost, session: SessionHead) -> Posted:
    """Stores the message and queues its run, in the unit that decided it."""
    command, standing, place = judged.command, judged.destination.standing, judged.place
    message, joined = command.message, judged.joined
    # Other sessions see a reset, and must not learn of a message above them that no run answers.
    if judged.triggers or await may_be_noticed(tx, session.row, _made_of(command, standing)):
        session = await begin_anew_if_stale(tx, session, command.rules)
    if judged.interrupted is not None:
        await call_off(tx, judged.interrupted, CANCELLED_AWAITING)
        # A run that waited for an approval has ended in the log.
        session = await rows.find_head(tx, session.row) or session
    words, run_id = _words(session, command, standing), joined
    if not judged.triggers:
        words = replace(words, untriggered=_untriggered(session, command, tx.now_ms))
        seq = await append_words(tx, session, words)
    elif joined is not None:
        seq = await join_run(tx, session, words, joined)
    else:
        run_id = new_run_id(tx)
        run = NewRun(
            id=run_id,
            purpose=Purpose.MESSAGE,
            incarnation=session.id,
            agent_id=session.agent_id,
            mode=command.mode,
            principal=command.principal,
            place=command.place,
        )
        seq = await queue_run(tx, session, words, run)
    await _count(tx, standing, session, _size_of(command))
    if command.is_delivered:
        await _speak(tx, session, command, standing, place=place, run_id=run_id)
    return _posted(session, message, seq, run_id)


def _is_signed(message: UserMessage | AssistantMessage) -> bool:
    return isinstance(message, AssistantMessage) or message.sender is not None


def _made_of(command: PostMessage, standing: Standing) -> Classification:
    return classify_message(standing, command.route, has_foreign_words=command.message.has_foreign_words)


def _size_of(command: PostMessage) -> int:
    """What the message takes of its sender's share."""
    return stored_bytes(command.message.content) + command.file_bytes


async def _refuse_route(query: Query, session: SessionHead, command: PostMessage, place: DeliveryContext) -> None:
    """Refuses a message that its session may not take in. Reads nothing for a public one. Contract: flow 2."""
    if is_public(command.route):
        return
    whole = await rows.find_by_row(query, session.row)
    if whole is not None:  # one that is opened for the message has the route in its base, which was judged
        refuse_above(command.route, await find_ceiling(query, whole, command.rules.sinks, place=place))


async def _speak(
    tx: Transaction,
    session: SessionHead,
    command: PostMessage,
    standing: Standing,
    *,
    place: DeliveryContext,
    run_id: RunId | None,
) -> None:
    """Sends the message through the session's channel. Contract: sessions 4."""
    made_of = _made_of(command, standing).join(session.end.base)
    message = command.message
    outgoing = Outgoing(text=text_of(message.content), made_of=made_of, check=ExitCheck(rules=command.rules))
    await outbox.enqueue_message(tx, session, place, outgoing, message_id=message.message_id, run_id=run_id)


async def _place_of_answers(
    query: Query, session: SessionHead, command: PostMessage, standing: Standing
) -> DeliveryContext:
    """The place that the message came from, which is the log unless a channel brought it. Contract: sessions 4."""
    if command.place is not None:
        return command.place
    if not command.is_delivered:
        return HERE
    refuse_act(standing, Act.SPEAK)
    whole = await rows.find_by_row(query, session.row)
    if whole is None or not outbox.is_external(whole.delivery):
        raise Conflict(f"Session has no channel: {session.key!r}. {STAYS}.", code="no_place")
    return whole.delivery


async def _mode_for(query: Query, session: SessionHead, command: PostMessage, standing: Standing) -> QueueMode:
    """The mode that was chosen, else the session's own, else that of the channel or the configuration.

    Only an owner's messages interrupt another principal's work; a guest's waits instead. Contract: runs 4.
    """
    own = None if command.is_mode_chosen else session.queue_mode
    mode = command.mode if own is None else QueueMode(own)
    if mode is not QueueMode.INTERRUPT or is_favoured(standing):
        return mode
    active = await ledger.find_active(query, session.row)
    waiting = [*([] if active is None else [active]), *await ledger.find_queued(query, session.row)]
    is_own = all(run.principal == command.principal for run in waiting)
    return QueueMode.INTERRUPT if is_own else QueueMode.ENQUEUE


async def _run_to_take(query: Query, session: SessionHead, command: PostMessage) -> Run | None:
    """The run that the message joins or interrupts; None if it waits for its own. It joins only its principal's."""
    if command.mode is QueueMode.ENQUEUE:
        return None
    active = await ledger.find_active(query, session.row)
    queued = await ledger.find_queued(query, session.row)
    match command.mode:
        case QueueMode.REJECT if queued or (active and not active.is_awaiting_approval):
            raise Conflict(
                f"Session is busy: {session.key!r}. Wait for its run, or post with queueMode 'enqueue'.",
                code="session_busy",
            )
        case QueueMode.COLLECT if queued and _is_collecting(queued[-1], session, command):
            return queued[-1]
        case QueueMode.STEER if active and _is_joinable(active, session, command):
            return active
        case QueueMode.INTERRUPT:
            return active
        case _:
            return None


def _is_collecting(queued: Run, session: SessionHead, command: PostMessage) -> bool:
    """False if the run ends with a child's result, or continues an ended run."""
    return queued.report is None and queued.continues is None and _is_like(queued, session, command)


def _is_joinable(active: Run, session: SessionHead, command: PostMessage) -> bool:
    return active.status is RunStatus.RUNNING and _is_like(active, session, command)


def _is_like(run: Run, session: SessionHead, command: PostMessage) -> bool:
    """Whether the message may share the run's answer: same principal, same place, no run for another session.

    A run that was called off gives none.
    """
    is_same = run.principal == command.principal and run.place == command.place
    return not run.is_cancel_requested and is_same and run.purpose.speaks_for_itself and run.session_id == session.id


def _words(session: SessionHead, command: PostMessage, standing: Standing) -> NewMessage:
    has_channel = session.channel is not None or stored_key(session.key).channel is not None
    return NewMessage(
        message=command.message,
        actor=str(command.principal),
        classification=_made_of(command, standing),
        is_addressed=command.may_repeat,
        channel=None if has_channel else command.message.provenance.source_channel,
        end=session.end,
    )


def _untriggered(session: SessionHead, command: PostMessage, at_ms: int) -> Untriggered | None:
    """How a message counts that starts no run; None in a session that never looks back. Contract: checkpoints 1."""
    rules = command.rules
    agent = rules.agents.get(session.agent_id)
    if agent is None or not has_checkpoints(session.source_kind, agent.model, rules.checkpoints):
        return None
    return Untriggered(due_at=on_message_untriggered(session.untriggered_count + 1, at_ms))


@lru_cache(maxsize=4096)
def _key_of_task(text: str) -> SessionKey | None:
    """The key, if only a task may have it."""
    return key if is_of_task(key := stored_key(text)) else None


async def append_message(tx: Transaction, command: AppendMessage) -> Posted:
    speaker, sender = command.speaker, None
    if isinstance(speaker, Principal):
        standing, found = await find_head(tx, speaker, Act.SEND, command.target, portion=LOG)
    else:
        sender = await judge_sender(tx, speaker)
        standing = sender.standing
        found = await _as_sender(tx, sender, await rows.find_log_head(tx, sender.session.row))
    session, message = found.head, command.message
    if (key := _key_of_task(session.key)) is not None:
        raise of_task(key)
    if not command.is_of_channel and command.is_signed:
        refuse_act(standing, Act.SIGN)
    if command.may_repeat and (first := await log.find_message(tx, found.grant, MessageId(message.message_id))):
        return await _repeated(tx, session, first, principal=standing.principal, message=message)
    is_counted, shares = not is_favoured(standing), command.rules.shares
    if is_counted:
        await refuse_pace(tx, standing, shares, at_ms=tx.now_ms)
        await refuse_bytes(tx, standing, stored_bytes(message.content), shares)
    if sender is not None:
        await admit_sender(tx, sender)
    is_foreign = isinstance(message, UserMessage) and message.has_foreign_words
    actor, made_of = str(standing.principal), classify_message(standing, PUBLIC, has_foreign_words=is_foreign)
    words = NewMessage(message, actor, made_of, Arrival.APPENDED, command.may_repeat, command.occurred_at, session.end)
    seq = await append_words(tx, session, words)
    if is_counted:
        await _count(tx, standing, session, stored_bytes(message.content))
    return _posted(session, message, seq, None)


async def _count(tx: Transaction, standing: Standing, session: SessionHead | LogHead, size: int) -> None:
    if not is_favoured(standing):
        await rows.add_stored_bytes(tx, session.row, str(standing.principal), size)


async def _repeated(
    query: Query, session: SessionHead | LogHead, first: Event, *, principal: Principal, message: Message
) -> Posted:
    """The first answer, for the same person. The same id from another one is another message."""
    stored = first.message
    assert isinstance(stored, UserMessage | AssistantMessage)
    is_same = type(stored) is type(message) and stored.content == message.content
    if not is_same or not await _is_same_person(query, first.actor, principal):
        raise Conflict(
            f"Message id was used for another message: {message.message_id!r}. Use a new id.",
            code="message_id_reused",
        )
    return _posted(session, stored, first.seq, first.run_id)


async def _is_same_person(query: Query, actor: str, principal: Principal) -> bool:
    """Whether the actor is the principal, or a person who was merged into that one since."""
    if actor == str(principal) or not actor.startswith(f"{PrincipalKind.PERSON}:"):
        return actor == str(principal)
    return str((await find_standing(query, Principal.parse(actor))).principal) == str(principal)


def _posted(
    session: SessionHead | LogHead, message: UserMessage | AssistantMessage, seq: int, run_id: RunId | None
) -> Posted:
    return Posted(session.row, session.key, MessageId(message.message_id), seq, run_id, run_id is not None)
