"""Which calls of a step a person must approve, and which of them were decided. Contract: approvals 1 to 4."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.agents.call_flow import Calling, may_leave, refuse_call, sink_of
from antiphon.agents.call_rules import RuledCall, ask_before, ask_of_result, reason_of, refuse_by_rule, without_redacted
from antiphon.agents.references import with_values
from antiphon.agents.toolset import (
    AlwaysAsked,
    ByArguments,
    Deriving,
    Foreseeing,
    Tool,
    ToolContext,
    ToolOutput,
    Toolset,
    hash_of_tool,
    is_command,
    uses_workspace,
)
from antiphon.domain.agent import Agent, Effect
from antiphon.domain.approval import (
    UNKNOWN_WORKSPACE,
    Approval,
    ApprovalState,
    AskedCall,
    DerivedField,
    find_identical,
    hash_of_text,
)
from antiphon.domain.classification import OF_INTEGRITY, PUBLIC, Classification, Integrity
from antiphon.domain.delivery import UNREAD_FILES
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import SessionRow, StandingApprovalId
from antiphon.domain.listing import MAX_DEPTH, MAX_LISTED
from antiphon.domain.message import JsonObject
from antiphon.domain.release import Release
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.transcript import OpenCall
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.facts import Acting
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.approvals.standing import find_covering
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN, call_name
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import ApprovalsSoFar, RunContext
from antiphon.engine.runs.lifecycle import WorkspaceUse
from antiphon.engine.sessions.workspaces import Workspace
from antiphon.policy.approvals import NeedsApproval, decide_call
from antiphon.policy.decision import Allow, Deny
from antiphon.policy.flow import is_public, is_write_down
from antiphon.policy.releases import may_ask_release
from antiphon.policy.rights import is_guest, may_call, trusted_by
from antiphon.policy.session_tools import FILES_ARGUMENT, MESSAGE_TOOL, NEVER_ASK
from antiphon.policy.shipped_tools import RUN_COMMAND
from antiphon.policy.standing import Standing
from antiphon.policy.written.fields import Action
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision
from antiphon.wire.errors import tool_status_of

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
    release: str | None = None
    """The hash of what an owner has released for it."""
    files: str = ""
    """The files that somebody has approved for it."""
    decided: RuleDecision = NOTHING_SAID
    """What written rules say of it; what they take out of its arguments is not in `call` any more."""


@dataclass(slots=True, kw_only=True)
class Judge:
    """Judges the calls of one run."""

    rules: Rules
    tools: Toolset
    session: Session
    """As it was when the run began."""
    standing: Standing
    """What the principal was when it was last read. A call begins only while this is still so."""
    is_sandboxed: bool
    """Whether the session's commands run in a sandbox; on the host a command may delete anything."""
    workspace: Workspace

    async def judge(self, context: RunContext, calls: Sequence[OpenCall]) -> list[JudgedCall]:
        """Every call, in order. A call that brings or carries too much is refused before anybody is asked.

        Reads nothing if none needs an approval, the run has never asked, and everything is public.
        """
        read = [await self._read_arguments(context, call) for call in calls]
        calls = [call for call, _ in read]
        refusals = [refusal or await self._refuse_flow(context, call) for call, refusal in read]
        decided = [await self._ask_rules(context, *each) for each in zip(calls, refusals, strict=True)]
        calls = [self._redacted(call, said) for call, said in zip(calls, decided, strict=True)]
        refusals = [
            refusal or _refused_by_rule(call, said)
            for call, said, refusal in zip(calls, decided, refusals, strict=True)
        ]
        judged = await self._judge(context, calls, refusals, decided)
        return [replace(each, decided=said) for each, said in zip(judged, decided, strict=True)]

    async def _judge(
        self,
        context: RunContext,
        calls: Sequence[OpenCall],
        refusals: Sequence[ToolOutput | None],
        decided: Sequence[RuleDecision],
    ) -> list[JudgedCall]:
        """The same, once it is known what may flow and what written rules say."""
        context.trusts = trusted_by(self.standing)
        needs = await self._needs(context, calls, refusals, decided)
        if any(needs):
            self.standing = await context.standing()
            context.trusts = trusted_by(self.standing)
            needs = await self._needs(context, calls, refusals, decided)
        releases = [
            await self._release(context, call) if refusal is None else None
            for call, refusal in zip(calls, refusals, strict=True)
        ]
        refusals = [
            refusal or _refused_unasked(need, release) or (need and self._refuse_asking(call))
            for call, need, release, refusal in zip(calls, needs, releases, refusals, strict=True)
        ]
        if not any(needs) and not any(isinstance(each, Release) for each in releases) and context.run.approval is None:
            return [JudgedCall(call=call, refusal=refusal) for call, refusal in zip(calls, refusals, strict=True)]
        so_far = await context.read_approvals()
        workspace = await self._workspace_now(so_far)
        asked: list[JudgedCall] = []
        for call, need, release, refusal in zip(calls, needs, releases, refusals, strict=True):
            if refusal is not None:
                asked.append(JudgedCall(call=call, refusal=refusal))
                continue
            number = 1 + sum(judged.asked is not None for judged in asked)
            wanted = _NeededYes(
                need=need if isinstance(need, NeedsApproval) else None,
                release=release if isinstance(release, Release) else None,
                is_steered=isinstance(release, Release) and context.is_steered(call.message_seq),
                id=str(number),
                at=context.clock.now(),
            )
            tool = self.tool_of(call)
            files = "" if tool is None else await files_of(tool, caller_of(context, call), call.part.arguments)
            asked.append(self._judge_one(call, wanted, so_far, workspace, files=files))
        return asked

    async def asked(self, judged: Sequence[JudgedCall]) -> list[AskedCall]:
        """What to ask: commands with the workspace as it is now, after the calls before them have run."""
        asked = [(each.asked, self.is_command(each.call)) for each in judged if each.asked is not None]
        if not any(is_one for _, is_one in asked):
            return [call for call, _ in asked]
        workspace = await hash_of_workspace(self.workspace)
        return [in_workspace(call, workspace) if is_one else call for call, is_one in asked]

    def tool_of(self, call: OpenCall) -> Tool | None:
        """The tool with the effects of the call; None if there is none of that name."""
        tool = self.tools.find(call.part.name)
        if not isinstance(tool, ByArguments):
            return tool
        try:
            return tool.for_call(read_call_arguments(call.part.arguments).values)
        except Invalid:  # the call will be told so
            return tool

    def is_command(self, call: OpenCall) -> bool:
        """Whether the call runs a program in the workspace."""
        tool = self.tool_of(call)
        return tool is not None and is_command(tool)

    def uses_workspace(self, call: OpenCall) -> bool:
        """Whether the call reads or leaves data in the workspace."""
        tool = self.tool_of(call)
        return tool is not None and uses_workspace(tool)

    def workspace_use(self, context: RunContext, tool: Tool, call: OpenCall) -> WorkspaceUse | None:
        """How a call of the tool uses the workspace; None if it does not."""
        if not uses_workspace(tool):
            return None
        carried = context.made_of.join(call.carried)
        return WorkspaceUse(
            carried=carried,
            left=left_by(tool, carried, context.agent, self._effects_of(tool)),
            clearance=sink_of(tool, self.rules.sinks, leaves=self._leaves(context, tool)),
        )

    async def _read_arguments(self, context: RunContext, call: OpenCall) -> tuple[OpenCall, ToolOutput | None]:
        """The call with the values that it refers to, or its refusal.

        Before anybody is asked: people read what runs only if the arguments say one thing.
        """
        if self.tool_of(call) is None:
            return call, None
        try:
            return await with_values(context, call), None
        except Invalid as invalid:
            return call, None if call.is_begun else _refused(invalid.code, invalid.message)

    async def _refuse_flow(self, context: RunContext, call: OpenCall) -> ToolOutput | None:
        tool = self.tool_of(call)
        if tool is None or call.is_begun:
            return None
        carried = context.made_of.join(call.carried)
        calling, sinks = Calling(carried, context.taint, context.workspace), self.rules.sinks
        find_ceiling = partial(context.find_ceiling, sinks)
        return await refuse_call(tool, calling, sinks, find_ceiling, leaves=self._leaves(context, tool))

    def _leaves(self, context: RunContext, tool: Tool) -> bool:
        return may_leave(self._effects_of(tool), context.agent)

    def _effects_of(self, tool: Tool) -> frozenset[Effect]:
        return effects_of(tool, is_walled=is_walled(self.standing, is_sandboxed=self.is_sandboxed))

    async def _ask_rules(self, context: RunContext, call: OpenCall, refusal: ToolOutput | None) -> RuleDecision:
        """What written rules say of a call that is not refused anyway."""
        tool = self.tool_of(call)
        if tool is None or refusal is not None or not may_call(call.part.name, self.standing, self.rules.role_tools):
            return NOTHING_SAID
        return await ask_before(self._ruled(context, call, tool), self.rules)

    def _redacted(self, call: OpenCall, said: RuleDecision) -> OpenCall:
        """The call without what written rules take out of its arguments: so it is asked about, and so it runs."""
        tool = self.tool_of(call)
        if tool is None or not said.redacts:
            return call
        before = read_call_arguments(call.part.arguments).values
        after = without_redacted(said, tool, before)
        if after is before:
            return call
        return replace(call, part=replace(call.part, arguments=json.dumps(after, ensure_ascii=False)))

    async def look_at_result(
        self, context: RunContext, judged: JudgedCall, output: ToolOutput
    ) -> tuple[ToolOutput, RuleDecision]:
        """The result of a call that ran, as written rules let it be told, and what they say."""
        tool = self.tool_of(judged.call)
        if tool is None or judged.refusal is not None:
            return output, NOTHING_SAID
        return await ask_of_result(self._ruled(context, judged.call, tool), output, self.rules)

    def _ruled(self, context: RunContext, call: OpenCall, tool: Tool) -> RuledCall:
        name, made_of = call.part.name, context.made_of.join(call.carried)
        try:
            arguments = read_call_arguments(call.part.arguments).values
        except Invalid:
            arguments = {}
        return RuledCall(
            acting=Acting(self.session, self.standing, made_of, context.clock.now()),
            tool=tool,
            arguments=arguments,
            effects=self._effects_of(tool),
            server=self.tools.server_of(name),
            sink=sink_of(tool, self.rules.sinks, leaves=self._leaves(context, tool)),
            caller=caller_of(context, call),
        )

    async def _needs(
        self,
        context: RunContext,
        calls: Sequence[OpenCall],
        refusals: Sequence[ToolOutput | None],
        decided: Sequence[RuleDecision],
    ) -> list[NeedsApproval | Deny | None]:
        return [
            _needed_by(await self._need(context, call), said) if refusal is None and not call.is_begun else None
            for call, refusal, said in zip(calls, refusals, decided, strict=True)
        ]

    async def _need(self, context: RunContext, call: OpenCall) -> NeedsApproval | Deny | None:
        """None for a call that has begun, and for one that cannot run anyway."""
        tool = self.tool_of(call)
        if tool is None or call.is_begun or not may_call(call.part.name, self.standing, self.rules.role_tools):
            return None
        effects = self._effects_of(tool)
        is_steered = context.is_steered(call.message_seq) or refers_in_routes(call, tool)
        if is_steered and (place := await self._place_of(context, call, tool)) is not None:
            if await context.is_reply(place, self.rules.sinks):
                is_steered = tool.schema.name != MESSAGE_TOOL
            else:
                effects |= {Effect.LEAVES}
        decision = decide_call(
            self.rules.approval,
            tool.schema.name,
            effects_of_words(tool, call.part.arguments, effects),
            self.standing,
            is_from_server=self.tools.is_from_server(tool.schema.name),
            is_untrusted=is_steered,
        )
        if isinstance(tool, AlwaysAsked):
            return _asked_always(decision, tool.question_of(read_call_arguments(call.part.arguments).values), tool)
        return None if isinstance(decision, Allow) else decision

    def _refuse_asking(self, call: OpenCall) -> ToolOutput | None:
        """The refusal of a call that would fail whatever a person said."""
        tool = self.tools.find(call.part.name)
        arguments = read_call_arguments(call.part.arguments)
        return None if tool is None else refuse_asking(tool, arguments.values)

    async def _place_of(self, context: RunContext, call: OpenCall, tool: Tool) -> DeliveryContext | None:
        """The place outside at which people hear what the call sends: also through a session, which answers there.

        None if they do not. Contract: flow 10.
        """
        if not isinstance(tool, Foreseeing):
            return None
        arguments = read_call_arguments(call.part.arguments).values
        return place_of_sink(await tool.foresee(ToolContext(caller_of(context, call)), arguments))

    async def _release(self, context: RunContext, call: OpenCall) -> Release | Deny | None:
        """What an owner would have to release, so that the call may send its words; or that nobody may.

        Contract: flow 4, 11.
        """
        tool = self.tool_of(call)
        if is_public(context.made_of.join(call.carried).join(context.workspace)) or not isinstance(tool, Foreseeing):
            return None
        if not may_call(call.part.name, self.standing, self.rules.role_tools):
            return None
        arguments = read_call_arguments(call.part.arguments).values
        foreseen = await tool.foresee(ToolContext(caller_of(context, call)), arguments)
        if foreseen is None or not is_write_down(foreseen.decision):
            return None
        read = context.sources(call.message_seq) if context.is_steered(call.message_seq) else ()
        release = None
        if may_ask_release(self.standing, read, self.rules.approval.untrusted):
            release = await context.find_release(foreseen)
        if release is not None and (read or call.referring):
            release = replace(release, standing=None)  # what goes always would go without a look at what was read
        return release or foreseen.decision

    async def _workspace_now(self, so_far: ApprovalsSoFar) -> str:
        """The hash of the workspace, if a command was approved that must find it as it was."""
        answered = [call for approval in so_far.own if not approval.is_pending for call in approval.calls]
        if all(call.workspace is None for call in answered):
            return UNKNOWN_WORKSPACE
        return await hash_of_workspace(self.workspace)

    def _judge_one(
        self, call: OpenCall, wanted: "_NeededYes", so_far: ApprovalsSoFar, workspace: str, *, files: str
    ) -> JudgedCall:
        tool = self.tool_of(call)
        is_approved, released, approved_files = False, None, ""
        for approval in so_far.own:
            answered = approval.find_call(call.message_seq, call.index)
            if answered is None or approval.is_pending:
                continue
            if refusal := refusal_of(approval, answered):
                said = OF_INTEGRITY[so_far.notes.get(approval.id, Integrity.TRUSTED)]
                bare = replace(call, carried=PUBLIC)  # the refusal says nothing of the arguments
                return JudgedCall(call=bare, refusal=replace(refusal, classification=said))
            # What was approved may not be what would run now: then it is asked again.
            if tool is None or not is_same(call, tool, answered, workspace):
                continue
            approved_files = answered.files
            if call.is_begun:
                released = answered.released or released  # its unit checks it, and sends nothing else
            elif wanted.release is None:
                is_approved = True
            elif (
                answered.released == wanted.release.sha256 and wanted.at < approval.expires_at and not wanted.is_steered
            ):
                is_approved, released = True, answered.released
        if tool is None or is_approved or released is not None:
            return JudgedCall(call=call, release=released, files=approved_files)
        if wanted.is_nothing or (call.is_begun and wanted.release is None):
            return JudgedCall(call=call, files=approved_files)
        arguments = read_call_arguments(call.part.arguments).text
        derived = derived_of(tool, arguments)
        asked = AskedCall(
            id=wanted.id,
            message_seq=call.message_seq,
            index=call.index,
            tool=call.part.name,
            arguments=arguments,
            sha256=hash_of_text(arguments),
            definition=hash_of_definition(tool),
            reason=f"{wanted.reason}{words_of_always(derived)}",
            is_untrusted=wanted.is_untrusted,
            by_rule=wanted.need is not None and wanted.need.by_rule,
            routes=routes_of_call(tool, arguments) if wanted.is_untrusted else None,
            files=files,
            derived=derived,
            release=wanted.release,
        )
        # What releases words allows nothing else that the call must be asked for.
        if (wanted.release is None or wanted.need is None) and (
            allowed := find_covering(so_far.standing, asked, so_far.run)
        ):
            return JudgedCall(call=call, allowed_by=allowed.id, release=asked.released, files=asked.files)
        if call.is_begun:
            return JudgedCall(call=call, files=approved_files)
        if other := find_identical(so_far.pending, asked, self.standing.principal):
            return JudgedCall(call=call, refusal=_joined(other))
        return JudgedCall(call=call, asked=asked)


