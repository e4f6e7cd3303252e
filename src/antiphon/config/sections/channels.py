"""Settings of channels, and the rights of people who write there."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, SecretStr

from antiphon.channels.telegram.settings import ACCOUNT as TELEGRAM_ACCOUNT
from antiphon.channels.telegram.settings import NAME as TELEGRAM
from antiphon.channels.telegram.settings import TelegramMode
from antiphon.channels.webhook_settings import NAME as WEBHOOK
from antiphon.config.sections.addresses import WebAddress
from antiphon.config.sections.agents import DEFAULT_AGENT, AgentName
from antiphon.config.sections.classification import ClassificationSection, ClearanceSection
from antiphon.config.sections.section import Section, secret_from
from antiphon.domain.commands import CommandName
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import DmScope, direct_key, parse_agent_id
from antiphon.domain.queue_mode import QueueMode
from antiphon.policy.chats import ChannelAccess
from antiphon.policy.commands import GRANTABLE, RoleCommands
from antiphon.policy.rights import RoleTools
from antiphon.policy.trigger import OwnerTrigger
from antiphon.policy.voices import Interim, TellErrors, Voice, Voices


def _webhook_names(sections: "dict[str, WebhookSection]") -> "dict[str, WebhookSection]":
    """The sections, if each name fits into addresses and keys."""
    for name in sections:
        try:
            parse_agent_id(name)
            direct_key(DEFAULT_AGENT, channel=WEBHOOK, account=name, peer="x", scope=DmScope.PER_ACCOUNT_CHANNEL_PEER)
        except Invalid:
            raise ValueError(
                f"{name!r} cannot be a webhook's name; use 1 to 64 of a-z, 0-9, _ and -, and no word that keys use"
            ) from None
    return sections


MIN_SECRET_LENGTH = 16


class VoiceSection(Section):
    """What a channel's places hear besides replies."""

    tell_errors: TellErrors = TellErrors.ASKER
    """Who learns in one sentence why there is no reply: the person who asked, in the same place; owners, in their
    private chats (without one, the page shows it as not delivered); or nobody."""
    interim: Interim | None = None
    """Whether texts that stand beside the calls of a turn are sent before its reply. Unless set, direct chats get them,
    and groups do not."""

    def voice(self) -> Voice:
        return Voice(tell_errors=self.tell_errors, interim=self.interim)


class WebhookSection(VoiceSection):
    url: WebAddress | None = None
    """The address that replies are posted to; without it, the webhook only receives messages."""
    secret: SecretStr | None = None
    """Signs outgoing texts and verifies incoming messages; at least 16 characters. Prefer `secret_env`."""
    secret_env: str | None = None
    """The environment variable that holds the secret."""
    agent: str | None = None
    """The agent of its chats; `agents.default` unless set."""
    principal: Literal["guest", "owner"] = "guest"
    """The rights of its messages: each peer is a guest of its own, or all have the owner's rights."""
    queue_mode: QueueMode = QueueMode.COLLECT
    """How its messages are handled if their session is busy, unless the session has a mode of its own. With
    `collect`, one run answers all messages that wait."""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    """How long one request may take."""
    classification: ClassificationSection | None = None
    """The classification of its messages, and the least classification of its new sessions; public unless set. Guests'
    messages are untrusted in any case."""
    clearance: ClearanceSection | None = None
    """What may be sent to it, as far as the person there may read it too; public data unless set. Its sessions take in
    no more than that."""

    def key(self) -> str | None:
        """The secret set here or named by `secret_env`."""
        return secret_from(self.secret, self.secret_env)


class TelegramGroupSection(Section):
    agent: AgentName | None = None
    """The agent of the group; that of the bot unless set."""
    owner_trigger: OwnerTrigger | None = None
    """Which of the owner's messages the agent answers there; `groups.owner_trigger` unless set."""
    silent: bool = False
    """Whether messages are only stored, and nothing is answered."""
    members: tuple[str, ...] = ()
    """The ids of the persons in the group, who decide together with all others seen there what may be sent to it: what
    everybody may read. Public data unless set."""


