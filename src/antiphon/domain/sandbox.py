"""What commands of agents may take, and where they run."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class CommandMode(StrEnum):
    """Whether agents may run commands, and where those of sessions run that are not sandboxed."""

    OFF = "off"
    SANDBOXED = "sandboxed"
    HOST = "host"


MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one command may take, all its processes together."""

    network: bool = False
    """Whether it may use the network of the host; its own, empty one otherwise."""
    memory_bytes: int = 512 * MEBIBYTE
    """What it holds in `/tmp` counts as well, for that is memory."""
    processes: int = 64
    disk_bytes: int = 256 * MEBIBYTE
    """What its workspace and `/tmp` hold, and the size of each file."""
    time: timedelta = timedelta(seconds=120)
