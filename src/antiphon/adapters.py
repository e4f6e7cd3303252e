"""The channels of this process: opened, served, and which of them are broken. Contract: channels 1."""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from msgspec import Struct

from antiphon.channels.channel import Channel
from antiphon.channels.kind import Admit, AnyKind, Greeting, Inside, JoinLink, OpenChannel, PostAddress, Receiver
from antiphon.clock import Clock
from antiphon.config.config import Config
from antiphon.domain.classification import Compartments
from antiphon.domain.errors import AntiphonError, Invalid, Unavailable
from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.engine.services import Services
from antiphon.store.deliveries import ChannelAccount

logger = logging.getLogger(__name__)

FAILED = "Channel failed: "
"""How the trouble of a channel begins whose package raised an error while it was served."""
FIRST_PAUSE_SECONDS = 1.0
SETTLED_SECONDS = 60.0
"""The longest pause before a channel that failed is served again, and how long it then has to work."""


class ReadyChannel(Struct, frozen=True):
    """A configured channel with its settings, or with the reason why its package cannot be used."""

    name: str
    kind: AnyKind | None
    settings: Any = None
    problem: str = ""
    further: frozenset[str] = frozenset()
    """Channels of other names that are served with it."""


def ready_channels(config: Config, compartments: Compartments | None = None) -> list[ReadyChannel]:
    """Raises `Invalid` for settings with which nothing may start."""
    found = [ReadyChannel(each.name, None, problem=each.problem) for each in config.unloaded_channels()]
    for kind, given in config.given_channels(compartments):
        try:
            further = frozenset(each.channel for each in kind.further(given.section))
            found.append(ReadyChannel(kind.name, kind, kind.read(given), further=further))
        except Invalid:
            raise
        except Exception as error:  # any error of another package
            found.append(ReadyChannel(kind.name, None, problem=_said(error)))
    return found


