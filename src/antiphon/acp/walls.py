"""How a harness is started: with the rights of this program, or within walls. Contract: foreign_agents 2.

Within walls it sees the programs, its own folders, a HOME that is made for this start, and the workspace. Its
network is empty but for two ports of ours: the tools of its run, and the way to its provider.
"""

import json
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from msgspec import Struct

from antiphon.acp.background import background_tasks
from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.kept_home import open_fresh_home
from antiphon.acp.loopback_http import serve_loopback
from antiphon.acp.process import HarnessCommand
from antiphon.acp.provider_proxy import ProviderProxy
from antiphon.acp.provider_usage import ProviderUsage
from antiphon.acp.run_tools import HOST, RunTools
from antiphon.acp.settings import HarnessSetting
from antiphon.agents.providers.prices import load_prices
from antiphon.domain.errors import AntiphonError
from antiphon.domain.sandbox import SandboxLimits
from antiphon.engine.sessions.workspaces import Workspace
from antiphon.tools.sandbox.profile import FILES, WORKSPACE, base_walls
from antiphon.tools.sandbox.start import REMEDY
from antiphon.tools.sandbox.system_calls import filter_for
from antiphon.tools.sandbox.watch import Breach, Moved, Sandbox, tree_bytes

INSIDE_HOME: Final = "/home/agent"
PROVIDER_PORT: Final = 7465
TOOLS_PORT: Final = 7466
READY_SECONDS: Final = 20.0
CHECK_SECONDS: Final = 0.5
HOME_CHECK_SECONDS: Final = 15.0
KEPT_SHARE: Final = 2
"""What is kept of a HOME may take one part in this many of its disk, so that the next run has some left."""
PATHS: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_KEY: Final = "antiphon-adds-the-key"
_JOIN: Final = """
import ctypes, fcntl, os, socket, sys
net = os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY)
user = fcntl.ioctl(net, 0xB701)
libc = ctypes.CDLL(None, use_errno=True)
if os.fstat(user).st_ino != os.stat("/proc/self/ns/user").st_ino and libc.setns(user, 0x10000000):
    sys.exit(f"user namespace: {os.strerror(ctypes.get_errno())}")
if libc.setns(net, 0x40000000):
    sys.exit(f"network namespace: {os.strerror(ctypes.get_errno())}")
found = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[3:]]
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"x"], [each.fileno() for each in found])
"""
"""Opens ports in the network of the process, and hands them back."""


def _command_on_host(setting: HarnessSetting, workspace: Workspace) -> HarnessCommand:
    """The harness with the rights of this program, in the workspace, with the HOME of its user. Blocks."""
    env = {"HOME": os.environ.get("HOME", str(Path.home())), **setting.env}
    if setting.provider is not None:
        env = {setting.provider.variable: setting.provider.key, **env}
    return HarnessCommand(argv=setting.command, cwd=workspace.open(), env=env, secrets=setting.secrets)


@asynccontextmanager
async def unwalled(setting: HarnessSetting, workspace: Workspace) -> AsyncGenerator["Walls"]:
    """No walls: what the harness does, it does with the rights of this program."""
    yield Walls(await to_thread.run_sync(_command_on_host, setting, workspace))


class WalledPlace(Struct, frozen=True, kw_only=True):
    """What a harness within walls is for, and what it may use."""

    setting: HarnessSetting
    workspace: Workspace
    home: Path
    """Antiphon's, which it does not see."""
    limits: SandboxLimits
    program: str = "bwrap"


class Walls:
    """Around one harness; from `walled`."""

    def __init__(self, command: HarnessCommand) -> None:
        self.command = command
        self.usage: ProviderUsage | None = None
        """What its provider counts; None where its requests do not pass through here."""
        self.error: HarnessError | None = None
        """Why it was ended, or could not be begun."""


