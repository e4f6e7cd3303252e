"""One session that is open in an editor: it is followed, shown, asked about and written to."""

import logging
import secrets
from collections.abc import Sequence
from contextlib import aclosing, suppress
from urllib.parse import quote

import anyio
from acp.exceptions import RequestError
from acp.schema import (
    PromptResponse,
    SessionInfoUpdate,
    StopReason,
)
from anyio.abc import TaskGroup

from antiphon.cli.acp.dialogs import SessionDialogs
from antiphon.cli.acp.editor import Editor
from antiphon.cli.acp.errors import INTERNAL_ERROR, request_error
from antiphon.cli.acp.plans import SessionPlan, may_change_plan
from antiphon.cli.acp.prompts import Block, QuotedFile, read_prompt
from antiphon.cli.acp.turns import PromptTurn, stop_reason_of, usage_of, while_posted
from antiphon.cli.acp.updates import SessionUpdates, Update, said, thought
from antiphon.cli.connection.client import ServerEvent, session_path
from antiphon.cli.connection.remote import JOINED, RemoteGateway
from antiphon.cli.rendering.rows import told_text
from antiphon.domain.errors import AntiphonError, Denied, Unavailable
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import shown_name

logger = logging.getLogger(__name__)

WAIT_SECONDS = 300
"""Of one request that waits for a run; longer waits are several."""
FLUSH_SECONDS = 10.0
"""For the last updates of a run that has ended."""
CANCEL_SECONDS = 30.0
"""For a run that was cancelled, until its prompt is answered anyway."""
JOIN_SECONDS = 30.0
IDLE = ("idle", "inactive")
MAX_ENDED = 256
"""Ends of runs that are remembered."""


