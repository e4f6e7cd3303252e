"""Settings of the session tools and of commands."""

from antiphon.config.sections.section import Section
from antiphon.domain.sandbox import CommandMode
from antiphon.policy.visibility import Visibility


class SessionToolsSection(Section):
    visibility: Visibility = Visibility.TREE
    """Which sessions the session tools reach: `self`, `tree` (and what it spawned), `agent`, `all`."""


class AgentToAgentSection(Section):
    enabled: bool = False
    """Whether sessions of different agents may meet, where `tools.sessions.visibility` is `all`."""
    allow: tuple[str, ...] = ()
    """Patterns of the agents that may, with `*`; both sides must match. All unless set."""


class SubagentToolsSection(Section):
    tools: tuple[str, ...] = ()
    """Session tools that sub-agents get, beside sending to their requester."""


class RunCommandSection(Section):
    mode: CommandMode = CommandMode.OFF
    """Whether agents have `run_command`: in a sandbox for every session, or for sessions that are not sandboxed on the
    `host`, where it may do whatever this process may."""


class ToolsSection(Section):
    sessions: SessionToolsSection = SessionToolsSection()
    agent_to_agent: AgentToAgentSection = AgentToAgentSection()
    subagents: SubagentToolsSection = SubagentToolsSection()
    run_command: RunCommandSection = RunCommandSection()
