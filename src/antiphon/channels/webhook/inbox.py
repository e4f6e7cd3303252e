"""Incoming webhook messages: proved by their signature, stored once. Contract: channels 1, keys 1."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_settings
from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from antiphon.channels.posted import MAX_WAIT_SECONDS, Name, with_end
from antiphon.channels.signature import check_form, verify
from antiphon.channels.webhook.settings import NAME, WebhookSettings
from antiphon.domain.actor import Principal
from antiphon.domain.commands import ChatCommand, parse
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import DmScope, SessionKey, direct_key, main_key, thread_key
from antiphon.domain.message import text_content
from antiphon.domain.person import Identity, person_principal
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import NOWHERE, DeliveryContext, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.chats.program_chats import ProgramChat
from antiphon.engine.deliveries.replies import ChannelReply, Replies
from antiphon.engine.services import Services
from antiphon.engine.sessions.inbox import MAX_MESSAGE_ID, Envelope
from antiphon.engine.sessions.sessions import Newcomer
from antiphon.incoming import GivenAttribution, decode
from antiphon.wire.runs import PostedShape
from antiphon.wire.runs import posted as shown_posted


class WebhookMessage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The body of an incoming message. Unknown names are refused. Contract: answers 3."""

    message_id: Name
    """The sender's id of the message; a repeated id is the same message."""
    peer: Name
    """The person or program whose chat it is, by the sender's id."""
    text: Annotated[str, Meta(min_length=1)]
    thread_id: Name | None = None
    sender: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The display name of the peer."""
    attribution: GivenAttribution | None = None
    """Whose words the text is, if it is not the peer's: a forward, say. Such a text is never a command."""
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] | None = None
    """Seconds to wait for the reply."""

    def __post_init__(self) -> None:
        for name, value in (("messageId", self.message_id), ("peer", self.peer), ("threadId", self.thread_id)):
            if value is not None and not value.isprintable():
                raise ValueError(f"{name} holds a control character")


_MESSAGE = Decoder(WebhookMessage)