@asynccontextmanager
async def walled(place: WalledPlace, tools: RunTools) -> AsyncGenerator[Walls]:
    """The walls for a harness that is about to be started with their command. Raises `HarnessError`."""
    program = shutil.which(place.program)
    if program is None or not sys.platform.startswith("linux"):
        raise _not_walled(f"{place.program!r} is not installed")
    with ExitStack() as files:
        workspace, home = await to_thread.run_sync(_opened, place)
        info, info_end = _pipe(files)
        gate_end, gate = _pipe(files)
        call_filter = filter_for(platform.machine())
        descriptors = _Descriptors(
            contents={name: _content(files, text.encode()) for name, text in _files().items()},
            system_calls=None if call_filter is None else _content(files, call_filter),
            info=info_end.fileno(),
            gate=gate_end.fileno(),
        )
        words = b"".join(os.fsencode(word) + b"\0" for word in _words(place, workspace, home, descriptors))
        arguments = _content(files, words)
        command = HarnessCommand(
            argv=(program, "--args", str(arguments), "--", *place.setting.command),
            cwd=workspace,
            env={"HOME": str(workspace)},
            secrets=place.setting.secrets,
            pass_fds=(arguments, *descriptors.passed),
        )
        walls = Walls(command)
        proxy = None
        if (provider := place.setting.provider) is not None:
            walls.usage = ProviderUsage(provider)
            proxy = ProviderProxy(provider, walls.usage)
        try:
            async with background_tasks() as tasks:

                async def hold() -> None:
                    pid = await to_thread.run_sync(_process_of, info, abandon_on_cancel=True)
                    sandbox = await to_thread.run_sync(Sandbox, pid, place.limits, workspace)
                    try:
                        listeners = await to_thread.run_sync(_ports_in, pid)
                        await tools.listen(listeners[1])
                        if proxy is None:
                            listeners[0].close()
                        else:
                            await to_thread.run_sync(load_prices)
                            await tasks.start(serve_loopback, listeners[0], proxy.answer)
                        gate.write(b"\n")
                        await _watch(walls, sandbox, home, place.limits)
                    finally:
                        sandbox.kill()
                        sandbox.close()

                async def hold_or_tell() -> None:
                    try:
                        await hold()
                    except (OSError, ValueError, AntiphonError) as error:
                        walls.error = walls.error or _not_walled(str(error))
                        info_end.close()

                tasks.start_soon(hold_or_tell)
                yield walls
        finally:
            if proxy is not None:
                with anyio.CancelScope(shield=True):
                    await proxy.aclose()


async def _watch(walls: Walls, sandbox: Sandbox, home: Path, limits: SandboxLimits) -> None:
    """Ends the harness when it passes a limit; returns when it has ended."""
    looked_at = anyio.current_time()
    while not sandbox.has_ended():
        breach: Breach | None = await to_thread.run_sync(sandbox.check)
        if breach is not None:
            walls.error = _ended(f"it passed its limit of {breach.limit.value}")
            return
        if anyio.current_time() - looked_at > HOME_CHECK_SECONDS:
            looked_at = anyio.current_time()
            if await to_thread.run_sync(_is_full, home, limits.disk_bytes):
                walls.error = _ended("it passed its limit of disk, in its HOME")
                return
        await anyio.sleep(CHECK_SECONDS)


def _is_full(home: Path, most_bytes: int) -> bool:
    """Whether it holds more, or the harness has made counting impossible."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        return tree_bytes(folder, most_bytes) > most_bytes
    except (Moved, PermissionError):
        return True
    finally:
        os.close(folder)


def _opened(place: WalledPlace) -> tuple[Path, Path]:
    try:
        most = place.limits.disk_bytes // KEPT_SHARE
        return place.workspace.open(), open_fresh_home(place.workspace.harness_home, place.setting.keeps, most)
    except OSError as error:
        raise _not_walled(f"its HOME cannot be made afresh ({error.strerror})") from error


def _files() -> Mapping[str, str]:
    """The generated files; the user's home is another one than that of commands."""
    return {name: text.replace(f"::{WORKSPACE}:", f"::{INSIDE_HOME}:") for name, text in FILES.items()}


class _Descriptors(Struct, frozen=True, kw_only=True):
    """What bubblewrap reads and writes."""

    contents: Mapping[str, int]
    system_calls: int | None
    info: int
    gate: int

    @property
    def passed(self) -> tuple[int, ...]:
        more = () if self.system_calls is None else (self.system_calls,)
        return (*self.contents.values(), *more, self.info, self.gate)


