"""Ports for servers that are begun again under the same one."""

import random
import socket
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of loopback on which nothing listens, and that the system gives to no connection by itself.

    One of those would be taken by somebody's connection while the server that had it is away.
    """
    try:
        end = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        end = 32_768
    while True:
        port = random.randrange(LOWEST, max(end, LOWEST + 1_000))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
