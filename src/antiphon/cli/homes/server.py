"""The processes of `antiphon serve` and `antiphon worker`: start, greeting, signals, drain."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import Struct

from antiphon import __version__
from antiphon.app import open_app, probe_app
from antiphon.backends import describe_database
from antiphon.building import App
from antiphon.cli.connection.gateway_file import NAME, find_gateway
from antiphon.cli.connection.home import config_of, home_of
from antiphon.cli.connection.local_gateway import LocalGateway, home_in_use, run_gateway
from antiphon.cli.connection.logs import configure_logs
from antiphon.cli.exits import ExitCode, sole
from antiphon.cli.homes.keys import key_problem, offline_remedy
from antiphon.cli.program import command_line
from antiphon.cli.rendering.links import sign_in_link
from antiphon.cli.rendering.output import console, show, show_fields, show_json, styled
from antiphon.config.config import Config
from antiphon.config.sections.gateway import ProcessRole
from antiphon.config.sources import find_config_file
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import Agent, AgentRuntime
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.gateway.server import bind, serving
from antiphon.home import prepare_home
from antiphon.private_files import restrict_umask
from antiphon.program import with_path
from antiphon.settings.file import TOML_NAME

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LocalWorker(Struct, frozen=True, kw_only=True):
    app: App
    url: str | None
    """Where it tells whether it is ready, if it listens."""


def serve_home(
    home_option: Path | None, config_option: Path | None, flags: dict[str, object], *, as_json: bool
) -> None:
    """Serves until a signal or the terminal ends it, then drains. A worker listens only if a flag names the port."""
    home = home_of(home_option)
    config = config_of(home, config_option, flags)
    configure_logs(config)
    restrict_umask()
    prepare_home(home, is_embedded=config.database.url is None)
    if config.gateway.role is ProcessRole.WORKER:
        _work(home, config, is_listening=flags.get("gateway.port") is not None, as_json=as_json)
        return
    running = find_gateway(home)
    if running is not None:
        raise home_in_use(home, running)
    listener = bind(config.gateway.host, config.gateway.port)
    file = find_config_file(home, config_option) or home / TOML_NAME

    async def greet(gateway: LocalGateway) -> None:
        await _greet(gateway, config, file, as_json=as_json)

    _run(run_gateway(home, config, listener), greet, config, home / NAME, as_json=as_json)
    logger.info("Gateway stopped", extra={"action": "gateway_stopped"})


def _work(home: Path, config: Config, *, is_listening: bool, as_json: bool) -> None:
    listener = bind(config.gateway.host, config.gateway.port) if is_listening else None

    async def greet(worker: LocalWorker) -> None:
        _greet_of_worker(worker, as_json=as_json)

    _run(_run_worker(home, config, listener), greet, config, None, as_json=as_json)
    logger.info("Worker stopped", extra={"action": "worker_stopped"})


@asynccontextmanager
async def _run_worker(home: Path, config: Config, listener: socket.socket | None) -> AsyncGenerator[LocalWorker]:
    async with open_app(home, config) as app:
        if listener is None:
            yield LocalWorker(app=app, url=None)
            return
        async with serving(probe_app(app), listener, on_stop=lambda: None) as url:
            try:
                yield LocalWorker(app=app, url=url)
            finally:
                await app.drain.run()  # while probes are still answered


def _run(
    running: AbstractAsyncContextManager[T],
    greet: Callable[[T], Awaitable[None]],
    config: Config,
    traces: Path | None,
    *,
    as_json: bool,
) -> None:
    """Runs it until a signal; a second one ends the process at once, after removing its traces."""

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            stop = anyio.Event()
            await tasks.start(_watch_signals, stop, config, traces, as_json)
            async with running as begun:
                await greet(begun)
                gc.freeze()  # almost all of it stays; to look for what does not would stop the loop for 0.1 s
                gc.enable()
                await stop.wait()
            tasks.cancel_scope.cancel()

    try:
        anyio.run(run, backend_options={"use_uvloop": True})
    except ExceptionGroup as group:
        # The task group wraps what kept it from starting.
        raise sole(group) from group


async def _watch_signals(
    stop: anyio.Event,
    config: Config,
    traces: Path | None,
    as_json: bool,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(*_ending_signals()) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set():
                break
            stop.set()
            if not as_json and number != signal.SIGHUP:
                seconds = config.gateway.drain_seconds
                show(f"\nStopping: running turns get up to {seconds:g} s. Ctrl-C again stops at once.", "yellow")
    # What is stored is stored, and unfinished turns go on at the next start, or elsewhere.
    if traces is not None:
        traces.unlink(missing_ok=True)
    os._exit(ExitCode.INTERRUPTED)


def _ending_signals() -> tuple[signal.Signals, ...]:
    """A closed terminal ends the process too, unless it was begun by `nohup`."""
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if is_kept else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _greet(gateway: LocalGateway, config: Config, file: Path, *, as_json: bool) -> None:
    app = gateway.app
    if as_json or not console().is_terminal:
        logger.info("Gateway started", extra={"action": "gateway_started", "url": gateway.url, "home": str(app.home)})
    if as_json:
        show_json({"url": gateway.url, **_facts(app)})
        return
    console().print(styled(f"Antiphon {__version__} listens on ", "bold"), styled(gateway.url, "bold green"), sep="")
    await _show_way_in(gateway)
    await _show_invitations(gateway)
    show_fields(
        {
            "Chat": command_line("chat", app.home),
            **_shown_facts(app),
        }
    )
    if not config.gateway.role.works:
        show(with_path("This process runs no agents. Start `antiphon worker` on the same database."), "yellow")
    elif (agent := app.services.rules.agents[app.services.rules.default_agent]).model == "offline" and (
        agent.runtime is not AgentRuntime.RUNNER
    ):
        show(f"The model 'offline' only echoes. {offline_remedy(file)}", "yellow")
    _show_missing_keys(app)
    show("Ctrl-C stops it.", "dim")


async def _show_way_in(gateway: LocalGateway) -> None:
    """A link with its code on a terminal alone: other output ends up in journals, which others read."""
    another = command_line("open", gateway.app.home)
    if not sys.stdout.isatty():
        show(f"Sign in: `{another}` prints a link.")
        return
    code = await gateway.app.services.sign_in.new_link_code(OWNER)
    show(f"Sign in (good once, for 10 minutes; `{another}` prints another):")
    made = sign_in_link(gateway.url, code)
    show(made.link, "bold green")  # on a line of its own, a narrow terminal does not break it
    for hint in made.hints:
        show(hint, "dim")


async def _show_invitations(gateway: LocalGateway) -> None:
    """How owners reach their agents on each channel; codes on a terminal alone, as for `_show_way_in`."""
    app = gateway.app
    for each in await app.channels.greetings(
        app.services, command=command_line("pair link", app.home), may_show_code=sys.stdout.isatty()
    ):
        show(with_path(each.text) if each.is_warning else each.text, "yellow" if each.is_warning else "")
        if each.link is not None:
            show(each.link, "bold green")


def _greet_of_worker(worker: LocalWorker, *, as_json: bool) -> None:
    app = worker.app
    if as_json or not console().is_terminal:
        logger.info(
            "Worker started", extra={"action": "worker_started", "database": _database(app), "home": str(app.home)}
        )
    if as_json:
        show_json({**({} if worker.url is None else {"url": worker.url}), **_facts(app)})
        return
    show(f"Antiphon {__version__} works as process {os.getpid()} of {socket.gethostname()}", "bold")
    show_fields({**_shown_facts(app), "Ready": None if worker.url is None else f"{worker.url}/ready"})
    _show_missing_keys(app)
    show("Ctrl-C stops it.", "dim")


def _facts(app: App) -> JsonObject:
    agents: list[JsonValue] = [
        {"id": agent.id, "model": agent.model, **_of_harness(agent)} for agent in app.services.rules.agents.values()
    ]
    return {
        "pid": os.getpid(),
        "role": app.config.gateway.role.value,
        "home": str(app.home),
        "database": _database(app),
        "agents": agents,
        "version": __version__,
    }


def _shown_facts(app: App) -> dict[str, str | None]:
    return {
        **{
            "Agent" if index == 0 else f"Agent {index + 1}": f"{agent.id}, {_carried_out_by(agent)}"
            for index, agent in enumerate(app.services.rules.agents.values())
        },
        "Home": str(app.home),
        "Database": None if app.config.database.url is None else _database(app),
    }


def _of_harness(agent: Agent) -> JsonObject:
    if agent.runtime is not AgentRuntime.ACP:
        return {}
    return {"runtime": agent.runtime.value, **({"unattended": True} if agent.is_unattended else {})}


def _carried_out_by(agent: Agent) -> str:
    if agent.runtime is not AgentRuntime.ACP:
        return f"model {agent.model}"
    return "a harness that may act without asking (unattended)" if agent.is_unattended else "a harness that asks"


def _database(app: App) -> str:
    return describe_database(app.home, app.config.database.address())


def _show_missing_keys(app: App) -> None:
    if not app.config.gateway.role.works:
        return
    agents = [each for each in app.services.rules.agents.values() if each.runtime is not AgentRuntime.ACP]
    for model in dict.fromkeys(agent.model for agent in agents):
        if problem := key_problem(app.models, model):
            show(f"Model {model!r} cannot be used yet: {problem}.", "yellow")
