"""The settings of one MCP server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from antiphon.domain.agent import Effect
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId

MASK = "***"
SHORTEST_SECRET = 6
"""Shorter values occur in too many harmless texts to be masked."""
UNDECLARED = frozenset({Effect.WRITES, Effect.LEAVES})
"""The effects that an undeclared tool is assumed to have. Contract: flow 10."""


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
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its tools that settings name, each with the setting."""
    classification: Classification = PUBLIC
    """The classification of its results, which are untrusted in any case."""
    clearance: Classification | None = None
    """What may go to it with a call; None for the default, see `policy.sinks`."""
    timeout: timedelta = timedelta(seconds=60)
    """How long the start, and each call, may take."""
    log: Path | None = None
    """The file for the program's standard error, emptied at each start. None discards it."""

    def effects_of(self, tool: str) -> frozenset[Effect]:
        return self.effects.get(tool) or self.effects.get("*") or UNDECLARED

    def masked(self, text: str) -> str:
        """The text without the values of `env` and `headers`, and without the address."""
        hidden = [*self.env.values(), *self.headers.values(), *([self.url] if self.url else [])]
        for secret in sorted(hidden, key=len, reverse=True):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return text
