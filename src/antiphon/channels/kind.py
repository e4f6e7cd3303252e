"""What a package declares of its channel. Nothing outside the package knows the channel by name. Contract: channels 1.

docs/EXTENDING.md shows how a package offers a channel.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from pydantic import Field

from antiphon.annotations import types_in
from antiphon.channels.abilities import Ability
from antiphon.channels.channel import Channel
from antiphon.channels.sections import AccountSection, named_accounts, place_of
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_form import PLAIN_CHATS, ChatForm
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Invalid, Unproven
from antiphon.domain.ids import AgentId
from antiphon.private_files import make_private_directory
from antiphon.settings.classification import ClassificationSection
from antiphon.settings.origins import Origins
from antiphon.settings.section import Section

if TYPE_CHECKING:  # commands that only read settings do without the engine
    from antiphon.domain.inbound import Sender
    from antiphon.domain.session import DeliveryContext
    from antiphon.engine.chats.accounts import Accounts
    from antiphon.engine.chats.reception import Reception
    from antiphon.engine.deliveries.replies import Replies
    from antiphon.engine.services import Services

STATE_NAME = "channels"
"""The directory of a home in which client libraries keep what must outlive the process."""

A = TypeVar("A", bound=Section)
S = TypeVar("S")
T = TypeVar("T")


class Given(Struct, Generic[S], frozen=True, kw_only=True):
    """The section of one channel, with what a package may need of the settings around it."""

    section: S
    place: tuple[str, ...]
    """Where the section stands."""
    origins: Origins
    public_url: str | None
    """The address under which others reach the gateway, if that is configured."""
    default_agent: AgentId
    classify: Callable[[ClassificationSection | None, tuple[str, ...]], Classification]
    """The classification of a section, and where that stands."""

    def at(self, *names: str) -> str:
        """A setting of the section with its origin, to begin an error with."""
        return self.origins.at(*self.place, *names)

    def at_account(self, account: str, *names: str) -> str:
        """A setting of one of the accounts, likewise."""
        return self.at(*place_of((), self.section, account), *names)

    def check_public(self, setting: str, mode: str, other: str, *, by: str) -> None:
        """Raises `Invalid` for a mode in which a platform posts to the gateway, if the gateway has no public address.

        `setting` begins with where the mode is set; `other` is one that does without.
        """
        if not (self.public_url or "").startswith("https://"):
            raise Invalid(
                f"{setting}: {str(mode)!r} needs an address that {by} can reach. "
                f"Set gateway.public_url to one that begins with https://, or the mode to {other}.",
                code="invalid_config",
            )

    def address_of(self, address: "PostAddress", account: str) -> str:
        """Where others post to the account, as they reach the gateway."""
        path = f"{address.path.partition('{')[0]}{account}"
        return f"{(self.public_url or '').rstrip('/')}{path}"

    def accounts(self, type: type[A]) -> Mapping[str, A]:
        """The accounts, by name."""
        return named_accounts(self.section, type)

    def classification(self, section: ClassificationSection | None, *names: str) -> Classification:
        """That of a setting of the section. Raises `Invalid` for an unknown compartment."""
        return self.classify(section, (*self.place, *names))


class PostAddress(Struct, frozen=True, kw_only=True):
    """Where a platform or program posts to the gateway. The posted request itself proves its sender."""

    operation: str
    """`<plural>.<verb>`, as in the description of the interface."""
    path: str
    """With one segment in braces, which names the account."""
    headers: tuple[str, ...]
    """Those that prove the sender; none of them may come twice."""
    about: str
    answer: type[Struct]
    status: int = 200
    refusal: str
    """The answer to all that proves nothing, and while the channel is not configured."""

    def unproven(self) -> Unproven:
        return Unproven(self.refusal, code="bad_signature")


class Receiver(Protocol):
    """Accepts what is posted to the address of a channel. `headers` have lower-case names."""

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        """Raises `Unproven` for headers that cannot prove anything, so that the body need not be read."""
        ...

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> Struct | None:
        """The answer, once what was posted is stored; None for an empty one. `body` is as it was sent, byte for byte.

        Raises `Unproven`, `Limited`, `NotJson`, `Misfit`, the errors of posting a message, and `Unavailable`.
        """
        ...


class Inside(Struct, frozen=True, kw_only=True):
    """What a channel is served with: where it hands over what comes in."""

    reception: "Reception"
    """Takes in the messages of people."""
    accounts: "Accounts"
    """Leases: one process serves an account at a time."""
    services: "Services"
    replies: "Replies"
    home: Path

    def state_folder(self, channel: str, account: str) -> Path:
        """Where a client library keeps what must outlive the process, such as keys; made if it does not exist.

        Only the owner of the home can read it, and backups hold it. It ties the account to this home.
        """
        folder = self.home / STATE_NAME
        for each in (folder, folder / channel, folder / channel / account):
            make_private_directory(each)
        return folder / channel / account


Admit = Callable[["Sender", "DeliveryContext"], Awaitable[None]]
"""Admits somebody who has followed an invitation, with their direct chat."""


class JoinLink(Struct, frozen=True, kw_only=True):
    """What somebody scans or opens to get to know an account."""

    link: str
    expires_at_ms: int
    """When it is withdrawn, unless somebody has followed it before."""


class Greeting(Struct, frozen=True):
    """What an owner is shown at the start in a terminal, to reach their agents on this channel."""

    text: str
    link: str | None = None
    is_warning: bool = False


class FurtherAccount(NamedTuple):
    """An account of a channel that another channel serves, such as one that a bridge brings."""

    channel: str
    account: str
    title: str
    """What people call the channel."""
    place: tuple[str, ...]
    """Where its settings stand, within the section of the channel that serves it."""
    section: AccountSection


class OpenChannel:
    """A channel that this process has opened. A package overrides what its channel has."""

    senders: Sequence[Channel] = ()
    """How texts leave, for each account that sends, also of the channels that its kind serves further."""

    async def serve(self, inside: Inside) -> None:
        """Takes in what the platform brings, until it is cancelled. Raising an error makes the channel `broken`."""

    def receiver(self, inside: Inside) -> Receiver | None:
        """Accepts what is posted to the address; None if nothing is to be posted with these settings."""
        return None

    async def invite(self, account: str, admit: Admit) -> JoinLink | None:
        """Lets one person in who follows the invitation, and then withdraws it; None if the channel has none.

        `admit` is called with whoever has followed it. Another invitation withdraws the one before. Raises
        `Unavailable` while the platform is away.
        """
        return None

    async def greet(self, services: "Services", *, command: str, may_show_code: bool) -> list[Greeting]:
        """What to do first on this channel. `command` makes a code; one is shown only where others cannot read it."""
        return []

    async def check_servers(self) -> list[CheckResult]:
        """What the servers say of the accounts; nothing is changed there. Empty if they are not asked."""
        return []

    async def aclose(self) -> None:
        """Closes connections; nothing is sent or taken in afterwards."""
        for channel in self.senders:
            await channel.aclose()


class ChannelKind(ABC, Generic[S, T]):
    """A kind of channel: `S` is its section in the settings, `T` what the package makes of it."""

    name: str
    """Its word in settings, keys and places: lower-case letters and digits."""
    title: str
    """What people call it, as in "You are in a group chat on IRC"."""
    about: str
    """What its section is for."""
    label: str = ""
    """What `antiphon doctor` calls it; its name unless set."""
    section: Any
    """The type of its section: an `AccountSection`, or a table of them by account."""
    sender: str = "account that sends"
    """What an account to which texts can be sent is, where the section is a table."""
    required: tuple[str, ...] = ()
    """Settings besides secrets without which no account works; `antiphon channels add` asks for them."""
    extra: str = ""
    """What brings the client library, as installers name it; `antiphon[<name>]` unless set."""
    chats: ChatForm = PLAIN_CHATS
    """What its chats are called in keys and metadata."""
    abilities: frozenset[Ability] = frozenset()
    """What its platform can do; `antiphon.testing.channels` proves it."""

    reactions: Collection[str] | None = None
    """The emojis with which its bots can react, where the platform has a list of them; None for any."""

    def needless(self, given: Mapping[str, object]) -> frozenset[str]:
        """Secrets that `antiphon channels add` does not ask for, with these settings."""
        return frozenset()

    @property
    def address(self) -> PostAddress | None:
        """Where others post to it. Import what the answer is made of here: not every command needs it."""
        return None

    @property
    def place(self) -> tuple[str, ...]:
        """Where its section stands in the settings."""
        return "channels", self.name

    def field(self) -> tuple[Any, Any]:
        """Its section as a field of the settings: absent, or an empty table, unless set."""
        if types_in(self.section) == {self.section}:
            return self.section | None, Field(default=None, description=self.about)
        return self.section, Field(default_factory=dict[str, Any], description=self.about)

    def further(self, section: S) -> Iterable[FurtherAccount]:
        """Accounts of channels of other names that are served with this one: their texts leave by its `senders`."""
        return ()

    @abstractmethod
    def read(self, given: Given[S]) -> T:
        """What the channel is opened with. Raises `Invalid` for settings that cannot work: then nothing starts."""

    def missing(self, given: Given[S]) -> Iterator[str]:
        """What a start lacks, such as a secret that is not set, each with the place of the setting."""
        try:
            self.read(given)
        except Invalid as error:
            yield error.message.rstrip(".")

    @abstractmethod
    def open(self, settings: T, clock: Clock) -> OpenChannel:
        """The channel, connected to nothing yet. Raising any error makes the channel `broken`; the others run."""

    @contextmanager
    def needing_library(self) -> Generator[None]:
        """Raises `Invalid` if a package that is imported within is not installed."""
        try:
            yield
        except ModuleNotFoundError as error:
            title, extra = f"{self.title[0].upper()}{self.title[1:]}", self.extra or f"antiphon[{self.name}]"
            said = f"{title} needs a package that is not installed ({error.name}). Install {extra}."
            raise Invalid(said, code="package_missing") from error

    def check(self, given: Given[S] | None, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """What `antiphon doctor` says; `given` is None for a channel of Antiphon's own that is not configured.

        Nothing is changed. Of a running gateway, which must not be disturbed, `chats` holds what that found out.
        """
        if given is None:
            return
        name = self.label or self.name
        try:
            settings = self.read(given)
        except Invalid as error:
            yield CheckResult(
                self.label or self.name, Grade.BROKEN, error.message, "Until this is fixed, nothing starts."
            )
            return
        trouble = chats.trouble(self.name) if is_running else None
        if trouble is not None:
            yield CheckResult(name, Grade.BROKEN, trouble, "The gateway's log says more.")
        elif summary := self.summary(settings):
            import anyio

            found = anyio.run(_looked, self.open(settings, SystemClock()))
            yield from found or [CheckResult(name, Grade.OK, summary)]

    def summary(self, settings: T) -> str:
        """What `antiphon doctor` says if all is well; nothing if it is empty."""
        return "configured"


async def _looked(opened: OpenChannel) -> list[CheckResult]:
    try:
        return await opened.check_servers()
    finally:
        await opened.aclose()


AnyKind = ChannelKind[Any, Any]
