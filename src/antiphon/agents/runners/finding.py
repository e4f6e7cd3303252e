"""Finds the runners that settings name: functions of modules, and entry points. Contract: foreign_agents 1."""

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from msgspec import Struct

from antiphon.agents.runners.functions import Runner
from antiphon.domain.agent import Agent, AgentRuntime
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId

logger = logging.getLogger(__name__)

GROUP: Final = "antiphon.runners"


class FoundRunners(Struct, frozen=True, kw_only=True):
    runners: Mapping[AgentId, Runner]
    missing: Mapping[AgentId, Invalid]
    """Why the runners of other agents are not there; their runs stay queued."""


NO_RUNNERS = FoundRunners(runners={}, missing={})


def find_runners(agents: Iterable[Agent], given: Mapping[AgentId, Runner]) -> FoundRunners:
    """The runners of all agents that have one: those given in code, and those that settings name."""
    runners, missing = dict(given), dict[AgentId, Invalid]()
    for agent in agents:
        if agent.runtime is not AgentRuntime.RUNNER or agent.id in runners:
            continue
        assert agent.runner is not None
        try:
            runners[agent.id] = find_runner(agent.runner)
        except Invalid as error:
            missing[agent.id] = error
            logger.warning(
                "Runner of an agent is missing: its runs stay queued",
                extra={"action": "runner_missing", "agent": agent.id, "error": error.message},
            )
    return FoundRunners(runners=runners, missing=missing)


def find_runner(name: str) -> Runner:
    """The function that the name stands for. Raises `Invalid` (`runner_missing`, `duplicate_runner`)."""
    if ":" in name:
        return _from_module(*name.split(":", 1), name=name)
    found = list(entry_points(group=GROUP, name=name))
    if len(found) > 1:
        packages = ", ".join(sorted(point.dist.name for point in found if point.dist is not None))
        raise Invalid(
            f"Runner {name!r} is offered by several packages: {packages}. Remove all but one.", code="duplicate_runner"
        )
    if not found:
        raise Invalid(
            f"Runner is not installed: {name!r}. Install its package, or name a function: 'package.module:function'.",
            code="runner_missing",
        )
    return _from_module(found[0].module, found[0].attr, name=name)


def _from_module(module: str, attribute: str, *, name: str) -> Runner:
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the program of somebody else: other agents run
        raise Invalid(f"Runner cannot be loaded: {name!r}. {_where(error)}", code="runner_missing") from error
    if not callable(found):
        raise Invalid(f"Runner is no function: {name!r} is a {type(found).__name__}.", code="runner_missing")
    return found


def _where(error: BaseException) -> str:
    """The error, with the line at which it arose."""
    said, trace = f"{type(error).__name__}: {str(error)[:300]}", error.__traceback__
    if trace is None:
        return said
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    return said if file.startswith("<") or "importlib" in file else f"{said} ({file}, line {trace.tb_lineno})."
