"""Settings of a process: what it does, where it listens, its database, its log."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from antiphon.config.sections.section import MOST_SECONDS, Section

DEFAULT_PORT = 7464


class Role(StrEnum):
    """What a process does for its database."""

    ALL = "all"
    GATEWAY = "gateway"
    WORKER = "worker"

    @property
    def works(self) -> bool:
        """Whether it runs agents."""
        return self is not Role.GATEWAY


class GatewaySection(Section):
    role: Role = Role.ALL
    """Whether this process answers requests (`gateway`), runs agents (`worker`), or both; with PostgreSQL alone."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """Port to listen on; 0 takes any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that requests may have in `Host`, beside the address itself and localhost."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 1024 * 1024
    """Largest request body where messages and calls of tools enter; elsewhere it is 64 KiB, for webhooks 1 MiB."""
    max_connections: Annotated[int, Field(ge=16, le=60_000)] = 4096
    """Connections open at a time; beyond, the one that has been idle longest is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 10
    """How long running turns may go on when the gateway is told to stop; then they are resumed at the next start."""


class DatabaseSection(Section):
    url: SecretStr | None = None
    """Address of a PostgreSQL database that several processes share, such as `postgresql://user@host/name`; a file in
    the home unless set."""
    connections: Annotated[int, Field(ge=2, le=500)] = 12
    """Connections to PostgreSQL for reading and writing, of this process; about six more serve its job engine."""


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged, on standard error."""
    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for machines, a document a line."""
