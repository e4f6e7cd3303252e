"""Decides which session tools a session has. Contract: tools 1, visibility 5."""

from collections.abc import Collection

from antiphon.domain.ids import AgentId
from antiphon.policy.acts import Act
from antiphon.policy.patterns import matches_any
from antiphon.policy.visibility import VisibilityRules

WAIT_TOOL = "sessions_wait"
"""The tool that answers with the results it waited for."""
SHOW_OTHERS = frozenset(
    {"sessions_history", "sessions_list", "sessions_search", "sessions_send", "sessions_wait", "subagents"}
)
"""Session tools whose results hold words of other sessions."""
MEMORY_TOOL = "memory"
"""The tool with which a session reads and changes its own notes."""
YIELD_TOOL = "sessions_yield"
"""The tool that ends the calling run."""

MESSAGE_TOOL = "message"
"""The tool that sends texts out of the system."""

SUMMARIZE_TOOL = "summarize"
"""The tool that summarises the session's own conversation."""

TASKS_TOOL = "tasks"
"""The tool that sets what an agent does later."""

SESSION_TOOLS = frozenset(
    {
        "agents_list",
        MEMORY_TOOL,
        MESSAGE_TOOL,
        "session_status",
        "sessions_history",
        "sessions_list",
        "sessions_search",
        "sessions_send",
        "sessions_spawn",
        WAIT_TOOL,
        YIELD_TOOL,
        "subagents",
        SUMMARIZE_TOOL,
        TASKS_TOOL,
    }
)
"""The names of Antiphon's own tools."""

NEVER_ASK = SESSION_TOOLS - {MESSAGE_TOOL, TASKS_TOOL}
"""The session tools whose calls no person has to approve, because their effects stay in the home and in the run."""

SPAWN_FAMILY = frozenset({"sessions_spawn", WAIT_TOOL, YIELD_TOOL, "subagents"})
"""The tools with which a session governs its children."""

_ACTS = {
    "sessions_list": Act.LIST,
    "sessions_history": Act.READ,
    "sessions_search": Act.READ,
    "sessions_send": Act.SEND,
    "session_status": Act.STATUS,
}


def named_session_tools(patterns: Collection[str]) -> frozenset[str]:
    """The session tools that the patterns cover."""
    return frozenset(name for name in SESSION_TOOLS if matches_any(name, patterns))


def is_bound_to_parent(subagent_tools: Collection[str]) -> bool:
    """Whether sub-agents may send only to their requester, because the settings do not give them the tool."""
    return "sessions_send" not in subagent_tools


def allowed_session_tools(
    agent_id: AgentId, depth: int, max_depth: int, *, rules: VisibilityRules, subagent_tools: Collection[str]
) -> frozenset[str]:
    """All session tools, except for acts that are switched off; sub-agents get the configured ones and may always send.

    Sessions that may have children get the spawn family; sessions at the maximum depth do not see `sessions_spawn`.
    """
    names = SESSION_TOOLS if depth == 0 else SESSION_TOOLS & {*subagent_tools, "sessions_send"}
    if depth < max_depth:
        names |= SPAWN_FAMILY
    else:
        names -= {"sessions_spawn"}
    off = {name for name, act in _ACTS.items() if rules.of(agent_id, act, is_sandboxed=False) is None}
    if depth > 0:
        off.discard("sessions_send")
    return frozenset(names - off)
