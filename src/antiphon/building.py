"""Builds each object of a running system by name."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from antiphon.acp.harness_runner import HarnessRunner
from antiphon.acp.live_turn import LiveTurns
from antiphon.acp.run_tools import RunTools
from antiphon.adapters import OpenChannels, ReadyChannel
from antiphon.agents.agent_tools import AgentTools
from antiphon.agents.asking import RetryPolicy
from antiphon.agents.calls import ToolCalls
from antiphon.agents.foreign_tools import ForeignTools
from antiphon.agents.introspection import ModelIntrospector
from antiphon.agents.loop import AgentLoop
from antiphon.agents.model import Model
from antiphon.agents.models import Models
from antiphon.agents.offered_tools import OfferedTools
from antiphon.agents.outside_gate import OutsideGate
from antiphon.agents.reviewed_tools import ReviewedTools
from antiphon.agents.runners.finding import NO_RUNNERS, FoundRunners
from antiphon.agents.runners.functions import Runner
from antiphon.agents.runners.runner_loop import RunnerLoop
from antiphon.agents.runtimes import RuntimesOfAgents
from antiphon.agents.simulating import OutsideSimulator
from antiphon.agents.summaries import Summaries
from antiphon.agents.toolset import FunctionTool, Tool, Toolset
from antiphon.backends import (
    Backend,
    describe_process,
    open_postgres,
    open_sqlite,
)
from antiphon.channels.channel import Channel
from antiphon.channels.kind import Inside, Receiver
from antiphon.clock import Clock
from antiphon.config.config import Config
from antiphon.config.sources import reread_rules
from antiphon.config.written_rules import watched_file
from antiphon.configured import ToolFunction, harness_settings, installed_checks, mcp_settings, web_setting
from antiphon.domain.agent import AgentRuntime
from antiphon.domain.classification import Compartments
from antiphon.domain.cursors import Cursors
from antiphon.domain.delay import Delta
from antiphon.domain.home_key import HomeKey
from antiphon.domain.ids import AgentId, Ids, ProcessId, SessionRow
from antiphon.domain.sandbox import CommandMode
from antiphon.engine.access.buckets import Buckets
from antiphon.engine.access.callers import Callers
from antiphon.engine.access.compartments import HomeCompartments
from antiphon.engine.access.credentials import Credentials
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.ownership import Ownership
from antiphon.engine.access.people import People
from antiphon.engine.access.signin import SignIn
from antiphon.engine.access.tokens import Tokens
from antiphon.engine.approvals.standing import StandingApprovals
from antiphon.engine.approvals.tool_reviews import ToolReviews
from antiphon.engine.approvals.trusting import TrustedContents
from antiphon.engine.audit.audits import Audits
from antiphon.engine.audit.sealer import Sealer, name_of_home
from antiphon.engine.audit.trail import RecordingDatabase, Trail
from antiphon.engine.calls.calls import OutsideCalls
from antiphon.engine.chats.accounts import Accounts
from antiphon.engine.chats.answered import find_answered_group
from antiphon.engine.chats.commands import ChatCommands
from antiphon.engine.chats.groups import Groups
from antiphon.engine.chats.linking import Links
from antiphon.engine.chats.nodes import Nodes
from antiphon.engine.chats.pairing import Pairings
from antiphon.engine.chats.program_chats import ProgramChats
from antiphon.engine.chats.reception import Reception
from antiphon.engine.chats.routing import Routes
from antiphon.engine.checkpoints.checkpoints import Checkpoints
from antiphon.engine.children.due import DueChildren
from antiphon.engine.children.govern import Subagents
from antiphon.engine.children.spawn import Spawns
from antiphon.engine.children.wait import ChildWaits
from antiphon.engine.deliveries.acknowledgements import Acknowledgements
from antiphon.engine.deliveries.deliverer import Deliverer
from antiphon.engine.deliveries.deliveries import Deliveries
from antiphon.engine.deliveries.live import LiveReplies
from antiphon.engine.deliveries.outgoing import OutgoingMessages
from antiphon.engine.deliveries.paces import RateLimits
from antiphon.engine.deliveries.replies import Replies
from antiphon.engine.deliveries.threads import ThreadOpener
from antiphon.engine.exchanges.send import Exchanges
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.memory.calls import Memories
from antiphon.engine.memory.people import Notes
from antiphon.engine.notifications import Notifications
from antiphon.engine.overview import Overviews
from antiphon.engine.policy_checks import CodeCheck
from antiphon.engine.rules import Rules
from antiphon.engine.runs.cancel import Runs
from antiphon.engine.runs.code_agents import CodeAgents
from antiphon.engine.runs.context import PublishDelta, Runtime
from antiphon.engine.runs.decisions import Approvals
from antiphon.engine.runs.runner import AgentRunner
from antiphon.engine.schedules.scheduler import Scheduler
from antiphon.engine.schedules.tasks import Tasks
from antiphon.engine.services import Services
from antiphon.engine.sessions.forks import Forks
from antiphon.engine.sessions.inbox import Inbox
from antiphon.engine.sessions.resets import Resets
from antiphon.engine.sessions.senders import Senders
from antiphon.engine.sessions.session_files import read_sent
from antiphon.engine.sessions.sessions import Sessions, open_main
from antiphon.engine.sessions.workspaces import WORKSPACES_NAME, Workspaces
from antiphon.engine.skills.folders import SKILLS_NAME, SkillFolders
from antiphon.engine.skills.skills import Skills
from antiphon.engine.views.activities import Activities
from antiphon.engine.views.contents import ContentsOfSessions
from antiphon.engine.views.costs import Costs
from antiphon.engine.views.history import History
from antiphon.engine.views.incarnations import Incarnations
from antiphon.engine.views.refusals import Refusals
from antiphon.engine.views.run_trees import RunTrees
from antiphon.engine.views.search import Search
from antiphon.engine.views.summary_inputs import SummaryInputs
from antiphon.engine.views.trees import Trees
from antiphon.engine.views.views import Views
from antiphon.engine.work.checkpointer import Checkpointer
from antiphon.engine.work.drain import Drain
from antiphon.engine.work.health import Health
from antiphon.engine.work.measures import Measures
from antiphon.engine.work.rule_reloads import RuleReloads
from antiphon.engine.work.worker import Worker
from antiphon.feed.changes import Changes
from antiphon.feed.follow import Hub
from antiphon.mcp.client import McpTools
from antiphon.mcp.endpoint import Endpoint
from antiphon.policy.written.rule_set import RuleSet
from antiphon.store.database import CommitHook, Database
from antiphon.store.moments import Moments
from antiphon.store.processes import Process
from antiphon.store.sqlite import Connect, connect_sqlite
from antiphon.tools.agents_list import agents_list
from antiphon.tools.files import files
from antiphon.tools.memory import memory
from antiphon.tools.message import message
from antiphon.tools.run_command import run_command
from antiphon.tools.session_status import session_status
from antiphon.tools.sessions_history import sessions_history
from antiphon.tools.sessions_list import sessions_list
from antiphon.tools.sessions_search import sessions_search
from antiphon.tools.sessions_send import sessions_send
from antiphon.tools.sessions_spawn import sessions_spawn
from antiphon.tools.sessions_wait import sessions_wait
from antiphon.tools.sessions_yield import sessions_yield
from antiphon.tools.simulate_tool_call import simulate_tool_call
from antiphon.tools.skill import SkillTool, SkillTools
from antiphon.tools.subagents import subagents
from antiphon.tools.summarize import summarize
from antiphon.tools.tasks import tasks as tasks_tool
from antiphon.tools.web.network import Network
from antiphon.tools.web.tools import web_tools
from antiphon.version import VERSION


class App(Struct, frozen=True, kw_only=True):
    """Everything that runs in one home."""

    home: Path
    config: Config
    services: Services
    models: Models
    tools: Toolset
    """This program's tools; `mcp_tools` adds those of agents' servers."""
    tool_calls: ToolCalls
    offered_tools: OfferedTools
    foreign_tools: ForeignTools
    outside_calls: OutsideCalls
    mcp_tools: McpTools
    mcp: Endpoint
    harnesses: LiveTurns
    """Runs if the process runs agents."""
    run_tools: RunTools
    """The same, for harnesses."""
    database: Database
    sealer: Sealer | None
    """Runs if `audit.seal_to` is set."""
    workspaces: Workspaces
    live: LiveReplies
    acknowledgements: Acknowledgements
    """Runs if the process runs agents."""
    deliverer: Deliverer
    notifications: Notifications
    """Runs if the process runs agents."""
    channels: OpenChannels
    """The channels; served if the process runs agents."""
    inside: Inside
    """What they are served with."""
    receivers: Mapping[str, Receiver]
    """What accepts requests at the addresses of channels, by the channel's name."""
    due_children: DueChildren
    """Runs if the process runs agents."""
    scheduler: Scheduler
    """Runs if the process runs agents."""
    checkpointer: Checkpointer
    """Runs if the process runs agents."""
    drain: Drain
    """Leaving `open_app` drains, unless a caller drained before, to keep answering meanwhile."""


