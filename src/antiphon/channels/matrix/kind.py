"""The channel `matrix`: what the package declares. The client library is imported only for an account."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio

from antiphon.channels.abilities import Ability
from antiphon.channels.bridges import read_bridges
from antiphon.channels.kind import ChannelKind, FurtherAccount, Given
from antiphon.channels.matrix.section import MatrixAccount, MatrixSection
from antiphon.channels.matrix.settings import LOOK_THERE, NAME, REMEDIES, USER_ID, MatrixSettings
from antiphon.channels.sections import accounts_of, place_of
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid

if TYPE_CHECKING:
    from antiphon.channels.matrix.account import MatrixAccounts


class MatrixKind(ChannelKind[MatrixSection, tuple[MatrixSettings, ...]]):
    name = NAME
    title = "Matrix"
    section = MatrixSection
    about = "Accounts of Matrix, through which people talk to agents; none unless set."
    abilities = frozenset(Ability) - {Ability.BUTTONS}

    def further(self, section: MatrixSection) -> Iterator[FurtherAccount]:
        """A channel for each bridge."""
        for name, account in accounts_of(section).items():
            assert isinstance(account, MatrixAccount)
            for channel, bridge in account.bridges.items():
                place = (*place_of((), section, name), "bridges", channel)
                yield FurtherAccount(channel, NAME, bridge.title or channel, place, bridge)

    def read(self, given: Given[MatrixSection]) -> tuple[MatrixSettings, ...]:
        """Raises `Invalid` without an account, a way to sign in, and bridges of the account's homeserver."""
        return tuple(_account(given, name) for name in accounts_of(given.section))

    def open(self, settings: tuple[MatrixSettings, ...], clock: Clock) -> "MatrixAccounts":
        """Raises `Invalid` if the client library is not installed."""
        try:
            from antiphon.channels.matrix.account import MatrixAccounts
        except ModuleNotFoundError as error:
            raise Invalid(
                f"Matrix needs a package that is not installed ({error.name}). Install antiphon[matrix].",
                code="package_missing",
            ) from error
        return MatrixAccounts(settings)

    def check(self, given: Given[MatrixSection] | None, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """Asks the homeserver about the accounts. What a running gateway found is in `chats`."""
        if given is None:
            return
        try:
            settings = self.read(given)
            found = anyio.run(_look, self.open(settings, SystemClock()))
        except Invalid as error:
            yield CheckResult(NAME, Grade.BROKEN, error.message, "Until this is mended, nothing of Matrix is served.")
            return
        trouble = chats.trouble(NAME) if is_running else None
        if trouble is not None and all(each.grade is Grade.OK for each in found):
            found = [CheckResult(NAME, Grade.BROKEN, trouble, REMEDIES.get(trouble, LOOK_THERE))]
        yield from found
        yield from _of_people(given.section, chats)


def _account(given: Given[MatrixSection], name: str) -> MatrixSettings:
    account = accounts_of(given.section)[name]
    assert isinstance(account, MatrixAccount)
    inner = place_of((), given.section, name)
    if not USER_ID.fullmatch(account.user):
        raise Invalid(f"{given.at(*inner, 'user')}: {account.user!r} is no account such as @antiphon:example.org.")
    if account.homeserver is None:
        raise Invalid(f"{given.at(*inner, 'homeserver')} is not set: the address of the homeserver of {account.user}.")
    if not account.key() and not account.secret():
        named = account.token_env or account.password_env or "that password_env names"
        raise Invalid(f"{given.at(*inner, 'password')} is not set, nor is the variable {named}, nor token.")
    return MatrixSettings(
        account=name,
        homeserver=account.homeserver.rstrip("/"),
        user=account.user,
        token=account.key(),
        password=account.secret(),
        stream_interval_ms=account.stream_interval_ms,
        catch_up=account.catch_up,
        bridges=read_bridges(given, (*inner, "bridges"), account.bridges, own_id=account.user),
    )


def _of_people(section: MatrixSection, chats: ChatState) -> Iterator[CheckResult]:
    for name in (NAME, *(each.channel for each in MATRIX.further(section))):
        if waiting := chats.asked.get(name):
            said = f"{waiting} room(s) not allowed yet, in which nobody is answered"
            remedy = "`antiphon groups list` shows them; `antiphon groups allow` and `refuse` decide."
            yield CheckResult(f"{name} groups", Grade.WARNING, said, remedy)
    if not chats.owners.get(NAME):
        said = "no account of Matrix is an owner's yet, so nobody can be admitted from there"
        remedy = "Run `antiphon pair link`, and write `/link CODE yes` to the account."
        yield CheckResult("matrix owner", Grade.WARNING, said, remedy)


async def _look(accounts: "MatrixAccounts") -> list[CheckResult]:
    try:
        return await accounts.look()
    finally:
        await accounts.aclose()


MATRIX = MatrixKind()
