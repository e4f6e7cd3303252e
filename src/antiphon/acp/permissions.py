"""What a harness asks before it acts: shown as it words it, answered for this once alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from antiphon.acp.connection import RpcRequest
from antiphon.acp.fields import object_in, objects_in, text_in
from antiphon.domain.message import JsonObject


class PermissionVerdict(StrEnum):
    ALLOW = "allow"
    REJECT = "reject"
    CANCEL = "cancel"
    """Neither: the harness gets no decision, as when its turn is cancelled."""


_KINDS: Final = {PermissionVerdict.ALLOW: "allow_once", PermissionVerdict.REJECT: "reject_once"}
"""No other kind is ever chosen: the others allow or reject more than what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    id: str
    name: str
    kind: str
    """`allow_once`, `allow_always`, `reject_once`, `reject_always`, or a word that this program does not know."""


class PermissionRequest:
    """A request for permission, which holds the harness until it is answered or the turn is cancelled."""

    def __init__(self, request: RpcRequest, session_id: str, call_id: str, tool_call: JsonObject) -> None:
        self.session_id = session_id
        self.call_id = call_id
        """The id of the call, as `CalledTool.id`; another one when the same is asked again."""
        self.tool_call = tool_call
        """The whole `toolCall` of the request as it came, without its id."""
        self.options: Sequence[Option] = _options(request.params)
        self._request = request

    @property
    def is_open(self) -> bool:
        """Whether the harness still waits for the answer."""
        return self._request.is_open

    async def wait_closed(self) -> None:
        """Waits until the harness no longer waits: it was answered or withdrawn, its turn or the harness ended."""
        await self._request.wait_closed()

    @property
    def can_allow(self) -> bool:
        """Whether it can be allowed this once; if not, allowing it cancels it."""
        return self._option(PermissionVerdict.ALLOW) is not None

    async def answer(self, verdict: PermissionVerdict) -> bool:
        """Answers once; returns whether the harness got this verdict, and not a cancellation in its place.

        False also if the request is no longer open: nothing is sent then.
        """
        if not self.is_open:
            return False
        option = self._option(verdict)
        if option is None:
            self.cancel()
            return verdict is PermissionVerdict.CANCEL
        self._request.answer({"outcome": {"outcome": "selected", "optionId": option.id}})
        return True

    def cancel(self) -> None:
        """Answers that the turn was cancelled, if it is open."""
        self._request.answer({"outcome": {"outcome": "cancelled"}})

    def _option(self, verdict: PermissionVerdict) -> Option | None:
        kind = _KINDS.get(verdict)
        return next((option for option in self.options if option.kind == kind), None)


def permission_of(request: RpcRequest) -> PermissionRequest | None:
    """The request as one for permission; None if it lacks a session or a call."""
    session_id = text_in(request.params, "sessionId")
    tool_call = object_in(request.params, "toolCall")
    call_id = text_in(tool_call, "toolCallId")
    if session_id is None or call_id is None:
        return None
    shown = {name: value for name, value in tool_call.items() if name != "toolCallId"}
    return PermissionRequest(request, session_id, call_id, shown)


def _options(params: JsonObject) -> list[Option]:
    found = ((text_in(each, "optionId"), each) for each in objects_in(params, "options"))
    return [
        Option(id=number, name=text_in(each, "name") or "", kind=text_in(each, "kind") or "")
        for number, each in found
        if number is not None
    ]
