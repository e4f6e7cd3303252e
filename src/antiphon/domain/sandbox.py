"""The limits of agents' commands, and where they run."""

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct


class CommandMode(StrEnum):
    """Whether agents may run commands, and where commands of sessions that are not sandboxed run."""

    OFF = "off"
    SANDBOXED = "sandboxed"
    HOST = "host"


MEBIBYTE = 1024 * 1024


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """The limits of one command with all its processes."""

    network: bool = False
    """Whether the command may use the network of the host; otherwise its network is empty."""
    memory_bytes: int = 512 * MEBIBYTE
    """Includes the content of `/tmp`, which is memory."""
    processes: int = 64
    disk_bytes: int = 256 * MEBIBYTE
    """The content of the workspace and `/tmp`, and the size of each file."""
    time: timedelta = timedelta(seconds=120)