class _NeededYes(Struct, frozen=True, kw_only=True):
    """What a call that has not begun must have."""

    need: NeedsApproval | None
    release: Release | None
    is_steered: bool
    """Whether words of others may have steered the release, so that it goes only together with trust in them."""
    id: str
    """Of the call in a request."""
    at: datetime

    @property
    def is_nothing(self) -> bool:
        return self.need is None and self.release is None

    @property
    def is_untrusted(self) -> bool:
        return self.is_steered or (self.need is not None and self.need.is_untrusted)

    @property
    def reason(self) -> str:
        """For people."""
        asked = [] if self.release is None else [self.release.question]
        return " ".join([*asked, *([] if self.need is None else [self.need.reason])])


def _refused_by_rule(call: OpenCall, said: RuleDecision) -> ToolOutput | None:
    if said.action is not Action.BLOCK:
        return None
    return ToolOutput(OUTCOME_UNKNOWN, is_error=True) if call.is_begun else refuse_by_rule(said)


def _needed_by(need: NeedsApproval | Deny | None, said: RuleDecision) -> NeedsApproval | Deny | None:
    """What the call needs, if written rules want that somebody is asked."""
    if said.action is not Action.APPROVE or isinstance(need, Deny):
        return need
    if need is None:
        return NeedsApproval(f"rule:{said.rules[0]}", reason_of(said), by_rule=True)
    return replace(need, reason=f"{need.reason} {reason_of(said)}", by_rule=True)


