"""A harness that runs: its native sessions, and turns in them, through one connection over its pipes.

It is told what this program offers, which is next to nothing: no terminals, and files only through a `FileAccess`.
Each session is set to the mode in which the harness asks, the mode is read back, and a harness that leaves it is
killed. What it does without asking it does with the rights of its process: walls are not built here.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Protocol

from anyio import Event, create_task_group, move_on_after, sleep, to_thread
from anyio.abc import TaskGroup

from antiphon.acp.asking import OWN_SETTINGS_ALONE, find_silencing_file
from antiphon.acp.background import background_tasks
from antiphon.acp.connection import RpcConnection, RpcRequest
from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.fields import count_in, object_in, objects_in, text_in
from antiphon.acp.framing import AUTH_REQUIRED, INVALID_PARAMS, METHOD_NOT_FOUND, RpcCall, RpcError, broken
from antiphon.acp.modes import Modes, mode_told, modes_of
from antiphon.acp.permissions import permission_of
from antiphon.acp.process import HarnessCommand, HarnessProcess, started
from antiphon.acp.turn import HarnessTurn
from antiphon.acp.updates import update_of
from antiphon.domain.errors import Conflict
from antiphon.domain.message import JsonObject
from antiphon.version import VERSION

PROTOCOL_VERSION: Final = 1
MAX_SAID: Final = 500
MAX_SESSION_ID: Final = 200
MAX_FILE_BYTES: Final = 1024 * 1024
EXIT_SECONDS: Final = 2.0
"""How long an ended harness may take to tell its exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessLimits:
    start_seconds: float = 60.0
    """To the answer to `initialize`."""
    answer_seconds: float = 60.0
    """To each other answer, save that to a prompt: opening a session starts its tools and reads its history."""
    mode_seconds: float = 5.0
    """To the message that says the mode, of a harness whose answer does not."""
    cancel_seconds: float = 10.0
    """From the cancellation of a turn to its end."""
    stall_seconds: float = 60.0
    """How long it may leave a message unread."""
    silence_seconds: float | None = 3_600.0
    """How long it may say nothing in a turn while nothing waits for permission; None: without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessInfo:
    """How the harness names itself; empty where it does not."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    load: bool
    """Whether it says that it can load sessions, which it may still fail to do."""
    resume: bool
    """Whether it says that it can resume sessions, which is loading without telling what was."""
    mcp_http: bool
    sign_ins: tuple[str, ...]
    """The ids of its ways to sign in; most take a key from a variable instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of MCP over HTTP that the harness connects to."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSession:
    """A session of the harness's own."""

    id: str
    mode: str | None
    """The mode that was set and read back; None if none was asked for."""
    modes: tuple[str, ...]
    """The modes that it offers."""
    replayed: int = 0
    """How many messages of the past it told when it was loaded."""


class FileRefused(Exception):
    """A `FileAccess` does not read or write the file; the text is what the harness is told."""


