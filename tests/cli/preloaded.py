"""Carries out commands in forks of one process that has imported the program, which takes most of a command's time.

`tests/cli/shim.py` is run in the command's place: it hands its arguments, variables, directory and streams over, and
ends as the command ends. What a command does from `main()` on is the same. `Forked` is a gateway or worker that a test
begins in this way, and signals itself. Terminals and some gateways are begun by the program itself, so that imports
are tried as well.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Self, TypeAlias

SHIM = Path(__file__).with_name("shim.py")
ROOT = Path(__file__).parents[2]
Streams: TypeAlias = list[int]


@dataclass(frozen=True, slots=True)
class Request:
    arguments: list[str]
    directory: str
    variables: dict[str, str]
    tells_process: bool
    """Whether the number of the process is told before its end."""
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
        arguments, directory, variables, tells_process = json.loads(data)
        return cls(arguments, directory, variables, tells_process, streams)

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
        if request.tells_process:
            with suppress(OSError):
                connection.sendall(f"{process}\n".encode())
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


class Forked:
    """A process that the server made, as `subprocess.Popen` shows one. It is killed when its tester ends."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str], errors: int) -> None:
        """Its standard input is empty; its errors go to that descriptor."""
        self.returncode: int | None = None
        *_, path = preloaded_command()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(path)
        reading, writing = os.pipe()
        request = json.dumps([list(arguments), str(Path.cwd()), dict(variables), True]).encode() + b"\n"
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - os.devnull is no path of ours
            sent = socket.send_fds(self._connection, [request], [nothing.fileno(), writing, errors])
        os.close(writing)
        self._connection.sendall(request[sent:])
        self.stdout = os.fdopen(reading, encoding="utf-8")
        self._told = self._connection.makefile()
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; negative for the signal that ended it. Raises `TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"antiphon {self.pid}", timeout or 0)
            self.returncode = int(self._told.readline())
            self._told.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()


def import_program() -> None:
    import antiphon

    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("typer.rich_utils")  # for help and errors; typer imports it late
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


def carry_out() -> None:
    """As the program does, but modules are not taken apart at the end, which would copy the memory of the server."""
    from antiphon.cli.main import main

    try:
        main()
    except SystemExit as end:
        code = end.code if end.code is None or isinstance(end.code, int) else 1
        if code != end.code or threading.active_count() > 1:
            raise
    else:
        code = 0
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


@cache
def preloaded_command() -> tuple[str, ...]:
    """What to run instead of `antiphon`, for as long as this process lives."""
    folder = mkdtemp(prefix="antiphon-preloaded-")
    atexit.register(rmtree, folder, ignore_errors=True)
    path = str(Path(folder) / "socket")
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
        carry_out()
