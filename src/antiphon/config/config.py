"""The whole configuration, frozen, and what the rest of the program is given of it. Contract: config 1."""

import hashlib
import re
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self

from msgspec.structs import replace
from pydantic import Field, PrivateAttr

from antiphon.channels.hook_settings import HookSettings, HookSignature
from antiphon.channels.telegram.settings import ACCOUNT as TELEGRAM_ACCOUNT
from antiphon.channels.telegram.settings import NAME as TELEGRAM
from antiphon.channels.telegram.settings import TelegramMode, TelegramSettings
from antiphon.channels.webhook_settings import NAME as WEBHOOK
from antiphon.channels.webhook_settings import WebhookSettings
from antiphon.config.origins import Origins
from antiphon.config.sections.agents import (
    DEFAULT_AGENT,
    AgentSandboxSection,
    AgentSection,
    AgentsSection,
    McpServerSection,
    ProviderSection,
    SandboxSection,
)
from antiphon.config.sections.channels import MIN_SECRET_LENGTH, AccessSection, ChannelsSection, WebhookSection
from antiphon.config.sections.classification import ClassificationSection, ClearanceSection
from antiphon.config.sections.gateway import DatabaseSection, GatewaySection, LogSection, ProcessRole
from antiphon.config.sections.hooks import HookPlaceSection, HookSection, HookSections
from antiphon.config.sections.limits import LimitsSection, RunsSection
from antiphon.config.sections.section import Section
from antiphon.config.sections.sessions import CheckpointsSection, GroupsSection, MessagesSection, SessionSection
from antiphon.config.sections.tasks import TasksSection
from antiphon.config.sections.tools import ToolsSection
from antiphon.config.sections.zones import machine_zone
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import Agent, DailyLimits, RunLimits
from antiphon.domain.classification import NO_COMPARTMENTS, PUBLIC, Classification, Compartments
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.joining import JoinWaits
from antiphon.domain.person import PersonId
from antiphon.domain.sandbox import MEBIBYTE, SandboxLimits
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.engine.rules import ResetRules, Rules
from antiphon.policy.chats import ChannelRules, GroupRules
from antiphon.policy.machines import identity_of_hook
from antiphon.policy.session_tools import named_session_tools
from antiphon.policy.sinks import GroupName, Sinks
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{8,100}")
"""The form of bots' tokens."""
SHARED_SECTIONS = (
    *("agents", "limits", "messages", "groups", "session", "checkpoints", "tools", "tasks", "access", "channels"),
    *("hooks", "compat"),
)
"""The settings by which processes treat sessions and runs."""


