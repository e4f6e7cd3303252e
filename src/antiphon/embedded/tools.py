"""The agents' tools, for a program that acts as one of its sessions. Contract: tools 1."""

from antiphon.agents.model import ToolSchema
from antiphon.domain.actor import OWNER
from antiphon.domain.message import JsonObject
from antiphon.embedded.arguments import checked
from antiphon.embedded.lease import Lease
from antiphon.embedded.sessions import SessionHandle


class Tools:
    """`app.tools`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @property
    def names(self) -> list[str]:
        return self._lease.app.tools.names

    @property
    def schemas(self) -> list[ToolSchema]:
        """The name, description and JSON Schema of the arguments of each tool."""
        return self._lease.app.tool_calls.schemas

    @checked
    async def call(
        self,
        name: str,
        arguments: JsonObject | None = None,
        *,
        session: SessionHandle | str,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """The tool's answer, an object, also for failures. With the same `idempotency_key`, it is the same call.

        `session` is a handle, key or id. The call acts as that session, with the rights of its agent, and starts no
        turn. Raises `NotFound` for a session or tool that does not exist, `Denied` for a tool that the session does not
        have.
        """
        app = self._lease.app
        target = app.services.sessions.target(session.key if isinstance(session, SessionHandle) else session)
        return await app.tool_calls.call(OWNER, target, name, arguments or {}, idempotency_key=idempotency_key)
