"""What a sandboxed command sees of the host, as arguments of bubblewrap. Pure, but checks which paths exist."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

WORKSPACE = "/workspace"
"""Where a command finds its workspace; it can write only there and to `/tmp`."""
RECEIVED = "/received"
"""Beside the workspace, as on the host: what people sent to the session, which no command can change."""
SKILLS = "/skills"
"""Where the program of a skill finds the skill's folder, under its name; no command can change it."""
USER = 1000
SHARED_MEMORY_BYTES = 16 * 1024 * 1024

_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""In addition to `/usr`; links into it on most systems."""
_SETTINGS = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates/extracted",
)
"""Settings that programs read and that hold no secret; only existing ones are shown."""
_KERNEL_FILES = tuple(
    f"/proc/{name}"
    for name in (
        "cmdline",
        "iomem",
        "ioports",
        "kallsyms",
        "kcore",
        "key-users",
        "keys",
        "kmsg",
        "kpagecgroup",
        "kpagecount",
        "kpageflags",
        "modules",
        "pagetypeinfo",
        "sched_debug",
        "slabinfo",
        "timer_list",
        "vmallocinfo",
    )
)
"""Files that describe the whole machine, some only to root, who owns them inside as well; closed if they exist."""
_NETWORK_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/services", "/etc/protocols")

FILES: Mapping[str, str] = {
    "/etc/passwd": f"agent:x:{USER}:{USER}::{WORKSPACE}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "/etc/group": f"agent:x:{USER}:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Generated files and their content."""

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": WORKSPACE,
    "TMPDIR": "/tmp",
    "USER": "agent",
    "LANG": "C.UTF-8",
}


class ShownFolders(Struct, frozen=True, kw_only=True):
    """What a command sees of the home."""

    workspace: Path
    """The only one that it can change."""
    received: Path | None = None
    """What people sent to the session; None if nobody did."""
    skill: Path | None = None
    """The folder of the skill whose program it is; None for any other command."""


class Profile(Struct, frozen=True, kw_only=True):
    """The walls around one command."""

    shown: ShownFolders
    home: Path
    """Hidden, wherever it is."""
    network: bool
    tmp_bytes: int
    file_descriptors: Mapping[str, int]
    """A readable descriptor for each of `FILES`."""
    system_calls: int | None
    """Readable descriptor of the filter of system calls; None for no filter."""
    info: int
    """Descriptor to which bubblewrap writes the process's id."""
    gate: int
    """Descriptor that the command waits for."""


def arguments(profile: Profile) -> list[str]:
    """The arguments of `bwrap`, up to the command."""
    return [word for words in _words(profile) for word in words]


def base_walls(file_descriptors: Mapping[str, int], *, network: bool = False) -> list[str]:
    """What is around every sandboxed process, without the folders that it may change."""
    return [word for words in (*_programs(file_descriptors, network=network), *_system()) for word in words]


def _words(profile: Profile) -> Iterator[tuple[str, ...]]:
    yield from _programs(profile.file_descriptors, network=profile.network)
    if _is_shown(profile.home):
        yield ("--tmpfs", str(profile.home), "--remount-ro", str(profile.home))
    yield from _system()
    yield ("--size", str(profile.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp")
    yield ("--bind", str(profile.shown.workspace), WORKSPACE, "--chdir", WORKSPACE)
    if profile.shown.received is not None:
        yield ("--ro-bind", str(profile.shown.received), f"{RECEIVED}/{profile.shown.received.name}")
    if profile.shown.skill is not None:
        yield ("--ro-bind", str(profile.shown.skill), f"{SKILLS}/{profile.shown.skill.name}")
    yield ("--remount-ro", "/", "--clearenv")
    for name, value in ENVIRONMENT.items():
        yield ("--setenv", name, value)
    if profile.system_calls is not None:
        yield ("--seccomp", str(profile.system_calls))
    yield ("--info-fd", str(profile.info), "--block-fd", str(profile.gate))


def _programs(file_descriptors: Mapping[str, int], *, network: bool) -> Iterator[tuple[str, ...]]:
    yield ("--unshare-all", "--unshare-user", "--disable-userns")
    if network:
        yield ("--share-net",)
    yield ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
    yield ("--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox")
    yield ("--ro-bind", "/usr", "/usr")
    for path in map(Path, _PROGRAMS):
        if path.is_symlink():
            yield ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield ("--ro-bind", str(path), str(path))
    for setting in _SETTINGS + (_NETWORK_SETTINGS if network else ()):
        yield ("--ro-bind-try", setting, setting)
    for name, descriptor in file_descriptors.items():
        yield ("--perms", "0444", "--ro-bind-data", str(descriptor), name)


def _system() -> Iterator[tuple[str, ...]]:
    # Otherwise root on the host could write to kernel settings, which belong to no namespace.
    yield ("--proc", "/proc", "--remount-ro", "/proc")
    for path in _KERNEL_FILES:
        if Path(path).exists():
            yield ("--ro-bind", "/dev/null", path)
    yield ("--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm")
    yield ("--remount-ro", "/dev")


def _is_shown(home: Path) -> bool:
    """Whether the home is inside a directory that the command sees."""
    shown = [Path(path).resolve() for path in ("/usr", *_PROGRAMS)]
    return any(home.resolve().is_relative_to(path) for path in shown)