def _asked_always(decision: Allow | NeedsApproval | Deny, question: str, tool: Tool) -> NeedsApproval | Deny:
    match decision:
        case Deny():
            return decision
        case NeedsApproval():
            return replace(decision, reason=f"{question} {decision.reason}", by_rule=True)
        case Allow():
            return NeedsApproval(tool.schema.name, question, by_rule=True)


def caller_of(context: RunContext, call: OpenCall, release: str | None = None, files: str = "") -> Caller:
    """The caller of a run's call."""
    return Caller(
        session=SessionRow(context.run.session),
        agent_id=context.agent.id,
        principal=context.run.principal,
        call_id=call_name(context.run.id, call),
        run=context,
        release=release,
        files=files,
        carried=call.carried,
        referring=call.referring,
    )


async def files_of(tool: Tool, caller: Caller, written: str) -> str:
    """The files that the call would send now, as people are asked about them; empty if it sends none."""
    arguments = read_call_arguments(written).values
    if tool.schema.name != MESSAGE_TOOL or not arguments.get(FILES_ARGUMENT) or not isinstance(tool, Foreseeing):
        return ""
    foreseen = await tool.foresee(ToolContext(caller), arguments)
    return UNREAD_FILES if foreseen is None else foreseen.files


def place_of_sink(foreseen: ForeseenCall | None) -> DeliveryContext | None:
    """The place outside at which people hear the words; None if they do not."""
    sink = None if foreseen is None else foreseen.sink
    place = sink.delivery if isinstance(sink, Session) else sink
    return place if place is not None and place.is_outside else None


