"""Mailboxes as the suite for channels sees a platform. Each has addresses of its own, so that one server is enough."""

from collections.abc import Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import count
from typing import Any, Final

import aiosmtplib

from antiphon.channels.email.kind import EMAIL
from antiphon.testing.channels import Json, Mishap
from tests.channels.email.dovecot import PASSWORD
from tests.channels.email.post_office import AUTHSERV, PostOffice

NUMBERS: Final = count(1)


class MailPlatform:
    """Implements `Platform`. A thread is one that a mail of the person has begun."""

    kind = EMAIL

    def __init__(self, office: PostOffice) -> None:
        self.office = office
        self._number = next(NUMBERS)
        self._ids = count(1)
        self.account = f"bot{self._number}@agents.test"
        office.dovecot.folder(self.account)

    def section(self, gateway_url: str, **more: Any) -> Json:
        return {
            "address": self.account,
            "password": PASSWORD,
            "authserv_id": AUTHSERV,
            "imap_host": "127.0.0.1",
            "imap_port": self.office.dovecot.port,
            "smtp_host": "127.0.0.1",
            "smtp_port": self.office.port,
            "plain": True,
            "access": "public",
            "queue_mode": "enqueue",
            "quick_turns": 0,
            **more,
        }

    def id_of(self, person: str) -> str:
        return f"{person}{self._number}@people.test"

    def root_of(self, person: str, thread: str | None) -> str:
        return f"<begin-{person}-{thread or 'usual'}-{self._number}@people.test>"

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        await self.post(self.mail(person, text, thread), self.id_of(person))

    def mail(self, person: str, text: str, thread: str | None = None, **headers: str) -> EmailMessage:
        """A mail of the person to the bot; headers are named with `_` for `-`, and left out if they are empty."""
        mail = EmailMessage(policy=policy.SMTP)
        named = {
            "From": self.id_of(person),
            "To": self.account,
            "Message-ID": f"<{next(self._ids)}-{person}-{self._number}@people.test>",
            "References": self.root_of(person, thread),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        for name, value in named.items():
            if value:
                mail[name] = value
        mail.set_content(text, cte="8bit")
        return mail

    async def post(self, mail: EmailMessage | bytes, envelope_from: str) -> None:
        data = mail if isinstance(mail, bytes) else mail.as_bytes(policy=policy.SMTP.clone(max_line_length=998))
        host, port = "127.0.0.1", self.office.port
        client = aiosmtplib.SMTP(hostname=host, port=port, local_hostname="people.test", start_tls=False)
        async with client:
            await client.sendmail(envelope_from, [self.account], data)

    def got(self, person: str) -> list[EmailMessage]:
        """The mails of the bot, as they lie in the person's mailbox."""
        found = [
            message_from_bytes(each, policy=policy.default) for each in self.office.dovecot.mails(self.id_of(person))
        ]
        return [each for each in found if self.account in each["From"]]

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        root = self.root_of(person, thread)
        return [
            each.get_content().replace("\r\n", "\n").strip()
            for each in self.got(person)
            if not each.is_multipart() and root in (each["References"] or root)
        ]

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        files = [file for each in self.got(person) for file in each.iter_attachments()]
        return [(file.get_filename() or "", file.get_content()) for file in files]

    async def glimpsed(self, person: str) -> Sequence[str]:
        return []

    async def remove_bot(self, person: str) -> None:
        self.office.gone.add((self.account, self.id_of(person)))

    async def befall(self, mishap: Mishap) -> None:
        self.office.mishaps[self.account] = mishap

    async def reactions(self, person: str) -> Sequence[str]:
        return []

    async def press(self, person: str, label: str) -> bool:
        return False
