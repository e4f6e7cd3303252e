"""Watches a sandbox from the host: adds up what all its processes use, and ends them when it is too much.

The kernel limits each process (and, for an unprivileged user, their number); only the total needs watching.
"""

import os
import resource
import select
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.sandbox import SandboxLimits
from antiphon.engine.sessions.workspaces import names_in, open_own
from antiphon.tools.sandbox.profile import WORKSPACE

FILES_SHARE = 4
"""Counting files may take one part in this many of the time."""
READY_SECONDS = 10.0
MAX_OPEN_FILES = 1024
NICENESS = 5
"""Commands get less processor time than the process that watches them."""
FIRST_TO_END = 1000
"""On the kernel's scale, if the machine itself runs out of memory."""
HELD_DEPTH = 100
"""How many nested directories are held open while they are counted; deeper ones are counted one by one."""
TIDYING_BYTES = 1024 * 1024
"""A command that starts above the limit may use this much more than at its start; its files cannot grow."""
THREADS = 4
"""Per allowed process, for all processes together."""
ENTRY_BYTES = 1024
"""The cost of an empty file."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Limit(StrEnum):
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"


class Breach(Struct, frozen=True):
    """The limit that a command passed, and how much it was seen to use."""

    limit: Limit
    seen: int | None
    """None if the command made counting impossible."""


class Moved(Exception):
    """Very deeply nested directories were moved while they were counted."""


class _Hidden(Exception):
    """A process does not show its open files."""


class Sandbox:
    """A process namespace that waits at its gate, identified by the process that it lives and dies with."""

    def __init__(self, process: int, limits: SandboxLimits, workspace: Path) -> None:
        """Raises `Unavailable` (`sandbox_unavailable`) if the namespace cannot be limited and watched."""
        self._limits = limits
        self._process = process
        self._files = ExitStack()
        self._files_at = 0.0
        self._unnamed_memory = 0
        try:
            self._end = self._keep(os.pidfd_open(process))
            self._workspace = self._keep(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
            self._at_first = self._workspace_bytes()
            root = self._await_root(Path(f"/proc/{process}/root"))
            self._set_limits(process)
            self._processes = self._keep(os.open(root / "proc", os.O_RDONLY | os.O_DIRECTORY))
            self._memory_disks = [self._keep(os.open(root / name, os.O_PATH)) for name in ("tmp", "dev/shm")]
            self._memory_devices = {os.fstat(disk).st_dev for disk in self._memory_disks}
        except BaseException as error:
            # It waits at its gate, where it would outlive bubblewrap.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            self.close()
            if isinstance(error, Moved):
                raise Conflict(
                    f"Workspace cannot be measured: directories in {str(workspace)!r} are being moved. Let other "
                    "commands of the session end first.",
                    code="workspace_unsafe",
                ) from error
            if isinstance(error, OSError):
                raise Unavailable(
                    f"Sandbox cannot be watched, so nothing was run: {error.strerror}. It needs "
                    "Linux 5.4 or newer, with /proc of this user's processes readable.",
                    code="sandbox_unavailable",
                ) from error
            raise

    def close(self) -> None:
        self._files.close()

    def kill(self) -> None:
        """Ends all processes at once; they cannot prevent it."""
        if self.has_ended():
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, signal.SIGKILL)
        # It ends the others as soon as it runs, ahead of a thousand of them. Root may raise priorities;
        # for other users the kernel limits their number.
        with suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process, -20)

    def has_ended(self, timeout_seconds: float = 0.0) -> bool:
        """Whether all processes have ended, now or within the time."""
        return bool(select.select([self._end], [], [], timeout_seconds)[0])

    def check(self) -> Breach | None:
        """The limit that the command has passed so far. Call it repeatedly while the command runs."""
        now = time.monotonic()
        breach = self._breach_of_processes()
        if breach is None and now >= self._files_at:
            breach = self._breach_of_files()
            self._files_at = time.monotonic() + FILES_SHARE * (time.monotonic() - now)
        return breach

    def _keep(self, descriptor: int) -> int:
        self._files.callback(os.close, descriptor)
        return descriptor

    def _set_limits(self, process: int) -> None:
        """Sets the kernel's limits for each process; new processes inherit them."""
        limits = self._limits
        bounds = {
            # With 0 a crash would still start the host's crash handler, if it has one; with 1 nothing is written.
            resource.RLIMIT_CORE: 1,
            # For each file, the remaining part of the total.
            resource.RLIMIT_FSIZE: max(0, limits.disk_bytes - self._at_first),
            resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
            # Programs reserve address space that they never use; this is how far one process can jump unseen.
            resource.RLIMIT_DATA: 2 * limits.memory_bytes,
            # Applies to an unprivileged user, per namespace since Linux 5.14; for root, only the watching counts.
            resource.RLIMIT_NPROC: limits.processes * THREADS,
        }
        os.setpriority(os.PRIO_PROCESS, process, NICENESS)
        with suppress(OSError):
            Path(f"/proc/{process}/oom_score_adj").write_text(str(FIRST_TO_END), "ascii")
        for name, bound in bounds.items():
            _, hard = resource.prlimit(process, name)
            bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.prlimit(process, name, (bound, bound))

    def _await_root(self, root: Path) -> Path:
        """The root of the sandbox, once it differs from the host's."""
        host = Path("/proc").stat().st_dev
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                if (root / WORKSPACE[1:]).is_dir() and (root / "proc").stat().st_dev != host:
                    return root
            except FileNotFoundError:
                pass
            if self.has_ended(0.002) or time.monotonic() > deadline:
                raise TimeoutError(None, "it did not become ready", str(root))

    def _breach_of_processes(self) -> Breach | None:
        names = self._process_names()
        # The first process is bubblewrap's own.
        if len(names) - 1 > self._limits.processes:
            return Breach(Limit.PROCESSES, len(names) - 1)
        threads = sum(self._threads_of(name) for name in names) - 1
        if threads > self._limits.processes * THREADS:
            return Breach(Limit.PROCESSES, threads)
        held = self._memory_disk_bytes() + self._unnamed_memory
        bound = self._limits.memory_bytes
        living = [task for name in names if (task := self._living_task(name)) is not None]
        if held + sum(self._resident(task) for task in living) > bound:
            # Shared pages were counted for each process; this is slower and counts them once.
            exact = held + sum(self._proportional(task) for task in living)
            if exact > bound:
                return Breach(Limit.MEMORY, exact)
        return None

    def _breach_of_files(self) -> Breach | None:
        try:
            named = self._workspace_bytes()
            in_workspace, self._unnamed_memory = self._unnamed_bytes()
        except (Moved, PermissionError):
            return Breach(Limit.DISK, None)
        except _Hidden:
            return Breach(Limit.PROCESSES, None)
        total = named + in_workspace + self._memory_disk_bytes()
        if total > self._disk_bound():
            return Breach(Limit.DISK, total)
        return None

    def _disk_bound(self) -> int:
        bound = self._limits.disk_bytes
        return bound if self._at_first < bound else self._at_first + TIDYING_BYTES

    def _process_names(self) -> list[str]:
        return [name for name in names_in(self._processes) if name.isdigit()]

    def _read(self, name: str) -> str:
        """A file of the sandbox's `/proc`; empty if the process has ended."""
        try:
            with open(os.open(name, os.O_RDONLY, dir_fd=self._processes)) as file:  # noqa: PTH123
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def _threads_of(self, process: str) -> int:
        try:
            return max(1, os.stat(f"{process}/task", dir_fd=self._processes).st_nlink - 2)
        except (FileNotFoundError, ProcessLookupError):
            return 0

    def _tasks_of(self, process: str) -> list[str]:
        """The threads of a process, as paths in `/proc`."""
        try:
            tasks = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._processes)
        except (FileNotFoundError, ProcessLookupError):
            return []
        try:
            return [f"{process}/task/{name}" for name in names_in(tasks)]
        except (FileNotFoundError, ProcessLookupError):
            return []
        finally:
            os.close(tasks)

    def _living_task(self, process: str) -> str | None:
        """The thread that shows the memory of a process: the first, unless it ended before others."""
        if self._resident(process):
            return process
        return next((task for task in self._tasks_of(process) if self._resident(task)), None)

    def _resident(self, task: str) -> int:
        fields = self._read(f"{task}/statm").split()
        return int(fields[1]) * _PAGE if fields else 0

    def _proportional(self, task: str) -> int:
        total = 0
        for line in self._read(f"{task}/smaps_rollup").splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:", "SwapPss:")):
                total += int(line.split()[1]) * 1024
        return total

    def _memory_disk_bytes(self) -> int:
        total = 0
        for disk in self._memory_disks:
            state = os.fstatvfs(disk)
            total += (state.f_blocks - state.f_bfree) * state.f_frsize
            total += (state.f_files - state.f_ffree) * ENTRY_BYTES
        return total

    def _unnamed_bytes(self) -> tuple[int, int]:
        """Bytes of open files without a name: in the workspace, and in memory alone.

        Raises `_Hidden` for a process that does not show its open files.
        """
        workspace = os.fstat(self._workspace).st_dev
        found = dict[tuple[int, int], int]()
        for process in self._process_names():
            for task in self._tasks_of(process):
                for state in self._open_files(task):
                    is_unnamed = stat.S_ISREG(state.st_mode) and state.st_nlink == 0
                    if is_unnamed and state.st_dev not in self._memory_devices:
                        found[state.st_dev, state.st_ino] = state.st_blocks * 512
        in_workspace = sum(size for (device, _), size in found.items() if device == workspace)
        return in_workspace, sum(found.values()) - in_workspace

    def _open_files(self, task: str) -> Iterator[os.stat_result]:
        try:
            descriptors = os.open(f"{task}/fd", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._processes)
        except (FileNotFoundError, ProcessLookupError):
            return
        except PermissionError:
            # An ending process does not show them either, but has no memory left.
            if self._resident(task):
                raise _Hidden from None
            return
        try:
            for name in names_in(descriptors):
                with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    yield os.stat(name, dir_fd=descriptors)
        except (FileNotFoundError, ProcessLookupError):
            return
        finally:
            os.close(descriptors)

    def _workspace_bytes(self) -> int:
        return tree_bytes(self._workspace, self._limits.disk_bytes)


