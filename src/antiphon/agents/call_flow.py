"""Whether a call may be made, by what it carries and what it brings. Contract: flow 2, 7."""

import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from antiphon.agents.toolset import Tool, ToolOutput, is_command, uses_workspace
from antiphon.domain.agent import Agent, Effect
from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification
from antiphon.policy.exit import takes
from antiphon.policy.flow import is_held, is_public, may_hold
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.sinks import Sinks, clearance_of_tool


def brought_by(tool: Tool, workspace: Classification) -> Classification:
    """What the tool's result is made of, as far as that is known before the call."""
    return tool.classification.join(_workspace_of(tool, workspace))


def carried_by(tool: Tool, context: Classification, workspace: Classification) -> Classification:
    """What a call takes along: the context that it was made of, and the workspace if the tool uses it."""
    return context.join(_workspace_of(tool, workspace))


def sink_of(tool: Tool, sinks: Sinks, *, leaves: bool) -> Classification:
    """What a call may carry; `leaves` says whether a command can leave its sandbox."""
    if tool.schema.name in SESSION_TOOLS:
        return EVERYTHING  # each of them decides by its own target
    if is_command(tool):
        return sinks.of_commands(tool.classification) if leaves else EVERYTHING
    only_reads = tool.effects <= {Effect.READS}
    return clearance_of_tool(tool.classification, tool.clearance, only_reads=only_reads)


def may_leave(effects: frozenset[Effect], agent: Agent | None) -> bool:
    """Whether a command with these effects reaches a network or the host; true for an unknown agent."""
    return Effect.DELETES in effects or agent is None or agent.command_limits.network


def _refuse_source(tool: Tool) -> ToolOutput:
    return _forbidden(
        "above_clearance",
        f"Tool returns data that may not enter this session: {tool.schema.name!r}. The call did not run. Do without "
        "it, or tell your user that an owner can change the clearance of this session or of its channel.",
    )


def _refuse_carried(tool: Tool) -> ToolOutput:
    return _forbidden(
        "write_down",
        f"This session holds data that may not go to the tool: {tool.schema.name!r}. The call did not run. Do without "
        "it, or tell your user that an owner can change the tool's clearance.",
    )


class Calling(NamedTuple):
    """What a session holds that calls a tool."""

    context: Classification
    """What the call was made of."""
    taint: Classification
    workspace: Classification


async def refuse_call(
    tool: Tool, calling: Calling, sinks: Sinks, find_ceiling: Callable[[], Awaitable[Classification]], *, leaves: bool
) -> ToolOutput | None:
    """The refusal of a call that brings or carries too much. Reads no ceiling if everything is public, or held."""
    brought = brought_by(tool, calling.workspace)
    carried = carried_by(tool, calling.context, calling.workspace) if leaves else calling.context
    if is_public(brought) and is_public(carried):
        return None
    # What the session holds already is below its ceiling.
    if not is_held(brought, calling.taint) and not may_hold(brought, await find_ceiling()):
        return _refuse_source(tool)
    return None if takes(sink_of(tool, sinks, leaves=leaves), carried) else _refuse_carried(tool)


def _workspace_of(tool: Tool, workspace: Classification) -> Classification:
    return workspace if uses_workspace(tool) else PUBLIC


def _forbidden(code: str, message: str) -> ToolOutput:
    return ToolOutput(json.dumps({"status": "forbidden", "code": code, "error": message}), is_error=True)
