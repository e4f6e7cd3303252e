"""Settings of a process: what it does, where it listens, its database, its log."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from antiphon.server_url import PasswordCommand, ServerUrl, password_of
from antiphon.settings.addresses import HeaderHost, Host, WebAddress
from antiphon.settings.section import MOST_SECONDS, Section

DEFAULT_PORT = 7464


class ProcessRole(StrEnum):
    """What a process does for its database."""

    ALL = "all"
    GATEWAY = "gateway"
    WORKER = "worker"

    @property
    def works(self) -> bool:
        """Whether it runs agents."""
        return self is not ProcessRole.GATEWAY


class GatewaySection(Section):
    role: ProcessRole = ProcessRole.ALL
    """Whether this process answers requests (`gateway`), runs agents (`worker`), or both; only with PostgreSQL."""
    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """The port to listen on; 0 takes any free port."""
    allowed_hosts: tuple[HeaderHost, ...] = ()
    """Allowed names in `Host`, in addition to the address itself and localhost."""
    public_url: WebAddress | None = None
    """The address under which people reach the gateway, for links of invitations; its host is allowed in `Host`."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 1024 * 1024
    """The largest request body for messages and tool calls. For webhooks and hooks it is 1 MiB, elsewhere 64 KiB."""
    max_connections: Annotated[int, Field(ge=16, le=60_000)] = 4096
    """Connections open at a time; beyond that, the connection that has been idle longest is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 10
    """How long running turns may continue after a signal to stop; unfinished turns resume at the next start."""


class DatabaseSection(Section):
    url: SecretStr | None = None
    """The address of a shared PostgreSQL database, such as `postgresql://user@host/name`; a file in the home unless
    set."""
    replica_url: SecretStr | None = None
    """The address of a streaming standby of that database. Searches and lists are read there if it replays, within a
    second, what was committed before them; else from the database itself."""
    password_command: tuple[str, ...] = ()
    """A program with its arguments that prints the password for new connections, such as a token that is valid for some
    minutes; no shell reads it. The password is used for 60 seconds; if the server refuses it, the program runs again.
    It gets `PGHOST`, `PGPORT`, `PGUSER` and `PGDATABASE`."""
    connections: Annotated[int, Field(ge=2, le=500)] = 12
    """Most connections of this process to PostgreSQL for reading and writing; one is opened when all others are busy.

    Its job engine uses about six more.
    """

    def address(self) -> str | None:
        """Of the shared database, with the command for its password and its standby; None for a file in the home."""
        if self.url is None:
            return None
        url = self.with_command(self.url.get_secret_value())
        if self.replica_url is None:
            return url
        replica = self.with_command(self.replica_url.get_secret_value())
        return ServerUrl(url, password_of(url), replica=replica)

    def with_command(self, url: str) -> str:
        """The address of a server, with the command for its password if there is one."""
        return ServerUrl(url, PasswordCommand(self.password_command)) if self.password_command else url


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level to log, on standard error."""
    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for machines, one document per line."""