class EditorSession:
    """`id` is what the editor calls it, `key` its key; `follow` runs in a task as long as it is open."""

    def __init__(self, editor: Editor, gateway: RemoteGateway, tasks: TaskGroup, *, id: str, key: str) -> None:
        self.id = id
        self.key = key
        self.notice: str | None = None
        """What is said once, before the next answer."""
        self._editor = editor
        self._gateway = gateway
        self._tasks = tasks
        self._updates = SessionUpdates()
        self._turns: list[PromptTurn] = []
        self._answered = anyio.Event()
        """Set when one of them is; then there is another event."""
        self._dialogs = SessionDialogs(self, editor, gateway, tasks)
        self._plan = SessionPlan(gateway, key)
        self._ended: dict[str, anyio.Event] = {}
        self._cancelling = 0
        self._scope = anyio.CancelScope()
        self._joined = anyio.Event()
        self._failure: AntiphonError | None = None
        self._is_closed = False
        self._title: JsonValue = None
        self._reads_details: bool | None = None
        self._after = 0

    async def begin(self, row: JsonObject, *, is_replayed: bool) -> None:
        """Shows what was said, if that is wanted, and follows the session from there on."""
        last = row.get("lastSeq")
        self._after = last if isinstance(last, int) else 0
        self._title = row.get("label") or row.get("displayName") or row.get("description")
        if is_replayed:
            await self._replay()
        self._tasks.start_soon(self._follow)
        await self._joining()

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Posts the message and returns once its work is over, or goes on without the editor."""
        written = read_prompt(blocks)
        await self._joining()
        if self.notice:
            notice, self.notice = self.notice, None
            await self.show(said(f"{notice}\n\n"))
        if written.command and (answer := await self._command(written.command)) is not None:
            await self.show(said(answer))
            return PromptResponse(stop_reason="end_turn")
        turn = PromptTurn()
        self._turns.append(turn)
        try:
            for each in written.quotes:
                await self._append(each)
            return await self._post(turn, {"content": [*written.content]})
        finally:
            self._turns.remove(turn)
            answered, self._answered = self._answered, anyio.Event()
            answered.set()

    async def cancel(self) -> None:
        """Cancels the work of the session, and what its prompts wait for."""
        cancelled = [*self._turns]
        for turn in cancelled:
            turn.is_cancelled = True
            self._tasks.start_soon(self._end_later, turn)
        self._cancelling += 1
        try:
            await self._call_off(session_path(self.key, "/cancel"))
            for run in sorted({run for turn in cancelled for run in turn.runs}):
                await self._call_off(f"/runs/{quote(run, safe='')}/cancel")
        finally:
            self._cancelling -= 1

    async def close(self) -> None:
        """Cancels what its prompts wait for, and follows it no more. The session stays."""
        if self._turns:
            await self.cancel()
            with anyio.move_on_after(CANCEL_SECONDS):
                while self._turns:
                    await self._answered.wait()
        self.leave()

    def leave(self) -> None:
        self._is_closed = True
        self._scope.cancel()
        self._dialogs.leave()

    async def show(self, update: Update) -> None:
        with suppress(ConnectionError):
            await self._editor.show(self.id, update)

    async def show_what_is_open(self) -> None:
        """The children, and the requests that the person may decide."""
        await self._show_plan()
        await self._dialogs.ask_open()

    def is_cancelled(self, run: str) -> bool:
        return self._cancelling > 0 or any(run in turn.runs for turn in self._turns if turn.is_cancelled)

    def goes_on_without(self, run: str) -> None:
        for turn in self._turns:
            if run in turn.runs:
                turn.over.set()

    # Following

    async def _replay(self) -> None:
        async with aclosing(self._gateway.lines(session_path(self.key, "/transcript"))) as lines:
            async for event in lines:
                seq = event.get("seq")
                if isinstance(seq, int):
                    self._after = max(self._after, seq)
                self._dialogs.note(event)
                for update in self._updates.event(event):
                    await self.show(update)
                if ended := await self._bad_end(event):
                    await self.show(said(ended))

    async def _joining(self) -> None:
        """Returns once the session is followed. Raises why it is not any more."""
        if isinstance(self._failure, Unavailable) and not self._is_closed:
            self._failure, self._joined, self._scope = None, anyio.Event(), anyio.CancelScope()
            self._tasks.start_soon(self._follow)
        with anyio.move_on_after(JOIN_SECONDS):
            await self._joined.wait()
        if self._failure is not None:
            raise request_error(self._failure)

    async def _follow(self) -> None:
        """The task's root: what ends it ends the prompts that wait."""
        with self._scope:
            try:
                await self._read()
            except AntiphonError as error:
                self._failure = error
            except Exception:
                logger.exception("Session is not followed any more", extra={"action": "session_left", "key": self.key})
                self._failure = AntiphonError("Session is not followed any more; its work goes on. Load it again.")
        self._joined.set()
        for turn in self._turns:
            turn.over.set()
        for ended in self._ended.values():
            ended.set()  # no update comes any more

    async def _read(self) -> None:
        while True:
            async with aclosing(self._gateway.follow(session_path(self.key, "/events"), self._after)) as events:
                async for event in events:
                    if event.name == "reset":
                        await self._reset(event.data)
                        break
                    await self._take(event)

    async def _reset(self, data: JsonObject) -> None:
        """The log does not hold the place that was read up to. Raises `NotFound` if there is no log any more."""
        row = await self._gateway.ask("GET", session_path(self.key))
        last = row.get("lastSeq")
        self._after = last if isinstance(last, int) else 0
        await self.show(said(f"\n\n(The log was lost or begins again: {data.get('reason')}. Load the session again.)"))

    async def _take(self, event: ServerEvent) -> None:
        match event.name:
            case _ if event.name == JOINED:
                await self._join()
            case "delta":
                for update in self._updates.piece(event.data):
                    await self.show(update)
            case "delay":
                if isinstance(delay := event.data.get("delay"), dict):
                    await self.show(thought(f"({delay.get('text')})\n"))
            case "end":
                raise Denied(f"Token has ended: {event.data.get('reason')}", code="credential_ended")
            case "keep_alive":
                pass
            case _:
                await self._take_stored(event)

    async def _join(self) -> None:
        row = await self._gateway.ask("GET", session_path(self.key))
        last = row.get("lastSeq")
        self._updates.join(last if isinstance(last, int) else 0, is_idle=row.get("status") in IDLE)
        self._joined.set()

    async def _take_stored(self, event: ServerEvent) -> None:
        data = event.data.get("data")
        self._dialogs.note(event.data)
        for update in self._updates.event(event.data):
            await self.show(update)
        run, fields = str(event.data.get("runId")), data if isinstance(data, dict) else {}
        match event.name:
            case "run_started":
                self._continue(str(fields.get("continues")), run)
            case "run_finished":
                is_told = any(run in turn.runs or not turn.runs for turn in self._turns)
                if not is_told and (ended := await self._bad_end(event.data)):
                    await self.show(said(ended))
                self._end(run).set()
            case "approval_requested":
                self._tasks.start_soon(self._dialogs.ask, str(fields.get("approvalId")), run)
            case "approval_resolved":
                self._dialogs.take_back(str(fields.get("approvalId")))
            case _:
                pass
        if may_change_plan(event.data) and not self._plan.is_due:
            self._plan.is_due = True
            self._tasks.start_soon(self._show_plan)
        if event.id is not None:
            self._after = event.id

    def _end(self, run: str) -> anyio.Event:
        """Set once all updates of the run were sent; of runs long ago it is forgotten."""
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return self._ended.setdefault(run, anyio.Event())

    def _continue(self, earlier: str, run: str) -> None:
        for turn in self._turns:
            if earlier in turn.runs:
                turn.runs.add(run)

    async def _bad_end(self, event: JsonObject) -> str | None:
        """What is said of a run that failed."""
        outcome = event.get("data")
        if event.get("type") != "run_finished" or not isinstance(outcome, dict):
            return None
        match outcome.get("status"):
            case "error" | "timeout":
                return f"\n\n(The turn failed: {await self._told(outcome)})"
            case _:
                return None

    async def _told(self, outcome: JsonObject) -> str:
        """Why a run failed: for owners what happened, for others the plain words that they read everywhere."""
        if self._reads_details is None:
            try:
                await self._gateway.ask("GET", "/deliveries?limit=1")
                self._reads_details = True
            except AntiphonError:
                self._reads_details = False
        reads = self._reads_details
        return told_text(outcome, lambda: reads)

    # Prompts

    async def _command(self, text: str) -> str | None:
        """The answer to a command of chats; None for other words."""
        answer = await self._ask_gateway("POST", session_path(self.key, "/command"), {"text": text})
        return str(answer.get("answer") or "Done.") if answer.get("isCommand") else None

    async def _append(self, file: QuotedFile) -> None:
        body: JsonObject = {
            "text": file.text,
            "messageId": self._new_message(),
            "attribution": {"kind": "quote", "name": shown_name(file.name) or "file"},
        }
        await self._ask_gateway("POST", session_path(self.key, "/messages?append=1"), body)

    async def _post(self, turn: PromptTurn, body: JsonObject) -> PromptResponse:
        if turn.is_cancelled:
            return PromptResponse(stop_reason="cancelled")
        named: JsonObject = {**body, "messageId": self._new_message()}
        posted = await self._ask_gateway("POST", session_path(self.key, "/messages"), named)
        run = posted.get("runId")
        if not isinstance(run, str):
            await self.show(said("(The message is stored; it starts no turn.)"))
            return PromptResponse(stop_reason="end_turn")
        turn.runs.add(run)
        if turn.is_cancelled:
            await self._call_off(f"/runs/{quote(run, safe='')}/cancel")
        ended = await self._end_of(turn, run)
        if turn.is_cancelled:
            return PromptResponse(stop_reason="cancelled")
        if ended is None:
            if (failure := turn.failure or self._failure) is not None:
                raise request_error(while_posted(failure))
            return PromptResponse(stop_reason="end_turn")
        self._tasks.start_soon(self._show_title)
        return PromptResponse(stop_reason=await self._stop_reason(ended), usage=usage_of(ended))

    async def _end_of(self, turn: PromptTurn, run: str) -> JsonObject | None:
        """How the run's work ended, after all its updates; None if it goes on without the editor."""
        found: JsonObject | None = None
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                nonlocal found
                try:
                    found = await self._wait(run)
                except AntiphonError as error:
                    turn.failure = error
                tasks.cancel_scope.cancel()

            async def give_up() -> None:
                await turn.over.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait)
            tasks.start_soon(give_up)
        if found is not None and not found.get("withheld"):
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._end(str(found.get("runId"))).wait()
        return found

    async def _wait(self, run: str) -> JsonObject:
        while True:
            found = await self._gateway.ask("GET", f"/runs/{quote(run, safe='')}?wait={WAIT_SECONDS}")
            if found.get("status") != "timeout" or "endedAt" in found:
                return found

    async def _stop_reason(self, run: JsonObject) -> StopReason:
        """Raises `RequestError` for a run that failed."""
        if (reason := stop_reason_of(run)) is None:
            raise RequestError(INTERNAL_ERROR, await self._told(run), {"code": run.get("code")})
        return reason

    async def _end_later(self, turn: PromptTurn) -> None:
        await anyio.sleep(CANCEL_SECONDS)
        turn.over.set()

    async def _call_off(self, path: str) -> None:
        try:
            await self._gateway.ask("POST", path)
        except AntiphonError as error:
            logger.warning("Work was not cancelled", extra={"action": "cancel_failed", "code": error.code})

    def _new_message(self) -> str:
        id = f"acp-{secrets.token_hex(16)}"
        self._updates.own.add(id)
        return id

    async def _ask_gateway(self, method: str, path: str, body: JsonObject) -> JsonObject:
        try:
            return await self._gateway.ask(method, path, body)
        except AntiphonError as error:
            raise request_error(error) from error

    async def _show_plan(self) -> None:
        if (update := await self._plan.change()) is not None:
            await self.show(update)

    async def _show_title(self) -> None:
        try:
            row = await self._gateway.ask("GET", session_path(self.key))
        except AntiphonError:
            return
        title = row.get("label") or row.get("displayName") or row.get("description")
        if title != self._title:
            self._title = title
            await self.show(SessionInfoUpdate(session_update="session_info_update", title=str(title)))
