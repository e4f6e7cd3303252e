"""The whole configuration, frozen, and what the rest of the program is given of it. Contract: config 1."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

from msgspec.structs import replace
from pydantic import Field, PrivateAttr

from antiphon.channels.abilities import Ability
from antiphon.channels.hook.section import HookPlaceSection, HookSection, HookSections
from antiphon.channels.kind import AnyKind, Given
from antiphon.channels.kinds import Unloaded, find_kind, own_kinds, refuse_several
from antiphon.channels.sections import AccountSection, PeopleSection, accounts_of, notifying_accounts_of, place_of
from antiphon.config.sections.access import AccessSection
from antiphon.config.sections.acp import CLIENTS, AcpSection, HarnessSection
from antiphon.config.sections.agents import (
    AgentSandboxSection,
    AgentSection,
    AgentsSection,
    McpServerSection,
    ProviderSection,
    SandboxSection,
)
from antiphon.config.sections.audit import AuditSection
from antiphon.config.sections.channels import ChannelsSection, GivenChannels
from antiphon.config.sections.flow import FlowSection
from antiphon.config.sections.gateway import DatabaseSection, GatewaySection, LogSection, ProcessRole
from antiphon.config.sections.limits import LimitsSection, RunsSection
from antiphon.config.sections.sessions import CheckpointsSection, GroupsSection, MessagesSection, SessionSection
from antiphon.config.sections.tasks import TasksSection
from antiphon.config.sections.tools import ToolsSection
from antiphon.config.sections.zones import machine_zone
from antiphon.config.written_rules import may_name_compartments, read_written_rules
from antiphon.domain.agent import Agent, AgentRuntime, DailyLimits, RunLimits
from antiphon.domain.chat_form import BRIDGED_CHATS
from antiphon.domain.checkpoint import HARNESS
from antiphon.domain.classification import NO_COMPARTMENTS, PUBLIC, Classification, Compartments
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.machine_identities import HOOK, identity_of_hook
from antiphon.domain.person import PersonId
from antiphon.domain.sandbox import MEBIBYTE, SandboxLimits
from antiphon.domain.session import INTERNAL, WEBCHAT
from antiphon.domain.thread_bindings import BindingLimits
from antiphon.engine.rules import ResetRules, Rules
from antiphon.engine.rules_in_force import RulesInForce
from antiphon.mcp.settings import PRIVATE
from antiphon.policy.chats import ChannelRules, GroupRules
from antiphon.policy.notified import NotifiedPerson
from antiphon.policy.session_tools import named_session_tools
from antiphon.policy.sinks import GroupName, Sinks
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules
from antiphon.policy.voices import Voices
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import DEFAULT_AGENT
from antiphon.settings.origins import Origins
from antiphon.settings.section import Section, sections_in

SHARED_SECTIONS = (
    *("agents", "limits", "messages", "groups", "session", "checkpoints", "tools", "tasks", "access", "channels"),
    *("hooks", "flow", "acp", "compat"),
)
"""The settings by which processes treat sessions and runs."""


class Account(NamedTuple):
    """An account of a channel in the settings."""

    channel: str
    account: str
    place: tuple[str, ...]
    section: AccountSection


class Config(Section):
    """Everything that can be set."""

    gateway: GatewaySection = GatewaySection()
    database: DatabaseSection = DatabaseSection()
    agents: AgentsSection = AgentsSection()
    acp: AcpSection = AcpSection()
    providers: dict[str, ProviderSection] = Field(default_factory=dict[str, ProviderSection])
    """How to reach models, by the name before the colon of a model's name."""
    runs: RunsSection = RunsSection()
    limits: LimitsSection = LimitsSection()
    messages: MessagesSection = MessagesSection()
    groups: GroupsSection = GroupsSection()
    session: SessionSection = SessionSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    tools: ToolsSection = ToolsSection()
    flow: FlowSection = FlowSection()
    audit: AuditSection = AuditSection()
    tasks: TasksSection = TasksSection()
    access: AccessSection = AccessSection()
    channels: GivenChannels = ChannelsSection()
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
        text = self.model_dump_json(include={*SHARED_SECTIONS}, exclude={"flow": {"rules", "rules_file"}})
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
                clearance=self._clearance(
                    section.runner_clearance, compartments, "agents", "list", str(index), "runner_clearance"
                ),
            )
            for index, section in enumerate(listed)
        } | {AgentId(name): self._harness(name, section, compartments) for name, section in self.acp.agents.items()}

    def _harness(self, name: str, section: HarnessSection, compartments: Compartments | None) -> Agent:
        """The agent whose runs the harness carries out. Contract: foreign_agents 2."""
        listed = AgentSection(
            id=name,
            name=section.name,
            tools=section.tools,
            sandbox=AgentSandboxSection(
                mode=section.sandbox.mode,
                memory_mb=section.sandbox.memory_mb,
                processes=section.sandbox.processes,
                disk_mb=section.sandbox.disk_mb,
            ),
            subagents=section.subagents,
            limits=section.limits,
            daily=section.daily,
        )
        agent, place, provider = self._agent(listed), ("acp", "agents", name), section.provider
        given = None if provider is None else self.providers.get(provider)
        clearance = self._clearance(section.clearance, compartments, *place, "clearance")
        if clearance is None and provider is not None and given is not None:
            clearance = self._clearance(given.clearance, compartments, "providers", provider, "clearance")
        return replace(
            agent,
            model=f"{HARNESS}:{name}",
            instructions="",
            skills=(),
            limits=agent.limits if agent.limits.time is not None else replace(agent.limits, time=timedelta(0)),
            runtime=AgentRuntime.ACP,
            is_unattended=section.unattended,
            clearance=clearance,
            names_clearance=section.clearance is not None,
            classification=self._classification(section.classification, compartments, *place, "classification"),
        )

    @property
    def names_compartments(self) -> bool:
        """Whether a setting names a compartment, so that the names must be looked up."""
        return (
            self.flow.rules_file is not None
            or may_name_compartments(self.flow.rules)
            or any(
                isinstance(section, ClassificationSection | ClearanceSection) and section.compartments
                for section in sections_in(self)
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

    def private_of_server(
        self, section: McpServerSection, name: str, compartments: Compartments | None = None
    ) -> Classification:
        """What the results are made of that the server labels as private."""
        return self._clearance(section.private, compartments, "mcp_servers", name, "private") or PRIVATE

    def clearance_of_server(
        self, section: McpServerSection, name: str, compartments: Compartments | None = None
    ) -> Classification | None:
        """What may go to the server; None for the default."""
        return self._clearance(section.clearance, compartments, "mcp_servers", name, "clearance")

    def clearance_of_search(self, compartments: Compartments | None = None) -> Classification | None:
        """What queries to the search engine may be made of; None for the default."""
        return self._clearance(self.tools.search_web.clearance, compartments, "tools", "search_web", "clearance")

    def _sinks(self, compartments: Compartments | None) -> Sinks:
        return Sinks(
            channels={
                f"{each.channel}:{each.account}": clearance
                for each in self.accounts()
                if (clearance := self._clearance(each.section.clearance, compartments, *each.place, "clearance"))
            }
            | self._notifying_clearances(compartments),
            readers={f"{each.channel}:{each.account}": each.person for each in self._notified()},
            groups={
                GroupName(each.channel, each.account, name): tuple(map(PersonId, group.members))
                for each, section in self._people()
                for name, group in section.groups.items()
                if group.members
            },
            owners=frozenset(f"{each.channel}:{each.account}" for each in self.accounts() if each.section.is_owners),
            providers={
                name: clearance
                for name, section in self.providers.items()
                if (clearance := self._clearance(section.clearance, compartments, "providers", name, "clearance"))
            },
            commands=self._clearance(
                self.tools.run_command.clearance, compartments, "tools", "run_command", "clearance"
            ),
        )

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
        if agent_id in self.acp.agents:
            return self.origins.spelt("acp", "agents", agent_id, "command")
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
            profile=(section.tools or defaults.tools).profile,
            runtime=AgentRuntime.LOOP if section.runner is None else AgentRuntime.RUNNER,
            runner=section.runner,
            skills=defaults.skills if section.skills is None else section.skills,
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
        for each in self.accounts():
            self._known_agent(each.section.agent, agents, *each.place, "agent")
        self._check_further()
        self._check_reactions()
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
            approval=self.tools.approval.rules(self.flow.untrusted),
            sinks=self._sinks(compartments),
            written=RulesInForce(
                read_written_rules(self, None if compartments is None else compartments.active),
                compartments=compartments or NO_COMPARTMENTS,
            ),
            notified=tuple(self._notified()),
            voices=Voices({(each.channel, each.account): each.section.voice() for each in self.accounts()}),
            chats=replace(
                self.session.chat_rules(),
                channels=self._channel_rules(agents, default, compartments),
                bots=self._bots(),
                titles={kind.name: kind.title for kind in self._known_kinds()} | self.further(),
                forms={kind.name: kind.chats for kind in self._known_kinds()}
                | dict.fromkeys(self.further(), BRIDGED_CHATS),
                data=self.flow.chats,
                quick_turns={
                    (each.channel, each.account): each.section.quick_turns
                    for each in self.accounts()
                    if each.section.sends
                },
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
            }
            | {
                AgentId(name): (section.tools or defaults.tools).sessions.limits()
                for name, section in self.acp.agents.items()
            },
        )

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
            self._refuse_client(section.id, "agents", "list", str(index), "id")
        for name, harness in self.acp.agents.items():
            self._refuse_client(name, "acp", "agents", name)
            if name in indexes or (not self.agents.list and name == DEFAULT_AGENT):
                raise Invalid(
                    f"{self._at('acp', 'agents', name)} is the id of two agents: {name!r}. Give one another id.",
                    code="invalid_config",
                )
            if harness.provider is not None and harness.provider not in self.providers:
                raise Invalid(
                    f"{self._at('acp', 'agents', name, 'provider')} names no provider of the settings: "
                    f"{harness.provider!r}. Set providers.{harness.provider}.",
                    code="invalid_config",
                )

    def _refuse_client(self, name: str, *place: str) -> None:
        """Raises `Invalid` for the name of a client that attaches itself. Contract: peers 1."""
        if name in CLIENTS:
            raise Invalid(
                f"{self._at(*place)}: the name {name!r} is that of clients that attach themselves. Choose another one, "
                f"such as '{name}-code'.",
                code="invalid_config",
            )

    def _at(self, *place: str) -> str:
        """The setting with its origin, to begin an error with."""
        return self.origins.at(*place)

    def given_channels(self, compartments: Compartments | None = None) -> Iterator[tuple[AnyKind, Given[Any]]]:
        """The channels that are configured and can be loaded."""
        for kind, section in self._kinds():
            yield (
                kind,
                Given(
                    section=section,
                    place=kind.place,
                    origins=self.origins,
                    public_url=self.gateway.public_url,
                    default_agent=AgentId(self.agents.default or next(iter(self.agent_map()))),
                    classify=lambda section, place: self._classification(section, compartments, *place),
                ),
            )

    def unloaded_channels(self) -> list[Unloaded]:
        """The configured channels whose packages cannot be used. Raises `Invalid` for one that two packages offer."""
        names = self.channels.by_name()
        for name in names:
            refuse_several(name)
        return [kind for kind in map(find_kind, names) if isinstance(kind, Unloaded)]

    def _kinds(self) -> Iterator[tuple[AnyKind, Any]]:
        sections = self.channels.by_name()
        written = [*cast("Mapping[str, object]", self.origins.tree.get("channels", {}))]
        for name in sorted(sections, key=lambda each: written.index(each) if each in written else -1):
            kind, section = find_kind(name), sections[name]
            if not isinstance(kind, Unloaded):
                yield kind, section
        if self.hooks:
            yield own_kinds()[HOOK], self.hooks

    def accounts(self) -> Iterator[Account]:
        """Every account of a channel; of one whose section is no table, the only one."""
        for kind, section in self._kinds():
            for name, each in accounts_of(section).items():
                yield Account(kind.name, name, place_of(kind.place, section, name), each)
            for each in kind.further(section):
                yield Account(each.channel, each.account, (*kind.place, *each.place), each.section)

    def further(self) -> dict[str, str]:
        """Channels that others serve, such as those of bridges, by name; with what people call them."""
        return {each.channel: each.title for kind, section in self._kinds() for each in kind.further(section)}

    def _check_further(self) -> None:
        """Raises `Invalid` for a channel that is served twice, or has the name of one that is set itself."""
        seen = {kind.name: self.origins.named(*kind.place) for kind, _ in self._kinds()}
        seen |= dict.fromkeys((WEBCHAT, INTERNAL, HOOK), "a channel of Antiphon's own")
        for kind, section in self._kinds():
            for each in kind.further(section):
                place = (*kind.place, *each.place)
                if (other := seen.setdefault(each.channel, self.origins.named(*place))) != self.origins.named(*place):
                    raise Invalid(
                        f"{self._at(*place)}: the channel {each.channel!r} exists already: {other}. "
                        "Give one of them another name.",
                        code="invalid_config",
                    )

    def _check_reactions(self) -> None:
        """Raises `Invalid` for an acknowledgement with which no bot of the platform can react."""
        serving = {each.channel: kind for kind, section in self._kinds() for each in kind.further(section)}
        serving |= {kind.name: kind for kind, _ in self._kinds()}
        for each in self.accounts():
            kind, emoji = serving[each.channel], each.section.acknowledgement
            if not emoji:
                continue
            place = self._at(*each.place, "acknowledgement")
            if Ability.REACTS not in kind.abilities:
                able = sorted(each.name for each in self._known_kinds() if Ability.REACTS in each.abilities)
                raise Invalid(
                    f"{place}: bots cannot react to messages on {kind.title}. Leave it out. Channels on which they "
                    f"can: {', '.join(able)}.",
                    code="invalid_config",
                )
            if kind.reactions is not None and emoji not in kind.reactions:
                raise Invalid(
                    f"{place}: {kind.title} does not let bots react with {emoji!r}. Choose one of: "
                    f"{' '.join(kind.reactions)}",
                    code="invalid_config",
                )

    def _people(self) -> Iterator[tuple[Account, PeopleSection]]:
        """The accounts to which people write."""
        for each in self.accounts():
            if isinstance(each.section, PeopleSection):
                yield each, each.section

    def _notified(self) -> Iterator[NotifiedPerson]:
        """Who gets notifications, by which account."""
        for kind, section in self._kinds():
            for name, each in notifying_accounts_of(section).items():
                page = self.gateway.public_url
                person = PersonId(each.person)
                yield NotifiedPerson(channel=kind.name, account=name, person=person, page=page)

    def _notifying_clearances(self, compartments: Compartments | None) -> dict[str, Classification]:
        """Of the accounts that only notify, as `Sinks.channels` names them."""
        return {
            f"{kind.name}:{name}": clearance
            for kind, section in self._kinds()
            for name, each in notifying_accounts_of(section).items()
            if (
                clearance := self._clearance(
                    each.clearance, compartments, *place_of(kind.place, section, name), "clearance"
                )
            )
        }

    def _known_kinds(self) -> Iterator[AnyKind]:
        """Of Antiphon's own all, because sessions remember theirs."""
        for kind in (*own_kinds().values(), *(kind for kind, _ in self._kinds())):
            if kind.place == ("channels", kind.name):
                yield kind

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
        """The accounts of Antiphon itself."""
        return frozenset(f"{each.channel}:{own}" for each in self.accounts() if (own := each.section.own_id))

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
        if place.channel in self.further():
            own = [each.account for each in self.accounts() if each.channel == place.channel]
            if place.account in own:
                return
            raise Invalid(f"{named} needs an account: {', '.join(own)}.", code="invalid_config")
        kind, section = next(
            (each for each in self._kinds() if each[0].place == ("channels", place.channel)), (None, None)
        )
        if kind is None:
            channel = self._at("hooks", name, "deliver", "channel")
            raise Invalid(f"{channel}: channels.{place.channel} is not set.", code="invalid_config")
        accounts = [each.account for each in self.accounts() if each.channel == kind.name and each.section.sends]
        if isinstance(section, AccountSection):
            if place.account in (None, *accounts):
                return
            raise Invalid(
                f"{named} names an account that does not exist: {place.account!r}. Leave it out.", code="invalid_config"
            )
        if place.account not in accounts:
            raise Invalid(
                f"{named} needs an account: the name of a {kind.sender}. "
                f"{'' if place.account is None else f'{place.account!r} is not one. '}"
                f"Such {kind.name}s: {', '.join(accounts) or 'none'}.",
                code="invalid_config",
            )

    def _channel_rules(
        self, agents: Collection[AgentId], default: AgentId, compartments: Compartments | None
    ) -> dict[tuple[str, str], ChannelRules]:
        """By channel and account. Raises `Invalid` for an unknown agent."""
        return {
            (each.channel, each.account): ChannelRules(
                agent_id=self._known_agent(section.agent, agents, *each.place, "agent") or default,
                access=section.access,
                queue_mode=section.queue_mode,
                classification=self._classification(
                    section.classification, compartments, *each.place, "classification"
                ),
                acknowledgement=section.acknowledgement,
                threads=self._thread_limits(each.channel, section),
                join_waits=section.join_waits,
                groups={
                    name: GroupRules(
                        agent_id=self._known_agent(group.agent, agents, *each.place, "groups", name, "agent"),
                        owner_trigger=group.owner_trigger,
                        is_silent=group.silent,
                    )
                    for name, group in section.groups.items()
                },
            )
            for each, section in self._people()
        }

    def _thread_limits(self, channel: str, section: PeopleSection) -> BindingLimits | None:
        kind = next((kind for kind, _ in self._kinds() if kind.name == channel), None)
        bindings = section.thread_bindings or self.session.thread_bindings
        has_threads = kind is not None and Ability.OPENS_THREADS in kind.abilities
        return bindings.limits() if has_threads and bindings.enabled else None

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
