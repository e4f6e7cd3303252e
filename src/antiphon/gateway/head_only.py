"""Answers `HEAD` with the status and the headers of `GET`, and no body. Monitors and load balancers ask so."""

from collections.abc import MutableMapping
from typing import Any

import anyio

from antiphon.gateway.asgi import AsgiApp, Receive, Scope, Send


class HeadOnly:
    """What answers `GET`, up to its first byte: a stream ends before it begins."""

    def __init__(self, answer: AsgiApp) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as reading:

            async def begin(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    await send({"type": "http.response.body", "body": b""})
                    reading.cancel()

            await self._answer({**scope, "antiphon.send": begin, "antiphon.outlet": None}, receive, begin)
