"""The process of `antiphon acp`: an editor at one end, the home's gateway at the other."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import cast

import anyio
from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.interfaces import Agent
from pydantic import ValidationError

from antiphon.cli.acp.agent import EditorAgent, WantedSessions
from antiphon.cli.acp.editor import ConnectedEditor
from antiphon.cli.acp.wire import EditorWire, take_output
from antiphon.cli.connection.client import Client
from antiphon.cli.connection.remote import remote_gateway
from antiphon.domain.text import shown_name

logger = logging.getLogger(__name__)


def serve(client: Client, home: Path, token: str | None, wanted: WantedSessions) -> None:
    """Serves until standard input ends. What the sessions do goes on."""
    output = take_output()
    anyio.run(partial(_serve, client, home, token, wanted=wanted, output=output))


async def _serve(client: Client, home: Path, token: str | None, *, wanted: WantedSessions, output: int) -> None:
    wire = EditorWire(sys.stdin.fileno(), output)
    async with remote_gateway(client, home, token) as gateway, anyio.create_task_group() as tasks:

        async def handle(method: str, params: object, is_notification: bool) -> object:
            try:
                return await router(method, params, is_notification)
            except (RequestError, ValidationError) as error:
                if not is_notification:
                    raise
                # Without what it says, which the library would log.
                about = {"action": "notice_ignored", "method": shown_name(method), "error": type(error).__name__}
                logger.warning("Notice of the editor is ignored", extra=about)
                return None

        connection = Connection(handle, wire, listening=False)
        agent = EditorAgent(ConnectedEditor(connection, wire), gateway, tasks, wanted)
        router = build_agent_router(cast(Agent, agent), use_unstable_protocol=True)  # it counts resuming as such

        def opened(session_id: str) -> None:
            tasks.start_soon(agent.opened, session_id)

        wire.on_opened = opened
        await connection.main_loop()
        agent.leave()
        tasks.cancel_scope.cancel()
        await connection.close()
