"""Checks of a configuration whose settings are valid each: models, the address to listen on, the running gateway."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from antiphon.cli.connection.gateway_file import RunningGateway, place_of
from antiphon.cli.homes.keys import key_problem
from antiphon.config.config import Config
from antiphon.configured import open_models
from antiphon.domain.errors import Invalid


def model_problems(home: Path, config: Config) -> Iterator[str]:
    """The models that no agent can use, because the name or the provider is unknown. A gateway does not start."""
    models = open_models(home, config)
    told = set[tuple[str, ...]]()
    for agent in config.agent_map().values():
        place = config.place_of_model(agent.id)
        if place in told:
            continue
        told.add(place)
        try:
            models.open(agent.model)
        except Invalid as error:
            yield f"{config.origins.where(place)}: {'.'.join(place)}: {error.message.rstrip('.')}."


def key_problems(home: Path, config: Config) -> Iterator[str]:
    """The keys of agents' models that are missing or malformed. A gateway starts, and their turns fail."""
    models, told = open_models(home, config), set[str]()
    for agent in config.agent_map().values():
        if agent.model not in told and (problem := key_problem(models, agent.model)) is not None:
            told.add(agent.model)
            place = config.place_of_model(agent.id)
            yield f"{config.origins.where(place)}: {'.'.join(place)}: {problem.rstrip('.')}"


def listening_error(host: str, port: int) -> OSError | None:
    """Why this machine cannot listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def address_problem(config: Config) -> str | None:
    """Why a gateway can never listen at the configured address; that it is in use now is no reason."""
    host, port = config.gateway.host, config.gateway.port
    error = listening_error(host, port)
    if error is None or error.errno == errno.EADDRINUSE:
        return None
    return f"{config.origins.named('gateway', 'host')}: this machine cannot listen on {host}:{port} ({error.strerror})"


def needs_restart(config: Config, running: RunningGateway) -> bool | None:
    """Whether the running gateway read other settings than these; None if it did not say."""
    if running.config_digest is None:
        return None
    origins = config.origins
    return (running.config_file, running.config_digest) != (place_of(origins), origins.digest)


def restart_reason(config: Config, running: RunningGateway) -> str:
    """What a person reads if it needs a restart."""
    used, file = running.config_file, place_of(config.origins)
    gateway = f"the running gateway (process {running.pid})"
    if used is not None and used != file and Path(used).exists():
        return f"{gateway} does not use this file: it was started with {used!r}"
    return f"{gateway} still uses the settings from its start: restart it to apply the changes"
