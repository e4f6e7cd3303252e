"""`subagents`: lists, cancels and steers the session's own children. Contract: spawn 8."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from antiphon.domain.agent import Effect
from antiphon.domain.classification import OF_INTEGRITY, PUBLIC, Integrity
from antiphon.domain.errors import Invalid
from antiphon.domain.run import RunStatus
from antiphon.domain.text import one_line
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.children.govern import ChildView, Subagents
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.wire.encoding import milliseconds

DESCRIPTION = (
    "Manages this session's own sub-agents. list: shows them. cancel: stops a sub-agent and everything it spawned; "
    "target 'all' stops every one. steer: sends a message to a working sub-agent, which reads it before its next step."
)

CODES = (
    *("not_found", "ambiguous_label", "empty_message", "message_too_large", "child_ended", "spawn_children"),
    *("write_down", "others_work", "idempotency_key_reused"),
)
TASK_LENGTH = 200


class SubagentsArguments(Arguments):
    action: Literal["list", "cancel", "steer"] = Field(description="The action.")
    target: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] | None = Field(
        None, description="A sub-agent's sessionKey, runId or label; for list and cancel also 'all'."
    )
    message: str | None = Field(None, description="For steer: the message.")


def subagents(children: Subagents) -> SessionTool[SubagentsArguments]:
    async def carry_out(caller: Caller, arguments: SubagentsArguments) -> ClassifiedAnswer:
        action, target, message = arguments.action, arguments.target, arguments.message
        if message is not None and action != "steer":
            raise Invalid("message is only for use with action 'steer'.", code="invalid_arguments")
        if action == "list":
            listed = await children.list(caller, target)
            shown = [_shown(child) for child in listed.children]
            # Their tasks and labels are this session's words, and as trusted as it was when it spawned them.
            integrity = max((child.session.base.integrity for child in listed.children), default=Integrity.TRUSTED)
            answer = {"count": len(shown), "children": shown} | ({"hasMore": True} if listed.has_more else {})
            return ClassifiedAnswer(answer, OF_INTEGRITY[integrity])
        if target is None:
            raise Invalid(f"Action needs a target: {action!r}. 'list' shows the sub-agents.", code="invalid_arguments")
        if action == "cancel":
            cancelled = await children.cancel(caller, target)
            keys = [str(child.session.key) for child in cancelled]
            return ClassifiedAnswer({"status": "ok", "cancelled": keys}, PUBLIC)
        if message is None:
            raise Invalid("Action 'steer' needs a message.", code="invalid_arguments")
        steered = await children.steer(caller, target, message)
        accepted = {"status": "accepted", "runId": steered.run_id, "childSessionKey": str(steered.child.key)}
        return ClassifiedAnswer(accepted, PUBLIC)

    async def foresee(caller: Caller, arguments: SubagentsArguments) -> ForeseenCall | None:
        if arguments.action != "steer" or arguments.target is None or arguments.message is None:
            return None
        return await children.foresee_steer(caller, arguments.target, arguments.message)

    return SessionTool(
        "subagents",
        DESCRIPTION,
        SubagentsArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.WRITES}),
    ).foreseen_by(foresee)


def _shown(child: ChildView) -> dict[str, Any]:
    run = child.run
    shown: dict[str, Any] = {
        "sessionKey": str(child.session.key),
        "runId": child.run_id,
        "status": "running" if child.is_at_work and (run is None or run.status.is_terminal) else _status(child),
        "mode": child.mode.value,
        "createdAt": milliseconds(child.created_at),
    }
    if not child.is_hidden:
        shown["task"] = one_line(child.task, TASK_LENGTH)
        if child.session.label is not None:
            shown["label"] = child.session.label
    if child.is_withheld or child.is_hidden:
        shown["withheld"] = True
    says_when = not child.is_withheld and not child.is_quarantined
    if says_when and run is not None and run.ended_at is not None and not child.is_at_work:
        shown["endedAt"] = milliseconds(run.ended_at)
    return shown


def _status(child: ChildView) -> str:
    """The status of its run; `ok` for one above the requester or in quarantine: the real one would say something."""
    if child.is_withheld or (child.is_quarantined and child.run is not None and child.run.is_over):
        return RunStatus.OK.value
    return "unknown" if child.run is None else child.run.status.value
