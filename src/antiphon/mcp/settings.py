"""The settings of one MCP server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from antiphon.domain.agent import Effect
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.ids import AgentId
from antiphon.domain.message import JsonObject

MASK = "***"
SHORTEST_SECRET = 6
"""Shorter values occur in too many harmless texts to be masked."""

PRIVATE = Classification(Level.INTERNAL)
"""What a result labelled as private is made of, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server of one agent: a program to start, or an address to call."""

    agent_id: AgentId
    name: str
    """The prefix of its tools' names."""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    tools: tuple[str, ...] | None = None
    """Names of its tools that the agent may call; None means all."""
    effects: Mapping[str, frozenset[Effect]] = field(default_factory=dict[str, frozenset[Effect]])
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By tool: its arguments that say where to or how much."""
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its tools that settings name, each with the setting."""
    classification: Classification = PUBLIC
    """The classification of its results, which are untrusted unless a trusted label says otherwise."""
    private: Classification = PRIVATE
    """What the results are made of that it labels as private."""
    trusts_labels: bool = False
    """Whether its labels may also lower what is declared."""
    clearance: Classification | None = None
    """What may go to it with a call; None for the default, see `policy.sinks`."""
    timeout: timedelta = timedelta(seconds=60)
    """How long the start, and each call, may take."""
    log: Path | None = None
    """The file for the program's standard error, emptied at each start. None discards it."""

    def declared_effects(self, tool: str) -> frozenset[Effect] | None:
        """None if the settings do not say."""
        return self.effects.get(tool) or self.effects.get("*") or None

    @property
    def origin(self) -> list[str]:
        """What tells this server from another of its name, without its secrets as far as settings keep them apart."""
        return [self.command or "", *self.args, self.url or ""]

    def routes_of(self, tool: str, parameters: JsonObject) -> tuple[str, ...] | None:
        """None too if the settings name an argument that the tool does not have: who knows what took its place."""
        routes = self.routes.get(tool)
        known = arguments_in(parameters)
        return None if routes is None or any(name not in known for name in routes) else routes

    def masked(self, text: str) -> str:
        """The text without the values of `env` and `headers`, and without the address."""
        hidden = [*self.env.values(), *self.headers.values(), *([self.url] if self.url else [])]
        for secret in sorted(hidden, key=len, reverse=True):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return text


def arguments_in(parameters: JsonObject) -> list[str]:
    """The names of the arguments that a tool's schema has."""
    properties = parameters.get("properties")
    return list(properties) if isinstance(properties, dict) else []
