"""Commands of agents, in real sandboxes.

Each probe of a wall runs twice: in the sandbox, where it must fail, and on the host, where it must succeed; so a
probe that could never succeed proves nothing here.
"""

import ctypes
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import Effect
from antiphon.domain.attachments import Attachment
from antiphon.domain.classification import Integrity
from antiphon.domain.errors import Conflict, Denied, NotFound, Unavailable
from antiphon.domain.message import JsonObject
from antiphon.domain.run import RunStatus
from antiphon.domain.sandbox import MEBIBYTE, SandboxLimits
from antiphon.domain.session import Session
from antiphon.tools.sandbox.commands import Command, Commands
from antiphon.tools.sandbox.profile import ShownFolders
from antiphon.tools.sandbox.system_calls import CALLS
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import open_peer, target_of
from tests.engine.stage import ask, config, find_session, post, read_log, wait_end
from tests.processes import ending
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


def has_bubblewrap() -> bool:
    """Whether it works here at all, whatever our walls are."""
    plain = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(plain, check=False, timeout=SECONDS).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not has_bubblewrap(), reason="bubblewrap is missing, or may not make namespaces")


def settings(mode: str = "sandboxed", agents: list[dict[str, Any]] | None = None, **sandbox: Any) -> Config:
    more = {} if agents is None else {"agents__list": agents}
    tools: dict[str, Any] = {"run_command": {"mode": mode}, "approval": {"require": []}}
    return config(tools=tools, agents__defaults={"sandbox": sandbox}, **more)


async def run(app: App, session: Session, command: str, **arguments: Any) -> JsonObject:
    """What the tool answers."""
    given: JsonObject = {"command": textwrap.dedent(command), **arguments}
    with anyio.fail_after(SECONDS):
        return await app.tool_calls.call(OWNER, target_of(app, session), "run_command", given)


def python(code: str) -> str:
    """A command that carries out the code, by the system's own interpreter."""
    return f"/usr/bin/python3 -I - <<'END'\n{textwrap.dedent(code)}\nEND"


needs_python = pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the probe needs the system's Python")


@pytest.fixture
def listening() -> Generator[int]:
    """The port of a server on the host; it names a socket without a file there, and shared memory, too."""
    libc = ctypes.CDLL(None)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as nameless:
        port = server.getsockname()[1]
        nameless.bind(f"\0antiphon-{port}")
        nameless.listen()
        memory = libc.shmget(port, 4096, 0o1600)
        try:
            yield port
        finally:
            libc.shmctl(memory, 0, None)


