"""Agents that a program gives in code. Contract: foreign_agents 1."""

from collections.abc import Callable
from typing import Any

from pydantic import PrivateAttr

from antiphon.config.sections.agents import AgentSection


class AgentInCode(AgentSection):
    """An agent, `antiphon.Agent`: the fields of `agents.list[]`, and a function as its runner.

    The runner gets an `antiphon.Turn`. It is a coroutine function, or a plain one, which runs in a thread; it yields
    pieces of the reply or returns it. A name, as the configuration has it, is found when the home is opened.
    """

    _function: Callable[[Any], Any] | None = PrivateAttr(default=None)

    def __init__(self, id: str, *, runner: Callable[[Any], Any] | str | None = None, **settings: Any) -> None:
        """Raises `pydantic.ValidationError` for settings that do not fit."""
        super().__init__(id=id, runner=_name_of(runner), **settings)
        if callable(runner):
            self._function = runner

    @property
    def function(self) -> Callable[[Any], Any] | None:
        """Its runner, if it was given as one."""
        return self._function


def _name_of(runner: Callable[[Any], Any] | str | None) -> str | None:
    """How a runner is named in rows and errors."""
    if runner is None or isinstance(runner, str):
        return runner
    named = runner if hasattr(runner, "__qualname__") else type(runner)
    return f"{named.__module__}:{named.__qualname__}"[:200]
