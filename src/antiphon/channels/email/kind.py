"""The channel `email`: what the package declares. The client libraries are imported only for a mailbox."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.email.section import NAME, EmailAccount, EmailSection
from antiphon.channels.kind import ChannelKind, Given
from antiphon.clock import Clock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.errors import Invalid

if TYPE_CHECKING:
    from antiphon.channels.email.account import EmailAccounts

_ADDRESS = re.compile(r"[^\s@<>(),;:\\\"\[\]]{1,64}@[A-Za-z0-9.-]{1,255}")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

Mailboxes = Mapping[str, EmailAccount]


class EmailKind(ChannelKind[EmailSection, Mailboxes]):
    name = NAME
    title = "e-mail"
    section = EmailSection
    about = "A mailbox, through which people talk to agents; none unless set."
    required = ("address", "imap_host", "authserv_id")
    chats = ChatForm(hasty_seconds=60)
    abilities = frozenset({Ability.REPLAY, Ability.ACKS, Ability.FIRSTS, Ability.THREADS, Ability.FILES})

    def read(self, given: Given[EmailSection]) -> Mailboxes:
        """Raises `Invalid` for a mailbox that cannot be opened."""
        found = given.accounts(EmailAccount)
        for name, section in found.items():
            for setting, problem in _problems(section).items():
                raise Invalid(f"{given.at_account(name, setting)} {problem}", code="invalid_config")
        return found

    def open(self, settings: Mailboxes, clock: Clock) -> "EmailAccounts":
        """Raises `Invalid` if a client library is not installed."""
        with self.needing_library():
            from antiphon.channels.email.account import EmailAccounts
        return EmailAccounts(settings, clock)

    def summary(self, settings: Mailboxes) -> str:
        return ", ".join(each.address for each in settings.values())


def _problems(section: EmailAccount) -> Mapping[str, str]:
    """What is wrong with settings, by their name."""
    secret = f"the variable {section.password_env}" if section.password_env else "it, or a variable by password_env"
    found = {
        "address": "" if _ADDRESS.fullmatch(section.address) else "is no address such as agents@example.org.",
        "imap_host": "" if section.imap_host else "is not set. Name the server that keeps the mailbox.",
        "authserv_id": ""
        if section.authserv_id
        else "is not set. It is the first word of Authentication-Results in a mail that you receive there.",
        "password": "" if section.login[1] else f"is not set. Set {secret}.",
        "plain": "is only for servers on this machine, such as 127.0.0.1."
        if section.plain and not {section.imap_host, section.smtp_host or section.imap_host} <= _LOOPBACK
        else "",
    }
    return {name: problem for name, problem in found.items() if problem}


EMAIL = EmailKind()
