"""Which calls of a step a person must approve, and which of them were decided. Contract: approvals 1 to 4."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.agents.call_flow import Calling, may_leave, refuse_call, sink_of
from antiphon.agents.model import ToolSchema
from antiphon.agents.toolset import Tool, ToolOutput, Toolset
from antiphon.domain.agent import Effect
from antiphon.domain.approval import (
    UNKNOWN_WORKSPACE,
    Approval,
    ApprovalState,
    AskedCall,
    find_identical,
    hash_of_text,
)
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import StandingApprovalId
from antiphon.domain.listing import MAX_DEPTH, MAX_LISTED
from antiphon.domain.transcript import OpenCall
from antiphon.engine.approvals.standing import find_covering
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import ApprovalsSoFar, RunContext
from antiphon.engine.runs.lifecycle import WorkspaceUse
from antiphon.engine.sessions.workspaces import Workspace
from antiphon.policy.approvals import RUN_COMMAND, NeedsApproval, decide_call
from antiphon.policy.rights import is_guest, may_call
from antiphon.policy.session_tools import NEVER_ASK
from antiphon.policy.standing import Standing

JOINED = (
    "The same call already waits for approval (request {id}), and one decision counts for both. It runs once it is "
    "approved, and its result comes where it was asked first. Do not call it again meanwhile."
)

UNCHECKED = (
    f"Its workspace cannot be checked for changes: it cannot be read, has more than {MAX_LISTED:,} entries, or "
    f"directories nested more than {MAX_DEPTH} deep. If it is allowed once, approval will therefore be asked for again."
)


class JudgedCall(Struct, frozen=True, kw_only=True):
    """An open call, and what policy and earlier answers say of it."""

    call: OpenCall
    refusal: ToolOutput | None = None
    """Its result, if it must not run."""
    asked: AskedCall | None = None
    """How to ask for it, if it needs an approval that it does not have."""
    allowed_by: StandingApprovalId | None = None
    """What lets it run unasked; a call begins only while that counts."""


@dataclass(slots=True, kw_only=True)
class Judge:
    """Judges the calls of one run."""

    rules: Rules
    tools: Toolset
    standing: Standing
    """What the principal was when it was last read. A call begins only while this is still so."""
    is_sandboxed: bool
    """Whether the session's commands run in a sandbox; on the host a command may delete anything."""
    workspace: Workspace

    async def judge(self, context: RunContext, calls: Sequence[OpenCall]) -> list[JudgedCall]:
        """Every call, in order. A call that brings or carries too much is refused before anybody is asked.

        Reads nothing if none needs an approval, the run has never asked, and everything is public.
        """
        refusals = [self._refuse_arguments(call) or await self._refuse_flow(context, call) for call in calls]
        needs = self._needs(calls, refusals)
        if any(needs):
            self.standing = await context.standing()
            needs = self._needs(calls, refusals)
        if not any(needs) and context.run.approval is None:
            return [JudgedCall(call=call, refusal=refusal) for call, refusal in zip(calls, refusals, strict=True)]
        so_far = await context.read_approvals()
        workspace = await self._workspace_now(so_far)
        asked: list[JudgedCall] = []
        for call, need, refusal in zip(calls, needs, refusals, strict=True):
            if refusal is not None:
                asked.append(JudgedCall(call=call, refusal=refusal))
                continue
            number = 1 + sum(judged.asked is not None for judged in asked)
            asked.append(self._judge_one(call, need, so_far, workspace, id=str(number)))
        return asked

    async def asked(self, judged: Sequence[JudgedCall]) -> list[AskedCall]:
        """What to ask: commands with the workspace as it is now, after the calls before them have run."""
        asked = [each.asked for each in judged if each.asked is not None]
        if not any(call.tool == RUN_COMMAND for call in asked):
            return asked
        workspace = await hash_of_workspace(self.workspace)
        return [in_workspace(call, workspace) if call.tool == RUN_COMMAND else call for call in asked]

    def workspace_use(self, context: RunContext, tool: Tool) -> WorkspaceUse | None:
        """How a call of the tool uses the workspace; None if it does not."""
        if tool.schema.name != RUN_COMMAND:
            return None
        return WorkspaceUse(
            carried=context.made_of,
            left=context.made_of.join(tool.classification),
            clearance=sink_of(tool, self.rules.sinks, leaves=self._leaves(context, tool)),
        )

    def _refuse_arguments(self, call: OpenCall) -> ToolOutput | None:
        """Before anybody is asked: people read what runs only if the arguments say one thing."""
        if call.is_begun or self.tools.find(call.part.name) is None:
            return None
        try:
            read_call_arguments(call.part.arguments)
        except Invalid as invalid:
            return _refused(invalid.code, invalid.message)
        return None

    async def _refuse_flow(self, context: RunContext, call: OpenCall) -> ToolOutput | None:
        tool = self.tools.find(call.part.name)
        if tool is None or call.is_begun:
            return None
        calling, sinks = Calling(context.made_of, context.taint, context.workspace), self.rules.sinks
        find_ceiling = partial(context.find_ceiling, sinks)
        return await refuse_call(tool, calling, sinks, find_ceiling, leaves=self._leaves(context, tool))

    def _leaves(self, context: RunContext, tool: Tool) -> bool:
        is_command_walled = is_walled(self.standing, is_sandboxed=self.is_sandboxed)
        return may_leave(effects_of(tool, is_walled=is_command_walled), context.agent)

    def _needs(self, calls: Sequence[OpenCall], refusals: Sequence[ToolOutput | None]) -> list[NeedsApproval | None]:
        pairs = zip(calls, refusals, strict=True)
        return [self._need(call) if refusal is None else None for call, refusal in pairs]

    def _need(self, call: OpenCall) -> NeedsApproval | None:
        """None for a call that has begun, and for one that cannot run anyway."""
        tool = self.tools.find(call.part.name)
        if tool is None or call.is_begun or not may_call(call.part.name, self.standing, self.rules.role_tools):
            return None
        decision = decide_call(
            self.rules.approval,
            tool.schema.name,
            effects_of(tool, is_walled=is_walled(self.standing, is_sandboxed=self.is_sandboxed)),
            self.standing,
            is_from_server=self.tools.is_from_server(tool.schema.name),
        )
        return decision if isinstance(decision, NeedsApproval) else None

    async def _workspace_now(self, so_far: ApprovalsSoFar) -> str:
        """The hash of the workspace, if a command was approved that must find it as it was."""
        answered = [call for approval in so_far.own if not approval.is_pending for call in approval.calls]
        if all(call.workspace is None for call in answered):
            return UNKNOWN_WORKSPACE
        return await hash_of_workspace(self.workspace)

    def _judge_one(
        self, call: OpenCall, need: NeedsApproval | None, so_far: ApprovalsSoFar, workspace: str, *, id: str
    ) -> JudgedCall:
        tool = self.tools.find(call.part.name)
        is_approved = False
        for approval in so_far.own:
            answered = approval.find_call(call.message_seq, call.index)
            if answered is None or approval.is_pending:
                continue
            if refusal := refusal_of(approval, answered):
                return JudgedCall(call=call, refusal=refusal)
            # What was approved may not be what would run now: then it is asked again.
            is_approved |= tool is not None and is_same(call, tool, answered, workspace)
        if need is None or tool is None or is_approved:
            return JudgedCall(call=call)
        arguments = read_call_arguments(call.part.arguments).text
        asked = AskedCall(
            id=id,
            message_seq=call.message_seq,
            index=call.index,
            tool=call.part.name,
            arguments=arguments,
            sha256=hash_of_text(arguments),
            definition=hash_of_definition(tool.schema),
            reason=need.reason,
        )
        if allowed := find_covering(so_far.standing, asked, so_far.run):
            return JudgedCall(call=call, allowed_by=allowed.id)
        if other := find_identical(so_far.pending, asked, self.standing.principal):
            return JudgedCall(call=call, refusal=_joined(other))
        return JudgedCall(call=call, asked=asked)


