"""Antiphon: a durable session runtime and gateway for AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

from antiphon.version import VERSION

if TYPE_CHECKING:
    from antiphon.agents.model import ToolSchema
    from antiphon.agents.runners.own_tools import Answer
    from antiphon.agents.runners.turn import PlannedCall, ToolReply, Turn, TurnClosed, TurnPerson, TurnSession
    from antiphon.agents.toolset import ToolContext, tool
    from antiphon.config.config import Config
    from antiphon.config.sections.code_agents import AgentInCode as Agent
    from antiphon.domain.approval import Approval, ApprovalState, AskedCall, Verdict
    from antiphon.domain.delivery import Delivery, DeliveryStatus
    from antiphon.domain.errors import (
        AntiphonError,
        Conflict,
        Denied,
        Invalid,
        Limited,
        NotFound,
        TooLarge,
        Unavailable,
    )
    from antiphon.domain.event import Event
    from antiphon.domain.keys import SessionKind
    from antiphon.domain.message import (
        AssistantMessage,
        ImagePart,
        Role,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolResult,
        Usage,
        UserMessage,
    )
    from antiphon.domain.note import Note
    from antiphon.domain.queue_mode import QueueMode
    from antiphon.domain.run import Run, RunStatus
    from antiphon.domain.session import Session, SessionStatus, SessionSummary
    from antiphon.domain.stored_task import NewTask, StoredTask, TaskSlot
    from antiphon.domain.task import TaskLimits
    from antiphon.domain.written_task import PreviewedTask
    from antiphon.embedded.approvals import ApprovalHandles
    from antiphon.embedded.deliveries import DeliveryHandles
    from antiphon.embedded.memory import NoteHandles
    from antiphon.embedded.runs import RunHandle, RunHandles
    from antiphon.embedded.sessions import SessionChanges, SessionHandle, SessionHandles
    from antiphon.embedded.streams import ReplyPiece
    from antiphon.embedded.system import Antiphon
    from antiphon.embedded.system import open_embedded as open  # noqa: A004 - the public name of contract cli:1
    from antiphon.embedded.tasks import TaskFields, TaskHandles
    from antiphon.embedded.tools import Tools
    from antiphon.engine.policy_checks import CodeCheck, approve, block, check, redact
    from antiphon.engine.views.activities import Work
    from antiphon.engine.views.contents import SessionContents
    from antiphon.engine.views.costs import CostReport
    from antiphon.engine.views.incarnations import EarlierConversation
    from antiphon.engine.views.run_trees import RunTree, TreeRun
    from antiphon.engine.views.search import Hit, HitPage, NamedSessions
    from antiphon.engine.views.trees import Member, Tree
    from antiphon.store.migrations import StoreUnusable

__all__ = [
    "Agent",
    "Answer",
    "Antiphon",
    "AntiphonError",
    "Approval",
    "ApprovalHandles",
    "ApprovalState",
    "AskedCall",
    "AssistantMessage",
    "CodeCheck",
    "Config",
    "Conflict",
    "CostReport",
    "Delivery",
    "DeliveryHandles",
    "DeliveryStatus",
    "Denied",
    "EarlierConversation",
    "Event",
    "Hit",
    "HitPage",
    "ImagePart",
    "Invalid",
    "Limited",
    "Member",
    "NamedSessions",
    "NewTask",
    "NotFound",
    "Note",
    "NoteHandles",
    "PlannedCall",
    "PreviewedTask",
    "QueueMode",
    "ReplyPiece",
    "Role",
    "Run",
    "RunHandle",
    "RunHandles",
    "RunStatus",
    "RunTree",
    "Session",
    "SessionChanges",
    "SessionContents",
    "SessionHandle",
    "SessionHandles",
    "SessionKind",
    "SessionStatus",
    "SessionSummary",
    "StoreUnusable",
    "StoredTask",
    "TaskFields",
    "TaskHandles",
    "TaskLimits",
    "TaskSlot",
    "TextPart",
    "ThinkingPart",
    "TooLarge",
    "ToolCallPart",
    "ToolContext",
    "ToolReply",
    "ToolResult",
    "ToolSchema",
    "Tools",
    "Tree",
    "TreeRun",
    "Turn",
    "TurnClosed",
    "TurnPerson",
    "TurnSession",
    "Unavailable",
    "Usage",
    "UserMessage",
    "Verdict",
    "Work",
    "approve",
    "block",
    "check",
    "open",
    "redact",
    "tool",
]
__version__ = VERSION

_MODULES = {
    "antiphon.agents.model": ("ToolSchema",),
    "antiphon.agents.runners.own_tools": ("Answer",),
    "antiphon.agents.runners.turn": ("PlannedCall", "ToolReply", "Turn", "TurnClosed", "TurnPerson", "TurnSession"),
    "antiphon.agents.toolset": ("ToolContext", "tool"),
    "antiphon.config.config": ("Config",),
    "antiphon.config.sections.code_agents": ("Agent",),
    "antiphon.domain.approval": ("Approval", "ApprovalState", "AskedCall", "Verdict"),
    "antiphon.domain.delivery": ("Delivery", "DeliveryStatus"),
    "antiphon.domain.errors": (
        "AntiphonError",
        "Conflict",
        "Denied",
        "Invalid",
        "Limited",
        "NotFound",
        "TooLarge",
        "Unavailable",
    ),
    "antiphon.domain.event": ("Event",),
    "antiphon.domain.keys": ("SessionKind",),
    "antiphon.domain.message": (
        "AssistantMessage",
        "ImagePart",
        "Role",
        "TextPart",
        "ThinkingPart",
        "ToolCallPart",
        "ToolResult",
        "Usage",
        "UserMessage",
    ),
    "antiphon.domain.run": ("QueueMode", "Run", "RunStatus"),
    "antiphon.domain.session": ("Session", "SessionStatus", "SessionSummary"),
    "antiphon.domain.note": ("Note",),
    "antiphon.domain.stored_task": ("NewTask", "StoredTask", "TaskSlot"),
    "antiphon.domain.task": ("TaskLimits",),
    "antiphon.domain.written_task": ("PreviewedTask",),
    "antiphon.embedded.approvals": ("ApprovalHandles",),
    "antiphon.embedded.deliveries": ("DeliveryHandles",),
    "antiphon.embedded.memory": ("NoteHandles",),
    "antiphon.embedded.runs": ("RunHandle", "RunHandles"),
    "antiphon.embedded.sessions": ("SessionChanges", "SessionHandle", "SessionHandles"),
    "antiphon.embedded.streams": ("ReplyPiece",),
    "antiphon.embedded.system": ("Antiphon", "open"),
    "antiphon.embedded.tasks": ("TaskFields", "TaskHandles"),
    "antiphon.embedded.tools": ("Tools",),
    "antiphon.engine.policy_checks": ("CodeCheck", "approve", "block", "check", "redact"),
    "antiphon.engine.views.activities": ("Work",),
    "antiphon.engine.views.contents": ("SessionContents",),
    "antiphon.engine.views.costs": ("CostReport",),
    "antiphon.engine.views.incarnations": ("EarlierConversation",),
    "antiphon.engine.views.run_trees": ("RunTree", "TreeRun"),
    "antiphon.engine.views.search": ("Hit", "HitPage", "NamedSessions"),
    "antiphon.engine.views.trees": ("Member", "Tree"),
    "antiphon.store.migrations": ("StoreUnusable",),
}
"""Where each public name is defined."""
_NAMED_INSIDE = {"Agent": "AgentInCode", "open": "open_embedded"}
"""Public names that their modules know by others."""


def __getattr__(name: str) -> object:
    """Loads a public name when it is first used, so that the command line starts quickly."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), _NAMED_INSIDE.get(name, name))
    return found