class Config(Section):
    """Everything that can be set."""

    gateway: GatewaySection = GatewaySection()
    database: DatabaseSection = DatabaseSection()
    agents: AgentsSection = AgentsSection()
    providers: dict[str, ProviderSection] = Field(default_factory=dict[str, ProviderSection])
    """How to reach models, by the name before the colon of a model's name."""
    runs: RunsSection = RunsSection()
    limits: LimitsSection = LimitsSection()
    messages: MessagesSection = MessagesSection()
    groups: GroupsSection = GroupsSection()
    session: SessionSection = SessionSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    tools: ToolsSection = ToolsSection()
    tasks: TasksSection = TasksSection()
    access: AccessSection = AccessSection()
    channels: ChannelsSection = ChannelsSection()
    hooks: HookSections = Field(default_factory=dict[str, HookSection])
    """Programs that start runs by signed requests to `/hooks/<name>`, by name."""
    log: LogSection = LogSection()
    compat: Literal["s0"] | None = None
    """`s0`: rows of sessions also give their channel as `provider`, the name that it had in S0."""
    _origins: Origins = PrivateAttr(default_factory=Origins)

    @property
    def directory(self) -> Path | None:
        """Where the configuration file lies; None where there is none."""
        return None if self._origins.file is None else self._origins.file.parent

    @property
    def origins(self) -> Origins:
        """Where the settings were given."""
        return self._origins

    def read_from(self, origins: Origins) -> Self:
        """The same, as it was read from there."""
        read = self.model_copy()
        read._origins = origins
        return read

    def fingerprint(self) -> str:
        """Equal for processes that treat sessions and runs alike."""
        text = self.model_dump_json(
            include={*SHARED_SECTIONS},
            exclude={
                "hooks": {"__all__": {"secret", "secret_env"}},
                "channels": {
                    "webhook": {"__all__": {"secret", "secret_env"}},
                    "telegram": {"token": True, "token_env": True},
                },
            },
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def agent_map(self, compartments: Compartments | None = None) -> dict[AgentId, Agent]:
        """The agents; `main` with the defaults where none is listed."""
        listed = self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
        return {
            AgentId(section.id): replace(
                self._agent(section),
                classification=self._classification(
                    section.classification, compartments, "agents", "list", str(index), "classification"
                ),
            )
            for index, section in enumerate(listed)
        }

    @property
    def names_compartments(self) -> bool:
        """Whether a setting names a compartment, so that the names must be looked up."""
        telegram = self.channels.telegram
        return any(
            section is not None and section.compartments
            for section in (
                self.tools.run_command.classification,
                self.tools.run_command.clearance,
                *(function.classification for function in self.tools.functions.values()),
                *(agent.classification for agent in self.agents.list),
                *(provider.clearance for provider in self.providers.values()),
                *(
                    each
                    for webhook in self.channels.webhook.values()
                    for each in (webhook.classification, webhook.clearance)
                ),
                *(() if telegram is None else (telegram.classification, telegram.clearance)),
                *(hook.classification for hook in self.hooks.values()),
                *(
                    each
                    for servers in (self.agents.defaults, *self.agents.list)
                    for server in servers.mcp_servers.values()
                    for each in (server.classification, server.clearance)
                ),
            )
        )

    def classification_of_commands(self, compartments: Compartments | None = None) -> Classification:
        """What the output of commands is made of."""
        section = self.tools.run_command.classification
        return self._classification(section, compartments, "tools", "run_command", "classification")

    def classification_of_function(self, name: str, compartments: Compartments | None = None) -> Classification:
        """What the results of the function are made of, besides what it declares itself."""
        section = self.tools.functions.get(name)
        if section is None:
            return PUBLIC
        return self._classification(section.classification, compartments, "tools", "functions", name, "classification")

    def classification_of_server(
        self, section: McpServerSection, name: str, compartments: Compartments | None = None
    ) -> Classification:
        return self._classification(section.classification, compartments, "mcp_servers", name, "classification")

    def clearance_of_server(
        self, section: McpServerSection, name: str, compartments: Compartments | None = None
    ) -> Classification | None:
        """What may go to the server; None for the default."""
        return self._clearance(section.clearance, compartments, "mcp_servers", name, "clearance")

    def _sinks(self, compartments: Compartments | None) -> Sinks:
        return Sinks(
            channels={
                **self._clearance_of_telegram(compartments),
                **{
                    f"{WEBHOOK}:{name}": clearance
                    for name, section in self.channels.webhook.items()
                    if (
                        clearance := self._clearance(
                            section.clearance, compartments, "channels", WEBHOOK, name, "clearance"
                        )
                    )
                },
            },
            groups=self._members_of_groups(),
            owners=frozenset(
                f"{WEBHOOK}:{name}" for name, section in self.channels.webhook.items() if section.principal == "owner"
            ),
            providers={
                name: clearance
                for name, section in self.providers.items()
                if (clearance := self._clearance(section.clearance, compartments, "providers", name, "clearance"))
            },
            commands=self._clearance(
                self.tools.run_command.clearance, compartments, "tools", "run_command", "clearance"
            ),
        )

    def _members_of_groups(self) -> dict[GroupName, tuple[PersonId, ...]]:
        section = self.channels.telegram
        return {
            GroupName(TELEGRAM, TELEGRAM_ACCOUNT, name): tuple(map(PersonId, group.members))
            for name, group in ({} if section is None else section.groups).items()
            if group.members
        }

    def _clearance_of_telegram(self, compartments: Compartments | None) -> dict[str, Classification]:
        section = self.channels.telegram
        place = ("channels", TELEGRAM, "clearance")
        clearance = self._clearance(section.clearance, compartments, *place) if section is not None else None
        return {} if clearance is None else {f"{TELEGRAM}:{TELEGRAM_ACCOUNT}": clearance}

    def _classification(
        self, section: ClassificationSection | None, compartments: Compartments | None, *place: str
    ) -> Classification:
        return self._clearance(section, compartments, *place) or PUBLIC

    def _clearance(
        self, section: ClassificationSection | ClearanceSection | None, compartments: Compartments | None, *place: str
    ) -> Classification | None:
        """The classification of a setting. Without a table of compartments, their names are not looked up."""
        if section is None:
            return None
        try:
            return (section.without_compartments if compartments is None else section).classification(
                compartments or NO_COMPARTMENTS
            )
        except Invalid as error:
            raise Invalid(
                f"{self._at(*place, 'compartments')}: {error.message} Create it first: `antiphon compartments add`.",
                code="invalid_config",
            ) from error

    def place_of_model(self, agent_id: AgentId) -> tuple[str, ...]:
        """The setting that gives the agent its model."""
        for index, section in enumerate(self.agents.list):
            if section.id == agent_id and section.model is not None:
                return self.origins.spelt("agents", "list", str(index), "model")
        return self.origins.spelt("agents", "defaults", "model")

    def mcp_servers(self) -> dict[AgentId, dict[str, McpServerSection]]:
        """The servers of each agent: its own beside those of the defaults, whose names it may take."""
        listed = self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
        common = self.agents.defaults.mcp_servers
        return {AgentId(section.id): {**common, **section.mcp_servers} for section in listed}

    def _agent(self, section: AgentSection) -> Agent:
        defaults = self.agents.defaults
        limits, daily = section.limits or self.limits.run, section.daily or self.limits.daily
        own = section.limits
        seconds = None if own is None or "time_seconds" not in own.model_fields_set else own.time_seconds or 0
        return Agent(
            id=AgentId(section.id),
            name=section.name or section.id,
            model=section.model or defaults.model,
            instructions=section.instructions if section.instructions is not None else defaults.instructions,
            thinking=section.thinking or defaults.thinking,
            context_tokens=section.context_tokens or defaults.context_tokens,
            limits=RunLimits(
                time=None if seconds is None else timedelta(seconds=seconds),
                model_calls=limits.model_calls,
                tool_calls=limits.tool_calls,
                tokens=limits.tokens,
                usd=limits.usd,
            ),
            daily=DailyLimits(tokens=daily.tokens, usd=daily.usd),
            tools=(section.tools or defaults.tools).allow,
            sandbox=section.sandbox.mode or defaults.sandbox.mode,
            command_limits=_command_limits(section.sandbox, defaults.sandbox),
            subagents=defaults.subagents.overlaid(section.subagents).rules(),
        )

    def rules(self, compartments: Compartments | None = None) -> Rules:
        """What use cases go by. Raises `Invalid` where settings contradict one another.

        `compartments` are those of the home; without them, their names in settings are not looked up.
        """
        self._check_ids()
        agents = self.agent_map(compartments)
        if self.gateway.role is not ProcessRole.ALL and self.database.url is None:
            raise Invalid(
                f"{self._at('gateway', 'role')}: {self.gateway.role.value!r} needs a shared database. "
                "Set database.url to a PostgreSQL address, or leave the role at 'all'.",
                code="invalid_config",
            )
        default = AgentId(self.agents.default) if self.agents.default else next(iter(agents))
        if default not in agents:
            raise Invalid(
                f"{self._at('agents', 'default')} names no listed agent: {default!r}. Listed: {', '.join(agents)}.",
                code="invalid_config",
            )
        for name, webhook in self.channels.webhook.items():
            self._known_agent(webhook.agent, agents, "channels", "webhook", name, "agent")
        self._check_hooks(agents, default)
        self._check_links()
        days, kept_days = self.session.stale_after_days, self.session.retention_days
        return Rules(
            agents=agents,
            default_agent=default,
            daily_total=self.daily_total(),
            run_time=timedelta(seconds=self.limits.run.time_seconds) if self.limits.run.time_seconds else None,
            is_run_time_named="time_seconds" in self.limits.run.model_fields_set,
            max_concurrent=self.runs.max_concurrent,
            queue_mode=self.messages.queue.mode,
            owner_trigger=self.groups.owner_trigger,
            resets=ResetRules(
                common=self.session.reset.rule(),
                by_type={name: section.rule() for name, section in self.session.reset_by_type.items()},
                by_channel={name: section.rule() for name, section in self.session.reset_by_channel.items()},
            ),
            stale_after=None if days is None else timedelta(days=days),
            retention=None if kept_days is None else timedelta(days=kept_days),
            visibility=self._visibility(),
            exchanges=self.session.agent_to_agent.rules(),
            send_policy=self.session.send_policy.policy(),
            shares=self.limits.shares(self.access.messages_per_minute),
            person_caps=self.limits.person_caps(),
            subagent_tools=named_session_tools(self.tools.subagents.tools.allow),
            subagents_lack=self.tools.subagents.tools.deny,
            role_tools=self.access.roles.tools(),
            role_commands=self.access.roles.role_commands(),
            user_agents=frozenset(map(AgentId, self.access.roles.user.agents)),
            user_approves=frozenset(map(AgentId, self.access.roles.user.approve)),
            approval=self.tools.approval.rules(),
            sinks=self._sinks(compartments),
            voices=self.channels.voices(),
            chats=replace(
                self.session.chat_rules(),
                channels=self._channel_rules(agents, default, compartments),
                bots=self._bots(),
            ),
            checkpoints=self.checkpoints.rules(),
            task_zone=self.tasks.zone or machine_zone(),
            names_provider=self.compat == "s0",
        )

    def _visibility(self) -> VisibilityRules:
        defaults = self.agents.defaults
        is_clamped = defaults.sandbox.session_tools_visibility == "spawned"
        return VisibilityRules(
            visibility=self.tools.sessions.visibility,
            sandbox_visibility=Visibility.TREE if is_clamped else Visibility.ALL,
            agent_to_agent=AgentToAgent(
                enabled=self.tools.agent_to_agent.enabled, allow=self.tools.agent_to_agent.allow
            ),
            narrowed={
                AgentId(section.id): (section.tools or defaults.tools).sessions.limits()
                for section in self.agents.list or (AgentSection(id=DEFAULT_AGENT),)
            },
        )

    def ineffective(self) -> list[str]:
        """Settings that do no harm and no good, because the feature that they name does not exist."""
        return [
            f"{self.origins.named(*place)} has no effect until Antiphon has threads"
            for place, bindings in (
                (("session", "thread_bindings"), self.session.thread_bindings),
                (("channels", "discord", "thread_bindings"), self.channels.discord.thread_bindings),
            )
            if bindings
        ]

    def _check_ids(self) -> None:
        """Raises `Invalid` for two agents with one id, of which only one would be there."""
        indexes: dict[str, int] = {}
        for index, section in enumerate(self.agents.list):
            if (other := indexes.setdefault(section.id, index)) != index:
                first, second = (self._at("agents", "list", str(each), "id") for each in (other, index))
                raise Invalid(
                    f"{second} is the id of two agents: {section.id!r}. The other one: {first}. Give one another id.",
                    code="invalid_config",
                )

    def _at(self, *place: str) -> str:
        """The setting with its origin, to begin an error with."""
        spelt = self.origins.spelt(*place)
        return f"{self.origins.where(spelt)}: {'.'.join(spelt)}"

    def webhooks(self, compartments: Compartments | None = None) -> list[WebhookSettings]:
        """The webhooks with their secrets. Raises `Invalid` for one without a secret that protects."""
        default = self.agents.default or next(iter(self.agent_map()))
        found: list[WebhookSettings] = []
        for name, section in self.channels.webhook.items():
            if (problem := self.webhook_problem(name)) is not None:
                raise Invalid(problem, code="invalid_config")
            found.append(
                WebhookSettings(
                    name=name,
                    secret=section.key() or "",
                    url=section.url,
                    agent_id=AgentId(section.agent or default),
                    principal=OWNER if section.principal == "owner" else None,
                    queue_mode=section.queue_mode,
                    timeout_seconds=section.timeout_seconds,
                    classification=self._classification(
                        section.classification, compartments, "channels", "webhook", name, "classification"
                    ),
                )
            )
        return found

    def webhook_problem(self, name: str) -> str | None:
        """Why the webhook cannot start: it has no secret that protects."""
        return _secret_problem("Webhook", f"channels.webhook.{name}", self.channels.webhook[name])

    def hook_problem(self, name: str) -> str | None:
        """Why the hook cannot start: it has no secret that protects."""
        return _secret_problem("Hook", f"hooks.{name}", self.hooks[name])

    def shared_secret_problem(self) -> str | None:
        """Why two hooks cannot start: they have the same secret, and the signature of one does not name its hook."""
        by_secret: dict[str, str] = {}
        for name, hook in self.hooks.items():
            if not (secret := hook.key()):
                continue
            other = by_secret.setdefault(secret, name)
            signatures = {hook.signature, self.hooks[other].signature}
            if other != name and signatures != {HookSignature.ANTIPHON}:
                return (
                    f"Hooks have the same secret: hooks.{other} and hooks.{name}. A signature of GitHub or Stripe "
                    "does not name its hook, so each needs a secret of its own."
                )
        return None

    def _check_hooks(self, agents: Collection[AgentId], default: AgentId) -> None:
        """Raises `Invalid` for a hook whose agent, session or place does not fit."""
        users: dict[str, tuple[str, AgentId]] = {}
        for name, hook in self.hooks.items():
            agent_id = self._known_agent(hook.agent, agents, "hooks", name, "agent") or default
            if (key := hook.session) is not None:
                named = self._at("hooks", name, "session_key")
                if key.agent_id not in (None, agent_id):
                    raise Invalid(
                        f"{named} names a session of another agent: {str(key)!r}, and the hook's agent is "
                        f"{agent_id!r}. Name the same agent in both.",
                        code="invalid_config",
                    )
                other, others_agent = users.setdefault(str(key), (name, agent_id))
                if others_agent != agent_id:
                    raise Invalid(
                        f"{named} is also the session of hooks.{other}, whose agent is {others_agent!r}: {str(key)!r}. "
                        "Give each hook its own session, or both the same agent.",
                        code="invalid_config",
                    )
            if hook.deliver is not None:
                self._check_hook_place(name, hook.deliver)

    def _bots(self) -> frozenset[str]:
        """The accounts of Antiphon itself: a bot's token begins with the id of its account."""
        section = self.channels.telegram
        token = None if section is None else section.key()
        return frozenset() if token is None else frozenset({f"{TELEGRAM}:{token.partition(':')[0]}"})

    def _check_links(self) -> None:
        """Raises `Invalid` for a link of a program's account, or to a program."""
        hooks = {identity_of_hook(name).person_id: name for name in self.hooks}
        for person, accounts in self.session.identity_links.items():
            named = self._at("session", "identity_links", person)
            if (hook := hooks.get(PersonId(person))) is not None:
                raise Invalid(
                    f"{named} is the hook {hook!r}, not a person. `antiphon people list` shows the ids of persons.",
                    code="invalid_config",
                )
            if bots := self._bots() & {*accounts}:
                raise Invalid(
                    f"{named} links the bot itself: {min(bots)!r}. Name the account of the person who writes to it.",
                    code="invalid_config",
                )

    def _check_hook_place(self, name: str, place: HookPlaceSection) -> None:
        """Raises `Invalid` for a place that no configured channel sends to."""
        named = self._at("hooks", name, "deliver")
        if place.channel == TELEGRAM:
            if self.channels.telegram is None:
                raise Invalid(f"{named} needs a bot, and channels.telegram is not set.", code="invalid_config")
            if place.account not in (None, TELEGRAM_ACCOUNT):
                raise Invalid(
                    f"{named} names an account that does not exist: {place.account!r}. Leave it out.",
                    code="invalid_config",
                )
            return
        webhook = self.channels.webhook.get(place.account or "")
        if webhook is None or webhook.url is None:
            names = [each for each, section in self.channels.webhook.items() if section.url is not None]
            raise Invalid(
                f"{named} needs an account: the name of a webhook with a url. "
                f"{'' if place.account is None else f'{place.account!r} is not one. '}"
                f"Such webhooks: {', '.join(names) or 'none'}.",
                code="invalid_config",
            )

    def hook_settings(self, compartments: Compartments | None = None) -> list[HookSettings]:
        """The hooks with their secrets. Raises `Invalid` for one without a secret that protects."""
        default = self.agents.default or next(iter(self.agent_map()))
        found: list[HookSettings] = []
        for name, section in self.hooks.items():
            if (problem := self.hook_problem(name)) is not None:
                raise Invalid(problem, code="invalid_config")
            place = section.deliver
            found.append(
                HookSettings(
                    name=name,
                    secret=section.key() or "",
                    signature=section.signature,
                    agent_id=AgentId(section.agent or default),
                    session_key=section.session,
                    place=NOWHERE if place is None else _place_of(place),
                    queue_mode=section.queue_mode,
                    classification=self._classification(
                        section.classification, compartments, "hooks", name, "classification"
                    ),
                )
            )
        if (problem := self.shared_secret_problem()) is not None:
            raise Invalid(problem, code="invalid_config")
        return found

    def telegram(self) -> TelegramSettings | None:
        """The bot with its token; None if none is configured. Raises `Invalid` without a usable token or address."""
        section = self.channels.telegram
        if section is None:
            return None
        token = section.key() or ""
        if not _TOKEN.fullmatch(token):
            named = section.token_env if section.token is None else None
            setting = self.origins.spelt("channels", TELEGRAM, "token")
            place = ".".join(setting) if named is None else f"the variable {named}"
            place = "it" if setting in self.origins.variables else place
            where = self.origins.where(setting)
            raise Invalid(
                f"{where}: Telegram has no usable token: "
                f"{place} {'does not hold one' if token else 'is not set'}. Ask "
                f"@BotFather on Telegram for one, and set the variable {named or 'ANTIPHON_TELEGRAM_TOKEN'}.",
                code="invalid_config",
            )
        if section.mode is TelegramMode.WEBHOOK and not (self.gateway.public_url or "").startswith("https://"):
            raise Invalid(
                f"{self._at('channels', 'telegram', 'mode')}: 'webhook' needs an address that Telegram can reach. "
                "Set gateway.public_url to one that begins with https://, or the mode to 'poll'.",
                code="invalid_config",
            )
        return TelegramSettings(
            token=token,
            mode=section.mode,
            public_url=self.gateway.public_url,
            api_base=None if section.api_base is None else section.api_base.rstrip("/"),
            stream_interval=timedelta(milliseconds=section.stream_interval_ms),
        )

    def _channel_rules(
        self, agents: Collection[AgentId], default: AgentId, compartments: Compartments | None
    ) -> dict[tuple[str, str], ChannelRules]:
        """By channel and account. Raises `Invalid` for an unknown agent."""
        section = self.channels.telegram
        if section is None:
            return {}
        place = ("channels", TELEGRAM)
        return {
            (TELEGRAM, TELEGRAM_ACCOUNT): ChannelRules(
                agent_id=self._known_agent(section.agent, agents, *place, "agent") or default,
                access=section.access,
                queue_mode=section.queue_mode,
                classification=self._classification(section.classification, compartments, *place, "classification"),
                join_waits=JoinWaits(text_ms=section.text_wait_ms),
                groups={
                    name: GroupRules(
                        agent_id=self._known_agent(group.agent, agents, *place, "groups", name, "agent"),
                        owner_trigger=group.owner_trigger,
                        is_silent=group.silent,
                    )
                    for name, group in section.groups.items()
                },
            )
        }

    def _known_agent(self, name: str | None, agents: Collection[AgentId], *place: str) -> AgentId | None:
        if name is not None and name not in agents:
            raise Invalid(
                f"{self._at(*place)} names no listed agent: {name!r}. Listed: {', '.join(agents)}.",
                code="invalid_config",
            )
        return None if name is None else AgentId(name)

    def daily_total(self) -> DailyLimits:
        daily, total = self.limits.daily, self.limits.daily_total
        return DailyLimits(
            tokens=total.tokens if total.tokens is not None else daily.tokens and daily.tokens * 2,
            usd=total.usd if total.usd is not None else daily.usd and daily.usd * 2,
        )


def _command_limits(section: AgentSandboxSection, defaults: SandboxSection) -> SandboxLimits:
    """The agent's own values, else those of the defaults."""
    seconds = section.seconds or defaults.seconds
    return SandboxLimits(
        network=defaults.network if section.network is None else section.network,
        memory_bytes=(section.memory_mb or defaults.memory_mb) * MEBIBYTE,
        processes=section.processes or defaults.processes,
        disk_bytes=(section.disk_mb or defaults.disk_mb) * MEBIBYTE,
        time=timedelta(seconds=seconds),
    )


def _place_of(place: HookPlaceSection) -> DeliveryContext:
    account = place.account or (TELEGRAM_ACCOUNT if place.channel == TELEGRAM else None)
    return DeliveryContext(channel=place.channel, to=place.to, account_id=account, thread_id=place.thread)


def _secret_problem(noun: str, place: str, section: WebhookSection | HookSection) -> str | None:
    """What is wrong with the secret; None for one that protects."""
    secret = section.key() or ""
    if len(secret) >= MIN_SECRET_LENGTH:
        return None
    named = f"variable {section.secret_env}" if section.secret_env and section.secret is None else "secret"
    what = f"one of {MIN_SECRET_LENGTH} characters or more" if secret else "one"
    return f"{noun} has no usable secret: {place} needs {what} ({named}). Make one with `openssl rand -hex 32`."
