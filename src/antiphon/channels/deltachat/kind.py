"""The channel `deltachat`: what the package declares. The core runs only for an account."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.deltachat.section import NAME, DeltaChatAccount, DeltaChatSection
from antiphon.channels.kind import ChannelKind, Given
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid

if TYPE_CHECKING:
    from antiphon.channels.deltachat.account import DeltaChatAccounts

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

Accounts = Mapping[str, DeltaChatAccount]
"""By name."""


class DeltaChatKind(ChannelKind[DeltaChatSection, Accounts]):
    name = NAME
    title = "Delta Chat"
    section = DeltaChatSection
    about = "An account of Delta Chat, through which people talk to agents; none unless set."
    required = ("address",)
    abilities = frozenset(
        {Ability.IDS, Ability.KEEPS, Ability.REPLAY, Ability.ACKS, Ability.EDITS, Ability.REACTS, Ability.FILES}
    )

    def read(self, given: Given[DeltaChatSection]) -> Accounts:
        """Raises `Invalid` for an account that cannot be opened."""
        found = given.accounts(DeltaChatAccount)
        for name, section in found.items():
            for setting, problem in _problems(section).items():
                raise Invalid(f"{given.at_account(name, setting)} {problem}", code="invalid_config")
        return found

    def open(self, settings: Accounts, clock: Clock) -> "DeltaChatAccounts":
        """Raises `Invalid` if a package is not installed."""
        with self.needing_library():
            from antiphon.channels.deltachat.account import DeltaChatAccounts
        return DeltaChatAccounts(settings, clock)

    def summary(self, settings: Accounts) -> str:
        return ", ".join(each.address for each in settings.values())


def _problems(section: DeltaChatAccount) -> Mapping[str, str]:
    """What is wrong with settings, by their name."""
    secret = f"the variable {section.password_env}" if section.password_env else "it, or a variable by password_env"
    name, _, domain = section.address.partition("@")
    is_near = {section.imap_host, section.smtp_host} <= _LOOPBACK
    found = {
        "address": "" if name and domain else "is no address such as agents@example.org.",
        "password": "" if section.key() else f"is not set. Set {secret}.",
        "plain": "is only for servers on this machine, such as 127.0.0.1." if section.plain and not is_near else "",
    }
    return {name: problem for name, problem in found.items() if problem}


DELTACHAT = DeltaChatKind()