def asked_from_outside(tool: Tool, written: str, need: NeedsApproval, files: str = "") -> AskedCall:
    """A call from outside a run, as it is asked about."""
    arguments = read_call_arguments(written).text
    derived = derived_of(tool, arguments)
    return AskedCall(
        id="1",
        tool=tool.schema.name,
        arguments=arguments,
        sha256=hash_of_text(arguments),
        definition=hash_of_definition(tool),
        reason=f"{need.reason}{words_of_always(derived)}",
        is_untrusted=need.is_untrusted,
        by_rule=need.by_rule,
        routes=routes_of_call(tool, arguments) if need.is_untrusted else None,
        files=files,
        derived=derived,
    )


def derived_of(tool: Tool, arguments: str) -> tuple[DerivedField, ...]:
    return tool.derived(read_call_arguments(arguments).values) if isinstance(tool, Deriving) else ()


def words_of_always(derived: Sequence[DerivedField]) -> str:
    """What "always" allows, as a further sentence of the reason; empty if it means the arguments as they are."""
    return f" Always would allow {', '.join(each.means for each in derived)}." if derived else ""


def refuse_asking(tool: Tool, arguments: JsonObject) -> ToolOutput | None:
    """The refusal of a call about which a person would be asked in vain."""
    error = tool.refuse_asking(arguments) if isinstance(tool, Deriving) else None
    if error is None:
        return None
    answer = {"status": tool_status_of(error), "code": error.code, "error": error.message}
    return ToolOutput(json.dumps(answer, ensure_ascii=False), is_error=True)


