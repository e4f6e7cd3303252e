"""The process of `antiphon mcp`: passes an outside agent's calls on to the home's gateway."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import quote

import anyio
from mcp.server.stdio import stdio_server

from antiphon import __version__
from antiphon.agents.model import ToolSchema
from antiphon.cli.connection.client import Client
from antiphon.cli.connection.home import home_of
from antiphon.cli.connection.remote import RemoteGateway, remote_gateway
from antiphon.domain.message import JsonObject
from antiphon.mcp.server import build_server


def serve(client: Client, session_key: str, home: Path | None) -> None:
    """Serves until standard input ends."""
    anyio.run(_serve, client, session_key, home)


async def _serve(client: Client, session_key: str, home: Path | None) -> None:
    async with remote_gateway(client, home_of(home)) as gateway:
        tools = RemoteTools(gateway, session_key)
        server = build_server(lambda context: tools, __version__)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


class RemoteTools:
    """The gateway's tools, as one session. Implements `SessionTools`.

    A call that has to be repeated has its key, so that it has its effect once.
    """

    def __init__(self, gateway: RemoteGateway, session_key: str) -> None:
        self._gateway = gateway
        self._session_key = session_key

    async def schemas(self) -> Sequence[ToolSchema]:
        answer = await self._gateway.ask("GET", f"/tools?sessionKey={quote(self._session_key, safe='')}")
        tools = cast(list[JsonObject], answer["tools"])
        return [
            ToolSchema(
                name=str(tool["name"]),
                description=str(tool["description"]),
                parameters=cast(JsonObject, tool["parameters"]),
            )
            for tool in tools
        ]

    async def call(self, name: str, arguments: JsonObject, *, idempotency_key: str | None) -> JsonObject:
        body: JsonObject = {"sessionKey": self._session_key, "arguments": arguments}
        key = idempotency_key or f"mcp-{secrets.token_hex(16)}"
        return await self._gateway.ask("POST", f"/tools/{quote(name, safe='')}", body, {"Idempotency-Key": key})
