"""Limits the total size of request bodies from unidentified callers, over all connections."""

from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from typing import Any

from antiphon.gateway.asgi import AsgiApp, Receive, Scope
from antiphon.gateway.refusals import RefusedRequests

MOST_BYTES = 64 * 1024 * 1024
"""The total size of all such bodies that are incomplete."""


class _OpenBody:
    """A body that is still being received."""

    __slots__ = ("end", "size")

    def __init__(self, scope: Scope, crowded: AsgiApp) -> None:
        self.size = 0

        def end() -> None:
            scope["antiphon.last"] = crowded
            scope["antiphon.cancel"]()

        self.end = end


class StrangersBodies:
    """Keeps the bodies within `most` bytes in total. Above that, drops the oldest, which no honest sender has."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._bodies: dict[_OpenBody, None] = {}
        """In order of their start, oldest first."""
        self._refusals = RefusedRequests()

    @contextmanager
    def reading(self, scope: Scope, receive: Receive, crowded: AsgiApp) -> Generator[Receive]:
        """Yields a `receive` that counts. If the body is dropped, the request ends and `crowded` answers it."""
        body = _OpenBody(scope, crowded)

        async def counted() -> MutableMapping[str, Any]:
            part = await receive()
            self._add(body, len(part.get("body", b"")))
            if not part.get("more_body", False):
                self._release(body)
            return part

        try:
            yield counted
        finally:
            self._release(body)

    def _add(self, body: _OpenBody, size: int) -> None:
        if size == 0:
            return
        body.size += size
        self._held += size
        self._bodies.setdefault(body)
        while self._held > self._most:
            oldest = next(iter(self._bodies))
            self._release(oldest)
            self._refusals.note("too_many_bodies")
            oldest.end()

    def _release(self, body: _OpenBody) -> None:
        """May be called twice."""
        self._bodies.pop(body, None)
        self._held -= body.size
        body.size = 0