class WebhookInbox:
    """Accepts the messages that webhooks post."""

    def __init__(self, webhooks: Sequence[WebhookSettings], services: Services, replies: Replies) -> None:
        self._webhooks = {webhook.name: webhook for webhook in webhooks}
        self._services = services
        self._replies = replies
        self._is_global = services.rules.chats.is_global
        self._nobody = services.ids.random_hex(64)
        """The secret for unknown webhooks, so that an unknown name looks the same as a wrong secret."""

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        """Raises `Unproven` for headers that cannot sign anything, so that the body need not be read."""
        check_form(headers)

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> PostedShape:
        """Stores the message and queues its run; the same message again gets the same answer.

        `headers` have lower-case names. Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, and the errors of posting.
        """
        services = self._services
        webhook = self._webhooks.get(account)
        secret = self._nobody if webhook is None else webhook.secret
        verify(secret, account, headers, body, now=services.clock.now().timestamp())
        assert webhook is not None
        crowd = None if webhook.principal is not None else f"{NAME}:{account}"
        if crowd is not None:
            services.buckets.take_for_crowd(crowd)
        message = decode(body, _MESSAGE)
        principal = principal_of(webhook, message.peer)
        if crowd is None:
            services.buckets.take(principal, is_favoured=True)
        else:
            services.buckets.take_in_crowd(principal, crowd)
        chat = self._chat_of(webhook, message, principal)
        attribution = None if message.attribution is None else message.attribution.read()
        if attribution is None and (command := parse(message.text)) is not None:
            return await self._carry_out(chat, message, command)
        posting = services.inbox.posting(
            principal,
            NamedTarget(chat.key_with(chat.agent_id), None),
            text_content(message.text),
            message_id=self._message_id(webhook, message),
            envelope=Envelope(
                sender=message.sender,
                attribution=attribution,
                is_of_channel=True,
                place=chat.place,
                queue_mode=webhook.queue_mode,
                classification=webhook.classification,
            ),
        )
        posted = await services.program_chats.post(chat, message.message_id, posting)
        answer = replace(shown_posted(posted), message_id=message.message_id)
        if message.wait is None or posted.run_id is None:
            return answer
        run = await services.waits.wait(posted.run_id, timedelta(seconds=message.wait), posted.session)
        if run is None:
            return replace(answer, status=RunStatus.TIMEOUT)
        return _with_end(answer, run, await self._replies.outward(run, _chat(webhook, message)), webhook)

    async def _carry_out(self, chat: ProgramChat, message: WebhookMessage, command: ChatCommand) -> PostedShape:
        """The answer to a command, which is no message of the session. A waiting caller gets it at once."""
        done = await self._services.program_chats.carry_out(chat, message.message_id, command)
        return PostedShape(
            session_key=str(done.session_key),
            message_id=message.message_id,
            seq=done.last_seq,
            triggered=False,
            command=True,
            status=None if message.wait is None else RunStatus.OK,
            reply=None if message.wait is None else done.answer,
        )

    def _chat_of(self, webhook: WebhookSettings, message: WebhookMessage, principal: Principal) -> ProgramChat:
        def key_with(agent_id: AgentId) -> SessionKey:
            """The session of the chat, or the session that all chats share. Contract: keys 3, 5."""
            if self._is_global:
                return main_key(agent_id)
            return key_of(replace_settings(webhook, agent_id=agent_id), message.peer, message.thread_id)

        return ProgramChat(
            principal=principal,
            identity=identity_of(webhook, message.peer),
            name=bracketed_name(message.sender or message.peer),
            newcomer=_newcomer(webhook, message),
            place=place_of(webhook, message.peer, message.thread_id),
            address=ChatAddress(
                channel=NAME,
                account=webhook.name,
                peer=f"direct:{message.peer}",
                thread=message.thread_id or "",
            ),
            agent_id=webhook.agent_id,
            key_with=key_with,
            is_fixed=self._is_global,
            source=Source(kind="channel", platform=NAME),
            classification=webhook.classification,
        )

    def _message_id(self, webhook: WebhookSettings, message: WebhookMessage) -> str:
        """The id in the log. It contains the chat, because ids are the chat's own even if chats share a session."""
        if not self._is_global:
            return f"{NAME}:{webhook.name}:{message.message_id}"
        chat = hashlib.sha256(f"{message.peer}\0{message.thread_id or ''}".encode()).hexdigest()[:32]
        named = f"{NAME}:{webhook.name}:{chat}:{message.message_id}"
        if len(named) <= MAX_MESSAGE_ID:
            return named
        return f"{NAME}:{webhook.name}:{chat}:{hashlib.sha256(message.message_id.encode()).hexdigest()}"


def _chat(webhook: WebhookSettings, message: WebhookMessage) -> DeliveryContext:
    """The place that the send policy judges, even if the webhook sends nothing."""
    return DeliveryContext(channel=NAME, to=message.peer, account_id=webhook.name, thread_id=message.thread_id)


def _with_end(answer: PostedShape, run: Run, reply: ChannelReply, webhook: WebhookSettings) -> PostedShape:
    is_told = webhook.principal is not None and reply.suppressed != "send_denied"
    return with_end(answer, run, reply, is_told=is_told)


def principal_of(webhook: WebhookSettings, peer: str) -> Principal:
    """The principal of the peer's messages: a person of their own, or the owner."""
    return webhook.principal or person_principal(identity_of(webhook, peer).person_id)


def identity_of(webhook: WebhookSettings, peer: str) -> Identity:
    return Identity(channel=NAME, account=webhook.name, platform_id=peer)


def _newcomer(webhook: WebhookSettings, message: WebhookMessage) -> Newcomer | None:
    """The peer, by the name that the message gives; None if all messages are the owner's."""
    if webhook.principal is not None:
        return None
    return Newcomer(identity_of(webhook, message.peer), bracketed_name(message.sender or message.peer))


def key_of(webhook: WebhookSettings, peer: str, thread: str | None) -> SessionKey:
    """The session of the peer's chat, or of a thread in it."""
    key = direct_key(
        webhook.agent_id, channel=NAME, account=webhook.name, peer=peer, scope=DmScope.PER_ACCOUNT_CHANNEL_PEER
    )
    return key if thread is None else thread_key(key, thread)


def place_of(webhook: WebhookSettings, peer: str, thread: str | None) -> DeliveryContext:
    """The place of the chat's replies; nowhere if the webhook has no address."""
    if webhook.url is None:
        return NOWHERE
    return DeliveryContext(channel=NAME, to=peer, account_id=webhook.name, thread_id=thread)
