"""A mail server to which people and the gateway send, and which lays the mails into Dovecot's mailboxes.

As a receiving server does, it notes on each mail what it knows of its sender. It is rude on demand.
"""
# pyright: basic

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from email import message_from_bytes
from typing import Any, Final

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, Session

from antiphon.testing.channels import Mishap
from antiphon.testing.ports import free_port
from tests.channels.email.dovecot import PASSWORD, Dovecot

AUTHSERV: Final = "mx.test"
"""The name under which the server notes what it knows."""


class PostOffice:
    """Handles what `aiosmtpd` receives."""

    def __init__(self, dovecot: Dovecot) -> None:
        self.dovecot = dovecot
        self.port = 0
        self.mishaps: dict[str, Mishap] = {}
        """What happens to the next mail, by who sends it."""
        self.answers: dict[str, str] = {}
        """What the server says to the next mail instead of taking it, by who sends it."""
        self.gone: set[tuple[str, str]] = set()
        """Senders and recipients who take no mails of theirs any more."""
        self.refused: set[str] = set()
        """Senders whose mails are not taken."""
        self.signed_in: list[str] = []
        self.sealed: dict[str, bool] = {}
        """Whether the password came over TLS, by who signed in."""

    async def handle_MAIL(  # noqa: N802
        self, server: Any, session: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        if address in self.refused:
            return "550 5.7.1 Not your address"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        if (envelope.mail_from, address) in self.gone:
            return "550 5.1.1 No such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:  # noqa: N802
        sender = envelope.mail_from or ""
        mishap = self.mishaps.pop(sender, None)
        if mishap is Mishap.HANGING:
            await asyncio.sleep(3600)
        if mishap is Mishap.LOST:
            server.transport.abort()
            return "451 Lost"
        if answer := self.answers.pop(sender, None):
            return answer
        assert isinstance(envelope.content, bytes)
        for address in envelope.rcpt_tos:
            self.dovecot.lay_in(address, self.received(envelope.content, sender))
        if mishap is Mishap.UNANSWERED:
            server.transport.abort()
        return "250 Taken"

    def received(self, mail: bytes, envelope_from: str) -> bytes:
        """The mail with what the server notes on it: here only who sends under their own domain is proven."""
        claimed = message_from_bytes(mail)["From"] or ""
        domain = claimed.rpartition("@")[2].strip("> ")
        result = "pass" if domain == envelope_from.rpartition("@")[2] else "fail"
        noted = (
            f"Return-Path: <{envelope_from}>\r\n"
            f"Authentication-Results: {AUTHSERV};\r\n dmarc={result} header.from={domain}\r\n"
            "Received: from somewhere by mx.test; Mon, 30 Nov 2026 12:00:00 +0000\r\n"
        )
        return noted.encode() + mail

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        self.signed_in.append(data.login.decode())
        self.sealed[data.login.decode()] = session.ssl is not None
        is_right = data.password.decode() == PASSWORD
        return AuthResult(success=is_right, handled=is_right)  # else the server itself says no


@contextmanager
def post_office(dovecot: Dovecot, **more: Any) -> Generator[PostOffice]:
    office = PostOffice(dovecot)
    office.port = free_port()
    controller = Controller(
        office,
        hostname="127.0.0.1",
        port=office.port,
        authenticator=office.authenticate,
        auth_require_tls=False,
        data_size_limit=100 * 1024 * 1024,
        **more,
    )
    controller.start()
    try:
        yield office
    finally:
        controller.stop()
