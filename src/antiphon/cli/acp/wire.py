"""Standard input and output as the protocol's messages: one JSON object a line, of a bounded length.

Two threads do the reading and writing, so that files and terminals serve as well as pipes, and nothing else may print
to standard output.
"""

import asyncio
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias, cast

from msgspec import Struct

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Of one message from the editor, as of one request to the gateway."""
PIECE_BYTES = 64 * 1024
KEPT_BYTES = 256
"""Of the beginning of a line that is too long."""
MAX_WAITING = 32
"""Messages that are read before the earlier ones are taken."""
PERMISSION = "session/request_permission"
PROMPT = "session/prompt"
OPENINGS = ("session/new", "session/load", "session/resume")
CANCEL_REQUEST = "$/cancel_request"
PARSE_ERROR, INVALID_REQUEST = -32700, -32600

RequestId: TypeAlias = int | str


class TooLong(Struct, frozen=True, kw_only=True):
    """A line of which only this is kept."""

    length: int
    beginning: bytes

    @property
    def request_id(self) -> RequestId | None:
        """The id of its request, if that is said before anything else."""
        found = _FIRST_ID.match(self.beginning)
        return None if found is None else json.loads(found[1])


_FIRST_ID = re.compile(rb"""\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[\w-]{1,100}")\s*,""")


class EditorWire:
    """The editor's end. Implements the library's `Transport`."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._received: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue(MAX_WAITING)
        self._to_send: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._asked: dict[tuple[str, str], RequestId] = {}
        self._prompts: dict[RequestId, str] = {}
        self._openings: dict[RequestId, str] = {}
        self.on_opened: Callable[[str], None] = _ignore
        """Called with a session's id once the editor has the answer that opens it."""
        self._is_broken = False
        Thread(target=self._read, args=(incoming,), name="acp-read", daemon=True).start()
        Thread(target=self._write, args=(outgoing,), name="acp-write", daemon=True).start()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None once the editor has left. Lines that hold none are answered here."""
        while (line := await self._received.get()) is not None:
            if isinstance(line, TooLong):
                said = f"Line is too long: {line.length} bytes; at most {MAX_LINE_BYTES}"
                await self._refuse(INVALID_REQUEST, said, line.request_id)
            elif line.strip():
                message = await self._parse(line)
                if message is not None:
                    return message
        return None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Returns once it is written. Raises `ConnectionError` if nobody reads any more."""
        opened = self._note_sent(message)
        if self._is_broken:
            if "method" not in message:
                return  # an answer that nobody waits for
            raise ConnectionError("Editor does not read")
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        written = self._loop.create_future()
        self._to_send.put((line, written))
        try:
            await written
        except ConnectionError:
            if "method" in message:
                raise
            return
        if opened is not None:
            self.on_opened(opened)

    async def close(self) -> None:
        self._to_send.put(None)

    def request_id(self, session_id: str, call_id: str) -> RequestId | None:
        """The id of the open request for permission of that call."""
        return self._asked.get((session_id, call_id))

    async def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message: object = json.loads(line)
        except (ValueError, RecursionError):
            await self._refuse(PARSE_ERROR, "Line is not JSON")
            return None
        if not isinstance(message, dict):
            await self._refuse(INVALID_REQUEST, "Message is not an object")
            return None
        return self._taken(cast(dict[str, Any], message))

    def _taken(self, message: dict[str, Any]) -> dict[str, Any] | None:
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        if method is None:
            return message
        if not isinstance(method, str):
            return {**message, "method": str(method)}
        if isinstance(params, dict):
            fields = cast(dict[str, Any], params)
            fields.pop("_meta", None)  # the library would take its names for those of parameters
            if isinstance(id, int | str) and method in (PROMPT, *OPENINGS):
                waiting = self._prompts if method == PROMPT else self._openings
                waiting[id] = str(fields.get("sessionId"))
            if method == CANCEL_REQUEST:
                return self._cancellation(fields.get("requestId"))
        return None if method == CANCEL_REQUEST else message

    def _cancellation(self, id: object) -> dict[str, Any] | None:
        """What a cancelled request means: a prompt's is that of its session's work, and others end soon."""
        session_id = self._prompts.get(id) if isinstance(id, int | str) else None
        if session_id is None:
            return None
        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}

    def _note_sent(self, message: Mapping[str, Any]) -> str | None:
        """The session that the message opens."""
        match message:
            case {"method": "session/request_permission", "params": {"sessionId": session, "toolCall": call}}:
                self._asked[session, call["toolCallId"]] = message["id"]
            case {"method": _}:
                pass
            case {"id": int() | str() as id}:
                self._prompts.pop(id, None)
                opening = self._openings.pop(id, None)
                if opening is not None and isinstance(result := message.get("result"), dict):
                    return str(cast(dict[str, Any], result).get("sessionId", opening))
            case _:
                pass
        return None

    async def _refuse(self, code: int, text: str, id: RequestId | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    def _read(self, file: int) -> None:
        """The thread's root. An interpreter that ends does not wait for it."""
        lines = _EditorLines()
        try:
            while piece := os.read(file, PIECE_BYTES):
                for line in lines.add(piece):
                    self._hand_on(line)
            for line in lines.end():
                self._hand_on(line)
            self._hand_on(None)
        except OSError:
            self._hand_on(None)
        except RuntimeError:
            pass  # the loop has ended

    def _hand_on(self, line: bytes | TooLong | None) -> None:
        asyncio.run_coroutine_threadsafe(self._received.put(line), self._loop).result()

    def _write(self, file: int) -> None:
        """The thread's root."""
        while (item := self._to_send.get()) is not None:
            line, written = item
            error: OSError | None = None
            try:
                while line and not self._is_broken:
                    line = line[os.write(file, line) :]
            except OSError as failure:
                error, self._is_broken = failure, True
            try:
                self._loop.call_soon_threadsafe(_settle, written, error)
                if error is not None:
                    asyncio.run_coroutine_threadsafe(self._received.put(None), self._loop)
            except RuntimeError:
                return  # the loop has ended


def _ignore(session_id: str) -> None:
    pass


def _settle(written: asyncio.Future[None], error: OSError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(ConnectionError(f"Editor does not read: {error.strerror}"))


class _EditorLines:
    """Splits input into lines."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._length = 0
        self._beginning = b""

    def add(self, piece: bytes) -> list[bytes | TooLong]:
        *ended, rest = piece.split(b"\n")
        lines = [self._ended(each) for each in ended]
        self._keep(rest)
        return lines

    def end(self) -> list[bytes | TooLong]:
        return [self._ended(b"")] if self._length else []

    def _ended(self, piece: bytes) -> bytes | TooLong:
        self._keep(piece)
        line: bytes | TooLong = b"".join(self._pieces)
        if self._length > MAX_LINE_BYTES:
            line = TooLong(length=self._length, beginning=self._beginning)
        self._pieces.clear()
        self._length, self._beginning = 0, b""
        return line

    def _keep(self, piece: bytes) -> None:
        self._length += len(piece)
        if len(self._beginning) < KEPT_BYTES:
            self._beginning += piece[:KEPT_BYTES]
        if self._length > MAX_LINE_BYTES:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)


def take_output() -> int:
    """A descriptor of standard output for the protocol alone: what else prints, prints to standard error from now on.

    To be called once, before anything is written.
    """
    sys.stdout.flush()
    own = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own