class FileAccess(Protocol):
    """Files for a harness, within the workspace of its session: paths are resolved and checked before.

    - Both may raise `FileRefused`.
    """

    async def read(self, session_id: str, path: Path) -> str: ...

    async def write(self, session_id: str, path: Path, text: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class _OpenNativeSession:
    cwd: Path
    mode: str | None = None
    """The mode that it must not leave, once it was read back."""
    told_mode: str | None = None
    """The last mode that an update named since one was set."""
    mode_was_told: Event = field(default_factory=Event)
    replayed: int | None = None
    """Counts the messages of the past while it is loaded."""
    turn: HarnessTurn | None = None


class Harness:
    """A running harness, from `open_harness`. Its methods raise `HarnessError`.

    - Turns of several sessions may run at once, one a session.
    - After an error of `ENDS_CONNECTION` it is dead: each method raises that error.
    """

    def __init__(
        self, process: HarnessProcess, command: HarnessCommand, limits: HarnessLimits, files: FileAccess | None
    ) -> None:
        self.info = HarnessInfo(name="", version="")
        self.capabilities = Capabilities(load=False, resume=False, mcp_http=False, sign_ins=())
        self._process = process
        self._command = command
        self._limits = limits
        self._files = files
        self._sessions: dict[str, _OpenNativeSession] = {}
        self._tasks: TaskGroup | None = None
        self._connection = RpcConnection(
            process.stdout, process.stdin, self, stall_seconds=limits.stall_seconds, on_end=self._describe
        )

    @property
    def pid(self) -> int:
        """The id of its process, and of the group of all its processes."""
        return self._process.pid

    @property
    def error(self) -> HarnessError | None:
        """Why it is dead; None while it is not."""
        return self._connection.error

    async def wait_ended(self) -> HarnessError:
        """Waits until it is dead, and returns why."""
        return await self._connection.wait_ended()

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its standard error, masked; may hold people's words, so not for logs."""
        return self._process.last_lines()

    async def sign_in(self, way: str) -> None:
        """Signs in by one of `capabilities.sign_ins`, if it needs that beside its variables."""
        await self._request("authenticate", {"methodId": way})

    async def new_session(self, cwd: Path, mcp_servers: Sequence[McpServer] = (), *, mode: str | None) -> NativeSession:
        """Creates a session in the mode. With None it stays in the mode in which it starts, and may change it.

        Raises `acp_unasked` if the mode cannot be set, or the harness does not say that it is set, or if a file of the
        workspace is known to make it act unasked all the same.
        """
        result = await self._request("session/new", await self._place(cwd, mcp_servers, mode))
        session_id = text_in(result, "sessionId")
        if not session_id or len(session_id) > MAX_SESSION_ID:
            self._end(broken("it created a session without a usable id"))
        if session_id in self._sessions:
            self._end(broken("it gave a new session the id of another one"))
        self._sessions[session_id] = session = _OpenNativeSession(cwd=cwd)
        return await self._in_mode(session_id, session, modes_of(result), mode)

    async def load_session(
        self, session_id: str, cwd: Path, mcp_servers: Sequence[McpServer] = (), *, mode: str | None
    ) -> NativeSession:
        """Loads a session of an earlier process, which tells its past; then as `new_session`.

        Raises `acp_not_resumed` if it cannot, or if nothing of the past is left. Harnesses may fail at this and still
        offer it.
        """
        return await self._reopened("session/load", session_id, await self._place(cwd, mcp_servers, mode), mode)

    async def resume_session(
        self, session_id: str, cwd: Path, mcp_servers: Sequence[McpServer] = (), *, mode: str | None
    ) -> NativeSession:
        """Resumes a session of an earlier process, which does not tell its past; then as `new_session`.

        Raises `acp_not_resumed` if it cannot.
        """
        return await self._reopened("session/resume", session_id, await self._place(cwd, mcp_servers, mode), mode)

    def prompt(self, session_id: str, texts: Sequence[str]) -> HarnessTurn:
        """Begins a turn with the texts as its prompt. Raises `Conflict` (`acp_busy`) while another one runs."""
        session = self._sessions[session_id]
        if session.turn is not None and not session.turn.is_over:
            raise Conflict("Native session has a turn that is not over.", code="acp_busy")
        turn = HarnessTurn(
            session_id,
            self._connection,
            silence_seconds=self._limits.silence_seconds,
            cancel_seconds=self._limits.cancel_seconds,
            failed=self._failed,
        )
        session.turn = turn
        turn.begin({"sessionId": session_id, "prompt": [{"type": "text", "text": text} for text in texts]})
        return turn

    async def cancel(self, session_id: str) -> None:
        """Cancels the turn: its requests are answered so, and it ends with the reason `cancelled`, or `acp_stalled`."""
        turn = self._sessions[session_id].turn
        if turn is not None and not turn.is_over and self.error is None:
            self._connection.notify("session/cancel", {"sessionId": session_id})
            turn.cancelled()

    async def run(self) -> None:
        """Carries the connection, and kills the process as soon as it is over."""
        async with create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._connection.run)
            tasks.start_soon(self._end_with_process)
            await self._connection.wait_ended()
            tasks.cancel_scope.cancel()
        await self._process.kill()

    async def initialize(self) -> None:
        offered = self._files is not None
        result = await self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {
                    "fs": {"readTextFile": offered, "writeTextFile": offered},
                    "terminal": False,
                },
                "clientInfo": {"name": "antiphon", "title": "Antiphon", "version": VERSION},
            },
            seconds=self._limits.start_seconds,
        )
        version = result.get("protocolVersion")
        if isinstance(version, bool) or not isinstance(version, int):
            self._end(broken("its answer to 'initialize' names no version of ACP"))
        if version != PROTOCOL_VERSION:
            told = f"Harness speaks version {version} of ACP; this program speaks version {PROTOCOL_VERSION}."
            self._end(HarnessError(HarnessCode.VERSION, told))
        info, can = object_in(result, "agentInfo"), object_in(result, "agentCapabilities")
        self.info = HarnessInfo(name=text_in(info, "name") or "", version=text_in(info, "version") or "")
        sign_ins = (text_in(each, "id") for each in objects_in(result, "authMethods"))
        self.capabilities = Capabilities(
            load=can.get("loadSession") is True,
            resume=isinstance(object_in(can, "sessionCapabilities").get("resume"), dict),
            mcp_http=object_in(can, "mcpCapabilities").get("http") is True,
            sign_ins=tuple(each for each in sign_ins if each),
        )

    async def told(self, call: RpcCall) -> None:
        """Takes an update; those of sessions that are not known, or outside a turn, are dropped."""
        session = self._sessions.get(text_in(call.params, "sessionId") or "")
        if call.method != "session/update" or session is None:
            return
        update = object_in(call.params, "update")
        if (mode := mode_told(update)) is not None:
            session.told_mode = mode
            session.mode_was_told.set()
            if session.mode is not None and mode != session.mode:
                raise _unasked(f"it left the mode {session.mode!r} by itself")
        if session.replayed is not None and update.get("sessionUpdate") in (
            "user_message_chunk",
            "agent_message_chunk",
        ):
            session.replayed += 1
        if session.turn is not None:
            await session.turn.put(update_of(update, session.turn.calls, call.size), call.size)

    async def asked(self, request: RpcRequest) -> None:
        match request.method:
            case "session/request_permission":
                await self._take_permission(request)
            case "fs/read_text_file" | "fs/write_text_file" if self._files is not None:
                assert self._tasks is not None
                self._tasks.start_soon(self._serve_file, request, self._files)
            case _:
                request.refuse(RpcError(METHOD_NOT_FOUND, "Not offered by this client"))

    async def _end_with_process(self) -> None:
        """Children of an ended harness may hold its output open: what it still said is read, and then it is over."""
        await self._process.wait()
        received = -1
        while not (self._connection.is_idle and received == self._connection.received):
            received = self._connection.received
            await sleep(EXIT_SECONDS / 4)
        self._connection.end(await self.closed())

    async def closed(self) -> HarnessError:
        with move_on_after(EXIT_SECONDS):
            await self._process.wait()
            await self._process.wait_errors()
        code = self._process.exit_code
        how = "has closed its output" if code is None else f"has ended with code {code}"
        return HarnessError(HarnessCode.ENDED, f"Harness {how}.")

    async def _take_permission(self, request: RpcRequest) -> None:
        asked = permission_of(request)
        session = None if asked is None else self._sessions.get(asked.session_id)
        if asked is None or session is None:
            request.refuse(RpcError(INVALID_PARAMS, "Unknown session, or no call"))
        elif session.turn is None or session.turn.is_over:
            asked.cancel()
        else:
            await session.turn.put(asked, len(str(request.params)))

    async def _serve_file(self, request: RpcRequest, files: FileAccess) -> None:
        session_id, path = text_in(request.params, "sessionId") or "", text_in(request.params, "path") or ""
        session = self._sessions.get(session_id)
        try:
            if session is None or not Path(path).is_absolute():
                raise FileRefused("Unknown session, or no absolute path")
            place = await to_thread.run_sync(_within, session.cwd, Path(path))
            if request.method == "fs/read_text_file":
                request.answer({"content": _part(await files.read(session_id, place), request.params)})
            else:
                content = text_in(request.params, "content")
                if content is None or len(content.encode()) > MAX_FILE_BYTES:
                    raise FileRefused("No content, or more than 1 MiB")
                await files.write(session_id, place, content)
                request.answer({})
        except FileRefused as error:
            request.refuse(RpcError(INVALID_PARAMS, str(error)))

    async def _place(self, cwd: Path, servers: Sequence[McpServer], mode: str | None) -> JsonObject:
        place = _place(cwd, servers)
        if mode is None:
            return place
        if (found := await to_thread.run_sync(find_silencing_file, self.info.name, cwd)) is not None:
            why = f"{str(found)!r} can start programs and allow calls unasked; move it away, or let it work unattended"
            raise _unasked(why)
        return {**place, "_meta": OWN_SETTINGS_ALONE}

    async def _reopened(self, method: str, session_id: str, place: JsonObject, mode: str | None) -> NativeSession:
        is_load = method == "session/load"
        if not (self.capabilities.load if is_load else self.capabilities.resume):
            raise _not_resumed(f"it does not offer {method!r}")
        if session_id in self._sessions:
            raise Conflict("Native session is open already.", code="acp_busy")
        session = _OpenNativeSession(cwd=Path(str(place["cwd"])), replayed=0 if is_load else None)
        self._sessions[session_id] = session
        try:
            result = await self._request(method, {"sessionId": session_id, **place})
        except HarnessError as error:
            self._sessions.pop(session_id, None)
            if error.code != HarnessCode.FAILED:
                raise
            raise _not_resumed(f"it answered {method!r} with an error", said=error.said) from error
        replayed, session.replayed = session.replayed, None
        if replayed == 0:
            self._sessions.pop(session_id, None)
            raise _not_resumed("it told nothing of the session's past")
        found = await self._in_mode(session_id, session, modes_of(result), mode)
        return NativeSession(id=found.id, mode=found.mode, modes=found.modes, replayed=replayed or 0)

    async def _in_mode(
        self, session_id: str, session: _OpenNativeSession, modes: Modes, mode: str | None
    ) -> NativeSession:
        if mode is None:
            return NativeSession(id=session_id, mode=None, modes=modes.offered)
        if mode not in modes.offered:
            self._end(
                _unasked(f"it has no mode {mode!r}; its modes are {', '.join(map(repr, modes.offered)) or 'none'}")
            )
        session.told_mode, session.mode_was_told = None, Event()
        try:
            current = await self._set_mode(session_id, session, modes, mode)
        except HarnessError as error:
            if error.code in (HarnessCode.FAILED, HarnessCode.AUTH):
                self._end(_unasked(f"it refused the mode {mode!r}", said=error.said))
            raise
        if current != mode or session.told_mode not in (None, mode):
            self._end(_unasked(f"it was set to the mode {mode!r} and does not say that it is in it"))
        session.mode = mode
        return NativeSession(id=session_id, mode=mode, modes=modes.offered)

    async def _set_mode(self, session_id: str, session: _OpenNativeSession, modes: Modes, mode: str) -> str | None:
        """Sets the mode; returns the one that the harness says it is in afterwards."""
        if modes.option is not None:
            params: JsonObject = {"sessionId": session_id, "configId": modes.option, "value": mode}
            return modes_of(await self._request("session/set_config_option", params)).current
        await self._request("session/set_mode", {"sessionId": session_id, "modeId": mode})
        if modes.current != mode:
            # Its answer says nothing, and what it said last was another mode: it has to say it.
            with move_on_after(self._limits.mode_seconds):
                await session.mode_was_told.wait()
            return session.told_mode
        return mode

    async def _request(self, method: str, params: JsonObject, *, seconds: float | None = None) -> JsonObject:
        """Raises `HarnessError`: of the connection, or `acp_failed` and `acp_auth` for an error as the answer."""
        try:
            return await self._connection.request(method, params, seconds=seconds or self._limits.answer_seconds)
        except RpcError as error:
            raise self._failed(method, error) from error

    def _failed(self, method: str, error: RpcError) -> HarnessError:
        """The error for an answer that is one. The harness's own words are masked and cut."""
        details = text_in(error.data, "details") if isinstance(error.data, dict) else None
        said = self._command.masked(": ".join(part for part in (error.text, details) if part))[:MAX_SAID]
        if error.number == AUTH_REQUIRED:
            return HarnessError(
                HarnessCode.AUTH, "Harness wants a sign-in first, or a key in its variables.", said=said
            )
        if method == "initialize" and error.number == METHOD_NOT_FOUND:
            return broken("it does not know 'initialize'")
        return HarnessError(HarnessCode.FAILED, f"Harness answered {method!r} with error {error.number}.", said=said)

    def _end(self, error: HarnessError) -> NoReturn:
        """Ends the harness with the error and raises it."""
        self._connection.end(error)
        raise error

    def _describe(self, error: HarnessError) -> None:
        error.last_lines = self.last_lines()