def tree_bytes(directory: int, bound: int) -> int:
    """What everything below the directory counts against a limit, at any depth; a little above it is as far as it goes.

    Opens what was closed to us. Raises `Moved`.
    """
    return _tree_bytes(directory, bound, HELD_DEPTH, set())


def _tree_bytes(directory: int, bound: int, depth: int, linked: set[int]) -> int:
    """The bytes of everything below the directory; stops counting a little above the bound. Follows no link."""
    if depth == 0:
        return _deep_bytes(directory, bound, linked)
    total, names = _level_bytes(directory, linked)
    for name in names:
        if total > 4 * bound:
            break
        if (inner := _open_inner(directory, name)) is not None:
            try:
                total += _tree_bytes(inner, bound - total, depth - 1, linked)
            finally:
                os.close(inner)
    return total


def _deep_bytes(directory: int, bound: int, linked: set[int]) -> int:
    """Like `_tree_bytes`, with one descriptor at a time at any depth. Raises `Moved`."""
    total, names = _level_bytes(directory, linked)
    above: list[tuple[tuple[int, int], list[str]]] = []
    """For each directory on the path: its identity, and the entries still to be counted."""
    current = os.dup(directory)
    try:
        while total <= 4 * bound:
            if names:
                if (inner := _open_inner(current, names.pop())) is None:
                    continue
                above.append((_identity(current), names))
                current = _instead(current, inner)
                size, names = _level_bytes(current, linked)
                total += size
            elif above:
                identity, names = above.pop()
                current = _instead(current, os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current))
                if _identity(current) != identity:
                    raise Moved
            else:
                break
    finally:
        os.close(current)
    return total


def _level_bytes(directory: int, linked: set[int]) -> tuple[int, list[str]]:
    """The bytes of one directory's entries, and the names of the directories among them."""
    total = 0
    names: list[str] = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            try:
                state = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(state.st_mode):
                names.append(entry.name)
            elif state.st_nlink > 1:
                if state.st_ino in linked:
                    total += ENTRY_BYTES
                    continue
                linked.add(state.st_ino)
            total += max(state.st_blocks * 512, ENTRY_BYTES)
    return total, names


def _open_inner(parent: int, name: str) -> int | None:
    """The descriptor of a directory in it; None if it is no longer a directory."""
    try:
        return open_own(parent, name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(directory: int) -> tuple[int, int]:
    state = os.fstat(directory)
    return state.st_dev, state.st_ino


def _instead(descriptor: int, following: int) -> int:
    os.close(descriptor)
    return following