class Parts(Struct, frozen=True, kw_only=True):
    """Replacements of defaults, for tests and embedding programs."""

    tools: Sequence[ToolFunction] = ()
    models: Mapping[str, Model] = {}
    """In addition to those that can be configured, by the name that an agent's `model` has."""
    checks: Sequence[CodeCheck] = ()
    """Functions that are asked at hooks, besides those of installed packages."""
    channels: Sequence[Channel] = ()
    """In addition to the configured channels."""
    runner: AgentRunner | None = None
    runners: Mapping[AgentId, Runner] = {}
    """The functions that carry out the runs of agents that are given in code."""
    clock: Clock | None = None
    ids: Ids | None = None
    commit_hook: CommitHook | None = None
    connect: Connect = connect_sqlite
    synchronous: str = "FULL"
    retry: RetryPolicy | None = None
    unwind_seconds: float = 30.0
    network: Network = Network()
    """How web pages are reached."""


def rules_for(config: Config, parts: Parts, compartments: Compartments | None = None) -> Rules:
    """The configured rules. With a runner of the program's own there is no model that could look back."""
    rules = config.rules(compartments)
    rules.written.use([*installed_checks(), *parts.checks])
    if parts.runner is None:
        return rules
    return replace(rules, checkpoints=replace(rules.checkpoints, is_enabled=False))


