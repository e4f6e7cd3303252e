"""Settings of the session tools and of commands."""

from antiphon.config.sections.section import Section
from antiphon.domain.sandbox import CommandMode
from antiphon.policy.visibility import Visibility


class SessionToolsSection(Section):
    visibility: Visibility = Visibility.TREE
    """Which sessions the session tools reach: `self`, `tree` (also what it spawned), `agent`, `all`."""


class AgentToAgentSection(Section):
    enabled: bool = False
    """Whether sessions of different agents may reach each other, if `tools.sessions.visibility` is `all`."""
    allow: tuple[str, ...] = ()
    """Patterns of agent ids, with `*`; both sides must match. All agents unless set."""


class SubagentToolsSection(Section):
    tools: tuple[str, ...] = ()
    """Session tools for sub-agents, in addition to sending to their requester."""


class RunCommandSection(Section):
    mode: CommandMode = CommandMode.OFF
    """Whether agents have `run_command`: always in a sandbox, or on the `host` for sessions that are not sandboxed.
    There a command may do anything that this process may do."""


class ToolsSection(Section):
    sessions: SessionToolsSection = SessionToolsSection()
    agent_to_agent: AgentToAgentSection = AgentToAgentSection()
    subagents: SubagentToolsSection = SubagentToolsSection()
    run_command: RunCommandSection = RunCommandSection()
