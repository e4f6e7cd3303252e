"""The gateway of the fake of Discord: sessions over WebSocket that are resumed, lost, closed and stalled."""

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect

Json = dict[str, Any]

GUILDS: Final = 1 << 0
GUILD_MESSAGES: Final = 1 << 9
DIRECT_MESSAGES: Final = 1 << 12
MESSAGE_CONTENT: Final = 1 << 15
MAY_READ: Final = 1 << 18
"""The flag of an application to which the portal gives the intent for the content of messages."""
CUT: Final = 0
"""In place of a code: the connection ends without one."""
_ENDED: Final = -1


@dataclass(eq=False)
class Line:
    """One connection."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Json | bytes | int] = field(default_factory=asyncio.Queue[Json | bytes | int])
    session: "Session | None" = None

    def put(self, item: Json | bytes | int) -> None:
        """Sends a payload, or bytes as they are, or closes with the code. May be called from any thread."""
        self.loop.call_soon_threadsafe(self.queue.put_nowait, item)


@dataclass(eq=False)
class Session:
    id: str
    intents: int
    line: Line | None = None
    log: list[Json] = field(default_factory=list[Json])
    is_over: bool = False

    def dispatch(self, kind: str, data: Mapping[str, Any]) -> None:
        payload = {"op": 0, "t": kind, "s": len(self.log) + 1, "d": self._seen(kind, data)}
        self.log.append(payload)
        if self.line is not None:
            self.line.put(payload)

    def _seen(self, kind: str, data: Mapping[str, Any]) -> Json:
        """Without the intent, a bot reads only what is meant for it."""
        if kind != "MESSAGE_CREATE" or self.intents & MESSAGE_CONTENT or "guild_id" not in data:
            return dict(data)
        if any(each.get("bot") for each in data["mentions"]):
            return dict(data)
        return {**data, "content": "", "attachments": [], "embeds": [], "components": []}

    def wants(self, kind: str, data: Mapping[str, Any]) -> bool:
        if kind == "MESSAGE_CREATE":
            return bool(self.intents & (GUILD_MESSAGES if "guild_id" in data else DIRECT_MESSAGES))
        return kind == "INTERACTION_CREATE" or bool(self.intents & GUILDS)


class FakeGateway:
    """What the fake of Discord knows of connections."""

    def __init__(self, token: str, me: Json) -> None:
        self.token, self.me = token, me
        self.flags = MAY_READ
        """Those of the application."""
        self.heartbeat_ms = 41_250
        self.is_deaf = False
        """Whether heartbeats get no answer."""
        self.closes_new: list[int] = []
        """Codes with which the next connections are closed once they identify or resume."""
        self.loses: bool = False
        """Whether sessions cannot be resumed."""
        self.starts_left = 1_000
        self.sessions: list[Session] = []
        self.lines: list[Line] = []
        self.received: list[Json] = []
        """What clients sent."""
        self.url = ""
        self._numbers = count(1)

    def guilds(self) -> list[Json]:
        raise NotImplementedError

    def note(self) -> None:
        raise NotImplementedError

    def identifies(self) -> int:
        return sum(each.get("op") == 2 for each in self.received)

    def resumes(self) -> int:
        return sum(each.get("op") == 6 for each in self.received)

    def is_connected(self) -> bool:
        return any(each.line is not None for each in self.sessions)

    def dispatch(self, kind: str, data: Mapping[str, Any], *, times: int = 1) -> None:
        for session in self.sessions:
            if not session.is_over and session.wants(kind, data):
                for _ in range(times):
                    session.dispatch(kind, data)

    def put(self, item: Json | bytes | int) -> None:
        """Sends that on every connection, or closes them with the code."""
        for line in [*self.lines]:
            line.put(item)

    def end_sessions(self) -> None:
        """None of them can be resumed."""
        for session in self.sessions:
            session.is_over = True

    async def connect(self, socket: WebSocket) -> None:
        await socket.accept()
        line = Line(asyncio.get_running_loop())
        self.lines.append(line)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send, socket, line)
                line.put({"op": 10, "s": None, "t": None, "d": {"heartbeat_interval": self.heartbeat_ms}})
                try:
                    await self._receive(socket, line)
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self.lines.remove(line)
            if line.session is not None and line.session.line is line:
                line.session.line = None
            self.note()

    async def _send(self, socket: WebSocket, line: Line) -> None:
        squeeze = zlib.compressobj() if socket.query_params.get("compress") == "zlib-stream" else None
        while True:
            item = await line.queue.get()
            if isinstance(item, int):
                if item == CUT:
                    await socket.close(1011)
                else:
                    await socket.close(item)
                return
            text = item if isinstance(item, bytes) else json.dumps(item).encode()
            if squeeze is None:
                await socket.send_text(text.decode())
            else:
                await socket.send_bytes(squeeze.compress(text) + squeeze.flush(zlib.Z_SYNC_FLUSH))

    async def _receive(self, socket: WebSocket, line: Line) -> None:
        while True:
            try:
                text = await socket.receive_text()
            except WebSocketDisconnect as gone:
                if gone.code in (1000, 1001) and line.session is not None:
                    line.session.is_over = True
                return
            try:
                payload = json.loads(text)
            except ValueError:
                line.put(4002)
                continue
            self.received.append(payload)
            self.note()
            self._take(payload, line)

    def _take(self, payload: Json, line: Line) -> None:
        match payload.get("op"):
            case 1:
                if not self.is_deaf:
                    line.put({"op": 11})
            case 2 if line.session is not None:
                line.put(4005)
            case 2 | 6 if self.closes_new:
                line.put(self.closes_new.pop(0))
            case 2:
                self._identify(payload["d"], line)
            case 6:
                self._resume(payload["d"], line)
            case _:
                line.put(4001 if line.session is not None else 4003)

    def _identify(self, said: Json, line: Line) -> None:
        self.starts_left -= 1
        if said.get("token") != self.token:
            return line.put(4004)
        intents = said.get("intents")
        if not isinstance(intents, int):
            return line.put(4013)
        if intents & MESSAGE_CONTENT and not self.flags & MAY_READ:
            return line.put(4014)
        session = Session(f"session-{next(self._numbers)}", intents, line)
        line.session = session
        self.sessions.append(session)
        guilds = self.guilds()
        session.dispatch(
            "READY",
            {
                "v": 10,
                "user": self.me,
                "guilds": [{"id": each["id"], "unavailable": True} for each in guilds],
                "session_id": session.id,
                "resume_gateway_url": self.url,
                "application": {"id": self.me["id"], "flags": self.flags},
                "private_channels": [],
            },
        )
        if intents & GUILDS:
            for guild in guilds:
                session.dispatch("GUILD_CREATE", guild)
        return self.note()

    def _resume(self, said: Json, line: Line) -> None:
        if said.get("token") != self.token:
            return line.put(4004)
        session = next((each for each in self.sessions if each.id == said.get("session_id")), None)
        if session is None or session.is_over or self.loses:
            return line.put({"op": 9, "d": False})
        if said["seq"] > len(session.log):
            return line.put(4007)
        line.session, session.line = session, line
        for payload in session.log[said["seq"] :]:
            line.put(payload)
        session.dispatch("RESUMED", {})
        return self.note()
