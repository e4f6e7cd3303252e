"""Settings of the session tools and of commands."""

from datetime import timedelta
from typing import Any, cast

from pydantic import Field, field_validator, model_validator

from antiphon.domain.sandbox import CommandMode
from antiphon.policy.approvals import PEOPLE, REQUIRED, ApprovalRules, UntrustedRule, problem_of_pattern
from antiphon.policy.visibility import Visibility
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.section import MOST_DAYS, Section
from antiphon.settings.variable import Variable


class SessionToolsSection(Section):
    visibility: Visibility = Visibility.TREE
    """Which sessions the session tools reach: `self`, `tree` (also what it spawned), `agent`, `all`."""


class AgentToAgentSection(Section):
    enabled: bool = False
    """Whether sessions of different agents may reach each other, if `tools.sessions.visibility` is `all`."""
    allow: tuple[str, ...] = ()
    """Patterns of agent ids, with `*`; both sides must match. All agents unless set."""


class SubagentToolNamesSection(Section):
    allow: tuple[str, ...] = ()
    """Session tools for sub-agents, in addition to sending to their requester; patterns with `*`. A list in place of
    the table means the same."""
    deny: tuple[str, ...] = ()
    """Tools of any kind that sub-agents do not have, whatever else gives them; patterns with `*`."""


def _or_list(schema: dict[str, Any]) -> None:
    """In the schema for editors: a list may stand in place of the table."""
    schema["anyOf"] = [{"type": "array", "items": {"type": "string"}}, {"$ref": schema.pop("$ref")}]


class SubagentToolsSection(Section):
    tools: SubagentToolNamesSection = Field(default=SubagentToolNamesSection(), json_schema_extra=_or_list)

    @model_validator(mode="before")
    @classmethod
    def _take_list(cls, given: object) -> object:
        """A list, or a variable with one, in place of the table: what it allows."""
        if not isinstance(given, dict):
            return given
        settings = cast(dict[str, object], given)
        names = settings.get("tools")
        is_text = isinstance(names, Variable) and not names.strip().startswith("{")
        allowed = {"allow": cast(object, names)}
        return {**settings, "tools": allowed} if is_text or isinstance(names, list | tuple) else settings


class RunCommandSection(Section):
    mode: CommandMode = CommandMode.OFF
    """Whether agents have `run_command`: always in a sandbox, or on the `host` for sessions that are not sandboxed.
    There a command may do anything that this process may do."""
    classification: ClassificationSection | None = None
    """The classification of the output of commands; public and trusted unless set. With a network it is untrusted."""
    clearance: ClearanceSection | None = None
    """What commands with network or on the host may take along: the session's context and its workspace. Unless set,
    data up to their `classification`."""


class FunctionSection(Section):
    classification: ClassificationSection | None = None
    """The classification of the function's results, joined with what the function itself declares."""


class ApprovalSection(Section):
    require: tuple[str, ...] = REQUIRED
    """Calls that a person must approve before they run, as patterns: a tool's name (`run_command`, `git_*`), `mcp:*`
    for tools of MCP servers, `effect:deletes` for what a tool does. A command on the host counts as deleting. A list
    replaces the defaults; a name that is one slip away from a tool's stops the start."""
    people: tuple[str, ...] = PEOPLE
    """Calls that a person must approve in addition, unless an owner caused them, in the same patterns: by default
    every effect beyond reading."""
    expire_hours: float = Field(default=168, gt=0, le=MOST_DAYS * 24)
    """How long a request waits for an answer; then its calls are denied, and the run goes on."""

    @field_validator("require", "people")
    @classmethod
    def _may_match(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if problem := problem_of_pattern(pattern):
                raise ValueError(f"{pattern[:80]!r} {problem}")
        return patterns

    def rules(self, untrusted: UntrustedRule) -> ApprovalRules:
        """`untrusted` is `flow.untrusted`."""
        expire_after = timedelta(hours=self.expire_hours)
        return ApprovalRules(require=self.require, people=self.people, expire_after=expire_after, untrusted=untrusted)


class ToolsSection(Section):
    sessions: SessionToolsSection = SessionToolsSection()
    agent_to_agent: AgentToAgentSection = AgentToAgentSection()
    subagents: SubagentToolsSection = SubagentToolsSection()
    run_command: RunCommandSection = RunCommandSection()
    functions: dict[str, FunctionSection] = Field(default_factory=dict[str, FunctionSection])
    """Python functions that agents may call, by name."""
    approval: ApprovalSection = ApprovalSection()
