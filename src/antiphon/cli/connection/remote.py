"""A gateway as programs of many tasks ask it: a restarted one is found again, and streams go on where they were cut."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx

from antiphon.cli.connection.client import (
    CONNECT_SECONDS,
    CONNECTED,
    ENDED,
    QUIET_SECONDS,
    Client,
    ServerEvent,
    check_identity,
    error_of,
    event_of,
)
from antiphon.cli.connection.connect import client_of
from antiphon.cli.connection.gateway_file import find_gateway
from antiphon.domain.errors import AntiphonError, Denied, Unavailable
from antiphon.domain.message import JsonObject

LONGEST_CALL_SECONDS = 660.0
"""Tools and runs may be waited for ten minutes."""
PATIENCE_SECONDS = 30.0
"""For a gateway that is being started anew."""
PAUSE_SECONDS = 0.5
JOINED = "joined"
"""The event of `follow` that says that the stream has begun, or has begun again after a cut."""


class RemoteGateway:
    """Asks a home's gateway. Every method raises an `AntiphonError` for what goes wrong.

    A gateway that was started anew is found again, and where it was another command's, one of our own is begun. What
    was asked is then asked again: give it an id by which that is safe.
    """

    def __init__(self, client: Client, http: httpx.AsyncClient, home: Path, token: str | None = None) -> None:
        """`token` is whose rights it has; None for the home's owner."""
        self._client = client
        self._http = http
        self._home = home
        self._token = token

    async def ask(
        self, method: str, path: str, body: JsonObject | None = None, headers: Mapping[str, str] | None = None
    ) -> JsonObject:
        failing_since: float | None = None
        while True:
            try:
                return await self._ask_once(method, path, body, headers or {})
            except (httpx.TransportError, OSError, Unavailable, Denied) as error:
                failing_since = failing_since or anyio.current_time()
                await self._bear(error, failing_since)

    async def follow(self, path: str, after: int) -> AsyncGenerator[ServerEvent]:
        """The session's events after that one, then live, without end; each stored one once, whatever is cut.

        Begins with the event `joined`, also after each cut. Raises `Unavailable` once an outage has lasted.
        """
        failing_since: float | None = None
        while True:
            error: Exception = Unavailable("Stream ended", code="gateway_unreachable")
            try:
                async with self._stream(f"{path}?after={after}") as response:
                    yield ServerEvent(name=JOINED, data={})
                    async for event in _events(response):
                        failing_since = None
                        if event.id is not None:
                            after = event.id
                        yield event
            except (httpx.TransportError, OSError, Unavailable, Denied) as failure:
                error = failure
            failing_since = failing_since or anyio.current_time()
            await self._bear(error, failing_since)

    async def lines(self, path: str) -> AsyncGenerator[JsonObject]:
        """The objects of an answer in JSON lines. A cut raises `Unavailable`."""
        try:
            async with self._stream(path) as response:
                async for line in _lines(response, b"\n"):
                    yield cast(JsonObject, json.loads(line))
        except (httpx.TransportError, OSError) as error:
            raise self._unreachable() from error

    async def _bear(self, error: Exception, failing_since: float) -> None:
        """Returns when it may be tried again. Raises what has lasted, or what does not pass."""
        match error:
            case Unavailable() if error.code not in ENDED:
                raise error
            case Denied() if error.code != "gateway_unproven":
                raise error  # another program may have taken the address of a gateway that ended
            case _:
                pass
        if anyio.current_time() - failing_since > PATIENCE_SECONDS:
            raise error if isinstance(error, Denied) else self._unreachable()
        await anyio.sleep(PAUSE_SECONDS)
        await anyio.to_thread.run_sync(self._look_again)

    async def _ask_once(
        self, method: str, path: str, body: JsonObject | None, headers: Mapping[str, str]
    ) -> JsonObject:
        response = await self._http.send(self._request(method, path, body=body, headers=headers))
        if response.is_error:
            raise error_of(response)
        answer = cast(JsonObject, response.json()) if response.content else {}
        if answer.get("code") == "stopped":
            raise Unavailable(str(answer.get("error")), code="stopped")
        return answer

    @asynccontextmanager
    async def _stream(self, path: str) -> AsyncGenerator[httpx.Response]:
        timeout = httpx.Timeout(QUIET_SECONDS, connect=CONNECT_SECONDS)
        response = await self._http.send(self._request("GET", path, timeout=timeout), stream=True)
        try:
            if response.is_error:
                await response.aread()
                raise error_of(response)
            yield response
        finally:
            await response.aclose()

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Request:
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

        return self._http.build_request(
            method,
            address.url + path,
            content=None if body is None else json.dumps(body),
            headers={
                "Authorization": f"Bearer {self._token or address.token}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
            extensions={"trace": watch_connections},
            timeout=self._http.timeout if timeout is None else timeout,
        )

    def _unreachable(self) -> Unavailable:
        return Unavailable(
            f"Gateway does not answer: {self._client.url!r}. Start it with `antiphon serve`.",
            code="gateway_unreachable",
        )

    def _look_again(self) -> None:
        if self._client.move(self._client.url):
            return
        running = find_gateway(self._home)
        if running is not None:
            with suppress(AntiphonError):
                found = client_of(self._home, running)
                self._client.close()
                self._client = found


@asynccontextmanager
async def remote_gateway(client: Client, home: Path, token: str | None = None) -> AsyncGenerator[RemoteGateway]:
    timeout = httpx.Timeout(LONGEST_CALL_SECONDS, connect=CONNECT_SECONDS)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as http:
        yield RemoteGateway(client, http, home, token)


async def _events(response: httpx.Response) -> AsyncIterator[ServerEvent]:
    async for frame in _lines(response, b"\n\n"):
        yield event_of(frame)


async def _lines(response: httpx.Response, end: bytes) -> AsyncIterator[bytes]:
    """The pieces that end so. Lines end only at newlines here, which the texts inside may not be split by."""
    buffer = bytearray()
    async for chunk in response.aiter_raw():
        searched = max(0, len(buffer) - len(end) + 1)
        buffer += chunk
        while (at := buffer.find(end, searched)) >= 0:
            yield bytes(buffer[:at])
            del buffer[: at + len(end)]
            searched = 0
