"""The filter of system calls: blocks calls that commands do not need or that namespaces do not limit.

A keyring passes from process to process; sockets to the host of a virtual machine ignore network namespaces; files
registered with io_uring appear in no list of open files; kernel vulnerabilities were often found in the others.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

CALLS: Mapping[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    # The filter cannot see its flags, which are in memory; libraries then use `clone`.
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    # The filter cannot see its mode, which is in memory; libraries then use `openat`.
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
"""Calls that fail as if the kernel lacked them (`ENOSYS`), with their numbers on the two processors."""
FAMILIES = (1, 2, 10, 16)
"""Allowed socket families: local, IPv4, IPv6, and netlink, which programs use to find their addresses."""
USER_NAMESPACE = 0x1000_0000
"""`CLONE_NEWUSER`, of `clone` and `unshare`; the other namespaces need rights that only this one gives."""
MODES: Mapping[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
    "mkdir": (83, None, 1),
    "mkdirat": (258, 34, 2),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}
"""Calls that set a file's mode: their numbers, and which argument is the mode."""
OPENS: Mapping[str, tuple[int | None, int | None, int]] = {"open": (2, None, 1), "openat": (257, 56, 2)}
"""Calls that set a mode if they create a file: their numbers, and the argument with the flags; the mode follows it."""
MAKES = 0o100 | 0o20000000
"""`O_CREAT`, and the bit that `O_TMPFILE` has in addition to `O_DIRECTORY`."""
SET_IDS = 0o6000
"""Set-user-id and set-group-id: on the host, the file would lend the rights of Antiphon's user to anyone."""
TERMINAL_REQUESTS = (0x5412, 0x541C)
"""`TIOCSTI` and `TIOCLINUX`, which type into a terminal."""

_LOAD, _IS_EQUAL, _IS_AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _FAIL, _ALLOW = 0x8000_0000, 0x0005_0000, 0x7FFF_0000
_NUMBER, _ARCHITECTURE = 0, 4
_OTHER_ABI = 0x4000_0000
"""Added to the numbers under which x86 offers all calls a second time."""


class _Machine(Struct, frozen=True, kw_only=True):
    architecture: int
    column: int
    clone: int
    ioctl: int
    socket: int
    unshare: int


_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(architecture=0xC000_003E, column=0, clone=56, ioctl=16, socket=41, unshare=272),
    "aarch64": _Machine(architecture=0xC000_00B7, column=1, clone=220, ioctl=29, socket=198, unshare=97),
}


def filter_for(machine: str) -> bytes | None:
    """A program for the kernel, in bubblewrap's format; None for an unsupported processor."""
    known = _MACHINES.get(machine)
    return None if known is None else b"".join(_steps(known))


def _steps(machine: _Machine) -> Iterator[bytes]:
    # Programs for another processor use other numbers, so their calls cannot be judged.
    yield from (_step(_LOAD, _ARCHITECTURE), _step(_IS_EQUAL, machine.architecture, yes=1), _step(_RETURN, _KILL))
    yield from (_step(_LOAD, _NUMBER), _step(_IS_AT_LEAST, _OTHER_ABI, no=1), _fail(errno.ENOSYS))
    for numbers in CALLS.values():
        number = numbers[machine.column]
        if number is not None:
            yield from (_step(_IS_EQUAL, number, no=1), _fail(errno.ENOSYS))
    for number in (machine.clone, machine.unshare):
        yield from _look(number, 0, [_step(_HAS_BITS, USER_NAMESPACE, no=1), _fail(errno.EPERM)])
    sets_ids = [_step(_HAS_BITS, SET_IDS, no=1), _fail(errno.EPERM)]
    for *numbers, argument in MODES.values():
        if (number := numbers[machine.column]) is not None:
            yield from _look(number, argument, sets_ids)
    for *numbers, argument in OPENS.values():
        if (number := numbers[machine.column]) is not None:
            mode = [_step(_LOAD, 16 + 8 * (argument + 1)), *sets_ids]
            yield from _look(number, argument, [_step(_HAS_BITS, MAKES, no=len(mode)), *mode])
    forbidden = [step for each in TERMINAL_REQUESTS for step in (_step(_IS_EQUAL, each, no=1), _fail(errno.EPERM))]
    yield from _look(machine.ioctl, 1, forbidden)
    known = [step for each in FAMILIES for step in (_step(_IS_EQUAL, each, no=1), _step(_RETURN, _ALLOW))]
    yield from _look(machine.socket, 0, [*known, _fail(errno.EAFNOSUPPORT)])
    yield _step(_RETURN, _ALLOW)


def _look(number: int, argument: int, steps: Iterable[bytes]) -> Iterator[bytes]:
    """The steps, with the lower half of the argument loaded, if it is this call; the kernel uses only that half."""
    inner = [_step(_LOAD, 16 + 8 * argument), *steps, _step(_LOAD, _NUMBER)]
    yield _step(_IS_EQUAL, number, no=len(inner))
    yield from inner


def _fail(error: int) -> bytes:
    return _step(_RETURN, _FAIL | error)


def _step(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, operand)
