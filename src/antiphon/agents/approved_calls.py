"""Carries out calls from outside a run once they are approved, each once. Contract: approvals 5.

The yes is stored with the call, so any process that has the tool may carry it out, also after a restart. Its begin is
stored before it has any effect: a call that was cut is not carried out again, unless its tool is idempotent.
"""

import json
import logging

import anyio

from antiphon.agents.approving import effects_of, hash_of_definition, hash_of_workspace, is_walled
from antiphon.agents.outside_gate import OutsideGate, answer_of
from antiphon.agents.toolset import Tool, Toolset
from antiphon.domain.approval import Approval, AskedCall
from antiphon.domain.errors import Unavailable
from antiphon.domain.message import JsonObject
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.keyed_calls import UNKNOWN
from antiphon.engine.approvals.outside import OutsideApprovals
from antiphon.engine.ledger.due_loop import DueLoop
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0
"""Between looks without a wake, for calls that a dead process left."""
RETRY_SECONDS = 0.5
MAX_AT_ONCE = 16


class ApprovedCalls(DueLoop[None]):
    """The approved calls that this process carries out."""

    def __init__(
        self,
        tools: Toolset,
        callers: Callers,
        approvals: OutsideApprovals,
        rules: Rules,
        *,
        workspaces: Workspaces,
    ) -> None:
        super().__init__(
            approvals.subscribe,
            looking=Trouble(
                logger, "Reading approved calls", action="approved_calls_failed", means="Approved calls do not run."
            ),
            setbacks=Setbacks(
                logger,
                "Approved call",
                action="approved_call_broken",
                means="It is tried again; others are carried out.",
            ),
            pause=SWEEP_SECONDS,
        )
        self._tools = tools
        self._gate = OutsideGate(callers, rules)
        self._workspaces = workspaces
        self._approvals = approvals
        self._rules = rules
        self._carrying = Trouble(
            logger, "Carrying out a call", action="approved_call_failed", means="Its outcome is reported as unknown."
        )
        self._storing = Trouble(
            logger, "Storing an outcome", action="outcome_failed", means="The outcome may be reported as unknown."
        )

    async def settle_due(self) -> float:
        """Begins what is due; a process that has the tool of another carries that out."""
        for approval in await self._approvals.list_to_carry_out(lambda each: self._tool_of(each) is not None):
            tool = self._tool_of(approval)
            if tool is not None and self._may_begin(approval.id) and len(self._at_work) < MAX_AT_ONCE:
                self._start(approval.id, None, self._carry_out, approval, tool)
        return SWEEP_SECONDS

    def _tool_of(self, approval: Approval) -> Tool | None:
        return next((self._tools.find(call.tool) for call in approval.calls), None)

    async def _carry_out(self, approval: Approval, tool: Tool) -> None:
        try:
            with self._setbacks.attempt(approval.id, approval_id=approval.id, tool=tool.schema.name):
                found = await self._approvals.begin(approval, is_idempotent=tool.is_idempotent)
                if found is not None:
                    await self._end(approval, await self._outcome(found, tool, approval.calls[0]))
        except Unavailable as error:
            self._looking.failed(error)
            await anyio.sleep(RETRY_SECONDS)

    async def _outcome(self, found: FoundCaller, tool: Tool, asked: AskedCall) -> str:
        """The answer as JSON. Whatever goes wrong in one call, the others go on."""
        try:
            return json.dumps(await self._answer(found, tool, asked), ensure_ascii=False)
        except Exception as error:
            self._carrying.failed(error)
            return UNKNOWN

    async def _answer(self, found: FoundCaller, tool: Tool, asked: AskedCall) -> JsonObject:
        """Carries out the call, byte for byte as it was asked, if it still is what was approved."""
        name = tool.schema.name
        given = self._tools.for_session(found.caller.agent_id, found.depth, found.standing, self._rules)
        if given.find(name) is None:
            return _refused("tool_not_given", f"Tool is not available to this session any more: {name!r}.")
        if hash_of_definition(tool.schema) != asked.definition:
            return _refused(
                "approval_outdated",
                f"Tool has changed since its call was approved: {name!r}. Call again with a new Idempotency-Key.",
            )
        if await self._is_workspace_changed(found, asked):
            return _refused(
                "approval_outdated",
                "Workspace has changed since the command was approved. Call again with a new Idempotency-Key.",
            )
        is_sandboxed = self._rules.are_sandboxed(found.session)
        effects = effects_of(tool, is_walled=is_walled(found.standing, is_sandboxed=is_sandboxed))
        if refusal := await self._gate.refuse(found, tool, effects):
            return answer_of(refusal.text, is_error=True)
        await self._gate.note_use(found, tool)
        ended = await self._gate.run(found, tool, json.loads(asked.arguments))
        return await self._gate.tell(found, tool, ended)

    async def _is_workspace_changed(self, found: FoundCaller, asked: AskedCall) -> bool:
        if asked.workspace is None:
            return False
        workspace = self._workspaces.of_session(found.session)
        return not asked.finds(await hash_of_workspace(workspace))

    async def _end(self, approval: Approval, outcome: str) -> None:
        """Stores the outcome, however long the store cannot take it."""
        while True:
            try:
                await self._approvals.end(approval, outcome)
            except Unavailable as error:
                self._storing.failed(error)
                await anyio.sleep(RETRY_SECONDS)
            else:
                self._storing.worked()
                return


def _refused(code: str, message: str) -> JsonObject:
    return {"status": "error", "code": code, "error": message}