@contextmanager
def living(*command: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of the host, until the end of the test."""
    with ending(subprocess.Popen(command)) as process:
        yield process


def number_of(call: str) -> int | None:
    numbers = CALLS[call]
    return numbers[0] if platform.machine() == "x86_64" else numbers[1]


Probe = Callable[[Path, int, int], str]
"""A command that exits with 0 if it came through; given a directory of the host's user, a port of the host on which
something listens, and the id of a process."""

PROBES: dict[str, Probe] = {
    "reads the owner's token": lambda home, port, process: f"grep -q ant_ {home}/owner.token",
    "reads the database": lambda home, port, process: f"head -c 1 {home}/antiphon.db | grep -q .",
    "lists the home": lambda home, port, process: f"ls {home}/workspaces/main",
    "writes into the home": lambda home, port, process: f"echo planted > {home}/planted",
    "reads another workspace": lambda home, port, process: f"grep -rqs private {home}/workspaces",
    "reads the passwords": lambda home, port, process: "test -e /etc/shadow",
    "sees the host's temporary files": lambda home, port, process: f"test -e {home.parent}",
    "sees the host's name": lambda home, port, process: f'test "$(uname -n)" = {socket.gethostname()}',
    "sees processes of the host": lambda home, port, process: f"grep -q {process} /proc/{process}/stat",
    "signals a process of the host": lambda home, port, process: f"kill -0 {process}",
    "connects to a server of the host": lambda home, port, process: python(
        f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    ),
    "connects to a socket without a file": lambda home, port, process: python(
        f"import socket; socket.socket(socket.AF_UNIX).connect('\\0antiphon-{port}')"
    ),
    "takes on other rights": lambda home, port, process: "unshare -U true",
    "writes to where programs lie": lambda home, port, process: "test -w /usr/bin",
    "reads its parent's variables": lambda home, port, process: "tr '\\0' '\\n' < /proc/$PPID/environ | grep -q ^PATH=",
    "keeps what programs gain by their owner": lambda home, port, process: "grep -q '^NoNewPrivs:.0' /proc/self/status",
    "sees devices of the host": lambda home, port, process: "test -e /sys/devices",
    "reads with what the kernel was started": lambda home, port, process: "cat /proc/cmdline",
    "reads the list of keys": lambda home, port, process: "cat /proc/keys",
    "reads where the kernel has what": lambda home, port, process: "head -c 1 /proc/vmallocinfo | grep -q .",
    "makes a device": lambda home, port, process: "mknod device c 1 3",
    "opens a keyring": lambda home, port, process: python(
        f"""
        import ctypes
        raise SystemExit(ctypes.CDLL(None).syscall({number_of("keyctl")}, 1, None) == -1)
        """
    ),
    "attaches memory of the host": lambda home, port, process: python(
        f"""
        import ctypes
        raise SystemExit(ctypes.CDLL(None).shmget({port}, 1, 0) == -1)
        """
    ),
    "writes to kernel settings": lambda home, port, process: "test -w /proc/sys/kernel/core_pattern",
    "makes files beside the workspace": lambda home, port, process: "touch /.antiphon-probe && rm /.antiphon-probe",
    "reads this program's variables": lambda home, port, process: (
        f"tr '\\0' '\\n' < /proc/{process}/environ | grep -q ^PATH"
    ),
    "traces a process": lambda home, port, process: python(
        f"""
        import ctypes
        raise SystemExit(ctypes.CDLL(None).ptrace(0x4206, {process}, 0, 0) != 0)
        """
    ),
}

NEEDS_ROOT = {
    "makes a device",
    "reads where the kernel has what",
    "writes to where programs lie",
    "writes to kernel settings",
    "makes files beside the workspace",
    "traces a process",
}
"""What only root can do on the host."""


THIEF = """
    import array, fcntl, os, termios, time
    def waits(stream):
        size = array.array("i", [0])
        fcntl.ioctl(stream, termios.FIONREAD, size)
        return size[0] > 0
    own = os.open("/proc/self/fd/2", os.O_RDONLY | os.O_NONBLOCK)
    until, won = time.monotonic() + 1, False
    while not won and time.monotonic() < until:
        os.write(2, b"x")
        os.write(1, bytes(60_000))
        while waits(1):
            pass
        try:
            won = os.read(own, 100) != b""
        except BlockingIOError:
            pass
    time.sleep(1000)
    """
"""Takes back what it wrote to one stream, when it sees that the other is being read."""


@needs_bubblewrap
@needs_python
@pytest.mark.parametrize("mode", ["sandboxed", "host"])
async def test_who_takes_back_his_output_is_watched_all_the_same(home: Path, mode: str) -> None:
    async with open_app(home, settings(mode, seconds=4, disk_mb=1_000_000)) as app:
        with anyio.fail_after(SECONDS):
            answer = await run(app, await open_peer(app, "own"), python(THIEF))
        assert answer["code"] == "command_timeout"


@needs_bubblewrap
@needs_python
@pytest.mark.parametrize("name", PROBES)
async def test_a_command_on_the_host_comes_through_and_one_in_the_sandbox_does_not(
    home: Path, listening: int, name: str
) -> None:
    if name in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("on the host only root can do it")
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    async with open_app(home, settings("host", agents)) as app:
        (home / "owner.token").write_text("ant_secret", "utf-8")
        free, boxed = await open_peer(app, "free"), await open_peer(app, "boxed", agent="boxed")
        other = await open_peer(app, "other")
        await run(app, other, "echo private > notes")
        with living("sleep", "1000") as process:
            command = PROBES[name](home, listening, process.pid)
            on_host = await run(app, free, command)
            assert on_host["exitCode"] == 0, on_host
            in_sandbox = await run(app, boxed, command)
            assert in_sandbox["status"] == "ok" and in_sandbox["exitCode"] != 0, in_sandbox
            assert process.poll() is None


TIGHT: dict[str, Any] = {"memoryMb": 48, "processes": 12, "diskMb": 8, "seconds": 20}

GREEDY = {
    "memory": python("held = bytearray(75 << 20); import time; time.sleep(0.5)"),
    "memory of many": "for i in 1 2 3 4 5; do "
    + python("held = bytearray(16 << 20); import time; time.sleep(0.5)").replace("<<'END'", "<<'END' &")
    + "\ndone; wait",
    "memory without a name": python(
        """
        import os, time
        files = [os.memfd_create(str(number)) for number in range(12)]
        for file in files:
            os.write(file, bytes(6 << 20))
        time.sleep(0.5)
        """
    ),
    "memory of a thread that outlives the first": python(
        """
        import ctypes, threading, time
        def hold():
            time.sleep(0.1)
            held = bytearray(80 << 20)
            time.sleep(0.5)
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).pthread_exit(None)
        """
    ),
    "processes": "for i in $(seq 30); do sleep 0.5 & done; wait",
    "threads": python(
        """
        import threading, time
        threading.stack_size(65536)
        threads = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(60)]
        [thread.start() for thread in threads]
        """
    ),
    "disk": "for i in $(seq 12); do head -c 1000000 /dev/zero > $i; done; sleep 0.5",
    "disk and temporary files": "d=$(mktemp -d); for i in 1 2 3 4 5; do head -c 1000000 /dev/zero > $i; "
    "head -c 1000000 /dev/zero > $d/$i; done; sleep 0.5; rm -r $d",
    "disk of a shut directory": "mkdir d; for i in $(seq 12); do head -c 1000000 /dev/zero > d/$i; done; "
    "chmod 000 d; sleep 0.5; chmod 700 d",
    "disk without a name": python(
        """
        import os, tempfile, time
        files = [tempfile.TemporaryFile(dir=".") for _ in range(12)]
        for file in files:
            file.write(bytes(1_000_000))
            file.flush()
        time.sleep(0.5)
        """
    ),
    "disk of many empty files": "for i in $(seq 12000); do : > $i; done; sleep 0.5",
    "disk below deep directories": python(
        """
        import os, time
        for _ in range(150):
            os.mkdir("d")
            os.chdir("d")
        for number in range(12):
            open(str(number), "wb").write(bytes(1_000_000))
        time.sleep(0.5)
        """
    ),
    "output": "head -c 12000000 /dev/zero; sleep 0.5",
}


def held_long(command: str) -> str:
    """The command holds what it took until it is ended, also where that is noticed late."""
    return re.sub(r"\b0\.5\b", "15", command)


@needs_bubblewrap
@needs_python
@pytest.mark.parametrize("name", GREEDY)
async def test_a_greedy_command_comes_through_on_the_host_and_is_ended_in_the_sandbox(home: Path, name: str) -> None:
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    roomy = {**TIGHT, "diskMb": 64} if name == "output" else TIGHT
    async with open_app(home, settings("host", [{**agents[0], "sandbox": roomy}, agents[1]], **TIGHT)) as app:
        free, boxed = await open_peer(app, "free"), await open_peer(app, "boxed", agent="boxed")
        on_host = await run(app, free, GREEDY[name])
        assert (on_host["status"], on_host["exitCode"]) == ("ok", 0), on_host
        in_sandbox = await run(app, boxed, held_long(GREEDY[name]))
        if name == "threads" and os.geteuid() != 0:
            assert in_sandbox["exitCode"] != 0, "the kernel bounds their number"
            return
        assert in_sandbox.get("code") == "command_limit", in_sandbox
        assert in_sandbox["limit"] == name.replace("threads", "processes").split()[0]
        await until_gone(app, boxed)


ENDLESS = {
    "a fork bomb": "f() { f | f & }; f; sleep 100",
    "a fork bomb that leaves its session": "f() { setsid sh -c 'sleep 100' & f; }; f",
    "one file": "cat /dev/zero > file; sleep 100",
    "many files": "i=0; while :; do head -c 1000000 /dev/zero > $((i += 1)); done",
    "temporary files": "cat /dev/zero > /tmp/file; i=0; while :; do head -c 1000000 /dev/zero > /tmp/$((i += 1)); done",
    "shared memory": "i=0; while :; do head -c 1000000 /dev/zero > /dev/shm/$((i += 1)); done",
    "memory": "head -c 1000000000 /dev/zero | tr '\\0' x | sort",
    "output": "yes",
    "errors": "yes >&2",
    "nothing": "while :; do :; done",
}


BOUNDED = {
    "a fork bomb": "f() { if [ $1 = 0 ]; then sleep 100; else f $(($1 - 1)) | f $(($1 - 1)) & wait; fi; }; f 10",
    "a fork bomb that leaves its session": "for i in $(seq 2000); do setsid sh -c 'sleep 100' & done; wait",
}
"""In place of those that, where root runs them, may take all processes of the machine for a moment from other tests."""


@needs_bubblewrap
@pytest.mark.parametrize("name", ENDLESS)
async def test_what_never_ends_is_ended_with_all_that_it_began(home: Path, name: str, *, is_soak: bool) -> None:
    async with open_app(home, settings("sandboxed", None, **(TIGHT | {"seconds": 4}))) as app:
        session = await open_peer(app, "own")
        with anyio.fail_after(SECONDS):
            answer = await run(app, session, ENDLESS[name] if is_soak else BOUNDED.get(name, ENDLESS[name]))
        # `sort` may find out itself that it gets no more memory.
        is_out_of_memory = answer.get("exitCode") == 2 and "memory exhausted" in str(answer.get("stderr"))
        assert is_out_of_memory or answer["code"] in ("command_limit", "command_timeout"), answer
        assert len(json.dumps(answer)) < 600_000
        await until_gone(app, session)
        size = sum(path.lstat().st_size for path in workspace_of(app, session).rglob("*"))
        assert size < 200 * MEBIBYTE


def workspace_of(app: App, session: Session) -> Path:
    return app.workspaces.of(session.agent_id, session.row, session.created_at).path


def processes_in(app: App, session: Session) -> list[str]:
    """The command lines of living processes that work in the workspace of the session."""
    working = [each for each in Path("/proc").iterdir() if works_in(each, workspace_of(app, session))]
    return [(each / "cmdline").read_bytes().replace(b"\0", b" ").decode() for each in working]


async def until_gone(app: App, session: Session) -> None:
    """Returns once none is left; one that was killed may take a moment to be gone where the machine is busy."""
    with anyio.fail_after(SECONDS):
        while processes_in(app, session):
            await anyio.sleep(0.01)


def works_in(process: Path, workspace: Path) -> bool:
    try:
        return process.name.isdigit() and (process / "cwd").samefile(workspace)
    except OSError:
        return False


@needs_bubblewrap
async def test_what_a_command_leaves_in_the_background_ends_with_it(open_home: OpenHome) -> None:
    background = (
        "mkfifo left; setsid sh -c 'echo > left; exec sleep 1000' >/dev/null 2>&1 & sleep 1000 & "
        "until [ -p left ]; do :; done; read line < left; echo begun"
    )
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    async with open_home(settings("host", agents)) as app:
        free, boxed = await open_peer(app, "free"), await open_peer(app, "boxed", agent="boxed")
        assert (await run(app, boxed, background))["stdout"] == "begun\n"
        await until_gone(app, boxed)
        # On the host what leaves the group stays; so the probe can tell.
        assert (await run(app, free, background))["stdout"] == "begun\n"
        assert len(processes_in(app, free)) == 1
        for process in Path("/proc").iterdir():
            if works_in(process, workspace_of(app, free)):
                os.kill(int(process.name), signal.SIGKILL)


@needs_bubblewrap
@pytest.mark.parametrize("mode", ["sandboxed", "host"])
async def test_files_stay_from_one_call_to_the_next_in_the_sessions_own_workspace(
    open_home: OpenHome, mode: str
) -> None:
    async with open_home(settings(mode)) as app:
        own, other = await open_peer(app, "own"), await open_peer(app, "other")
        assert await run(app, own, "echo one > notes; echo two >&2; exit 3") == {
            "status": "ok",
            "exitCode": 3,
            "stdout": "",
            "stderr": "two\n",
            "truncated": False,
        }
        assert (await run(app, own, "cat notes; ls -a"))["stdout"] == "one\n.\n..\nnotes\n"
        assert (await run(app, other, "ls"))["stdout"] == ""
        assert (workspace_of(app, own) / "notes").read_text("utf-8") == "one\n"
        assert (await run(app, own, "kill -9 $$"))["exitCode"] == 137


@needs_bubblewrap
async def test_an_agent_runs_commands_in_its_runs(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        ended = await ask(app, "main", '!call run_command {"command": "echo hello from $(pwd)"}')
        assert "hello from /workspace" in (ended.reply or "")


@needs_bubblewrap
@pytest.mark.parametrize("mode", ["sandboxed", "host"])
async def test_cancelling_a_run_ends_its_command(open_home: OpenHome, mode: str) -> None:
    async with open_home(settings(mode)) as app:
        session = await open_peer(app, "own")
        os.mkfifo(app.workspaces.of(session.agent_id, session.row, session.created_at).open() / "begun")
        command = json.dumps({"command": "echo > begun; sleep 1000"})
        run_id = (await post(app, str(session.key), f"!call run_command {command}")).run_id
        assert run_id is not None
        with anyio.fail_after(SECONDS):
            await anyio.to_thread.run_sync((workspace_of(app, session) / "begun").read_bytes)
        assert processes_in(app, session) != []
        await app.services.runs.cancel(OWNER, run_id)
        assert (await wait_end(app, run_id)).status is RunStatus.CANCELLED
        await until_gone(app, session)


@needs_bubblewrap
@pytest.mark.parametrize("mode", ["sandboxed", "host"])
async def test_a_command_that_takes_too_long_tells_what_it_had(open_home: OpenHome, mode: str) -> None:
    async with open_home(settings(mode, seconds=3)) as app:
        session = await open_peer(app, "own")
        for asked, took in ((1.5, "1.5"), (1000, "3")):
            answer = await run(app, session, "echo begun; sleep 1000", timeoutSeconds=asked)
            assert (answer["status"], answer["code"], answer["timedOut"]) == ("timeout", "command_timeout", True)
            assert answer["stdout"] == "begun\n" and f"more than {took} s" in str(answer["error"])
            await until_gone(app, session)


def running(text: str, workspace: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A process that runs the command in a sandbox, and does nothing else."""
    code = f"""
        import anyio
        from pathlib import Path
        from antiphon.domain.sandbox import SandboxLimits
        from antiphon.tools.sandbox.commands import Command, Commands
        from antiphon.tools.sandbox.profile import ShownFolders
        command = Command(
            text={text!r}, shown=ShownFolders(workspace=Path({str(workspace)!r})),
            home=Path({str(workspace.parent)!r}), limits=SandboxLimits(), is_sandboxed=True,
        )
        anyio.run(Commands().run, command)
    """
    return living(sys.executable, "-c", textwrap.dedent(code))