def _words(place: WalledPlace, workspace: Path, home: Path, descriptors: _Descriptors) -> Iterator[str]:
    """The arguments of `bwrap`, up to the command."""
    hidden = str(place.home.resolve())
    yield from base_walls(descriptors.contents)
    yield from ("--size", str(min(place.limits.disk_bytes, place.limits.memory_bytes)), "--perms", "1777")
    yield from ("--tmpfs", "/tmp")
    for folder in program_folders(place):
        yield from ("--ro-bind", str(folder), str(folder))
    yield from ("--tmpfs", hidden)  # after the folders of programs, which may be around it
    yield from ("--bind", str(home), INSIDE_HOME)
    yield from ("--bind", str(workspace), WORKSPACE, "--bind", str(workspace), str(workspace))
    yield from ("--remount-ro", hidden, "--remount-ro", "/", "--chdir", str(workspace), "--clearenv")
    for name, value in _environment(place).items():
        yield from ("--setenv", name, value)
    if descriptors.system_calls is not None:
        yield from ("--seccomp", str(descriptors.system_calls))
    yield from ("--info-fd", str(descriptors.info), "--block-fd", str(descriptors.gate))


def _environment(place: WalledPlace) -> dict[str, str]:
    folders = {str(Path(each).parent) for each in place.setting.command if Path(each).is_absolute()}
    env = {
        "PATH": ":".join([*sorted(folders), PATHS]),
        "TMPDIR": "/tmp",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **place.setting.env,
        "HOME": INSIDE_HOME,
    }
    if (provider := place.setting.provider) is not None:
        env |= {provider.variable: NO_KEY, provider.address_variable: f"http://{HOST}:{PROVIDER_PORT}"}
    return env


def program_folders(place: WalledPlace) -> list[Path]:
    """The folders and files of the harness's program, which it reads; never one around somebody's home."""
    written = [*place.setting.command, *place.setting.env.values()]
    found: dict[Path, None] = {}
    for text in written:
        path = Path(text)
        if not path.is_absolute() or not path.exists():
            continue
        for each in (path, path.resolve()):
            if not each.is_relative_to("/usr"):
                found[_folder_of(each, place.home)] = None
    return [each for each in sorted(found) if not any(other in each.parents for other in found)]


def _folder_of(path: Path, home: Path) -> Path:
    """What of it is shown: the packages around it, the folder around its `bin`, or the file alone."""
    parts = path.parts
    if "node_modules" in parts:
        folder = Path(*parts[: parts.index("node_modules") + 1])
    elif path.parent.name == "bin":
        folder = path.parent.parent
    else:
        folder = path
    private = {Path.home(), Path.home().resolve(), home, home.resolve(), Path("/")}
    is_around = any(each == folder or folder in each.parents for each in private)
    return path if is_around or folder in (Path("/etc"), Path("/var"), Path("/tmp")) else folder


def _process_of(info: FileIO) -> int:
    """The id of the sandbox's first process. Raises `ValueError` if bubblewrap failed before."""
    if not select.select([info], [], [], READY_SECONDS)[0]:
        raise ValueError("bubblewrap did not start in time")
    text = b""
    while not text.rstrip().endswith(b"}"):
        piece = os.read(info.fileno(), 4096)
        if not piece:
            break
        text += piece
    return int(json.loads(text)["child-pid"])


def _ports_in(pid: int) -> Sequence[socket.socket]:
    """The listening ports of the provider and of the tools, in the network of the process. Raises `OSError`."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = (str(pid), str(theirs.fileno()), str(PROVIDER_PORT), str(TOOLS_PORT))
        joined = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _JOIN, *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=READY_SECONDS,
            check=False,
            cwd=tempfile.gettempdir(),
        )
        if joined.returncode:
            raise OSError(f"its network cannot be joined: {joined.stderr.decode('utf-8', 'replace').strip()[-200:]}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 2)
    return [socket.socket(fileno=each) for each in descriptors]


def _pipe(files: ExitStack) -> tuple[FileIO, FileIO]:
    reading, writing = os.pipe()
    return (
        files.enter_context(FileIO(reading, "rb")),
        files.enter_context(FileIO(writing, "wb")),
    )


def _content(files: ExitStack, content: bytes) -> int:
    """A descriptor to read the content from."""
    descriptor = os.memfd_create("walls")
    files.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _not_walled(why: str) -> HarnessError:
    said = f"Harness has to run within walls, and there are none: {why.rstrip('.')}. Nothing was done. {REMEDY}"
    return HarnessError(HarnessCode.UNSANDBOXED, said)


def _ended(why: str) -> HarnessError:
    return HarnessError(HarnessCode.ENDED, f"Harness was ended: {why}.")
