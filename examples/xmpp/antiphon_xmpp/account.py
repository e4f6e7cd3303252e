"""The account: takes in what people write, and sends.

It keeps nothing. The server's archive (XEP-0313) holds what came while nobody listened; it is read at each start, and
Antiphon recognises what it has by the id that the server gave each message (XEP-0359).
"""
# pyright: basic

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
from slixmpp import JID, ClientXMPP
from slixmpp.exceptions import IqTimeout, XMPPError

from antiphon.channels.kind import Inside, OpenChannel
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, Streaming
from antiphon.domain.delivery import BUSY, GONE, Delivery, DeliveryFailed
from antiphon.domain.errors import Invalid
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.position import NumberedPosition, Position
from antiphon.domain.session import DeliveryContext
from antiphon_xmpp import XmppSection

logger = logging.getLogger(__name__)

PLUGINS = ("xep_0030", "xep_0045", "xep_0085", "xep_0199", "xep_0203", "xep_0308", "xep_0313", "xep_0359", "xep_0424")
CONNECT_SECONDS = 15
SEND_SECONDS = 30.0
FORM = ChannelForm(longest=2_500, streaming=Streaming.EDIT)
"""Every server takes 10,000 bytes (RFC 6120)."""
_GONE = {"service-unavailable", "item-not-found", "not-acceptable", "gone", "remote-server-not-found"}
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold: the server would close the connection over it."""


class XmppAccount(OpenChannel):
    """Implements `LiveChannel` too: there is one account."""

    name, account, timeout_seconds, form = "xmpp", "default", SEND_SECONDS, FORM

    def __init__(self, section: XmppSection) -> None:
        self.senders = (self,)
        self._section = section
        self._client: ClientXMPP | None = None
        self._is_online = asyncio.Event()
        self._errors: dict[str, Any] = {}
        """What came back, by the id of the message that is being sent; None while that is nothing."""

    async def serve(self, inside: Inside) -> None:
        """Until the connection ends, which is an error. Antiphon serves again after a pause.

        Every process of the gateway is connected, to send; one takes in.
        """
        client = self._new_client()
        gone = client.disconnected
        client.add_event_handler("message_error", self._note_error)
        try:
            await self._connect(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(inside.accounts.hold, "xmpp", "default", partial(self._take_in, client, inside))
                await asyncio.wait({gone})
                raise ConnectionError(f"The connection to the server of {self._section.jid} ended.")
        finally:
            self._is_online.clear()
            client.abort()
            client.cancel_connection_attempt()

    def _new_client(self) -> ClientXMPP:
        section = self._section
        client = ClientXMPP(section.jid, section.key() or "")
        client.enable_plaintext, client.enable_direct_tls = section.plain, False
        client.enable_starttls = not section.plain
        client.plugin["feature_mechanisms"].unencrypted_scram = section.plain
        for plugin in PLUGINS:
            client.register_plugin(plugin)
        client.plugin["xep_0199"].enable_keepalive(60, CONNECT_SECONDS)
        return client

    async def _connect(self, client: ClientXMPP) -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: Exception) -> None:
            if not started.done():
                started.set_exception(error)

        where = self._section.host or self._section.jid.partition("@")[2]
        client.add_event_handler("session_start", lambda _: started.done() or started.set_result(None))
        client.add_event_handler("connection_failed", lambda why: fail(ConnectionError(f"{where}: {why}")))
        client.add_event_handler("disconnected", lambda why: fail(ConnectionError(f"{where} hung up: {why}")))
        refused = Invalid(f"{where} does not take the password of {self._section.jid}.")
        client.add_event_handler("failed_all_auth", lambda _: fail(refused))
        client.connect(self._section.host, self._section.port)
        async with asyncio.timeout(CONNECT_SECONDS):
            await started
        client.send_presence()
        for room in map(JID, self._section.groups):
            try:
                await client.plugin["xep_0045"].join_muc_wait(
                    room, self._section.nick, maxstanzas=0, timeout=CONNECT_SECONDS
                )
            except (XMPPError, TimeoutError) as error:
                logger.warning("The room %s cannot be joined: %r", room, error)
        self._client = client
        self._is_online.set()

    async def _take_in(self, client: ClientXMPP, inside: Inside, lease: Any) -> None:
        """First what came meanwhile, then what comes; what is in both is recognised."""
        arrived = asyncio.Queue[Any]()
        with client.event_handler("message", arrived.put_nowait):
            since = datetime.now(UTC) - timedelta(hours=self._section.catch_up_hours)
            known = datetime.fromtimestamp(int(lease.position or 0) / 1000, UTC)
            for archive in (None, *self._section.groups):
                try:
                    async for found in client.plugin["xep_0313"].iterate(
                        JID(archive) if archive else None, start=since if archive else max(since, known)
                    ):
                        result = found["mam_result"]
                        sent, message = result["forwarded"]["delay"]["stamp"], result["forwarded"]["stanza"]
                        position = None if archive else NumberedPosition(str(int(sent.timestamp() * 1000)))
                        await self._receive(inside, lease, self._inbound(client, message, result["id"], position))
                except XMPPError as error:
                    logger.warning("No archive, so that what comes while no gateway runs may be lost: %s", error)
            while True:
                message = await arrived.get()
                await self._receive(inside, lease, self._inbound(client, message, message["stanza_id"]["id"], None))

    async def _receive(self, inside: Inside, lease: Any, inbound: Inbound | None) -> None:
        try:
            if inbound is not None:
                await inside.reception.receive(inbound, lease)
        except Exception as error:
            if not inside.reception.is_of_message(error):
                raise
            logger.exception("A message is skipped")

    def _inbound(self, client: ClientXMPP, message: Any, stanza_id: str, position: Position | None) -> Inbound | None:
        """None for what is no message of a person, and for corrections."""
        text, source, nick = message["body"], message["from"], self._section.nick
        is_room, person = message["type"] == "groupchat", source.bare
        if not text or message["type"] not in ("chat", "normal", "groupchat") or message["replace"]["id"]:
            return None
        if is_room:
            real = client.plugin["xep_0045"].get_jid_property(JID(source.bare), source.resource, "jid")
            if source.bare not in self._section.groups or source.resource in ("", nick) or not real:
                return None  # a room that hides who speaks has no persons
            person = JID(real).bare
        if person == client.boundjid.bare:
            return None
        return Inbound(
            platform_id=stanza_id or f"{source}:{message['id']}",
            position=position,
            place=DeliveryContext(channel="xmpp", to=source.bare, account_id="default"),
            chat_type=ChatType.GROUP if is_room else ChatType.DIRECT,
            title=source.user if is_room else None,
            sender=Sender(id=person, name=source.resource if is_room else source.user),
            text=text,
            is_meant=not is_room or re.search(rf"(?<!\w){re.escape(nick)}(?!\w)", text, re.IGNORECASE) is not None,
        )

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """A text that is sent again corrects itself, so that it is seen once even if it had arrived."""
        own_id = f"{delivery.id}.{part.index}"
        replaces = part.replaces or (own_id if delivery.attempts > 1 else None)
        client, message = await self._message(delivery.place, part.text)
        message["id"] = client.new_id() if part.replaces else own_id
        if replaces is not None:
            message["replace"]["id"] = replaces
        await self._transmit(client, message)
        return part.replaces or own_id

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """There are none: replies are shown by edits."""

    async def typing(self, place: DeliveryContext) -> None:
        if place.to not in self._section.groups:
            client, message = await self._message(place, "")
            del message["body"]
            message["chat_state"] = "composing"
            await self._transmit(client, message)

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        client, message = await self._message(place, "/me has withdrawn a message.")
        message["retract"]["id"] = platform_id
        message.enable("fallback")
        await self._transmit(client, message)

    async def _message(self, place: DeliveryContext, text: str) -> tuple[ClientXMPP, Any]:
        try:
            await asyncio.wait_for(self._is_online.wait(), CONNECT_SECONDS)
        except TimeoutError as error:
            said = "There is no connection to the XMPP server."
            raise DeliveryFailed(said, code="channel_unreachable") from error
        assert self._client is not None
        kind = "groupchat" if place.to in self._section.groups else "chat"
        return self._client, self._client.make_message(JID(place.to), _ILLEGAL.sub("�", text), mtype=kind)

    async def _transmit(self, client: ClientXMPP, message: Any) -> None:
        """The server answers in order: once it answers a ping, it has taken or refused what was sent before."""
        gone, is_taken, id = client.disconnected, False, message["id"]
        self._errors[id] = None
        try:
            message.send()
            pong = client.plugin["xep_0199"].send_ping(JID(client.boundjid.host), timeout=SEND_SECONDS)
            await asyncio.wait({pong, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_taken = pong.done() and not isinstance(pong.exception(), IqTimeout)
        finally:
            error = self._errors.pop(id)
            if not is_taken:
                client.abort()  # it may hang; `serve` connects again
        if not is_taken:
            raise DeliveryFailed("The connection broke; the server may have the text.", code="channel_unreachable")
        if error is not None:
            is_busy, code = error["type"] == "wait", GONE if error["condition"] in _GONE else "channel_refused"
            said = f"The server refused the text: {error['condition']} {error['text']}".strip()
            raise DeliveryFailed(said, code=BUSY if is_busy else code, is_permanent=not is_busy)

    def _note_error(self, message: Any) -> None:
        if message["id"] in self._errors:
            self._errors[message["id"]] = message["error"]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.disconnect(wait=1)
