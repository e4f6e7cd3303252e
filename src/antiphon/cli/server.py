"""The process of `antiphon serve`: start, greeting, signals, drain."""

import gc
import logging
import os
import signal
from pathlib import Path
from typing import cast

import anyio

from antiphon import __version__
from antiphon.app import prepare_home
from antiphon.cli.exits import ExitCode
from antiphon.cli.gateway_file import NAME, find_gateway
from antiphon.cli.home import config_of, home_of
from antiphon.cli.keys import key_problem
from antiphon.cli.local_gateway import LocalGateway, run_gateway
from antiphon.cli.logs import configure_logs
from antiphon.cli.output import console, show, show_fields, show_json, styled
from antiphon.config import FILE_NAME, Config, find_config_file
from antiphon.domain.errors import Conflict
from antiphon.gateway.server import bind

logger = logging.getLogger(__name__)


def serve_home(
    home_option: Path | None, config_option: Path | None, flags: dict[str, object], *, as_json: bool
) -> None:
    """Serves until SIGINT or SIGTERM, then drains."""
    home = home_of(home_option)
    config = config_of(home, config_option, flags)
    configure_logs(config)
    prepare_home(home, is_embedded=config.database.url is None)
    running = find_gateway(home)
    if running is not None:
        raise Conflict(
            f"Home is in use by the gateway at {running.url} (process {running.pid}): {str(home)!r}. "
            "Stop it first, or choose another home with --home.",
            code="home_in_use",
        )
    listener = bind(config.gateway.host, config.gateway.port)
    file = find_config_file(home, config_option) or home / FILE_NAME

    async def serve() -> None:
        async with anyio.create_task_group() as tasks:
            stop = anyio.Event()
            await tasks.start(_watch_signals, stop, config, home, as_json)
            async with run_gateway(home, config, listener) as gateway:
                await _greet(gateway, config, file, as_json=as_json)
                gc.collect()
                gc.freeze()
                gc.enable()
                await stop.wait()
            logger.info("Gateway stopped", extra={"action": "gateway_stopped"})
            tasks.cancel_scope.cancel()

    try:
        anyio.run(serve, backend_options={"use_uvloop": True})
    except ExceptionGroup as group:
        # The task group wraps what kept the gateway from starting.
        raise _sole(group) from group


def _sole(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


async def _watch_signals(
    stop: anyio.Event,
    config: Config,
    home: Path,
    as_json: bool,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                break
            stop.set()
            if not as_json:
                seconds = config.gateway.drain_seconds
                show(f"\nStopping: running turns get up to {seconds:g} s. Ctrl-C again stops at once.", "yellow")
    # What is stored is stored, and unfinished turns go on at the next start.
    (home / NAME).unlink(missing_ok=True)
    os._exit(ExitCode.INTERRUPTED)


async def _greet(gateway: LocalGateway, config: Config, file: Path, *, as_json: bool) -> None:
    services = gateway.app.services
    code = await services.sign_in.new_link_code()
    link = f"{gateway.url}/#code={code}"
    agents = services.rules.agents
    if as_json or not console().is_terminal:
        logger.info(
            "Gateway started", extra={"action": "gateway_started", "url": gateway.url, "home": str(gateway.app.home)}
        )
    if as_json:
        show_json(
            {
                "url": gateway.url,
                "signInLink": link,
                "pid": os.getpid(),
                "home": str(gateway.app.home),
                "agents": [{"id": agent.id, "model": agent.model} for agent in agents.values()],
                "version": __version__,
            }
        )
        return
    console().print(styled(f"Antiphon {__version__} listens on ", "bold"), styled(gateway.url, "bold green"), sep="")
    show_fields(
        {
            "Sign in": f"{link}\n         (good once, for 10 minutes; `antiphon open` prints another)",
            "Chat": "antiphon chat",
            **{
                "Agent" if index == 0 else f"Agent {index + 1}": f"{agent.id}, model {agent.model}"
                for index, agent in enumerate(agents.values())
            },
            "Home": str(gateway.app.home),
        }
    )
    if services.rules.agents[services.rules.default_agent].model == "offline":
        show(
            "The model 'offline' only echoes. For a real one, put this line first in "
            f'{file}:  agents.defaults.model = "openai:gpt-5"  and set the environment variable OPENAI_API_KEY.',
            "yellow",
        )
    for model in dict.fromkeys(agent.model for agent in agents.values()):
        if problem := key_problem(gateway.app.models, model):
            show(f"Model {model!r} cannot be used yet: {problem}.", "yellow")
    show("Ctrl-C stops it.", "dim")
