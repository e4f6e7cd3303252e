"""Attempts of a command in the sandbox to learn where it lies on the host, and to leave something behind there."""

import os
import shutil
import stat
import subprocess
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.sandbox import SandboxLimits
from antiphon.engine.sessions.workspaces import WORKSPACES_NAME, Workspaces
from antiphon.tools.sandbox.commands import Command, Commands
from antiphon.tools.sandbox.execution import CommandResult
from antiphon.tools.sandbox.profile import ShownFolders
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.engine.stage import START
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

PROBE = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None
    or subprocess.run(PROBE, check=False, capture_output=True, timeout=SECONDS).returncode != 0,
    reason="bubblewrap is missing, or may not make namespaces",
)
needs_python = pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the probe needs the system's Python")
NAME = "zz-home-of-the-owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Attempt):
    command: str


def tried(what: str, command: str) -> Tried:
    return Tried(attacker=Attacker.SANDBOXED, door=Door.SANDBOX, what=what, command=command)


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncGenerator[Path]:
    path = tmp_path / NAME / WORKSPACES_NAME / "main" / "1-1"
    path.mkdir(parents=True)
    yield path


async def carry_out(workspace: Path, text: str, program: str = "bwrap") -> CommandResult:
    home = workspace.parents[2]
    limits = SandboxLimits(time=timedelta(seconds=SECONDS))
    command = Command(text=text, shown=ShownFolders(workspace=workspace), home=home, limits=limits, is_sandboxed=True)
    return await Commands(program).run(command)


LOOKS = [
    tried("the arguments of the first process", "tr '\\0' ' ' </proc/1/cmdline"),
    tried("the arguments of every process", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
    tried("the environment", "env; cat /proc/[0-9]*/environ 2>/dev/null"),
    tried("where it stands", "pwd; readlink /proc/self/cwd /proc/self/root; ls -l /proc/self/fd"),
    tried("links of the first process", "ls -l /proc/1/cwd /proc/1/root /proc/1/exe /proc/1/fd 2>&1"),
    tried("what the workspace is called", "stat . ..; ls -la / /workspace"),
    tried("what is mapped", "cat /proc/self/maps /proc/1/maps 2>/dev/null"),
    tried("the way up", "cd /workspace/../../../..; pwd; ls"),
]


@needs_bubblewrap
@pytest.mark.parametrize("attempt", rows(*LOOKS))
async def test_a_command_does_not_see_where_its_home_lies(workspace: Path, attempt: Tried) -> None:
    result = await carry_out(workspace, attempt.command)
    seen = result.stdout.text() + result.stderr.text()
    assert result.exit_code is not None and seen
    assert NAME not in seen


def _python(call: str) -> str:
    return f"/usr/bin/python3 -I -c 'import os; {call}'"


MAKING = "os.O_CREAT | os.O_WRONLY"
MARKS = [
    tried("chmod u+s", "touch x; chmod u+s x"),
    tried("chmod g+s", "touch x; chmod g+xs x"),
    tried("chmod 6755", "touch x; chmod 6755 x"),
    tried("a copy with its mode", "cp /usr/bin/true x; chmod 4755 x"),
    tried("install", "install -m 4755 /usr/bin/true x"),
    tried("open with the mode", _python(f'os.open("x", {MAKING}, 0o4777)')),
    tried("open in a directory", _python(f'd = os.open(".", os.O_RDONLY); os.open("x", {MAKING}, 0o6777, dir_fd=d)')),
    tried(
        "a file without a name, linked",
        _python('d = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4777); os.link(f"/proc/self/fd/{d}", "x")'),
    ),
    tried("fchmod", _python(f'os.fchmod(os.open("x", {MAKING}), 0o4755)')),
    tried("fchmodat", _python('open("x", "w"); os.chmod("x", 0o2755, dir_fd=os.open(".", os.O_RDONLY))')),
    tried("mknod", _python('os.mknod("x", 0o104777)')),
    tried("a directory", "mkdir -m 2777 x"),
    tried("a tarball", "touch y; chmod 755 y; tar cf t --mode=4755 y; rm y; tar xpf t"),
    tried("a device", "mknod x c 1 3; touch y; chmod u+s y"),
]


@needs_bubblewrap
@needs_python
@pytest.mark.parametrize("attempt", rows(*MARKS))
async def test_no_file_that_lends_rights_stays_in_a_workspace(workspace: Path, attempt: Tried) -> None:
    await carry_out(workspace, f"umask 0; {attempt.command}")
    for path in workspace.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID), (path.name, oct(mode))
        assert not stat.S_ISCHR(mode) and not stat.S_ISBLK(mode)


@needs_bubblewrap
@needs_python
async def test_files_of_other_modes_are_made_as_ever(workspace: Path) -> None:
    text = (
        "umask 0; touch a; chmod 1777 a; chmod u=rwx,go= a; install -m 755 /usr/bin/true b; mkdir -m 1777 c; "
        + _python(
            f'os.close(os.open("d", {MAKING}, 0o640)); os.close(os.open("d", os.O_RDONLY, 0o6777)); '
            'os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600)'
        )
    )
    result = await carry_out(workspace, text)
    assert result.exit_code == 0, result.stderr.text()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in workspace.iterdir()}
    assert modes == {"a": 0o700, "b": 0o755, "c": 0o1777, "d": 0o640}


@needs_bubblewrap
async def test_what_cannot_be_started_does_not_tell_where(workspace: Path) -> None:
    shutil.rmtree(workspace)
    with pytest.raises((Unavailable, Conflict)) as refused:
        await carry_out(workspace, "true")
    assert NAME not in refused.value.message and refused.value.message


@pytest.mark.parametrize("kind", ["a link", "a file", "a directory of another mode"])
def test_a_workspace_that_cannot_be_used_does_not_tell_where(tmp_path: Path, kind: str) -> None:
    root = tmp_path / NAME / WORKSPACES_NAME
    workspaces = Workspaces(root)
    path = workspaces.of(AgentId("main"), SessionRow(1), START).path
    path.parent.mkdir(parents=True)
    match kind:
        case "a link":
            path.symlink_to("/etc")
        case "a file":
            path.write_text("x")
        case _:
            path.parent.rmdir()
            os.mkfifo(path.parent)
    with pytest.raises((Unavailable, Conflict)) as refused:
        workspaces.of(AgentId("main"), SessionRow(1), START).open()
    message = refused.value.message
    assert NAME not in message and str(tmp_path) not in message and WORKSPACES_NAME in message