def routes_of_call(tool: Tool, arguments: str) -> tuple[str, ...] | None:
    """The tool's routes, and arguments that a tool of others is given beyond its schema: who knows what they do."""
    if tool.routes is None or tool.foreign is None:
        return tool.routes
    known = tool.schema.parameters.get("properties")
    beyond = [
        name for name in read_call_arguments(arguments).values if not isinstance(known, dict) or name not in known
    ]
    return (*tool.routes, *beyond)


def refers_in_routes(call: OpenCall, tool: Tool) -> bool:
    """Whether a value from quarantine says where to or how much. Contract: flow 10."""
    routes = routes_of_call(tool, call.part.arguments) if call.referring else ()
    return bool(call.referring) if routes is None else not call.referring.isdisjoint(routes)


def is_walled(standing: Standing, *, is_sandboxed: bool) -> bool:
    """Whether commands with the rights of the principal run in a sandbox."""
    return is_sandboxed or is_guest(standing)


def left_by(tool: Tool, context: Classification, agent: Agent | None, effects: Collection[Effect]) -> Classification:
    """What a call leaves in the workspace, and so in its result: from a command's network come words of anybody.

    A person has said yes to each command on the host. Contract: flow 2, 8.
    """
    left = context.join(tool.classification)
    if not is_command(tool):
        return left
    is_on_host = Effect.DELETES in effects
    return left if is_on_host or (agent is not None and not agent.command_limits.network) else left.distrusted()


