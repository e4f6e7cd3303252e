"""Requests for approval, as dialogs of an editor."""

from acp.schema import PermissionOption, RequestPermissionRequest, ToolCallUpdate

from antiphon.cli.acp.updates import TITLE_CHARACTERS, shown
from antiphon.cli.rendering.rows import asked_text, call_line
from antiphon.domain.approval import Verdict
from antiphon.domain.message import JsonObject

OPTIONS = [
    PermissionOption(option_id=Verdict.ONCE, name=Verdict.ONCE.means.button, kind="allow_once"),
    PermissionOption(option_id=Verdict.DENY, name=Verdict.DENY.means.button, kind="reject_once"),
]


def is_for_dialogs(approval: JsonObject) -> bool:
    """Whether a yes or a no answers it. Some words are released only together with trust in what was read."""
    return not approval.get("needsTrust")


def dialog(session_id: str, approval: JsonObject, call: JsonObject, tool_call_id: str) -> RequestPermissionRequest:
    """Shows the whole call, exactly as it will run, why it asks, and what was read before."""
    return RequestPermissionRequest(
        session_id=session_id,
        options=OPTIONS,
        tool_call=ToolCallUpdate(
            tool_call_id=tool_call_id,
            title=call_line(call, TITLE_CHARACTERS),
            status="pending",
            content=shown(_words(approval, call)),
        ),
    )


def verdict_of(option_id: str) -> Verdict | None:
    """None for an option that was not offered."""
    return next((verdict for verdict in (Verdict.ONCE, Verdict.DENY) if verdict == option_id), None)


def _words(approval: JsonObject, call: JsonObject) -> str:
    lines = [asked_text(call), str(call.get("reason") or "")]
    if name := approval.get("principalName"):
        lines.append(f"Asked for {name}.")
    lines.append(str(approval.get("wasRead") or ""))
    return "\n\n".join(line for line in lines if line)
