"""Socket mode: what Slack sends over connections that it renews. Contract: channels 1.

The client library closes the old connection before it opens the next one, and confirms nothing by itself; here the next
one stands before the old one goes, and an envelope is confirmed on the connection that brought it.
"""

import json
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast

import aiohttp
import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

from antiphon.channels.slack.client import TRANSPORT, SlackClient, SlackError

HELLO_SECONDS: Final = 15.0
"""How long a new connection may be silent."""
GRACE_SECONDS: Final = 30.0
"""How long an old one is listened to, once the next one stands and it is silent."""
LINK_DISABLED: Final = "link_disabled"
_ENDS: Final = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


class SocketEnvelope:
    """Something that Slack sent, which it sends again unless it is confirmed."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse, facts: dict[str, Any]) -> None:
        self._connection = connection
        self._id = facts.get("envelope_id")
        self.type = str(facts.get("type"))
        payload: object = facts.get("payload")
        self.payload = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}

    async def confirm(self) -> None:
        """If the connection is gone, Slack sends it again over the next one, and it is recognised."""
        if self._id:
            with suppress(ConnectionError, aiohttp.ClientError):
                await self._connection.send_str(json.dumps({"envelope_id": self._id}))


async def listen(
    client: SlackClient, ready: Callable[[], Awaitable[None]], take: Callable[[SocketEnvelope], Awaitable[None]]
) -> None:
    """Calls `ready` once connected, then `take` for all that comes from then on, one after the other.

    Raises a group with a `SlackError` once there is no connection any more.
    """
    sending, receiving = anyio.create_memory_object_stream[SocketEnvelope | SlackError](math.inf)
    with sending, receiving:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_serve, client, tasks, sending)
            await ready()
            async for each in receiving:
                if isinstance(each, SlackError):
                    raise each
                await take(each)


async def _serve(
    client: SlackClient,
    tasks: TaskGroup,
    sending: MemoryObjectSendStream[SocketEnvelope | SlackError],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """One connection. It counts from its hello on; once it asks for the next one, it brings the rest."""
    connection, has_successor = await client.connect(), False
    try:
        await _hear_hello(connection)
        task_status.started()
        while (facts := await _next(connection, GRACE_SECONDS if has_successor else math.inf)) is not None:
            if facts.get("type") != "disconnect":
                sending.send_nowait(SocketEnvelope(connection, facts))
            elif facts.get("reason") == LINK_DISABLED:
                raise SlackError(LINK_DISABLED)
            elif not has_successor:
                await tasks.start(_serve, client, tasks, sending)
                has_successor = True
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            await connection.close()
    if not has_successor:
        sending.send_nowait(SlackError(TRANSPORT))


async def _hear_hello(connection: aiohttp.ClientWebSocketResponse) -> None:
    while (facts := await _next(connection, HELLO_SECONDS)) is not None:
        if facts.get("type") == "hello":
            return
        if facts.get("type") == "disconnect":
            raise SlackError(str(facts.get("reason"))[:100])
    raise SlackError(TRANSPORT)


async def _next(connection: aiohttp.ClientWebSocketResponse, seconds: float) -> dict[str, Any] | None:
    """The next object that comes; None once the connection has ended, or was silent for so long."""
    with anyio.move_on_after(seconds):
        while (message := await connection.receive()).type not in _ENDS:
            with suppress(TypeError, ValueError, RecursionError):
                facts: object = json.loads(cast("str", message.data))
                if isinstance(facts, dict):
                    return cast("dict[str, Any]", facts)
    return None
