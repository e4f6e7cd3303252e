"""The process of `antiphon mcp`: passes an outside agent's calls on to the home's gateway."""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import anyio
import anyio.to_thread
import httpx
from mcp.server.stdio import stdio_server

from antiphon import __version__
from antiphon.agents.model import ToolSchema
from antiphon.cli.connection.client import (
    CONNECT_SECONDS,
    CONNECTED,
    ENDED,
    Client,
    check_identity,
    error_of,
)
from antiphon.cli.connection.connect import client_of
from antiphon.cli.connection.gateway_file import find_gateway
from antiphon.cli.connection.home import home_of
from antiphon.domain.errors import AntiphonError, Denied, Unavailable
from antiphon.domain.message import JsonObject
from antiphon.mcp.server import build_server

LONGEST_CALL_SECONDS = 660.0
"""Tools may wait for ten minutes."""
PATIENCE_SECONDS = 30.0
"""For a gateway that is being started anew."""
PAUSE_SECONDS = 0.5


def serve(client: Client, session_key: str, home: Path | None) -> None:
    """Serves until standard input ends."""
    anyio.run(_serve, client, session_key, home)


async def _serve(client: Client, session_key: str, home: Path | None) -> None:
    timeout = httpx.Timeout(LONGEST_CALL_SECONDS, connect=CONNECT_SECONDS)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as http:
        tools = RemoteTools(client, http, session_key, home)
        server = build_server(lambda context: tools, __version__)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


class RemoteTools:
    """The gateway's tools, as one session. Implements `SessionTools`.

    A gateway that was started anew is found again, and where it was another command's one of our own is begun; a call
    is then repeated, safely by its key.
    """

    def __init__(self, client: Client, http: httpx.AsyncClient, session_key: str, home: Path | None) -> None:
        self._client = client
        self._http = http
        self._session_key = session_key
        self._home = home_of(home)

    async def schemas(self) -> Sequence[ToolSchema]:
        answer = await self._ask("GET", f"/tools?sessionKey={quote(self._session_key, safe='')}")
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
        return await self._ask("POST", f"/tools/{quote(name, safe='')}", body, {"Idempotency-Key": key})

    async def _ask(
        self, method: str, path: str, body: JsonObject | None = None, headers: dict[str, str] | None = None
    ) -> JsonObject:
        failing_since: float | None = None
        while True:
            try:
                return await self._ask_once(method, path, body, headers)
            except httpx.TransportError:
                failure = None
            except Unavailable as error:
                if error.code not in ENDED:
                    raise
                failure = None
            except Denied as error:  # another program may have taken the address of a gateway that ended
                if error.code != "gateway_unproven":
                    raise
                failure = error
            failing_since = failing_since or anyio.current_time()
            if anyio.current_time() - failing_since > PATIENCE_SECONDS:
                raise failure or Unavailable(
                    f"Gateway does not answer: {self._client.url!r}. Start it with `antiphon serve`.",
                    code="gateway_unreachable",
                )
            await anyio.sleep(PAUSE_SECONDS)
            await anyio.to_thread.run_sync(self._look_again)

    async def _ask_once(
        self, method: str, path: str, body: JsonObject | None, headers: dict[str, str] | None
    ) -> JsonObject:
        address = self._client.address

        async def watch_connections(event: str, information: Mapping[str, Any]) -> None:
            if event == CONNECTED and address.must_prove:
                stream = information["return_value"]
                try:
                    # Nothing is read from the connection yet; the proof is, by another thread.
                    with stream.get_extra_info("socket").dup() as connection:
                        await anyio.to_thread.run_sync(check_identity, connection, address.url, address.token)
                except BaseException:
                    await stream.aclose()
                    raise

        response = await self._http.request(
            method,
            address.url + path,
            content=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {address.token}", "Content-Type": "application/json", **(headers or {})},
            extensions={"trace": watch_connections},
        )
        if response.is_error:
            raise error_of(response)
        answer = cast(JsonObject, response.json())
        if answer.get("code") == "stopped":
            raise Unavailable(str(answer.get("error")), code="stopped")
        return answer

    def _look_again(self) -> None:
        if self._client.move(self._client.url):
            return
        running = find_gateway(self._home)
        if running is not None:
            with suppress(AntiphonError):
                found = client_of(self._home, running)
                self._client.close()
                self._client = found
