"""What the settings of a channel's accounts have in common; the section of a channel builds on these."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import Field, SecretStr, model_validator

from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.joining import JoinWaits
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.domain.voice import Interim, TellErrors, Voice
from antiphon.policy.trigger import OwnerTrigger
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import AgentName
from antiphon.settings.section import Section, secret_from
from antiphon.settings.threads import ThreadBindingsSection

A = TypeVar("A", bound=Section)
Id = TypeVar("Id")

MIN_SECRET_LENGTH = 16
Emoji = Annotated[str, Field(pattern=r"^[^\s\x00-\x7f]{0,16}$")]
"""One emoji, or none."""
ACCOUNT_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
CHANNEL_NAME = r"[a-z][a-z0-9]{0,31}"


class CatchUpSection(Section):
    """What is taken in of the messages that people wrote while no gateway listened."""

    hours: Annotated[int, Field(ge=0, le=720)] = 24
    """Older messages are not answered; the owner learns how many there were."""
    messages: Annotated[int, Field(ge=0, le=10_000)] = 200
    """The most of one chat: the newest."""

    @property
    def oldest(self) -> timedelta:
        return timedelta(hours=self.hours)

    def passed_over(
        self, messages: Sequence[tuple[Id, Hashable, datetime]], now: datetime, *, is_first: bool
    ) -> set[Id]:
        """Which of the messages are not taken in: each has an id, a chat and a time, the oldest first.

        How many one chat may have is asked only of what was missed, `is_first`.
        """
        found, counts = set[Id](), Counter[Hashable]()
        for id, chat, came_at in reversed(messages):
            counts[chat] += 1
            if now - came_at > self.oldest or (is_first and counts[chat] > self.messages):
                found.add(id)
        return found


class AccountSection(Section):
    """One account of a channel, and what its places hear besides replies."""

    tell_errors: TellErrors = TellErrors.ASKER
    """Who learns in one sentence why there is no reply: the person who asked, in the same place; owners, in their
    private chats (without one, the page shows it as not delivered); or nobody."""
    interim: Interim | None = None
    """Whether texts that stand beside the calls of a turn are sent before its reply. Unless set, direct chats get them,
    and groups do not."""
    agent: AgentName | None = None
    """The agent of its chats; `agents.default` unless set."""
    queue_mode: QueueMode = QueueMode.COLLECT
    """How its messages are handled if their session is busy, unless the session has a mode of its own."""
    quick_turns: Annotated[int, Field(ge=0, le=1_000)] = 6
    """How many answers may follow each other faster than people write, where programs look like people; then
    nothing is answered until somebody takes their time. 0 for any number."""
    acknowledgement: Emoji = ""
    """The emoji with which the bot reacts to a message while it answers it, where bots can react. A message that is not
    answered gets none. Empty for none."""
    classification: ClassificationSection | None = None
    """The classification of its messages, and the least classification of its new sessions; public unless set. Guests'
    messages are untrusted in any case."""
    clearance: ClearanceSection | None = None
    """What may be sent to it, as far as the person there may read it too; public data unless set."""

    @property
    def is_owners(self) -> bool:
        """Whether everybody who writes there is the owner."""
        return False

    @property
    def sends(self) -> bool:
        """Whether texts can be sent to it."""
        return True

    @property
    def own_id(self) -> str | None:
        """The platform's id of the account itself, whose messages are never a person's."""
        return None

    def voice(self) -> Voice:
        return Voice(tell_errors=self.tell_errors, interim=self.interim)


class GroupSection(Section):
    agent: AgentName | None = None
    """The agent of the group; that of the bot unless set."""
    owner_trigger: OwnerTrigger | None = None
    """Which of the owner's messages the agent answers there; `groups.owner_trigger` unless set."""
    silent: bool = False
    """Whether messages are only stored, and nothing is answered."""
    members: tuple[str, ...] = ()
    """The ids of the persons in the group, who decide together with all others seen there what may be sent to it: what
    everybody may read. Public data unless set."""


