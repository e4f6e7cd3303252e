"""Antiphon's own tools, each declared once, and which of them a session has. Contract: tools 1, visibility 5."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.policy.acts import Act
from antiphon.policy.patterns import matches_any
from antiphon.policy.visibility import VisibilityRules


class ToolDeclaration(Struct, frozen=True, kw_only=True):
    """What must be known of a session tool outside its own file. Its arguments, codes and effects stand there."""

    act: Act | None = None
    """The act of sessions that it performs: an agent for which that is switched off does not have the tool."""
    for_guests: bool = False
    """Whether every role has it: a guest for the one session that it writes to, with what is remembered of it."""
    shows_others: bool = False
    """Whether its results hold words of other sessions."""
    asks: bool = False
    """Whether a person may have to approve its calls, because their effects leave the home or the run."""
    governs_children: bool = False
    """Whether it belongs to the tools with which a session governs its children."""
    invokes: str | None = None
    """How its calls reach other sessions: `send`, `spawn`, or `steer`, which one of its actions does."""


MEMORY_TOOL = "memory"
MESSAGE_TOOL = "message"
"""The tool that sends texts and files out."""
FILES_ARGUMENT = "files"
"""The argument of `message` that names files."""
SUMMARIZE_TOOL = "summarize"
TASKS_TOOL = "tasks"
WAIT_TOOL = "sessions_wait"
"""The tool that answers with the results it waited for."""
YIELD_TOOL = "sessions_yield"
"""The tool that ends the calling run."""
SESSION_TOOLS: Mapping[str, ToolDeclaration] = {
    "agents_list": ToolDeclaration(),
    MEMORY_TOOL: ToolDeclaration(for_guests=True),
    MESSAGE_TOOL: ToolDeclaration(asks=True),
    "session_status": ToolDeclaration(act=Act.STATUS, for_guests=True),
    "sessions_history": ToolDeclaration(act=Act.READ, for_guests=True, shows_others=True),
    "sessions_list": ToolDeclaration(act=Act.LIST, for_guests=True, shows_others=True),
    "sessions_search": ToolDeclaration(act=Act.READ, for_guests=True, shows_others=True),
    "sessions_send": ToolDeclaration(act=Act.SEND, for_guests=True, shows_others=True, invokes="send"),
    "sessions_spawn": ToolDeclaration(governs_children=True, invokes="spawn"),
    WAIT_TOOL: ToolDeclaration(governs_children=True, shows_others=True),
    YIELD_TOOL: ToolDeclaration(governs_children=True),
    "simulate_tool_call": ToolDeclaration(for_guests=True),
    "subagents": ToolDeclaration(governs_children=True, shows_others=True, invokes="steer"),
    SUMMARIZE_TOOL: ToolDeclaration(for_guests=True),
    TASKS_TOOL: ToolDeclaration(asks=True),
}
"""By name. Policy, the checks of settings and the agents' loop read this; to them, any other tool is a foreign one."""
GUEST_TOOLS = frozenset(name for name, tool in SESSION_TOOLS.items() if tool.for_guests)
SHOW_OTHERS = frozenset(name for name, tool in SESSION_TOOLS.items() if tool.shows_others)
NEVER_ASK = frozenset(name for name, tool in SESSION_TOOLS.items() if not tool.asks)
SPAWN_FAMILY = frozenset(name for name, tool in SESSION_TOOLS.items() if tool.governs_children)


def invoked_by(tool: str, arguments: Mapping[str, object]) -> str | None:
    """How the call reaches another session; None if it does not. Contract: flow 9."""
    declared = SESSION_TOOLS.get(tool)
    how = None if declared is None else declared.invokes
    return None if how == "steer" and arguments.get("action") != how else how


def named_session_tools(patterns: Collection[str]) -> frozenset[str]:
    """The session tools that the patterns cover."""
    return frozenset(name for name in SESSION_TOOLS if matches_any(name, patterns))


def is_bound_to_parent(subagent_tools: Collection[str]) -> bool:
    """Whether sub-agents may send only to their requester, because the settings do not give them the tool."""
    return "sessions_send" not in subagent_tools


def allowed_session_tools(
    agent_id: AgentId,
    depth: int,
    max_depth: int,
    *,
    rules: VisibilityRules,
    subagent_tools: Collection[str],
    has_channels: bool = True,
) -> frozenset[str]:
    """All session tools, except for acts that are switched off; sub-agents get the configured ones and may always send.

    Sessions that may have children get the spawn family; sessions at the maximum depth do not see `sessions_spawn`.
    Without channels there is nothing that `message` could reach.
    """
    names = frozenset(SESSION_TOOLS) if depth == 0 else SESSION_TOOLS.keys() & {*subagent_tools, "sessions_send"}
    if depth < max_depth:
        names |= SPAWN_FAMILY
    else:
        names -= {"sessions_spawn"}
    acts = {name: tool.act for name, tool in SESSION_TOOLS.items() if tool.act is not None}
    if not has_channels:
        names -= {MESSAGE_TOOL}
    off = {name for name, act in acts.items() if rules.of(agent_id, act, is_sandboxed=False) is None}
    if depth > 0:
        off.discard("sessions_send")
    return frozenset(names - off)