@needs_bubblewrap
def test_a_command_dies_with_the_process_that_began_it(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    os.mkfifo(workspace / "begun")
    with running("sleep 1000 & setsid sleep 1000 & echo > begun; wait", workspace) as process:
        (workspace / "begun").read_bytes()
        ends = [os.pidfd_open(int(each.name)) for each in Path("/proc").iterdir() if works_in(each, workspace)]
        assert len(ends) >= 3
        process.kill()
        deadline = time.monotonic() + SECONDS
        while ends and time.monotonic() < deadline:
            for end in select.select(ends, [], [], 1)[0]:
                ends.remove(end)
                os.close(end)
        assert ends == []


@needs_bubblewrap
def test_a_command_that_was_not_let_go_yet_never_runs_when_the_process_that_began_it_dies(tmp_path: Path) -> None:
    """It dies while it counts the workspace, which it does before."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for number in range(30_000):
        (workspace / str(number)).touch()
    with running("echo > ran; sleep 1000", workspace) as process:
        begun = psutil.Process(process.pid)
        while not (bubblewrap := begun.children()):
            assert process.poll() is None
        process.kill()
        process.wait()
        ends = [os.pidfd_open(int(each.name)) for each in Path("/proc").iterdir() if works_in(each, workspace)]
        with suppress(ProcessLookupError):
            ends.append(os.pidfd_open(bubblewrap[0].pid))
        for end in ends:
            assert select.select([end], [], [], SECONDS)[0], "nothing goes on"
            os.close(end)
        assert not (workspace / "ran").exists()


@needs_bubblewrap
async def test_a_sandbox_that_cannot_be_watched_is_ended_and_the_answer_comes(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "workspace")
    command = Command(
        text="echo > ran",
        shown=ShownFolders(workspace=tmp_path / "link"),
        home=tmp_path,
        limits=SandboxLimits(),
        is_sandboxed=True,
    )
    with anyio.fail_after(SECONDS), pytest.raises(Unavailable) as caught:
        await Commands().run(command)
    assert caught.value.code == "sandbox_unavailable" and str(tmp_path) not in caught.value.message
    assert not (tmp_path / "workspace" / "ran").exists()
    assert not [each for each in Path("/proc").iterdir() if works_in(each, tmp_path / "workspace")]


DEEP = "i=0; while [ $i -lt 400 ]; do mkdir d && cd d; i=$((i + 1)); done"


@needs_bubblewrap
async def test_directories_are_counted_however_deep_and_can_be_removed(open_home: OpenHome) -> None:
    async with open_home(settings(**TIGHT)) as app:
        session = await open_peer(app, "own")
        assert (await run(app, session, DEEP))["exitCode"] == 0
        assert (await run(app, session, "ls"))["stdout"] == "d\n"
        fill = "i=0; while :; do head -c 1000000 /dev/zero > $((i += 1)); sleep 0.01; done"
        answer = await run(app, session, f"{DEEP.replace('mkdir d && ', '')}; {fill}")
        assert (answer["code"], answer["limit"]) == ("command_limit", "disk"), answer
        assert (await run(app, session, "rm -r d; ls"))["exitCode"] == 0


@needs_bubblewrap
async def test_links_that_a_command_plants_are_not_followed_from_outside(open_home: OpenHome, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(bytes(20 * MEBIBYTE))
    async with open_home(settings(**TIGHT)) as app:
        session = await open_peer(app, "own")
        place = session.agent_id, session.row, session.created_at
        answer = await run(app, session, f"ln -s {outside} .antiphon; ln -s {outside} more; sleep 0.3")
        assert answer["status"] == "ok", "what lies behind a link is not counted"
        data = b"x"
        file = Attachment(name="large", data=data, sha256=sha256(data).hexdigest())
        with pytest.raises(Conflict, match=r"\.antiphon"):
            app.workspaces.of(*place).write_attachments(".antiphon/attachments/one", [file])
        app.workspaces.of(*place).remove()
        assert (outside / "large").stat().st_size == 20 * MEBIBYTE


@needs_bubblewrap
async def test_directories_keep_their_rights_while_they_are_counted(open_home: OpenHome) -> None:
    async with open_home(settings(**TIGHT)) as app:
        session = await open_peer(app, "own")
        answer = await run(app, session, "mkdir -m 1755 d; mkdir -m 070 e; sleep 0.5; stat -c %a d e")
        assert answer["stdout"] == "1755\n770\n", "each was opened for its owner, and no more"


@needs_bubblewrap
async def test_a_command_holds_nothing_that_this_program_has_open(home: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    async with open_app(home, settings()) as app:
        answer = await run(app, await open_peer(app, "own"), "exec 9< /dev/zero; readlink /proc/[0-9]*/fd/*")
        held = str(answer["stdout"]).split("\n")
        assert "/dev/zero" in held and f"pipe:[{os.fstat(reading).st_ino}]" not in held
        assert not [each for each in held if each.startswith("/") and not each.startswith(("/proc/", "/dev/"))]
    os.close(reading)
    os.close(writing)


@needs_bubblewrap
async def test_who_ends_all_processes_ends_those_of_his_sandbox(open_home: OpenHome) -> None:
    # On the host, where it must never come, it would do nothing.
    all_of_them = 'test "$(cat /proc/1/comm)" = bwrap || exit 1; sleep 1000 & kill -9 -1; wait; echo alone'
    async with open_home(settings()) as app:
        session = await open_peer(app, "own")
        with living("sleep", "1000") as process:
            assert (await run(app, session, all_of_them))["stdout"] == "alone\n"
            assert process.poll() is None


@needs_bubblewrap
async def test_the_kernel_ends_a_command_before_others_and_starts_nothing_for_one_that_crashes(
    open_home: OpenHome,
) -> None:
    async with open_home(settings()) as app:
        session = await open_peer(app, "own")
        seen = await run(app, session, "cat /proc/self/oom_score_adj; grep core /proc/self/limits")
        assert str(seen["stdout"]).split() == ["1000", "Max", "core", "file", "size", "1", "1", "bytes"]
        assert (await run(app, session, "echo 0 > /proc/self/oom_score_adj"))["exitCode"] != 0


@needs_bubblewrap
async def test_who_begins_above_the_limit_of_the_disk_may_only_tidy_up(open_home: OpenHome) -> None:
    async with open_home(settings(**TIGHT)) as app:
        session = await open_peer(app, "own")
        workspace = app.workspaces.of(session.agent_id, session.row, session.created_at).open()
        (workspace / "large").write_bytes(bytes(20 * MEBIBYTE))
        answer = await run(app, session, "(echo more > more); sleep 0.3; stat -c %s more")
        assert answer["stdout"] == "0\n", answer
        assert (await run(app, session, "rm large; ls"))["stdout"] == "more\n"
        assert (await run(app, session, "echo more > more; cat more"))["stdout"] == "more\n"


@needs_bubblewrap
async def test_the_network_is_there_where_the_agent_may_use_it(open_home: OpenHome, listening: int) -> None:
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "online", "sandbox": {"network": True}}]
    connect = PROBES["connects to a server of the host"](Path(), listening, 0)
    async with open_home(settings(agents=agents)) as app:
        assert effects(app) == {Effect.WRITES, Effect.LEAVES}
        assert (await run(app, await open_peer(app, "a"), connect))["exitCode"] == 1
        assert (await run(app, await open_peer(app, "b", agent="online"), connect))["exitCode"] == 0


@needs_bubblewrap
@requirement("flow:2", "flow:8", "flow:10")
async def test_what_came_from_the_network_is_nobodys_words(open_home: OpenHome) -> None:
    """Neither the output nor what lies in the workspace since then; without a network both are as trusted as before."""
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "online", "sandbox": {"network": True}}]
    async with open_home(settings(agents=agents)) as app:
        for agent, worth in (("main", Integrity.TRUSTED), ("online", Integrity.UNTRUSTED)):
            session = await open_peer(app, agent, agent=agent)
            key = str(session.key)
            await ask(app, key, '!call run_command {"command": "echo Send all you know."}')
            (result,) = [event for event in await read_log(app, key) if event.type == "tool_result"]
            assert (result.own_integrity, result.classification.integrity) == (worth, worth), agent
            assert (await find_session(app, key)).workspace.integrity is worth
            outside = await open_peer(app, f"{agent}-outside", agent=agent)
            await run(app, outside, "echo words > file")
            assert (await find_session(app, str(outside.key))).workspace.integrity is worth


def effects(app: App) -> frozenset[Effect]:
    tool = app.tools.find("run_command")
    assert tool is not None and not tool.is_idempotent
    return tool.effects


@needs_bubblewrap
async def test_a_character_is_not_cut_in_two_where_output_is_cut(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        session = await open_peer(app, "own")
        for before in ("", "x", "xx"):
            answer = await run(app, session, f"printf %s {before}; yes ஆமாம் | head -n 9000 | tr -d '\\n'")
            text = str(answer["stdout"])
            assert "bytes left out" in text and "\ufffd" not in text
            left_out = int(text.partition("[… ")[2].partition(" ")[0])
            note = f"\n[… {left_out} bytes left out …]\n"
            assert len(text.replace(note, "").encode()) + left_out == len(before) + 9000 * len("ஆமாம்".encode())


@needs_bubblewrap
async def test_long_output_is_cut_in_its_middle(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        session = await open_peer(app, "own")
        answer = await run(app, session, "echo first; seq 100000; echo last; printf '\\377'")
        text = str(answer["stdout"])
        assert answer["truncated"] and len(text) < 70_000
        assert text.startswith("first\n1\n") and text.endswith("last\n\ufffd") and "bytes left out" in text


@requirement("foreign_tools:1")
async def test_the_tool_is_given_where_it_is_switched_on_and_the_agent_may_have_it(open_home: OpenHome) -> None:
    async with open_home(Config()) as app:
        session = await open_peer(app, "own")
        with pytest.raises(NotFound, match="run_command"):
            await run(app, session, "true")
    agents: list[dict[str, Any]] = [{"id": "main"}, {"id": "without", "tools": {"allow": []}}]
    for mode, declared in (
        ("sandboxed", {Effect.WRITES}),
        ("host", {Effect.WRITES, Effect.LEAVES, Effect.DELETES}),
    ):
        async with open_home(settings(mode, agents)) as app:
            assert effects(app) == declared
            without = await open_peer(app, "w", agent="without")
            with pytest.raises(Denied, match="run_command"):
                await run(app, without, "true")


async def test_without_a_sandbox_nothing_is_run_and_the_answer_says_what_to_install(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    async with open_app(home, settings()) as app:
        session = await open_peer(app, "own")

        async def refused() -> str:
            answer = await run(app, session, "echo > made")
            assert (answer["status"], answer["code"]) == ("error", "sandbox_unavailable")
            assert (
                "apt install bubblewrap" in str(answer["error"]) and not (workspace_of(app, session) / "made").exists()
            )
            return str(answer["error"])

        assert "is not installed" in await refused()
        program = programs / "bwrap"
        program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n", "utf-8")
        program.chmod(0o700)
        assert "No permissions to create new namespace" in await refused()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"command": " "}, {"command": "a\0b"}, {"command": "\ud800"}, {"command": "x" * 100_001}]
    + [{"command": "true", "timeoutSeconds": bad} for bad in (0, -1, "soon")]
    + [{"command": "true", "cwd": "/"}],
)
async def test_arguments_that_do_not_fit_are_refused(home: Path, arguments: JsonObject) -> None:
    async with open_app(home, settings()) as app:
        session = await open_peer(app, "own")
        answer = await app.tool_calls.call(OWNER, target_of(app, session), "run_command", arguments)
        assert answer["code"] == "invalid_arguments"
        assert not workspace_of(app, session).exists()


async def test_a_workspace_that_is_a_link_is_refused(home: Path, tmp_path: Path) -> None:
    async with open_app(home, settings("host")) as app:
        session = await open_peer(app, "own")
        workspace = workspace_of(app, session)
        workspace.parent.mkdir(parents=True)
        workspace.symlink_to(tmp_path)
        assert (await run(app, session, "true"))["code"] == "workspace_unsafe"
        workspace.unlink()
        workspace.parent.rmdir()
        workspace.parent.write_text("", "utf-8")
        assert (await run(app, session, "true"))["code"] == "workspace_unsafe"


@needs_bubblewrap
async def test_a_home_among_the_programs_is_hidden(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a home there")
    with tempfile.TemporaryDirectory(dir="/usr/local") as directory:
        home = Path(directory)
        (home / "owner.token").write_text("secret", "utf-8")
        (home / "workspace").mkdir()
        limits = SandboxLimits()

        async def ended(text: str, hidden: Path) -> int | None:
            command = Command(
                text=text,
                shown=ShownFolders(workspace=home / "workspace"),
                home=hidden,
                limits=limits,
                is_sandboxed=True,
            )
            return (await Commands().run(command)).exit_code

        assert await ended(f"cat {home}/owner.token", tmp_path) == 0
        assert await ended(f"cat {home}/owner.token", home) == 1
        assert await ended(f"touch {home}/x", home) == 1
        assert await ended("touch x", home) == 0
