"""What the settings of a channel's accounts have in common; the section of a channel builds on these."""

from pydantic import Field, SecretStr

from antiphon.domain.joining import JoinWaits
from antiphon.domain.queue_mode import QueueMode
from antiphon.policy.chats import ChannelAccess
from antiphon.policy.trigger import OwnerTrigger
from antiphon.policy.voices import Interim, TellErrors, Voice
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import AgentName
from antiphon.settings.section import Section, secret_from

MIN_SECRET_LENGTH = 16


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

    @property
    def join_waits(self) -> JoinWaits | None:
        """How long its messages wait for those that belong to them; None if each stands alone."""
        return None


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
