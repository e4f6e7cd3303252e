"""The requests for approval of one session: asked in the editor, for as long as nobody has decided them elsewhere."""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

import anyio
from acp.schema import ToolCallProgress
from anyio.abc import TaskGroup

from antiphon.cli.acp.editor import Editor
from antiphon.cli.acp.permissions import dialog, is_for_dialogs, verdict_of
from antiphon.cli.acp.updates import Update, call_id, said, shown
from antiphon.cli.connection.remote import RemoteGateway
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.approval import Verdict
from antiphon.domain.errors import AntiphonError, Conflict, NotFound
from antiphon.domain.message import JsonObject, JsonValue

MAX_OPEN = 200


class AskingSession(Protocol):
    """The session whose calls wait."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...

    async def show(self, update: Update) -> None: ...

    def is_cancelled(self, run: str) -> bool:
        """Whether the run's work is being cancelled: then nobody has to be asked."""
        ...

    def goes_on_without(self, run: str) -> None:
        """The run waits for somebody else: its prompt is answered, and later updates still come."""
        ...


class SessionDialogs:
    def __init__(self, session: AskingSession, editor: Editor, gateway: RemoteGateway, tasks: TaskGroup) -> None:
        self._session = session
        self._editor = editor
        self._gateway = gateway
        self._tasks = tasks
        self._open: dict[str, anyio.CancelScope] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._resolved: set[str] = set()
        self._is_left = False

    def note(self, event: JsonObject) -> None:
        """Remembers of a stored event which calls a request is about: their dialogs belong to them."""
        data = event.get("data")
        if event.get("type") == "approval_requested" and isinstance(data, dict):
            for call in rows_of(data, "calls"):
                if call.get("messageSeq"):
                    named = call_id(call.get("messageSeq"), call.get("index"))
                    self._named[str(data.get("approvalId")), str(call.get("callId"))] = named

    async def ask_open(self) -> None:
        """Asks everything that is open."""
        for approval in await self._pending():
            self._tasks.start_soon(self._ask, approval)

    async def ask(self, id: str, run: str) -> None:
        """A task's root: asks the person, if they may decide."""
        for approval in await self._pending():
            if approval.get("approvalId") == id:
                await self._ask(approval)
                return
        if id not in self._resolved:
            await self._leave_open(id, run, "waits for a yes of somebody else")

    def take_back(self, id: str) -> None:
        """It was decided or withdrawn."""
        self._resolved.add(id)
        if (scope := self._open.get(id)) is not None:
            scope.cancel()

    def leave(self) -> None:
        """Takes all dialogs back. The requests stay open."""
        self._is_left = True
        for scope in self._open.values():
            scope.cancel()

    async def _pending(self) -> list[JsonObject]:
        """The open requests of the session that the person may decide."""
        path = f"/approvals?session={quote(self._session.key, safe='')}&status=pending&limit={MAX_OPEN}"
        try:
            return rows_of(await self._gateway.ask("GET", path), "approvals")
        except AntiphonError:
            return []  # a token without that scope

    async def _ask(self, approval: JsonObject) -> None:
        """A task's root: one dialog for each call; the answers decide together."""
        id, run = str(approval.get("approvalId")), str(approval.get("runId"))
        if not is_for_dialogs(approval):
            await self._leave_open(id, run, "waits for a decision on the page, which shows what was read")
            return
        if id in self._open or id in self._resolved or self._is_left:
            return
        answers: dict[str, Verdict | None] = {}
        with anyio.CancelScope() as scope:
            self._open[id] = scope
            try:
                async with anyio.create_task_group() as tasks:
                    for call in rows_of(approval, "calls"):
                        tasks.start_soon(self._ask_one, approval, call, answers)
            finally:
                self._open.pop(id, None)
        if scope.cancelled_caught or self._session.is_cancelled(run):
            return
        verdicts = {call: verdict for call, verdict in answers.items() if verdict is not None}
        if len(verdicts) < len(answers):
            await self._leave_open(id, run, "was not decided here and still waits")
        else:
            await self._decide(id, run, verdicts)

    async def _ask_one(self, approval: JsonObject, call: JsonObject, answers: dict[str, Verdict | None]) -> None:
        id, call_name = str(approval.get("approvalId")), str(call.get("callId"))
        named = self._named.get((id, call_name), f"{id}-{call_name}")
        chosen = await self._editor.ask(dialog(self._session.id, approval, call, named))
        answers[call_name] = None if chosen is None else verdict_of(chosen)

    async def _decide(self, id: str, run: str, verdicts: Mapping[str, Verdict]) -> None:
        decisions: list[JsonValue] = [{"callId": call, "decision": verdict.value} for call, verdict in verdicts.items()]
        try:
            await self._gateway.ask("POST", f"/approvals/{quote(id, safe='')}", {"decisions": decisions})
        except (Conflict, NotFound):
            pass  # it was decided or withdrawn meanwhile
        except AntiphonError as error:
            await self._leave_open(id, run, f"was not decided ({error.message.rstrip('.')}) and still waits")

    async def _leave_open(self, id: str, run: str, why: str) -> None:
        if self._is_left:
            return
        for (approval, _), named in self._named.items():
            if approval == id:
                progress = ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=named,
                    status="pending",
                    content=shown(f"The call {why}."),
                )
                await self._session.show(progress)
        text = f"\n\n(A call {why}: `antiphon approvals show {id}`. The work goes on after it.)\n\n"
        await self._session.show(said(text))
        self._session.goes_on_without(run)
