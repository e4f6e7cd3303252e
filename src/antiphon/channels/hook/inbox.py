"""Messages of hooks: proved by their signature, read as text or as data, stored once. Contract: channels 1, keys 1."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, cast
from uuid import UUID

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from antiphon.channels.hook.settings import HookSettings, HookSignature
from antiphon.channels.hook.signature import forms_of, verify_hook
from antiphon.channels.posted import MAX_WAIT_SECONDS, Name, with_end
from antiphon.domain.actor import Principal
from antiphon.domain.ids import MessageId
from antiphon.domain.keys import SessionKey, hook_key
from antiphon.domain.machine_identities import HOOK, identity_of_hook
from antiphon.domain.message import Part, Provenance, ProvenanceKind, TextPart
from antiphon.domain.person import person_principal
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.chats.program_chats import ProgramChat
from antiphon.engine.deliveries.replies import Replies
from antiphon.engine.services import Services
from antiphon.engine.sessions.inbox import Envelope, PostMessage
from antiphon.engine.sessions.sessions import Newcomer
from antiphon.incoming import decode
from antiphon.wire.runs import PostedShape
from antiphon.wire.runs import posted as shown_posted

MAX_DATA_CHARACTERS = 64_000
"""The most of a message's data that the agent is shown."""


class HookBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The body of a message in Antiphon's own form. Any other JSON is data as a whole."""

    message_id: Name | None = None
    """The sender's id of the message; a repeated id is the same message."""
    text: Annotated[str, Meta(min_length=1)] | None = None
    data: Raw = Raw()
    """Any JSON, which the agent is shown as data, as it was sent; empty for none."""
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] | None = None
    """Seconds to wait for the reply."""

    def __post_init__(self) -> None:
        if self.message_id is not None and not self.message_id.isprintable():
            raise ValueError("messageId holds a control character")


_ANY, _OWN = Decoder(object), Decoder(HookBody)
_FIELDS = frozenset({"messageId", "text", "data", "wait"})


class HookInbox:
    """Accepts the messages that programs post to hooks."""

    def __init__(self, hooks: Sequence[HookSettings], services: Services, replies: Replies) -> None:
        self._hooks = {hook.name: hook for hook in hooks}
        self._services = services
        self._replies = replies
        self._nobody = services.ids.random_hex(64)
        """The secret for unknown hooks, so that an unknown name looks the same as a wrong secret."""

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        """Raises `Unproven` for headers that cannot sign anything, so that the body need not be read."""
        forms_of(headers)

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> PostedShape:
        """Stores the message and queues its run; the same message again gets the same answer.

        `headers` have lower-case names. Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, and the errors of posting.
        """
        services, name = self._services, account
        hook = self._hooks.get(name)
        forms = forms_of(headers)
        if hook is not None and hook.signature in forms:
            secret, signature = hook.secret, hook.signature
        else:  # as much work as for the hook that the headers are for, so that the time does not tell what there is
            secret, signature = self._nobody, forms[0]
        signed = verify_hook(secret, name, signature, headers, body=body, now=services.clock.now().timestamp())
        assert hook is not None
        services.buckets.take(_principal_of(hook), is_favoured=False)
        message = _read(body, hook)
        message_id = message.message_id or signed
        posted = await services.program_chats.post(
            _chat_of(hook, message_id), message_id, self._posting(hook, message_id, _content(message, name))
        )
        answer = replace(shown_posted(posted), message_id=message_id)
        if message.wait is None or posted.run_id is None:
            return answer
        run = await services.waits.wait(posted.run_id, timedelta(seconds=message.wait), posted.session)
        if run is None:
            return replace(answer, status=RunStatus.TIMEOUT)
        return with_end(answer, run, await self._replies.outward(run, _place_of_caller(name)), is_told=False)

    def _posting(self, hook: HookSettings, message_id: str, content: tuple[Part, ...]) -> PostMessage:
        """The message as the hook's, under an id of any length that its sender chose."""
        envelope = Envelope(
            sender=hook.name,
            is_of_channel=True,
            place=hook.place,
            queue_mode=hook.queue_mode,
            classification=hook.classification.distrusted(),
        )
        key = _key_of(hook, message_id)
        drawn = self._services.inbox.posting(_principal_of(hook), NamedTarget(key, None), content, envelope=envelope)
        id, provenance = MessageId(f"{HOOK}:{hook.name}:{message_id}"), Provenance(kind=ProvenanceKind.HOOK)
        return replace(drawn, message=replace(drawn.message, message_id=id, provenance=provenance), may_repeat=True)


def _principal_of(hook: HookSettings) -> Principal:
    return person_principal(identity_of_hook(hook.name).person_id)


def _key_of(hook: HookSettings, message_id: str) -> SessionKey:
    """The session of the message's first arrival. A repetition has the same key, so both wait for the same lock."""
    if hook.session_key is not None:
        return hook.session_key
    digest = hashlib.sha256(f"{hook.name}\0{message_id}".encode()).digest()
    return hook_key(str(UUID(bytes=digest[:16], version=5)))


def _chat_of(hook: HookSettings, message_id: str) -> ProgramChat:
    """A hook is a guest of its own, in any number of sessions; its messages and their bytes are limited."""
    identity, name = identity_of_hook(hook.name), f"hook {hook.name}"
    return ProgramChat(
        principal=_principal_of(hook),
        identity=identity,
        name=name,
        newcomer=Newcomer(identity, name),
        place=hook.place,
        address=ChatAddress(channel=HOOK, account=hook.name, peer="", thread=""),
        agent_id=hook.agent_id,
        key_with=lambda agent_id: _key_of(hook, message_id),
        is_fixed=True,
        source=Source(kind=HOOK, interactive=False, trigger_id=hook.name),
        classification=hook.classification,
        most_sessions=sys.maxsize,
    )


def _place_of_caller(name: str) -> DeliveryContext:
    """The program that waits for a reply, as a place: what may be told there is what its guest may have."""
    return DeliveryContext(channel=HOOK, to=name, account_id=name)


def _read(body: bytes, hook: HookSettings) -> HookBody:
    """The message. Raises `NotJson`, and `Misfit` for one in Antiphon's form with a wrong value."""
    said = decode(body, _ANY)
    if hook.signature is not HookSignature.ANTIPHON or not _is_own_form(said):
        return HookBody(data=Raw(body))
    return decode(body, _OWN)


def _is_own_form(said: object) -> bool:
    """Whether it is an object with a text or an id, and without fields that Antiphon does not know."""
    if not isinstance(said, dict):
        return False
    names = cast("dict[str, object]", said).keys()
    return names <= _FIELDS and bool(names & {"text", "messageId"})


def _content(message: HookBody, name: str) -> tuple[Part, ...]:
    """The text, then the data if there are any, each as a part of its own."""
    text = message.text or f"Event of the hook {name}."
    data = bytes(message.data).decode().strip()
    if not data:
        return (TextPart(text=text),)
    return TextPart(text=f"{text}\n"), TextPart(text=_cut(data))


def _cut(data: str) -> str:
    if len(data) <= MAX_DATA_CHARACTERS:
        return data
    return f"{data[:MAX_DATA_CHARACTERS]}…\n[Cut: these are the first {MAX_DATA_CHARACTERS} of {len(data)} characters.]"
