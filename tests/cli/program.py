"""The real program, in processes of its own."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.preloaded import Forked, preloaded_command
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

SOURCES = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from antiphon.cli.main import main; main()"]
NO_VARIABLES: Mapping[str, str] = {}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_") and name not in KEYS}
    if kept.pop("PYTHONDONTWRITEBYTECODE", None):
        # Compiling everything anew in each of these processes would take most of their time.
        kept["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "antiphon-tests-bytecode")
    return {**kept, "PYTHONPATH": str(SOURCES), "COLUMNS": "100", "NO_COLOR": "1", **variables}


def antiphon(
    *arguments: str | Path,
    home: Path,
    env: Mapping[str, str] = NO_VARIABLES,
    stdin: str = "",
    prefix: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """What the command wrote, and its exit code."""
    command = COMMAND if prefix or "PYTHONPATH" in env else preloaded_command()
    return subprocess.run(
        [*prefix, *command, *map(str, arguments)],
        env=environment({"ANTIPHON_HOME": str(home), **env}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )


def antiphon_json(*arguments: str | Path, home: Path, env: Mapping[str, str] = NO_VARIABLES) -> Any:
    """The one document that the command wrote, which must have succeeded."""
    done = antiphon(*arguments, "--json", home=home, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    return json.loads(line)


class Serving:
    """A process that `antiphon serve` or `antiphon worker` began."""

    def __init__(self, process: subprocess.Popen[str] | Forked, home: Path) -> None:
        self.process = process
        self.home = home
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the process ended before it was ready"
        self.greeting: dict[str, Any] = json.loads(line)

    @property
    def url(self) -> str:
        return self.greeting["url"]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code after that signal."""
        self.process.send_signal(number)
        return self.process.wait(PROCESS_SECONDS)


@contextmanager
def serving(
    home: Path,
    *arguments: str,
    env: Mapping[str, str] = NO_VARIABLES,
    log: Path | None = None,
    is_forked: bool = True,
) -> Generator[Serving]:
    """A gateway on the home, on a free port."""
    with begun("serve", "--port", "0", *arguments, home=home, env=env, log=log, is_forked=is_forked) as gateway:
        yield gateway


@contextmanager
def begun(
    *arguments: str,
    home: Path,
    env: Mapping[str, str] = NO_VARIABLES,
    log: Path | None = None,
    is_forked: bool = True,
) -> Generator[Serving]:
    """A command that goes on until it is told to stop; in a fork of the imported program, which begins sooner."""
    variables = environment({"ANTIPHON_HOME": str(home), **env})
    with (
        open(log or os.devnull, "w") as errors,  # noqa: PTH123 - os.devnull is no path of ours
        ending(Forked([*arguments, "--json"], variables, errors.fileno()))
        if is_forked and "PYTHONPATH" not in env
        else ending(
            subprocess.Popen(
                [*COMMAND, *arguments, "--json"],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        ) as process,
    ):
        try:
            yield Serving(process, home)
        finally:
            if process.poll() is None:
                process.kill()


FUTEX = "202"
"""The number of the call by which threads wait for one another, on x86-64."""


class Terminal:
    """A command on a terminal, as a person has it."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._is_closed = False
        self._unread = ""
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode(errors="surrogateescape"))

    def say(self, text: str) -> None:
        """Types at the next prompt of a chat, which is the last thing on the screen then."""
        for _ in self._until(lambda: self._unread.rstrip(" ").endswith(">")):
            pass
        self._unread = ""
        self.type(text)

    def type_at_rest(self, text: str) -> None:
        """Types when the program waits for a key: an interrupt just before that would be taken with the next key."""
        deadline = time.monotonic() + PROCESS_SECONDS
        while not self._waits_for_a_key():
            assert time.monotonic() < deadline
        self.type(text)

    def _waits_for_a_key(self) -> bool:
        """Whether its main thread sleeps, and not for another thread of it. True where that cannot be seen."""
        thread = Path(f"/proc/{self.process.pid}/task/{self.process.pid}")
        try:
            is_asleep = thread.joinpath("stat").read_text("utf-8").rpartition(") ")[2][0] == "S"
            return is_asleep and thread.joinpath("syscall").read_text("utf-8").split()[0] != FUTEX
        except OSError:
            return True

    def close(self) -> None:
        """As when a person closes the window."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._terminal)

    def expect(self, text: str) -> str:
        """Reads until the text appears; returns what came up to its end."""
        for _ in self._until(lambda: text in self._unread):
            pass
        end = self._unread.index(text) + len(text)
        read, self._unread = self._unread[:end], self._unread[end:]
        return read

    def wait(self) -> int:
        """The exit code."""
        try:
            for _ in self._until(lambda: False):
                pass
        except EOFError:
            pass
        return self.process.wait(PROCESS_SECONDS)

    def _until(self, is_there: Callable[[], bool]) -> Iterator[None]:
        deadline = time.monotonic() + PROCESS_SECONDS
        while not is_there():
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it did not appear in:\n{self.seen}"
            try:
                chunk = os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                chunk = ""
            if not chunk:
                raise EOFError(self.seen)
            self.seen += chunk
            self._unread += chunk
            yield


@contextmanager
def on_terminal(*arguments: str, home: Path, env: Mapping[str, str] = NO_VARIABLES) -> Generator[Terminal]:
    """The command with a terminal of its own as its input and output."""
    ours, theirs = pty.openpty()
    with ending(
        subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment({"ANTIPHON_HOME": str(home), "TERM": "xterm", **env}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # Its own session, with the terminal as the controlling one, so that Ctrl-C there reaches it.
            preexec_fn=_take_terminal,  # noqa: PLW1509 - it makes two system calls and nothing else
        )
    ) as process:
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            yield terminal
        finally:
            if process.poll() is None:
                process.kill()
            terminal.close()


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
