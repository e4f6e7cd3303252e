"""The filter of system calls, by what the kernel answers with it and without it, in the same namespaces."""

import errno
import itertools
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from antiphon.tools.sandbox.system_calls import CALLS, FAMILIES, MODES, OPENS, filter_for
from tests.waiting import SECONDS

MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
ARGUMENT_CALLS = {
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "socket": (41, 198),
}
HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))
WALLS = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
)

OFTEN_LEFT_OUT = {
    *("acct", "bpf", "fanotify_init", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl"),
    *("add_key", "keyctl", "request_key", "kexec_file_load", "kexec_load", "mount_setattr", "open_tree_attr"),
    *("delete_module", "finit_module", "init_module", "perf_event_open", "quotactl", "quotactl_fd"),
    *("swapoff", "swapon", "modify_ldt", "userfaultfd", "open_by_handle_at"),
}
"""What a kernel may be built without, or be too old for."""
ARGUMENTS = {"modify_ldt": [0, 0, 0], "ptrace": [0x4206, 1 << 30, 0, 0]}
"""Where those that can mean nothing do not tell whether the call is there."""


def runs_here() -> bool:
    """Whether the kernel takes the walls, and the filter is written for it."""
    if shutil.which("bwrap") is None or not Path("/usr/bin/python3").exists():
        return False
    return filter_for(platform.machine()) is not None and behind_walls(["true"], None).returncode == 0


def behind_walls(command: list[str], program: bytes | None) -> subprocess.CompletedProcess[str]:
    """How the command ended that ran without rights, and with the filter if one is given."""
    if program is None:
        return subprocess.run(["bwrap", *WALLS, *command], check=False, capture_output=True, text=True, timeout=SECONDS)
    reading, writing = os.pipe()
    try:
        os.write(writing, program)
        os.close(writing)
        filtered = ["bwrap", *WALLS, "--seccomp", str(reading), *command]
        return subprocess.run(
            filtered, check=False, capture_output=True, text=True, timeout=SECONDS, pass_fds=[reading]
        )
    finally:
        os.close(reading)


def errors_of(calls: dict[str, list[int]], *, is_filtered: bool) -> dict[str, int]:
    """What error each of these gives, as `name -> number and arguments`; 0 for success."""
    code = f"""
        import ctypes, json
        libc = ctypes.CDLL(None, use_errno=True)
        errors = {{}}
        for name, words in {calls!r}.items():
            ctypes.set_errno(0)
            failed = libc.syscall(*map(ctypes.c_long, words)) == -1
            errors[name] = ctypes.get_errno() if failed else 0
        print(json.dumps(errors))
        """
    program = filter_for(platform.machine()) if is_filtered else None
    done = behind_walls(["/usr/bin/python3", "-I", "-c", textwrap.dedent(code)], program)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


needs_kernel = pytest.mark.skipif(
    not runs_here(), reason="bubblewrap or the system's Python is missing, or no filter is written for this processor"
)


def number_of(name: str, machine: str) -> int | None:
    return {**CALLS, **ARGUMENT_CALLS}[name][MACHINES.index(machine)]


def here(name: str) -> int:
    number = number_of(name, platform.machine())
    assert number is not None
    return number


@needs_kernel
def test_the_kernel_is_as_if_it_had_not_what_nobody_needs() -> None:
    names = [name for name in CALLS if number_of(name, platform.machine()) is not None]
    calls = {name: [here(name), *ARGUMENTS.get(name, [-1] * 6)] for name in names}
    without = errors_of(calls, is_filtered=False)
    assert {name for name, error in without.items() if error == errno.ENOSYS} <= OFTEN_LEFT_OUT
    assert set(errors_of(calls, is_filtered=True).values()) == {errno.ENOSYS}


@needs_kernel
def test_namespaces_of_a_user_cannot_be_made() -> None:
    # Of a thread that shares its root with others the kernel itself makes none.
    user, shared = 0x1000_0000, 0x0000_0200
    calls = {"clone": [here("clone"), user | shared, 0, 0, 0, 0], "unshare": [here("unshare"), user]}
    without = errors_of(calls, is_filtered=False)
    assert errno.EPERM not in without.values() and 0 not in without.values()
    assert errors_of(calls, is_filtered=True) == {"clone": errno.EPERM, "unshare": errno.EPERM}


@needs_kernel
def test_nothing_can_be_typed_into_a_terminal() -> None:
    requests = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSTI and more": 0x7FFF_FFFF_0000_5412, "TIOCGWINSZ": 0x5413}
    calls = {name: [here("ioctl"), -1, request, 0] for name, request in requests.items()}
    assert set(errors_of(calls, is_filtered=False).values()) == {errno.EBADF}
    filtered = errors_of(calls, is_filtered=True)
    assert filtered.pop("TIOCGWINSZ") == errno.EBADF and set(filtered.values()) == {errno.EPERM}


@needs_kernel
def test_sockets_are_there_of_the_families_that_namespaces_bound() -> None:
    # Of no kind: the kernel looks at that before it looks for the family.
    calls = {str(family): [here("socket"), family, 10_000, 0] for family in range(1, 45)}
    assert set(errors_of(calls, is_filtered=False).values()) == {errno.EINVAL}
    filtered = errors_of(calls, is_filtered=True)
    assert {int(family) for family, error in filtered.items() if error == errno.EINVAL} == set(FAMILIES)
    assert set(filtered.values()) == {errno.EINVAL, errno.EAFNOSUPPORT}


@needs_kernel
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only this processor has calls of another")
def test_who_calls_as_a_program_for_another_processor_is_ended() -> None:
    code = """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # getpid, of 32 bits
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """
    command = ["/usr/bin/python3", "-I", "-c", textwrap.dedent(code)]
    assert behind_walls(command, None).returncode in (0, 128 + signal.SIGSEGV)
    assert behind_walls(command, filter_for(platform.machine())).returncode == 128 + signal.SIGSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_is_judged_the_same_on_both_processors(machine: str) -> None:
    def judged(name: str, *arguments: int) -> int:
        number = number_of(name, machine)
        assert number is not None
        return judge(filter_for(machine), ARCHITECTURES[machine], number, *arguments)

    for name in CALLS:
        if number_of(name, machine) is not None:
            assert judged(name) == failing(errno.ENOSYS)
    for name in ("clone", "unshare"):
        assert judged(name, 0x1000_0011) == failing(errno.EPERM)
        assert judged(name, 0x11) == ALLOWED
    assert judged("ioctl", 0, 0xFFFF_0000_0000_5412) == failing(errno.EPERM)
    assert judged("ioctl", 0x5412, 0x5413) == ALLOWED
    assert [family for family in range(64) if judged("socket", family) == ALLOWED] == list(FAMILIES)
    column = MACHINES.index(machine)
    program = filter_for(machine)
    for name, (*numbers, argument) in {**MODES, **OPENS}.items():
        if (number := numbers[column]) is None:
            continue
        makes = [0o100, 0o20200000] if name in OPENS else [None]
        for flags, mode in itertools.product(makes, (0o4755, 0o2755, 0o6777, 0o1777, 0o755, 0)):
            last = [mode] if flags is None else [flags, mode]
            given = judge(program, ARCHITECTURES[machine], number, *([0o6777] * argument), *last)
            assert given == (failing(errno.EPERM) if mode & 0o6000 else ALLOWED), (name, oct(mode))
        if name in OPENS:
            assert judge(program, ARCHITECTURES[machine], number, *([0] * argument), 0, 0o6777) == ALLOWED
    modes = [numbers[:2] for numbers in (*MODES.values(), *OPENS.values())]
    others = {number for numbers in (*CALLS.values(), *ARGUMENT_CALLS.values(), *modes) for number in numbers}
    for number in set(range(512)) - others:
        assert judge(program, ARCHITECTURES[machine], number, 0x1000_0000, 0x5412) == ALLOWED
    for number in (0x4000_0000, 0x4000_0000 + 41, 0xFFFF_FFFF):
        assert judge(program, ARCHITECTURES[machine], number) == failing(errno.ENOSYS)
    assert judge(program, 0x4000_0003, 20) == KILLED


def test_there_is_no_filter_for_an_unknown_processor() -> None:
    assert filter_for("riscv64") is None


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_have_the_numbers_of_the_kernels_headers(machine: str) -> None:
    header = HEADERS[MACHINES.index(machine)]
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text("utf-8"))
    numbers = {name: int(number) for name, number in found}
    ours = {name: number_of(name, machine) for name in (*CALLS, *ARGUMENT_CALLS)}
    # Calls that are newer than the headers are in none.
    assert {name: number for name, number in ours.items() if numbers.get(name, number) != number} == {}
    assert len(numbers.keys() & ours.keys()) > 35


ALLOWED, KILLED = 0x7FFF_0000, 0x8000_0000


def failing(error: int) -> int:
    return 0x0005_0000 | error


def judge(program: bytes | None, architecture: int, number: int, *arguments: int) -> int:
    """What the program answers to this call, by the kernel's rules for such programs."""
    assert program is not None
    words = [*arguments, *[0] * (6 - len(arguments))]
    call = struct.pack("<IIQ6Q", number, architecture, 0, *words)
    steps: list[tuple[Any, ...]] = list(struct.iter_unpack("<HBBI", program))
    held, at = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", call, operand)
            case 0x15:
                at += yes if held == operand else no
            case 0x35:
                at += yes if held >= operand else no
            case 0x45:
                at += yes if held & operand else no
            case 0x06:
                return operand
            case _:
                raise AssertionError(code)
