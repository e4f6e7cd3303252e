"""A provider that is only bytes: a raw server that answers each request as a row says, cuts and silences included."""

import json
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any, Final, TypeAlias

PAUSE_SECONDS: Final = 0.02
"""Between two signs of life of an answer that never ends."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes for one request, and how they end."""

    body: Sequence[bytes] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: Sequence[tuple[str, str]] = ()
    forever: bytes | None = None
    """Follows the body again and again, until the client leaves."""
    is_held: bool = False
    """Whether nothing follows the body, and the connection stays open until the client leaves."""
    is_cut: bool = False
    """Whether the body is shorter than its length says."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def text(self) -> str:
        """The conversation as JSON."""
        return json.dumps(self.messages, ensure_ascii=False)

    @property
    def is_summary(self) -> bool:
        """Whether it asks for a summary."""
        return "Summarise the conversation" in json.dumps(self.body)


Script: TypeAlias = Callable[[Asked], Answer | None]
"""None leaves the answer to the server, which then gives a good one."""


@dataclass(slots=True)
class Provider:
    """The running server."""

    good: Answer
    script: Script
    asked: list[Asked] = field(default_factory=list[Asked])
    stopped: Event = field(default_factory=Event)
    changed: Condition = field(default_factory=Condition)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def serve(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = _read(connection)
            if request is None:
                return
            with self.changed:
                self.asked.append(request)
                self.changed.notify_all()
            self._send(connection, self.script(request) or self.good)

    def _send(self, connection: socket.socket, answer: Answer) -> None:
        size = sum(map(len, answer.body)) + 10 if answer.is_cut else None
        lines = [f"HTTP/1.1 {answer.status} Any", f"Content-Type: {answer.kind}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines += [] if size is None else [f"Content-Length: {size}"]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        for piece in answer.body:
            connection.sendall(piece)
        while answer.forever is not None and not self.stopped.wait(PAUSE_SECONDS):
            connection.sendall(answer.forever)
        if answer.is_held:
            while not self.stopped.is_set() and connection.recv(1_000):
                pass


def _read(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(1_000_000)
    return Asked(path=first.split(" ")[1], headers=headers, body=json.loads(body or b"{}"))


@contextmanager
def serving(good: Answer, script: Script) -> Generator[Provider]:
    provider = Provider(good, script)
    thread = Thread(target=provider.serve, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.stopped.set()
        provider.listener.close()
        thread.join(0.1)