class Base(Struct, frozen=True, kw_only=True):
    """Everything that exists before the database is opened."""

    home: Path
    config: Config
    parts: Parts
    clock: Clock
    ids: Ids
    rules: Rules
    models: Models
    tools: Sequence[FunctionTool]
    """The tools of installed packages and embedding programs."""
    channels: Sequence[ReadyChannel]
    found_runners: FoundRunners = NO_RUNNERS
    """Of the agents that have one; nothing in a process that works on no runs."""
    compartments: Compartments | None = None
    """Those of the home, once the database was asked for them; None if no setting names any."""

    async def check_model(self, name: str) -> None:
        """Raises `Invalid` for an unknown model, and for one without a key if this process works on runs.

        Workers may have keys that a process with only the gateway lacks.
        """
        if self.config.gateway.role.works:
            await self.models.check_key(name)
        else:
            await self.models.find(name)


def _reloads(base: Base, backend: Backend, database: Database, trail: Trail) -> RuleReloads:
    config = base.config

    async def note(found: RuleSet) -> None:
        await trail.rules_loaded(found.hash, len(found))
        if backend.processes is not None:
            await backend.processes.note_fingerprint(fingerprint_of(config, found))

    return RuleReloads(
        database,
        base.rules,
        base.clock,
        file=watched_file(config),
        read=partial(reread_rules, config),
        note=note,
    )


