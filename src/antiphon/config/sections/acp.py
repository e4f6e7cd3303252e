"""Settings of coding agents of others, which speak ACP. Contract: foreign_agents 2."""

import re
from typing import Annotated, Final

from pydantic import Field, SecretStr, field_validator

from antiphon.config.sections.agents import AgentToolsSection, SubagentsSection
from antiphon.config.sections.limits import DailySection, RunLimitsSection
from antiphon.domain.agent import SandboxMode
from antiphon.settings.classification import ClassificationSection, ClearanceSection
from antiphon.settings.names import AgentName
from antiphon.settings.section import MOST_MEBIBYTES, MOST_SECONDS, Section

CLIENTS: Final = frozenset({"claude", "codex", "gemini", "opencode"})
"""Names that clients have which attach themselves; no agent of the settings may have them. Contract: peers 1."""
KEPT: Final = (".claude/projects/**/*.jsonl", ".codex/sessions/**/*.jsonl")
"""The transcripts of Claude Code and of Codex: all that they need to go on with a session."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _variables(env: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name in env:
        if _VARIABLE.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the name of an environment variable; use letters, digits and '_'")
    return env


def _kept(keeps: tuple[str, ...]) -> tuple[str, ...]:
    for each in keeps:
        if any(part in ("", ".", "..") for part in each.split("/")):
            raise ValueError(f"{each!r} is no path below HOME; write it without '/' at its ends, '.' and '..'")
    return keeps


class HarnessSandboxSection(Section):
    mode: SandboxMode | None = None
    """Which sessions have walls around their harness; overrides `agents.defaults.sandbox.mode`. Runs that somebody
    below owner began have them anyway."""
    memory_mb: Annotated[int, Field(ge=16, le=MOST_MEBIBYTES)] = 2048
    """MiB of memory within walls, for all its processes and `/tmp` together."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 256
    """Processes that it may have at a time within walls; it may have four times as many threads."""
    disk_mb: Annotated[int, Field(ge=1, le=MOST_MEBIBYTES)] = 4096
    """MiB within walls for its workspace and `/tmp` together."""


class HarnessSection(Section):
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """The program that speaks ACP over standard input and output, and its arguments."""
    mode: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    """The mode in which it asks before it acts: `default` for `claude-agent-acp` and `gemini`, `read-only` for
    `codex-acp`. A harness that does not say that it is in this mode is refused, `acp_unasked`."""
    unattended: bool = False
    """Whether it works in whatever mode it has, and may not ask. Everything that it does is then done with the rights
    of its process; each list of agents says so."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Its environment, in addition to `PATH`, `HOME` and the like; nothing else of Antiphon's is passed on."""
    keeps: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=20)] = KEPT
    """The files in its HOME within walls that its next process finds, so that it can go on with its session: paths
    below HOME, with `*`, and `**` for any folders or, at the end, all in one. Everything else there is made afresh at
    each start. Name no settings here: what a guest's run leaves in them counts for the runs of others."""
    provider: Annotated[str, Field(min_length=1)] | None = None
    """The provider of its model, as in `providers`: its key goes to the harness, and no other."""
    clearance: ClearanceSection | None = None
    """What may go to it. Unless set, that of its provider; without a wall around its network, also no more than may go
    to a command with network."""
    name: str | None = None
    """The name that people see; the id unless set."""
    tools: AgentToolsSection | None = None
    """Replaces all of `agents.defaults.tools`: which tools of Antiphon it is offered."""
    sandbox: HarnessSandboxSection = HarnessSandboxSection()
    subagents: SubagentsSection | None = None
    """Overrides `agents.defaults.subagents`, setting by setting."""
    limits: RunLimitsSection | None = None
    """The limits of its runs; without `time_seconds` here, none on their time."""
    daily: DailySection | None = None
    """Replaces all of `limits.daily`."""
    classification: ClassificationSection | None = None
    """The least classification of its new sessions; public and trusted unless set."""

    _check_env = field_validator("env")(_variables)
    _check_keeps = field_validator("keeps")(_kept)


class AcpSection(Section):
    agents: dict[AgentName, HarnessSection] = Field(default_factory=dict[AgentName, HarnessSection])
    """Coding agents of others, by the id that they have as agents here."""
    park_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 600.0
    """How long the process of a harness stays while its request waits for an approval. If it is decided later, the
    harness is started again and told the answer."""
