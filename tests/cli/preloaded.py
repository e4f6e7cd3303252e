"""Carries out commands in forks of one process that has imported the program, which takes most of a command's time.

`tests/cli/shim.py` is run in the command's place: it hands its arguments, variables, directory and streams over, and
ends as the command ends. What a command does from `main()` on is the same. Terminals, gateways and workers are begun by
the program itself, so that imports are tried as well.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeAlias

SHIM = Path(__file__).with_name("shim.py")
ROOT = Path(__file__).parents[2]
Streams: TypeAlias = list[int]


@dataclass(frozen=True, slots=True)
class Request:
    arguments: list[str]
    directory: str
    variables: dict[str, str]
    streams: Streams
    """Standard input, output and error."""

    @classmethod
    def receive(cls, connection: socket.socket) -> "Request | None":
        """What the shim sent; nothing if it was killed before."""
        data, streams, _, _ = socket.recv_fds(connection, 65536, 3)
        while not data.endswith(b"\n"):
            chunk = connection.recv(1 << 20)
            if not chunk:
                return None
            data += chunk
        arguments, directory, variables = json.loads(data)
        return cls(arguments, directory, variables, streams)

    def take(self) -> None:
        """Makes this process the one that the shim was begun as."""
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.variables)
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        sys.argv = ["antiphon", *self.arguments]


class Server:
    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        self._selector = selectors.DefaultSelector()
        self._ends: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of a process: its number, and who wants to know how it ends."""

    def serve(self) -> Request | None:
        """Returns in each process that is to carry out a command; here when standard input ends."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    if (request := Request.receive(connection)) is not None and self._fork(connection, request):
                        return request
                elif key.fd in self._ends:
                    self._report(key.fd)
                else:
                    self._pass_on(key.data, key.fileobj)

    def _fork(self, connection: socket.socket, request: Request) -> bool:
        """Whether this is the new process."""
        process = os.fork()
        if process == 0:
            connection.close()
            self._listener.close()
            self._selector.close()
            for end, (_, other) in self._ends.items():
                os.close(end)
                other.close()
            return True
        for stream in request.streams:
            os.close(stream)
        end = os.pidfd_open(process)
        self._ends[end] = (process, connection)
        self._selector.register(end, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ, process)
        return False

    def _report(self, end: int) -> None:
        process, connection = self._ends.pop(end)
        self._selector.unregister(end)
        os.close(end)
        _, status = os.waitpid(process, 0)
        with suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        connection.close()

    def _pass_on(self, process: int, connection: object) -> None:
        """Gives the process the signal that its shim got; one that is gone was killed."""
        assert isinstance(connection, socket.socket)
        number = connection.recv(1)
        if not number:
            self._selector.unregister(connection)
        os.kill(process, number[0] if number else signal.SIGKILL)


def import_program() -> None:
    import antiphon

    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


@cache
def preloaded_command() -> tuple[str, ...]:
    """What to run instead of `antiphon`, for as long as this process lives."""
    path = str(Path(mkdtemp(prefix="antiphon-preloaded-")) / "socket")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.preloaded", path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "100"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(server.stdin.close)
    return (sys.executable, "-I", "-S", str(SHIM), path)


if __name__ == "__main__":
    import_program()
    accepting = Server(sys.argv[1])
    print("ready", flush=True)
    if (given := accepting.serve()) is not None:
        given.take()
        from antiphon.cli.main import main

        main()