def fingerprint_of(config: Config, rules: RuleSet) -> str:
    """Equal for processes that treat sessions and runs alike; the rules are what follows the point."""
    return f"{config.fingerprint()}.{rules.hash}"


def open_backend(base: Base, process: ProcessId, workers: Sequence[Worker]) -> AbstractAsyncContextManager[Backend]:
    """The configured database; `workers` will work on it."""
    config, parts = base.config, base.parts

    def check(session: SessionRow) -> None:
        for worker in workers:
            worker.check(session)

    url = config.database.address()
    if url is None:
        return open_sqlite(
            base.home,
            clock=base.clock,
            moments=Moments(base.clock, base.ids, process=process),
            check=check,
            connect=parts.connect,
            commit_hook=parts.commit_hook,
            synchronous=parts.synchronous,
        )
    return open_postgres(
        url,
        clock=base.clock,
        ids=base.ids,
        check=check,
        process=_describe(base, process),
        connections=config.database.connections,
        commit_hook=parts.commit_hook,
    )


def _describe(base: Base, process: ProcessId) -> Process:
    role = base.config.gateway.role
    missing = base.found_runners.missing
    agents = tuple(each for each in base.rules.agents if each not in missing) if role.works else ()
    fingerprint = fingerprint_of(base.config, base.rules.written.now)
    return describe_process(process, role.value, version=VERSION, fingerprint=fingerprint, agents=agents)