def asked_from_outside(tool: Tool, written: str, need: NeedsApproval) -> AskedCall:
    """A call from outside a run, as it is asked about."""
    arguments = read_call_arguments(written).text
    return AskedCall(
        id="1",
        tool=tool.schema.name,
        arguments=arguments,
        sha256=hash_of_text(arguments),
        definition=hash_of_definition(tool.schema),
        reason=need.reason,
    )


def is_walled(standing: Standing, *, is_sandboxed: bool) -> bool:
    """Whether commands with the rights of the principal run in a sandbox."""
    return is_sandboxed or is_guest(standing)


def effects_of(tool: Tool, *, is_walled: bool) -> frozenset[Effect]:
    """The effects of a call; a command deletes things only on the host."""
    if tool.schema.name == RUN_COMMAND and is_walled:
        return tool.effects - {Effect.DELETES}
    return tool.effects


def may_ask(tool: Tool) -> bool:
    """Whether calls of the tool ever ask for an approval, unless a pattern names a tool that only reads."""
    return tool.schema.name not in NEVER_ASK and not tool.effects <= {Effect.READS}


def is_same(call: OpenCall, tool: Tool, asked: AskedCall, workspace: str) -> bool:
    """Whether the call, its tool and the workspace of a command are what was asked about. Contract: approvals 3."""
    is_same_call = has_arguments(asked, call.part.arguments)
    is_same_tool = hash_of_definition(tool.schema) == asked.definition
    return is_same_call and is_same_tool and asked.finds(workspace)


