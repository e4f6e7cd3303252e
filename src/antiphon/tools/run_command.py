"""`run_command`: runs a command in the workspace of the session, in a sandbox or on the host."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from anyio import to_thread
from msgspec.structs import replace
from pydantic import Field, field_validator

from antiphon.domain.agent import Agent, Effect, SandboxMode
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import NotFound
from antiphon.domain.sandbox import MEBIBYTE, CommandMode
from antiphon.domain.session import Session
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import Callers
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.rights import is_guest
from antiphon.tools.sandbox.commands import Command, Commands
from antiphon.tools.sandbox.execution import CommandResult
from antiphon.tools.sandbox.profile import ShownFolders
from antiphon.tools.sandbox.watch import Breach, Limit
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Runs a command with /bin/sh in this session's workspace and returns its exit code and output. Files in the "
    "workspace stay between calls; background processes are stopped when the command ends. Files that people sent can "
    "be read under ../received, at the paths that their messages name."
)
MAX_COMMAND_BYTES = 100_000


class CommandArguments(Arguments):
    command: str = Field(description="The command, for /bin/sh -c.")
    timeout_seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="When to stop the command; never later than the agent's own limit."
    )

    @field_validator("command")
    @classmethod
    def _is_text(cls, command: str) -> str:
        if not command.strip() or "\0" in command or any("\ud800" <= character <= "\udfff" for character in command):
            raise ValueError("must be a command in valid Unicode, without NUL")
        if len(command.encode()) > MAX_COMMAND_BYTES:
            raise ValueError(f"may have {MAX_COMMAND_BYTES} bytes; write a script into the workspace first")
        return command


def run_command(
    callers: Callers,
    workspaces: Workspaces,
    rules: Rules,
    *,
    mode: CommandMode,
    home: Path,
    classification: Classification = PUBLIC,
) -> SessionTool[CommandArguments]:
    """The tool for a mode other than `off`; `classification` is that of the output of commands."""
    commands = Commands()

    async def carry_out(caller: Caller, arguments: CommandArguments) -> Mapping[str, Any]:
        session, standing = await callers.session_of(caller)
        if caller.run is not None and caller.run.run.session_id != session.id:
            raise NotFound("Session not found: it was reset while this run was at work.")
        agent = rules.agent(caller.agent_id)
        workspace = workspaces.of_session(session)
        limits = agent.command_limits
        if arguments.timeout_seconds is not None:
            limits = replace(limits, time=min(limits.time, _seconds(arguments.timeout_seconds)))
        command = Command(
            text=arguments.command,
            shown=ShownFolders(
                workspace=await to_thread.run_sync(workspace.open),
                received=await to_thread.run_sync(workspace.received.find),
            ),
            home=home,
            limits=limits,
            is_sandboxed=is_guest(standing) or _needs_walls(caller, agent, session, mode),
        )
        return answer_of_command(await commands.run(command), agent, limits.time)

    command_tool = SessionTool(
        "run_command",
        DESCRIPTION,
        CommandArguments,
        carry_out,
        codes=(
            "not_found",
            "command_timeout",
            "command_limit",
            "sandbox_unavailable",
            "command_unavailable",
            "workspace_unsafe",
            "workspace_unusable",
        ),
        effects=_effects(rules, mode),
        is_idempotent=False,
    )
    command_tool.classification = classification
    return command_tool


def _needs_walls(caller: Caller, agent: Agent, session: Session, mode: CommandMode) -> bool:
    """Whether the command runs in a sandbox whoever caused it, for instance because a sandboxed session did."""
    if mode is not CommandMode.HOST or agent.is_sandboxed(session.key):
        return True
    return caller.is_sandboxed


def needs_sandbox(agents: Mapping[Any, Agent], mode: CommandMode) -> bool:
    """Whether commands of any session run in a sandbox."""
    match mode:
        case CommandMode.OFF:
            return False
        case CommandMode.SANDBOXED:
            return True
        case CommandMode.HOST:
            return any(agent.sandbox is not SandboxMode.OFF for agent in agents.values())


def _effects(rules: Rules, mode: CommandMode) -> frozenset[Effect]:
    if mode is CommandMode.HOST:
        return frozenset({Effect.WRITES, Effect.LEAVES, Effect.DELETES})
    leaves = {Effect.LEAVES for agent in rules.agents.values() if agent.command_limits.network}
    return frozenset({Effect.WRITES, *leaves})


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, 1e6))


def answer_of_command(result: CommandResult, agent: Agent, time: timedelta) -> dict[str, Any]:
    """How the command ended, for models."""
    output = {
        "stdout": result.stdout.text(),
        "stderr": result.stderr.text(),
        "truncated": result.stdout.is_cut or result.stderr.is_cut,
    }
    if result.breach is not None:
        return {
            "status": "error",
            "code": "command_limit",
            "error": _explained(result.breach, agent),
            "limit": result.breach.limit.value,
            **output,
        }
    if result.is_timed_out:
        seconds = f"{time.total_seconds():g}"
        return {
            "status": "timeout",
            "code": "command_timeout",
            "error": f"Command took more than {seconds} s and was stopped. Do less at once, or give it more time "
            "(timeoutSeconds, up to sandbox.seconds of the agent).",
            **output,
            "timedOut": True,
        }
    return {"status": "ok", "exitCode": result.exit_code, **output}


def _explained(breach: Breach, agent: Agent) -> str:
    limits = agent.command_limits
    disk = f"{limits.disk_bytes // MEBIBYTE} MiB (sandbox.disk_mb)"
    seen = "" if breach.seen is None else f" {-(-breach.seen // MEBIBYTE)} MiB"
    match breach.limit:
        case Limit.MEMORY:
            memory = f"{limits.memory_bytes // MEBIBYTE} MiB (sandbox.memory_mb)"
            return f"Command was stopped: it used{seen} of memory, including /tmp; the limit is {memory}."
        case Limit.PROCESSES if breach.seen is None:
            return "Command was stopped: one of its processes hides its open files (PR_SET_DUMPABLE)."
        case Limit.PROCESSES:
            most = f"{limits.processes} (sandbox.processes)"
            return f"Command was stopped: it had {breach.seen} processes or threads; the limit is {most}."
        case Limit.DISK if breach.seen is None:
            return "Command was stopped: its workspace cannot be measured, because directories are nested too deeply."
        case Limit.DISK:
            return f"Command was stopped: workspace and /tmp held{seen}; the limit is {disk}. Remove files first."
        case Limit.OUTPUT:
            return f"Command was stopped: it wrote{seen} to its output; the limit is {disk}. Write to a file, or less."