def build(
    base: Base,
    backend: Backend,
    *,
    process: ProcessId,
    channels: OpenChannels,
    home_key: HomeKey,
) -> tuple[App, Worker]:
    config, parts, clock, ids = base.config, base.parts, base.clock, base.ids
    notifier = backend.notifier
    rules = replace(
        base.rules,
        has_channels=bool(channels.senders),
        missing_runners={id: error.message for id, error in base.found_runners.missing.items()},
    )
    trail = Trail(backend.database, clock)
    database = RecordingDatabase(backend.database, trail)
    senders = channels.senders
    waits = Waits(database, notifier)
    names = PersonNames(database, notifier)
    history = History(database, rules, names, trail)
    hub = Hub(notifier, history.read_logs, clock)
    publish_delta: PublishDelta = hub.publish_delta
    if backend.deltas is not None:
        backend.deltas.show_deltas(hub.publish_delta)
        publish_delta = _everywhere(hub.publish_delta, backend.deltas.publish_delta)
    paces = RateLimits(clock)
    live = LiveReplies(database=database, notifier=notifier, channels=senders, rules=rules, paces=paces, clock=clock)
    acknowledgements = Acknowledgements(
        database=database, notifier=notifier, channels=senders, rules=rules, paces=paces
    )
    if live.is_serving:
        publish_delta = _everywhere(publish_delta, live.publish)
    workspaces = Workspaces(base.home / WORKSPACES_NAME)
    sessions = Sessions(
        database,
        rules,
        workspaces,
    )
    views = Views(database, rules)
    search = Search(database, rules, trail)
    exchanges = Exchanges(database, waits, rules, open_main=open_main, clock=clock)
    child_waits = ChildWaits(database, waits, rules.sinks, clock)
    callers = Callers(database, notifier, rules, clock)
    cursors = Cursors(home_key)
    summaries = Summaries(
        SummaryInputs(database, rules, clock),
        base.models,
        rules=rules,
        home_key=home_key,
        clock=clock,
        retry=parts.retry,
    )
    tasks = Tasks(
        database,
        rules,
    )
    own_tools: list[Tool] = [
        sessions_list(views, rules, clock, cursors),
        sessions_history(views, cursors),
        sessions_search(search),
        sessions_send(exchanges),
        sessions_spawn(
            Spawns(
                database,
                rules,
                base.check_model,
                ThreadOpener(senders),
            )
        ),
        sessions_wait(child_waits),
        sessions_yield(child_waits),
        subagents(
            Subagents(
                database,
                rules,
            )
        ),
        session_status(views, rules),
        simulate_tool_call(OutsideSimulator(lambda: gate, callers), clock),
        agents_list(views),
        memory(
            Memories(
                database,
                rules,
            )
        ),
        summarize(summaries),
        tasks_tool(tasks, rules, clock),
        message(
            OutgoingMessages(
                database,
                rules,
                {account: sender.form.files for account, sender in senders.items()},
                find_group=find_answered_group,
                read_files=partial(read_sent, workspaces),
            )
        ),
        files(callers, workspaces, rules),
    ]
    mode = config.tools.run_command.mode
    if mode is not CommandMode.OFF:
        own_tools.append(
            run_command(
                callers,
                workspaces,
                rules,
                mode=mode,
                home=base.home,
                classification=config.classification_of_commands(base.compartments),
            )
        )
    own_tools += web_tools(callers, web_setting(config, base.compartments), parts.network, rules)
    skills = Skills(database, SkillFolders(base.home / SKILLS_NAME), rules)
    if any(agent.skills for agent in rules.agents.values()):
        own_tools.append(
            SkillTool(
                SkillTools(
                    callers=callers,
                    workspaces=workspaces,
                    rules=rules,
                    skills=skills,
                    home=base.home,
                    classification=config.classification_of_commands(base.compartments),
                )
            )
        )
    tools = Toolset([*own_tools, *base.tools])
    mcp_tools = McpTools(tools, mcp_settings(base.home, config, base.compartments), clock)
    tool_reviews = ToolReviews(database)
    offered = ReviewedTools(mcp_tools, tool_reviews)
    given = AgentTools(offered)
    harnesses, run_tools = LiveTurns(waits, timedelta(seconds=config.acp.park_seconds)), RunTools()
    worker = Worker(
        Runtime(
            database=database,
            waits=waits,
            publish_delta=publish_delta,
            clock=clock,
            ids=ids,
            live=live if live.is_serving else None,
        ),
        runner=parts.runner
        or RuntimesOfAgents(
            {
                AgentRuntime.LOOP: AgentLoop(
                    base.models, given, rules, home_key, workspaces=workspaces, retry=parts.retry
                ),
                AgentRuntime.RUNNER: RunnerLoop(
                    base.found_runners.runners, given, rules, home_key, workspaces=workspaces
                ),
                AgentRuntime.ACP: HarnessRunner(
                    harnesses,
                    run_tools,
                    harness_settings(config),
                    tools=given,
                    rules=rules,
                    home_key=home_key,
                    workspaces=workspaces,
                ),
            }
        ),
        rules=rules,
        process=process,
        workspaces=workspaces,
        lacking=frozenset(base.found_runners.missing),
        unwind_seconds=parts.unwind_seconds,
    )
    inbox = Inbox(database, rules, ids)
    health = Health(database, backend.processes, broken_channels=channels.broken)
    tokens = Tokens(database, rules, clock, ids)
    services = Services(
        rules=rules,
        clock=clock,
        ids=ids,
        home_key=home_key,
        cursors=cursors,
        sessions=sessions,
        inbox=inbox,
        senders=Senders(rules),
        commands=ChatCommands(database, rules),
        program_chats=ProgramChats(database, rules),
        nodes=Nodes(database, tokens, rules),
        pairings=Pairings(database, rules),
        groups=Groups(database, rules),
        routes=Routes(database, rules),
        links=Links(database, rules),
        runs=Runs(database, rules),
        approvals=Approvals(database, waits, rules),
        standing_approvals=StandingApprovals(database),
        trusted_contents=TrustedContents(database),
        tool_reviews=tool_reviews,
        skills=skills,
        notes=Notes(database, rules),
        tasks=tasks,
        resets=Resets(database, rules),
        checkpoints=Checkpoints(database, waits, rules),
        forks=Forks(database, rules, ids, process=process),
        history=history,
        search=search,
        views=views,
        incarnations=Incarnations(database, rules),
        trees=Trees(database, rules),
        run_trees=RunTrees(database, rules),
        contents=ContentsOfSessions(database, rules),
        costs=Costs(database, rules, clock, names),
        activities=Activities(database, rules, backend.processes, _describe(base, process)),
        overviews=Overviews(database, rules, clock),
        exchanges=exchanges,
        deliveries=Deliveries(database, rules),
        replies=Replies(database, rules),
        waits=waits,
        hub=hub,
        changes=Changes(notifier, history.read_logs, history.read_heads, clock),
        sign_in=SignIn(database, rules, clock, ids),
        tokens=tokens,
        people=People(database, rules, clock, ids),
        names=names,
        code_agents=CodeAgents(database, rules),
        compartments=HomeCompartments(database),
        written=_reloads(base, backend, database, trail),
        refusals=Refusals(database),
        buckets=Buckets(rules.shares.rates, clock),
        ownership=Ownership(database, notifier, rules, base.home, clock=clock, ids=ids),
        credentials=Credentials(database, clock),
        health=health,
        audits=Audits(database, trail, name_of_home(home_key)),
        trail=trail,
        measures=Measures(database, worker if config.gateway.role.works else None, health.meter, version=VERSION),
    )
    gate = OutsideGate(tools, given, callers, rules, workspaces=workspaces, clock=clock)
    outside_calls = OutsideCalls(database, waits, gate, rules, process=process, ids=ids)
    tool_calls = ToolCalls(tools, callers, gate, outside_calls, ids=ids)
    deliverer = Deliverer(
        database=database,
        notifier=notifier,
        senders=senders,
        rules=rules,
        clock=clock,
        process=process,
        paces=paces,
    )
    notifications = Notifications(database, rules, clock, accounts=senders.keys())
    inside = Inside(
        reception=Reception(database, rules, workspaces, clock=clock, acknowledge=acknowledgements.note),
        accounts=Accounts(database, process, clock),
        services=services,
        replies=services.replies,
        home=base.home,
    )
    introspector = ModelIntrospector(base.models, rules, home_key, clock, retry=parts.retry)
    checkpointer = Checkpointer(database, notifier, introspector, rules, process=process, clock=clock)
    app = App(
        home=base.home,
        config=config,
        services=services,
        models=base.models,
        tools=tools,
        tool_calls=tool_calls,
        foreign_tools=ForeignTools(offered, tool_reviews, rules),
        offered_tools=OfferedTools(given, callers, rules),
        outside_calls=outside_calls,
        mcp_tools=mcp_tools,
        harnesses=harnesses,
        run_tools=run_tools,
        mcp=Endpoint(tool_calls, sessions.target, VERSION, config.gateway.max_body_bytes),
        database=backend.database,
        sealer=_sealer_of(base, backend, trail, home_key),
        workspaces=workspaces,
        live=live,
        acknowledgements=acknowledgements,
        deliverer=deliverer,
        notifications=notifications,
        due_children=DueChildren(database, notifier, workspaces, rules, clock=clock),
        scheduler=Scheduler(database, notifier, rules, clock=clock),
        checkpointer=checkpointer,
        channels=channels,
        inside=inside,
        receivers=channels.receivers(inside),
        drain=Drain(
            services.health,
            backend.dispatch,
            worker,
            deliverer=deliverer if config.gateway.role.works else None,
            checkpointer=checkpointer if config.gateway.role.works else None,
            seconds=config.gateway.drain_seconds,
        ),
    )
    return app, worker


def _sealer_of(base: Base, backend: Backend, trail: Trail, home_key: HomeKey) -> Sealer | None:
    path = base.config.audit.path
    if path is None:
        return None
    return Sealer(backend.database, backend.notifier, trail, path=path, home=name_of_home(home_key))


def _everywhere(*places: PublishDelta) -> PublishDelta:
    def publish(session: SessionRow, delta: Delta) -> None:
        for place in places:
            place(session, delta)

    return publish
