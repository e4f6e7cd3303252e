"""Antiphon: a durable session runtime and gateway for AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

from antiphon.version import VERSION

if TYPE_CHECKING:
    from antiphon.agents.toolset import ToolContext, tool
    from antiphon.embedded import Antiphon, RunHandle, SessionHandle
    from antiphon.embedded import open_embedded as open  # noqa: A004 - the public name of contract cli:1

__all__ = ["Antiphon", "RunHandle", "SessionHandle", "ToolContext", "open", "tool"]
__version__ = VERSION

_PLACES = {
    "Antiphon": ("antiphon.embedded", "Antiphon"),
    "RunHandle": ("antiphon.embedded", "RunHandle"),
    "SessionHandle": ("antiphon.embedded", "SessionHandle"),
    "ToolContext": ("antiphon.agents.toolset", "ToolContext"),
    "open": ("antiphon.embedded", "open_embedded"),
    "tool": ("antiphon.agents.toolset", "tool"),
}


def __getattr__(name: str) -> object:
    """Loads a public name when it is first used, so that the command line starts quickly."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = globals()[name] = getattr(import_module(module), attribute)
    return found
