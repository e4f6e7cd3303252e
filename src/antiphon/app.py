"""Opens a home and runs it in one task group; the HTTP applications of what runs."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from msgspec.structs import replace

from antiphon.adapters import open_channels, ready_channels
from antiphon.agents.runners.finding import NO_RUNNERS, find_runners
from antiphon.building import App, Base, Parts, build, open_backend, rules_for
from antiphon.clock import RandomIds, SystemClock
from antiphon.config.config import Config
from antiphon.config.misread import misread
from antiphon.config.named import dropped_defaults, ineffective_names, refuse_misspelt
from antiphon.configured import check_models, classified, function_tool, installed_tools, mcp_settings, open_models
from antiphon.domain.actor import Principal
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import ProcessId
from antiphon.engine.access.home_keys import find_home_key
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.engine.views.indexer import Indexer
from antiphon.engine.work.watchdog import Watchdog
from antiphon.engine.work.worker import Worker
from antiphon.gateway.context import Gateway
from antiphon.gateway.guard import AsgiApp, GatewaySettings
from antiphon.gateway.http import build_gateway, build_probes
from antiphon.home import prepare_home
from antiphon.proxies import is_loopback
from antiphon.seals import refuse_seal_place
from antiphon.settings.addresses import host_in_header
from antiphon.store import code_agents
from antiphon.store.compartments import read_compartments
from antiphon.store.database import Database

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_app(home: Path, config: Config, parts: Parts | None = None) -> AsyncGenerator[App]:
    """A running system on the home, which is created if it does not exist.

    Leaving drains: running turns get `gateway.drain_seconds`, and unfinished work continues at the next start.
    Raises `StoreUnusable`, `Invalid`.
    """
    parts = parts or Parts()
    clock, rules = parts.clock or SystemClock(), rules_for(config, parts)
    runners = NO_RUNNERS
    if config.gateway.role.works:
        runners = await to_thread.run_sync(find_runners, rules.agents.values(), parts.runners)
    base = Base(
        home=home,
        config=config,
        parts=parts,
        clock=clock,
        ids=parts.ids or RandomIds(clock),
        rules=rules,
        found_runners=runners,
        models=open_models(home, config, parts.models),
        tools=classified([*installed_tools(), *map(function_tool, parts.tools)], config),
        channels=ready_channels(config),
    )
    await to_thread.run_sync(check_models, base.rules, base.models)
    functions = {each.schema.name for each in base.tools}
    refuse_misspelt(config, functions)
    for problem in ineffective_names(config, functions):
        logger.warning("Setting has no effect", extra={"action": "setting_ineffective", "setting": problem})
    for problem in dropped_defaults(config):
        logger.warning("Setting drops its defaults", extra={"action": "setting_drops_defaults", "setting": problem})
    for problem in misread(config):
        logger.warning("Setting may be misread", extra={"action": "setting_misread", "setting": problem})
    refuse_seal_place(home, config.audit.path)
    prepare_home(home, is_embedded=config.database.url is None)
    workers: list[Worker] = []
    process = ProcessId(base.ids.new("proc"))
    refused: Invalid | None = None
    async with open_backend(base, process, workers) as backend:
        try:
            base = await _with_compartments(base, backend.database)
        except Invalid as error:
            refused = error
        else:
            async with open_channels(base.channels, clock, more=parts.channels) as channels:
                home_key = await find_home_key(backend.database, base.ids)
                await _note_code_agents(base, backend.database)
                app, worker = build(base, backend, process=process, channels=channels, home_key=home_key)
                async with anyio.create_task_group() as tasks:
                    for task in backend.tasks:
                        tasks.start_soon(task)
                    tasks.start_soon(app.services.hub.run)
                    tasks.start_soon(app.services.hub.sweep)
                    tasks.start_soon(app.services.changes.run)
                    tasks.start_soon(app.services.credentials.run)
                    tasks.start_soon(app.services.names.run)
                    tasks.start_soon(app.services.written.run)
                    tasks.start_soon(app.outside_calls.run)
                    tasks.start_soon(app.services.trail.run)
                    if app.sealer is not None:
                        tasks.start_soon(app.sealer.run)
                    tasks.start_soon(app.mcp.run)
                    tasks.start_soon(Watchdog(meter=app.services.health.meter).run)
                    tasks.start_soon(app.services.health.run)
                    if config.gateway.role.works:
                        workers.append(worker)
                        tasks.start_soon(_upkeep(app).run)
                        tasks.start_soon(app.mcp_tools.run)
                        tasks.start_soon(app.harnesses.run)
                        tasks.start_soon(app.run_tools.run)
                        tasks.start_soon(app.due_children.run)
                        tasks.start_soon(app.scheduler.run)
                        tasks.start_soon(app.checkpointer.run)
                        has_peers = backend.processes is not None
                        tasks.start_soon(Indexer(backend.database, backend.notifier, has_peers=has_peers).run)
                        tasks.start_soon(worker.run)
                        tasks.start_soon(backend.dispatch.run, worker)
                        tasks.start_soon(app.deliverer.run)
                        tasks.start_soon(app.notifications.run)
                        tasks.start_soon(app.live.run)
                        tasks.start_soon(app.acknowledgements.run)
                        tasks.start_soon(app.inside.accounts.run)
                        tasks.start_soon(channels.serve, app.inside)
                    try:
                        yield app
                    finally:
                        with anyio.CancelScope(shield=True):
                            channels.stop()
                            await app.drain.run()
                            await app.outside_calls.drain(config.gateway.drain_seconds)
                            await app.models.aclose()
                            await app.services.trail.settle()
                            if app.sealer is not None:
                                await app.sealer.finish()
                        tasks.cancel_scope.cancel()
    if refused is not None:  # not from within the groups of tasks, which would wrap it
        raise refused


async def _with_compartments(base: Base, database: Database) -> Base:
    """The same, with the compartments that settings name. Raises `Invalid` for one that does not exist."""
    config = base.config
    if not config.names_compartments:
        return base
    found = await database.read(read_compartments)
    config.classification_of_commands(found)
    mcp_settings(base.home, config, found)
    return replace(
        base,
        compartments=found,
        rules=rules_for(config, base.parts, found),
        channels=ready_channels(config, found),
        tools=classified(base.tools, config, found),
    )


def _upkeep(app: App) -> Upkeep:
    rules = app.services.rules
    return Upkeep(
        app.database,
        app.workspaces,
        app.services.clock,
        stale_after=rules.stale_after,
        retention=rules.retention,
        also=(app.services.forks.remove_left,),
    )


def gateway_app(app: App, owner_token: str, own_token: str | None = None) -> AsgiApp:
    """The HTTP application of a running system; `own_token` is valid in this process only."""
    gateway = app.config.gateway
    public_host = None if gateway.public_url is None else urlsplit(gateway.public_url).hostname
    hosts = [host_in_header(host) for host in (gateway.host, public_host) if host is not None]
    settings = GatewaySettings(
        owner_token=owner_token,
        own_token=own_token,
        allowed_hosts=(*hosts, *gateway.allowed_hosts),
        allowed_hosts_name=app.config.origins.named("gateway", "allowed_hosts"),
        max_body_bytes=app.config.gateway.max_body_bytes,
        is_local_alone=gateway.public_url is None and not gateway.allowed_hosts and is_loopback(gateway.host),
    )
    return build_gateway(_gateway_of(app), app.mcp, settings)


def probe_app(app: App) -> AsgiApp:
    """The HTTP application of a process without a gateway: only `/health` and `/ready`."""
    return build_probes(_gateway_of(app))


def _gateway_of(app: App) -> Gateway:
    async def check_model(name: str) -> None:
        await app.models.find(name)

    async def rotate(principal: Principal) -> str:
        return str(await app.services.ownership.rotate(principal))

    return Gateway(
        services=app.services,
        tool_calls=app.tool_calls,
        offered_tools=app.offered_tools,
        foreign_tools=app.foreign_tools,
        check_model=check_model,
        receivers=app.receivers,
        addresses=app.channels.addresses,
        invite=app.channels.invite,
        join_channels=app.channels.join_channels,
        public_url=app.config.gateway.public_url,
        rotate_owner_token=rotate,
    )


async def _note_code_agents(base: Base, database: Database) -> None:
    """Notes the agents that are given in code, so that a process without the code leaves their runs queued."""
    named = {id: base.rules.agents[id].runner or "" for id in base.parts.runners if id in base.rules.agents}
    known = {each.id: each.runner for each in await database.read(code_agents.list_all)} if named else {}
    new = {id: runner for id, runner in named.items() if known.get(id) != runner}
    if new:
        await database.run(code_agents.put, new)
