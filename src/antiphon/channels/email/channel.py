"""Sends mails: plain texts, each to one person. Contract: channels 1."""

import ssl
from contextlib import suppress
from email.headerregistry import Address

import aiosmtplib

from antiphon.channels.email.letter import own_message_id
from antiphon.channels.email.outbound import written_mail
from antiphon.channels.email.section import NAME, EmailAccount
from antiphon.channels.email.threads import MailThreads
from antiphon.clock import Clock
from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.delivery import BUSY, GONE, Delivery, DeliveryFailed
from antiphon.domain.text import flat

TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 20.0
QUIT_SECONDS = 2.0
LARGEST_FILE = 7 * 1024 * 1024
"""Bytes of a file whose mail, a third longer, usual mail servers take: 10 MB."""
FORM = ChannelForm(files=LARGEST_FILE)
_GONE = (550, 551, 553)
"""Answers to a recipient after which no mail will be taken for it."""


class EmailChannel:
    """Implements `Channel` for one mailbox."""

    name = NAME
    timeout_seconds = TIMEOUT_SECONDS
    form = FORM

    def __init__(self, account: str, settings: EmailAccount, threads: MailThreads, clock: Clock) -> None:
        self.account = account
        self._settings = settings
        self._threads = threads
        self._clock = clock

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Sends a mail to the person alone; its Message-ID is the same in each attempt."""
        person, thread = delivery.place.to or "", delivery.place.thread_id
        settings, head = self._settings, await self._threads.find(person, thread)
        message_id = own_message_id(delivery.id, part.index, thread, settings.domain)
        if part.file is None and not part.text.strip():
            return message_id
        try:
            sender = Address(flat(settings.name), addr_spec=settings.address)
            to = Address(addr_spec=person)
            mail = written_mail(sender, to, part, head, message_id=message_id, at=self._clock.now())
        except ValueError as error:
            raise DeliveryFailed(
                "The recipient is no mail address.", code="channel_refused", is_permanent=True
            ) from error
        await self._transmit(person, mail)
        return message_id

    async def _transmit(self, person: str, mail: bytes) -> None:
        client = self._client()
        try:
            await client.connect()
            await client.sendmail(self._settings.address, [person], mail)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise failure_of(error) from error
        else:
            with suppress(aiosmtplib.SMTPException, OSError):
                await client.quit(timeout=QUIT_SECONDS)
        finally:
            client.close()

    async def look(self) -> None:
        """Signs in and asks whether the sender is taken; no mail is sent. Raises errors of the library."""
        client = self._client()
        try:
            await client.connect()
            await client.mail(self._settings.address)
            with suppress(aiosmtplib.SMTPException, OSError):
                await client.quit(timeout=QUIT_SECONDS)
        finally:
            client.close()

    def _client(self) -> aiosmtplib.SMTP:
        settings = self._settings
        is_sealed = not settings.plain and settings.smtp_port == 465
        return aiosmtplib.SMTP(
            hostname=settings.smtp_host or settings.imap_host,
            port=settings.smtp_port,
            username=settings.login[0],
            password=settings.login[1],
            local_hostname=settings.domain,
            timeout=CONNECT_SECONDS,
            use_tls=is_sealed,
            start_tls=not settings.plain and not is_sealed,
            tls_context=None if settings.plain else ssl.create_default_context(cafile=settings.ca_file),
        )

    async def aclose(self) -> None:
        """There is no connection between two mails."""


def failure_of(error: Exception) -> DeliveryFailed:
    """What became of a mail that was not sent. No text of the server is told: it may quote the mail."""
    match error:
        case aiosmtplib.SMTPRecipientsRefused(recipients=[refused]):
            is_gone = refused.code in _GONE
            return _answered(refused.code, "the recipient", GONE if is_gone else "channel_refused")
        case aiosmtplib.SMTPAuthenticationError():
            return DeliveryFailed("The mail server does not take the password.")
        case aiosmtplib.SMTPConnectResponseError() | aiosmtplib.SMTPHeloError():
            return DeliveryFailed(f"The mail server does not serve now: it answers {error.code}.", code=BUSY)
        case aiosmtplib.SMTPResponseException():
            return _answered(error.code, "the mail", "channel_refused")
        case aiosmtplib.SMTPNotSupported() | ValueError():
            return DeliveryFailed("The mail server cannot take this mail.", code="channel_refused", is_permanent=True)
        case _:
            said = f"The connection to the mail server failed: {type(error).__name__}."
            return DeliveryFailed(said, code="channel_unreachable")


def _answered(code: int, what: str, refused: str) -> DeliveryFailed:
    if code < 0:
        return DeliveryFailed("The mail server hung up.", code="channel_unreachable")
    if code < 500:
        return DeliveryFailed(f"The mail server does not take {what} now: it answers {code}.", code=BUSY)
    return DeliveryFailed(f"The mail server refuses {what}: it answers {code}.", code=refused, is_permanent=True)
