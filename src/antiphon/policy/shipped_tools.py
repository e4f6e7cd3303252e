"""The tools that come with Antiphon and are no session tools, each declared once. Contract: foreign_agents 6."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from antiphon.domain.agent import ToolProfile
from antiphon.policy.session_tools import MEMORY_TOOL, MESSAGE_TOOL, SESSION_TOOLS, TASKS_TOOL


class ShippedTool(Struct, frozen=True, kw_only=True):
    """What must be known of a shipped tool outside its own file."""

    uses_workspace: bool = False
    """Whether its calls read or leave data in the session's workspace. Contract: flow 8."""
    stays_in_session: bool = False
    """Whether all that it writes stays in the session that calls, so that nobody is asked about it as about writing."""


FETCH_PAGE = "fetch_page"
FILES = "files"
RUN_COMMAND = "run_command"
SEARCH_WEB = "search_web"
SKILL = "skill"
COMMANDS = frozenset({RUN_COMMAND, SKILL})
"""The tools that run programs in a workspace; their standing approvals end with the run that asked."""
SHIPPED_TOOLS: Mapping[str, ShippedTool] = {
    FETCH_PAGE: ShippedTool(),
    FILES: ShippedTool(uses_workspace=True, stays_in_session=True),
    RUN_COMMAND: ShippedTool(uses_workspace=True),
    SEARCH_WEB: ShippedTool(),
    SKILL: ShippedTool(),
}
"""By name. Agents have them unless their settings leave them out; guests only if their role names them."""
USE_WORKSPACE = frozenset(name for name, tool in SHIPPED_TOOLS.items() if tool.uses_workspace)
STAY_IN_SESSION = frozenset(name for name, tool in SHIPPED_TOOLS.items() if tool.stays_in_session)


CHAT_TOOLS = frozenset({MEMORY_TOOL, TASKS_TOOL, MESSAGE_TOOL, FILES, FETCH_PAGE, SEARCH_WEB, SKILL})


def is_offered(tool: str, profile: ToolProfile, allowed: Collection[str] | None) -> bool:
    """Whether the profile has room for the tool; what an agent's settings `allowed` by name always has it."""
    if profile is ToolProfile.FULL or tool in CHAT_TOOLS or tool in (allowed or ()):
        return True
    return tool not in SESSION_TOOLS and tool not in SHIPPED_TOOLS
