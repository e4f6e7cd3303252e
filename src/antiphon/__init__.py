"""Antiphon: a durable session runtime and gateway for AI agents."""

from antiphon.agents.toolset import ToolContext, tool
from antiphon.embedded import Antiphon, RunHandle, SessionHandle
from antiphon.embedded import open_embedded as open  # noqa: A004 - the public name of contract cli:1

__all__ = ["Antiphon", "RunHandle", "SessionHandle", "ToolContext", "open", "tool"]
__version__ = "0.1.0"