class TelegramSection(VoiceSection):
    token: SecretStr | None = None
    """The bot's token from @BotFather. Prefer `token_env`, or the variable `ANTIPHON_TELEGRAM_TOKEN`."""
    token_env: str | None = None
    """The environment variable that holds the token."""
    access: ChannelAccess = ChannelAccess.PAIRING
    """Who may write to the bot: people whom an owner has admitted, anybody as a guest, or only linked people."""
    agent: AgentName | None = None
    """The agent of its chats; `agents.default` unless set."""
    mode: TelegramMode = TelegramMode.POLL
    """How messages come in: one process asks Telegram for them, or Telegram posts them to `gateway.public_url`."""
    groups: dict[str, TelegramGroupSection] = Field(default_factory=dict[str, TelegramGroupSection])
    """Groups that the bot may answer in, by the id that Telegram gives them, such as `-1001234567890`."""
    queue_mode: QueueMode = QueueMode.COLLECT
    """How messages are handled if their session is busy, unless the session has a mode of its own."""
    stream_interval_ms: Annotated[int, Field(ge=500, le=60_000)] = 1_500
    """The least time between two changes of a reply that is shown while it is written."""
    text_wait_ms: Annotated[int, Field(ge=0, le=2_000)] = 300
    """How long a text in a direct chat waits for a forward that it may comment. Albums, long texts and forwards wait
    1.5 s for their next part in any case."""
    classification: ClassificationSection | None = None
    """The classification of its messages, and the least classification of its new sessions; public unless set. Guests'
    messages are untrusted in any case."""
    clearance: ClearanceSection | None = None
    """What may be sent to it, as far as the person there may read it too; public data unless set."""
    api_base: WebAddress | None = None
    """The address of another server of the Bot API, such as one of your own; Telegram's unless set."""

    def key(self) -> str | None:
        """The token set here or named by `token_env`."""
        return secret_from(self.token, self.token_env)


class DiscordSection(Section):
    thread_bindings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Overrides `session.thread_bindings` in Discord; read, and without effect until there are threads."""


class ChannelsSection(Section):
    discord: DiscordSection = DiscordSection()
    """Discord, for settings that are read already; there is no such channel yet."""
    telegram: TelegramSection | None = None
    """A bot of Telegram, through which people talk to agents; none unless set."""
    webhook: Annotated[dict[str, WebhookSection], AfterValidator(_webhook_names)] = Field(
        default_factory=dict[str, WebhookSection]
    )
    """Programs that exchange signed POST requests with sessions, by name."""

    def voices(self) -> Voices:
        found: dict[tuple[str, str | None], Voice] = {}
        for name, webhook in self.webhook.items():
            found[WEBHOOK, name] = webhook.voice()
        if self.telegram is not None:
            found[TELEGRAM, TELEGRAM_ACCOUNT] = self.telegram.voice()
        return Voices(found)


def _without(name: str, advice: str) -> Callable[[JsonValue], JsonValue]:
    """Rejects the setting with advice, because people may expect it there."""

    def check(given: JsonValue) -> JsonValue:
        if isinstance(given, dict) and name in given:
            raise ValueError(f"{name!r} cannot be set here: {advice}")
        return given

    return check


_NO_OWNER = BeforeValidator(
    _without("owner", "owners may do everything. Make the person a user with `antiphon people role`")
)


def _granted(name: str) -> str:
    """The command's name without its slash; raises `ValueError` unless people below owner may have it."""
    name = name.removeprefix("/")
    if name not in GRANTABLE:
        raise ValueError(f"{name!r} is not a command that they may have; choose from {', '.join(sorted(GRANTABLE))}")
    return name


GrantedCommand = Annotated[str, AfterValidator(_granted)]


class GuestSection(Section):
    tools: tuple[str, ...] = ()
    """Further tools for runs that guests cause: Python functions, `<server>__<tool>` of MCP servers, `run_command`,
    `sessions_spawn`. Their session tools reach only the session that the guest writes in."""
    commands: tuple[GrantedCommand, ...] = ("help", "status", "stop", "new", "memory", "forget", "link")
    """The commands that guests may type in their chats; their other commands are ignored."""


class UserSection(Section):
    agents: tuple[AgentName, ...] = ()
    """Agents with which users may open sessions; an invitation may name more for one person."""
    tools: tuple[str, ...] | None = None
    """If set, runs that users cause have only these of their agents' tools, and the tools of every
    role ([Guests](tools/README.md#guests))."""
    approve: tuple[AgentName, ...] = ()
    """Agents whose calls users may approve and deny, once each, but never their own. They see the calls, also of
    sessions that they do not see."""
    commands: tuple[GrantedCommand, ...] = (
        *("help", "status", "stop", "new", "reset", "checkpoint", "session", "agent", "task", "who", "approve", "deny"),
        *("memory", "forget", "link"),
    )
    """The commands that users may type in their chats; their other commands are ignored. Only owners switch agents,
    change the conversation and the tasks of a group, and use `/send`."""


class RolesSection(Section):
    user: UserSection = UserSection()
    """People who were invited."""
    guest: GuestSection = GuestSection()
    """Anyone else who writes, such as the peers of a webhook."""

    def tools(self) -> RoleTools:
        named = self.user.tools
        return RoleTools(guest=frozenset(self.guest.tools), user=None if named is None else frozenset(named))

    def role_commands(self) -> RoleCommands:
        return RoleCommands(
            guest=frozenset(map(CommandName, self.guest.commands)), user=frozenset(map(CommandName, self.user.commands))
        )


class AccessSection(Section):
    messages_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 20
    """Messages that each person below owner may send; further ones are refused and stored nowhere."""
    roles: Annotated[RolesSection, _NO_OWNER] = RolesSection()