class PeopleSection(AccountSection):
    """An account to which people write."""

    access: ChannelAccess = ChannelAccess.PAIRING
    """Who may write to it: people whom an owner has admitted, anybody as a guest, or only linked people."""
    groups: dict[str, GroupSection] = Field(default_factory=dict[str, GroupSection])
    """Groups in which it may answer, by the id that the platform gives them."""
    catch_up: CatchUpSection = CatchUpSection()
    """What is taken in of the messages of an outage."""
    thread_bindings: ThreadBindingsSection | None = None
    """How long threads of sub-agents are bound to them; `session.thread_bindings` unless set."""

    @property
    def join_waits(self) -> JoinWaits | None:
        """How long its messages wait for those that belong to them; None if each stands alone."""
        return None


class NotifyingSection(Section):
    """An account through which one person is only told how much waits for them; no other texts leave by it."""

    person: Annotated[str, Field(min_length=1, max_length=100)] = OWNER.name
    """Who gets its notifications, by the id that `antiphon people list` shows."""
    clearance: ClearanceSection | None = None
    """What notifications may hold besides the number and the address of the page: the requests themselves, as far as
    the person may read them too. Nothing unless set."""


class SeveralAccounts(Section):
    """The section of a channel of which there may be several accounts: its settings are one account's, or those that
    all accounts have unless they say otherwise.

    A package declares `class IrcAccount(PeopleSection)`, and beside it `class IrcSection(SeveralAccounts, IrcAccount)`
    with `accounts: dict[AccountName, IrcAccount]`.
    """

    accounts: Any
    """Several accounts by names of your choice, each with these settings; those above hold for all unless it sets
    them."""
    for_all: ClassVar[frozenset[str]] = frozenset()
    """Settings that are the channel's, and not an account's."""

    @model_validator(mode="before")
    @classmethod
    def _hand_down(cls, given: Any) -> Any:
        """Gives each account the settings of the channel that it does not set."""
        if not isinstance(given, Mapping) or not isinstance(given.get("accounts"), Mapping):  # pyright: ignore[reportUnknownMemberType]
            return given  # pyright: ignore[reportUnknownVariableType]
        section = cast("Mapping[str, Any]", given)
        shared = {name: value for name, value in section.items() if name not in ("accounts", *cls.for_all)}
        accounts = {
            name: {**shared, **cast("Mapping[str, Any]", each)} if isinstance(each, Mapping) else each
            for name, each in cast("Mapping[str, Any]", section["accounts"]).items()
        }
        return {**section, "accounts": accounts}


def place_of(place: tuple[str, ...], section: object, account: str) -> tuple[str, ...]:
    """Where the settings of an account stand, of a channel whose section stands at `place`."""
    if isinstance(section, dict):
        return *place, account
    return (*place, "accounts", account) if getattr(section, "accounts", None) else place


AccountName = Annotated[str, Field(pattern=f"^{ACCOUNT_NAME}$")]
ChannelName = Annotated[str, Field(pattern=f"^{CHANNEL_NAME}$")]


def accounts_of(section: object) -> Mapping[str, AccountSection]:
    """The accounts that the section of a channel has for texts, by name."""
    return named_accounts(section, AccountSection)


def notifying_accounts_of(section: object) -> Mapping[str, NotifyingSection]:
    """The accounts that the section of a channel has for notifications, by name."""
    return named_accounts(section, NotifyingSection)


def named_accounts(section: object, type: type[A]) -> Mapping[str, A]:
    """The accounts of that type which the section of a channel has, by name."""
    accounts = cast("object", section if isinstance(section, dict) else getattr(section, "accounts", None))
    if not accounts and isinstance(section, type):
        return {DEFAULT_ACCOUNT: section}
    named = cast("Mapping[str, object]", accounts or {})
    return {name: each for name, each in named.items() if isinstance(each, type)}


class SignedSection(Section):
    """A program that signs its messages."""

    secret: SecretStr | None = Field(default=None, exclude=True)
    """Verifies messages; at least 16 characters. Prefer `secret_env`."""
    secret_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the secret."""

    def key(self) -> str | None:
        """The secret set here or named by `secret_env`."""
        return secret_from(self.secret, self.secret_env)

    def secret_problem(self, noun: str, place: str) -> str | None:
        """What is wrong with the secret; None for one that protects."""
        secret = self.key() or ""
        if len(secret) >= MIN_SECRET_LENGTH:
            return None
        named = f"variable {self.secret_env}" if self.secret_env and self.secret is None else "secret"
        what = f"one of {MIN_SECRET_LENGTH} characters or more" if secret else "one"
        return f"{noun} has no usable secret: {place} needs {what} ({named}). Make one with `openssl rand -hex 32`."
