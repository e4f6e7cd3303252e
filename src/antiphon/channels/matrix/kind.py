"""The channel `matrix`: what the package declares. The client library is imported only for an account."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.bridges import read_bridges
from antiphon.channels.kind import FurtherAccount, Given
from antiphon.channels.matrix.section import MatrixAccount, MatrixSection
from antiphon.channels.matrix.settings import NAME, REMEDIES, USER_ID, MatrixSettings
from antiphon.channels.platform import PlatformKind
from antiphon.channels.sections import named_accounts, place_of
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid

if TYPE_CHECKING:
    from antiphon.channels.matrix.account import MatrixAccounts


class MatrixKind(PlatformKind[MatrixSection, tuple[MatrixSettings, ...]]):
    name = NAME
    title = "Matrix"
    section = MatrixSection
    bot, rooms, remedies = "the account", "room", REMEDIES
    about = "Accounts of Matrix, through which people talk to agents; none unless set."
    required = ("homeserver", "user")
    abilities = frozenset(Ability) - {Ability.BUTTONS}

    def further(self, section: MatrixSection) -> Iterator[FurtherAccount]:
        """A channel for each bridge."""
        for name, account in named_accounts(section, MatrixAccount).items():
            for channel, bridge in account.bridges.items():
                place = (*place_of((), section, name), "bridges", channel)
                yield FurtherAccount(channel, NAME, bridge.title or channel, place, bridge)

    def read(self, given: Given[MatrixSection]) -> tuple[MatrixSettings, ...]:
        """Raises `Invalid` without an account, a way to sign in, and bridges of the account's homeserver."""
        return tuple(_settings(given, *each) for each in given.accounts(MatrixAccount).items())

    def open(self, settings: tuple[MatrixSettings, ...], clock: Clock) -> "MatrixAccounts":
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            from antiphon.channels.matrix.account import MatrixAccounts
        return MatrixAccounts(settings)


def _settings(given: Given[MatrixSection], name: str, account: MatrixAccount) -> MatrixSettings:
    if not USER_ID.fullmatch(account.user):
        raise Invalid(
            f"{given.at_account(name, 'user')}: {account.user!r} is no account such as @antiphon:example.org."
        )
    if account.homeserver is None:
        raise Invalid(
            f"{given.at_account(name, 'homeserver')} is not set: the address of the homeserver of {account.user}."
        )
    if not account.key() and not account.secret():
        named = account.token_env or account.password_env or "that password_env names"
        raise Invalid(f"{given.at_account(name, 'password')} is not set, nor is the variable {named}, nor token.")
    return MatrixSettings(
        account=name,
        homeserver=account.homeserver.rstrip("/"),
        user=account.user,
        token=account.key(),
        password=account.secret(),
        stream_interval_ms=account.stream_interval_ms,
        catch_up=account.catch_up,
        bridges=read_bridges(
            given, (*place_of((), given.section, name), "bridges"), account.bridges, own_id=account.user
        ),
    )


MATRIX = MatrixKind()