@asynccontextmanager
async def open_harness(
    command: HarnessCommand, limits: HarnessLimits | None = None, *, files: FileAccess | None = None
) -> AsyncGenerator[Harness]:
    """A harness that has agreed on the protocol; all its processes are killed in the end.

    Raises `HarnessError`: `acp_not_started`, `acp_protocol`, `acp_version`, `acp_stalled`, `acp_ended`.
    """
    async with started(command) as process, background_tasks() as tasks:
        harness = Harness(process, command, limits or HarnessLimits(), files)
        tasks.start_soon(harness.run)
        await harness.initialize()
        yield harness


def _place(cwd: Path, servers: Sequence[McpServer]) -> JsonObject:
    return {
        "cwd": str(cwd),
        "mcpServers": [
            {
                "type": "http",
                "name": server.name,
                "url": server.url,
                "headers": [{"name": name, "value": value} for name, value in server.headers.items()],
            }
            for server in servers
        ],
    }


def _within(workspace: Path, path: Path) -> Path:
    """The path without links. Raises `FileRefused` if it leads out of the workspace."""
    try:
        place = path.resolve()
        is_within = place.is_relative_to(workspace.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise FileRefused("The path cannot be resolved") from error
    if not is_within:
        raise FileRefused("The path is outside the workspace")
    return place


def _part(text: str, params: JsonObject) -> str:
    """The lines that are asked for, at most 1 MiB of them."""
    line, limit = count_in(params, "line"), count_in(params, "limit")
    if line is not None or limit is not None:
        first = max((line or 1) - 1, 0)
        text = "".join(text.splitlines(keepends=True)[first : None if limit is None else first + limit])
    return text.encode()[:MAX_FILE_BYTES].decode("utf-8", "ignore")


def _unasked(why: str, *, said: str | None = None) -> HarnessError:
    return HarnessError(HarnessCode.UNASKED, f"Harness is not in the mode in which it asks: {why}.", said=said)


def _not_resumed(why: str, *, said: str | None = None) -> HarnessError:
    return HarnessError(HarnessCode.NOT_RESUMED, f"Harness cannot continue the session: {why}.", said=said)
