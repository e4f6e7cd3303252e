"""Tools, as offered to people and programs. Contract: tools 1."""

from collections.abc import Sequence
from typing import Any

from antiphon.wire.encoding import Shape


class ToolShape(Shape, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments."""
    server: str | None = None
    """The MCP server that offers it; only runs of agents call such tools."""


class ToolList(Shape, frozen=True, kw_only=True):
    tools: Sequence[ToolShape]