def effects_of(tool: Tool, *, is_walled: bool) -> frozenset[Effect]:
    """The effects of a call; a command deletes things only on the host."""
    if tool.schema.name == RUN_COMMAND and is_walled:
        return tool.effects - {Effect.DELETES}
    return tool.effects


def effects_of_words(tool: Tool, written: str, effects: frozenset[Effect]) -> frozenset[Effect]:
    """The effects of a call by which it is asked about: a message to where its run answers is as a reply."""
    if tool.schema.name != MESSAGE_TOOL or tool.routes is None:
        return effects
    given = read_call_arguments(written).values
    return effects if any(given.get(name) is not None for name in tool.routes) else effects - {Effect.LEAVES}


def may_ask(tool: Tool) -> bool:
    """Whether calls of the tool ever ask for an approval, unless a pattern names a tool that only reads."""
    return tool.schema.name not in NEVER_ASK and not tool.effects <= {Effect.READS}


def is_same(call: OpenCall, tool: Tool, asked: AskedCall, workspace: str) -> bool:
    """Whether the call, its tool and the workspace of a command are what was asked about. Contract: approvals 3."""
    is_same_call = has_arguments(asked, call.part.arguments)
    is_same_tool = hash_of_definition(tool) == asked.definition
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


def hash_of_definition(tool: Tool) -> str:
    """The hash of a tool's name, description and schema, and of its effects if an owner confirmed them.

    So a yes to a call is asked for anew once somebody reviewed its tool, or reviewed it otherwise.
    """
    foreign = tool.foreign
    if foreign is None or not foreign.is_confirmed or foreign.is_declared:
        return hash_of_tool(tool.schema)
    beside = [foreign.beside] if foreign.beside else []
    return hash_of_tool(tool.schema, sorted(tool.effects), *beside)


def refusal_of(approval: Approval, call: AskedCall) -> ToolOutput | None:
    """The result of a call that was asked about and may not run; None if it may."""
    if call.is_allowed:
        return None
    if approval.state is ApprovalState.EXPIRED:
        said = "It did not run. Do without it, or make it again to ask again."
        return _refused("approval_expired", f"Call was not approved in time (request {approval.id}). {said}")
    if approval.state is ApprovalState.WITHDRAWN:
        said = "The call did not run. Make it again if it is still needed."
        return _refused("approval_withdrawn", f"Request {approval.id} was withdrawn. {said}")
    said = f"The person who decided says: {approval.note}" if approval.note else "Do without it, or ask your user."
    return _refused("approval_denied", f"Call was denied (request {approval.id}). It did not run. {said}")


def _refused_unasked(need: NeedsApproval | Deny | None, release: Release | Deny | None) -> ToolOutput | None:
    """The refusal of a call about which nobody is asked, since a yes would change nothing."""
    if isinstance(need, Deny):
        return _denied(need)
    return None if need is None or not isinstance(release, Deny) else refused_words(release)


def refused_words(denied: Deny) -> ToolOutput:
    """The result of a call whose words may not go to their target, as the tool itself says it."""
    answer = {"status": "forbidden", "code": denied.rule, "error": denied.reason}
    return ToolOutput(json.dumps(answer, ensure_ascii=False), is_error=True)


def _denied(denied: Deny) -> ToolOutput:
    return _refused(denied.rule, f"{denied.reason} The call did not run.")


def _joined(approval: Approval) -> ToolOutput:
    """The result of a call that joins the open request for the same call: it runs once, where it was asked first."""
    return ToolOutput(
        json.dumps({"status": "pending", "approvalId": approval.id, "message": JOINED.format(id=approval.id)})
    )


def _refused(code: str, message: str) -> ToolOutput:
    return ToolOutput(
        json.dumps({"status": "error", "code": code, "error": message}, ensure_ascii=False), is_error=True
    )