def has_arguments(asked: AskedCall, written: str) -> bool:
    """Whether these are the arguments that were asked about; older requests hashed them as they were written."""
    return asked.sha256 in (hash_of_text(read_call_arguments(written).text), hash_of_text(written))


async def hash_of_workspace(workspace: Workspace) -> str:
    """The hash of what a command finds in the workspace, or `UNKNOWN_WORKSPACE`."""
    return await to_thread.run_sync(workspace.hash_listing) or UNKNOWN_WORKSPACE


def in_workspace(command: AskedCall, workspace: str) -> AskedCall:
    """The command with the hash of its workspace; if there is none, the reason tells the decider why that matters."""
    reason = command.reason if workspace != UNKNOWN_WORKSPACE else f"{command.reason} {UNCHECKED}"
    return replace(command, workspace=workspace, reason=reason)


def hash_of_definition(schema: ToolSchema) -> str:
    """The hash of a tool's name, description and schema."""
    return hash_of_text(json.dumps([schema.name, schema.description, schema.parameters], sort_keys=True))


def refusal_of(approval: Approval, call: AskedCall) -> ToolOutput | None:
    """The result of a call that was asked about and may not run; None if it may."""
    if call.is_allowed:
        return None
    if approval.state is ApprovalState.EXPIRED:
        return _refused("approval_expired", f"Call was not approved in time (request {approval.id}). It did not run.")
    if approval.state is ApprovalState.WITHDRAWN:
        return _refused("approval_withdrawn", f"Request {approval.id} was withdrawn. The call did not run.")
    said = f" The person who decided says: {approval.note}" if approval.note else ""
    return _refused("approval_denied", f"Call was denied (request {approval.id}). It did not run.{said}")


def _joined(approval: Approval) -> ToolOutput:
    """The result of a call that joins the open request for the same call: it runs once, where it was asked first."""
    return ToolOutput(
        json.dumps({"status": "pending", "approvalId": approval.id, "message": JOINED.format(id=approval.id)})
    )


def _refused(code: str, message: str) -> ToolOutput:
    return ToolOutput(
        json.dumps({"status": "error", "code": code, "error": message}, ensure_ascii=False), is_error=True
    )
