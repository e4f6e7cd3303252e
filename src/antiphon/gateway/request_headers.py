"""Gives every HTTP request an id, and returns it to the client. Contract: gateway 5."""

from collections.abc import Awaitable, MutableMapping
from typing import Any

from antiphon.domain.ids import Ids
from antiphon.gateway.asgi import AsgiApp, Receive, Scope, Send
from antiphon.metrics import HTTP_REQUESTS
from antiphon.request_ids import ServingRequest, choose_request_id

HEADER = b"x-request-id"
_CLASSES = ("", "1xx", "2xx", "3xx", "4xx", "5xx")


class WithRequestIds:
    """The outermost application: names each request in its answer's `X-Request-Id` and in every log line about it."""

    def __init__(self, app: AsgiApp, ids: Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(_offered(scope), self._ids)
        header = (HEADER, request_id.encode())

        def named(message: MutableMapping[str, Any]) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                HTTP_REQUESTS.add(_CLASSES[status // 100])
                message = {**message, "headers": [*message["headers"], header]}
            return send(message)

        with ServingRequest(request_id):
            await self._app(scope, receive, named)


def _offered(scope: Scope) -> str | None:
    """The id in the request's header; None without one, or if there are several."""
    found = [value for name, value in scope["headers"] if name == HEADER]
    return found[0].decode("latin-1") if len(found) == 1 else None