class OpenChannels:
    """The channels of this process. A package that fails makes its own channel broken, and no other."""

    def __init__(self, more: Sequence[Channel]) -> None:
        self._more = more
        self.senders = {ChannelAccount(sender.name, sender.account): sender for sender in more}
        """How texts leave, by account."""
        self._opened: dict[str, OpenChannel] = {}
        self._serving = anyio.CancelScope()
        self.broken: dict[str, str] = {}
        """Why a channel does not work, by its name."""
        self.addresses: dict[str, PostAddress] = {}
        """Where others post to channels, by the channel's name."""

    def open(self, ready: Iterable[ReadyChannel], clock: Clock) -> None:
        for each in ready:
            if each.kind is None:
                self._break(each.name, each.problem)
                continue
            try:
                opened = each.kind.open(each.settings, clock)
                senders = {ChannelAccount(sender.name, sender.account): sender for sender in opened.senders}
                if any(account.channel not in (each.name, *each.further) for account in senders):
                    raise ValueError("it sends in the name of another channel")
                if each.kind.address is not None:
                    self.addresses[each.name] = each.kind.address
            except Exception as error:  # any error of another package
                self._break(each.name, _said(error), error)
            else:
                self._opened[each.name] = opened
                self.senders |= senders

    def receivers(self, inside: Inside) -> dict[str, Receiver]:
        """What accepts requests at the addresses of channels, by the channel's name."""
        found: dict[str, Receiver] = {}
        for name, connection in self._opened.items():
            try:
                receiver = connection.receiver(inside)
            except Exception as error:  # any error of another package
                self._break(name, _said(error), error)
                continue
            if receiver is not None:
                found[name] = receiver
        return found

    async def serve(self, inside: Inside) -> None:
        """Takes in what the platforms bring, until it is stopped."""
        with self._serving:
            async with anyio.create_task_group() as tasks:
                for name, connection in self._opened.items():
                    if name not in self.broken:
                        tasks.start_soon(self._serve, name, connection, inside)

    def stop(self) -> None:
        """Takes nothing more in, and lets other processes serve the accounts. May be called before `serve`."""
        self._serving.cancel()

    async def _serve(self, name: str, connection: OpenChannel, inside: Inside) -> None:
        """Until it returns. After an error it is served again, after a pause: the outage may pass."""
        pause = FIRST_PAUSE_SECONDS
        await self._mend(name, inside)
        while True:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._settle, name, inside)
                    await connection.serve(inside)
                    tasks.cancel_scope.cancel()
                await self._mend(name, inside)
                return
            except Exception as error:  # any error of another package
                pause = FIRST_PAUSE_SECONDS if name not in self.broken else min(2 * pause, SETTLED_SECONDS)
                self._break(name, _said(error), error)
                await _note(name, FAILED + _said(error), inside)
                await anyio.sleep(pause)

    async def _settle(self, name: str, inside: Inside) -> None:
        await anyio.sleep(SETTLED_SECONDS)
        await self._mend(name, inside)

    async def _mend(self, name: str, inside: Inside) -> None:
        """The channel works: an earlier failure, of this process or the one before it, is over."""
        if self.broken.pop(name, None) is not None:
            logger.warning("Channel works again", extra={"action": "channel_works", "channel": name})
        try:
            rows = await inside.accounts.list()
        except Unavailable:
            return
        if any(row.channel == name and (row.trouble or "").startswith(FAILED) for row in rows):
            await _note(name, None, inside)

    @property
    def join_channels(self) -> list[str]:
        """The open channels that have join links, by name."""
        opened = (each for each in self._opened.items() if each[0] not in self.broken)
        return sorted(name for name, connection in opened if type(connection).invite is not OpenChannel.invite)

    async def invite(self, name: str, account: str, admit: Admit) -> JoinLink:
        """An invitation to an account of a channel, for one person. Raises `Invalid`, and `Unavailable`."""
        connection = self._opened.get(name)
        if connection is None or name in self.broken:
            raise Invalid(f"Channel is not open: {name[:80]!r}. `antiphon doctor` says why.", code="invalid_request")
        invitation = await connection.invite(account, admit)
        if invitation is None:
            said = f"Channel {name!r} has no invitations, or no account {account[:80]!r}. Tell people its address."
            raise Invalid(said, code="invalid_request")
        return invitation

    async def greetings(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        """What owners are shown at the start in a terminal, of every channel."""
        found: list[Greeting] = []
        for name, connection in self._opened.items():
            try:
                found += await connection.greet(services, command=command, may_show_code=may_show_code)
            except Exception as error:  # any error of another package
                self._break(name, _said(error), error)
        return found

    async def aclose(self) -> None:
        for name, connection in self._opened.items():
            try:
                await connection.aclose()
            except Exception as error:  # any error of another package
                self._break(name, _said(error), error)
        for channel in self._more:
            await channel.aclose()

    def _break(self, name: str, problem: str, error: Exception | None = None) -> None:
        """Logs it, unless it is what broke the channel already."""
        if self.broken.get(name) == problem:
            return
        self.broken[name] = problem
        cause = None if error is None else _cause(error)
        logger.error(
            "Channel is broken",
            exc_info=None if isinstance(cause, AntiphonError | OSError) else cause,
            extra={"action": "channel_broken", "channel": name, "problem": problem},
        )


async def _note(name: str, trouble: str | None, inside: Inside) -> None:
    """Stores it for `antiphon doctor`, which may run beside another process than this one."""
    try:
        await inside.accounts.note_trouble(name, DEFAULT_ACCOUNT, trouble)
    except Unavailable:
        logger.debug("Trouble was not stored", extra={"action": "trouble_unstored", "channel": name})


def _said(error: Exception) -> str:
    cause = _cause(error)
    return cause.message if isinstance(cause, Invalid) else f"{type(cause).__name__}: {cause}"


def _cause(error: Exception) -> Exception:
    """The first of a group's."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


@asynccontextmanager
async def open_channels(
    ready: Iterable[ReadyChannel], clock: Clock, *, more: Sequence[Channel] = ()
) -> AsyncGenerator[OpenChannels]:
    """The channels of the settings, and `more`; all are closed at the end."""
    channels = OpenChannels(more)
    channels.open(ready, clock)
    try:
        yield channels
    finally:
        with anyio.CancelScope(shield=True):
            await channels.aclose()
