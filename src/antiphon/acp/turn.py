"""A turn of a native session: what the harness tells and asks until it answers the prompt."""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from anyio import Event, move_on_after

from antiphon.acp.connection import Pending, RpcConnection, result_of
from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.fields import text_in
from antiphon.acp.framing import RpcError
from antiphon.acp.permissions import PermissionRequest
from antiphon.acp.updates import Calls, TurnUsage, Update, usage_of
from antiphon.domain.message import JsonObject

MAX_HELD_BYTES = 16 * 1024 * 1024
"""What of a turn is held for its reader; then nothing more is read from the harness."""

Told: TypeAlias = Update | PermissionRequest


class HarnessTurn(AsyncIterator[Told]):
    """Updates and requests in the order of the harness, from `Harness.prompt`.

    - Read it to its end: then `stop_reason` and `usage` are there. To end it early, call `Harness.cancel` and read on.
    - A request for permission holds the harness until it is answered; the reader may read on before.
    - Ends with `HarnessError`: `acp_failed` or `acp_auth` leave the session usable, others kill the harness.
    """

    def __init__(
        self,
        session_id: str,
        connection: RpcConnection,
        *,
        silence_seconds: float | None,
        cancel_seconds: float,
        failed: Callable[[str, RpcError], HarnessError],
    ) -> None:
        self.session_id = session_id
        self.stop_reason: str | None = None
        """`end_turn`, `max_tokens`, `max_turn_requests`, `refusal`, `cancelled`, or a word of the harness."""
        self.usage: TurnUsage | None = None
        self.calls = Calls()
        self._connection = connection
        self._silence_seconds = silence_seconds
        self._cancel_seconds = cancel_seconds
        self._failed = failed
        self._held = deque[tuple[Told, int]]()
        self._size = 0
        self._changed = Event()
        self._room = Event()
        self._requests = list[PermissionRequest]()
        self._pending: Pending | None = None
        self._is_answered = False
        self._is_over = False
        self._cancelled_at: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether everything has been read."""
        return self._is_over

    @property
    def held_bytes(self) -> int:
        """What the harness has told and nobody has read yet."""
        return self._size

    def begin(self, params: JsonObject) -> None:
        self._pending = self._connection.begin("session/prompt", params, self._answered)

    async def put(self, told: Told, size: int) -> None:
        """Holds what was told for the reader; waits while too much is held."""
        while self._size > MAX_HELD_BYTES and not self._is_over:
            self._room = Event()
            await self._room.wait()
        if self._is_over or self._is_answered:
            return
        if isinstance(told, PermissionRequest):
            self._requests = [request for request in self._requests if request.is_open]
            self._requests.append(told)
            if self._cancelled_at is not None:
                told.cancel()
        self._held.append((told, size))
        self._size += size
        self._changed.set()

    def cancelled(self) -> None:
        """The turn was cancelled: open requests get that answer, and the harness has a limit to end it."""
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
        for request in self._requests:
            request.cancel()
        self._changed.set()

    def __aiter__(self) -> "HarnessTurn":
        return self

    async def __anext__(self) -> Told:
        while not self._held:
            if self._is_over:
                raise StopAsyncIteration
            if self._is_answered:
                self._finish()
                raise StopAsyncIteration
            await self._wait()
        told, size = self._held.popleft()
        self._size -= size
        self._room.set()
        return told

    async def _wait(self) -> None:
        """Waits until there is something to read; ends the connection if the harness is silent for too long."""
        limit, received = self._limit(), self._connection.received
        self._changed = Event()
        with move_on_after(limit) as scope:
            await self._changed.wait()
        if not scope.cancelled_caught:
            return
        if self._cancelled_at is not None:
            self._stalled("did not end its cancelled turn", self._cancel_seconds)
        elif self._connection.received == received and not any(request.is_open for request in self._requests):
            assert self._silence_seconds is not None
            self._stalled("said nothing", self._silence_seconds)

    def _limit(self) -> float | None:
        if self._cancelled_at is None:
            return self._silence_seconds
        return max(0.0, self._cancelled_at + self._cancel_seconds - time.monotonic())

    def _stalled(self, what: str, seconds: float) -> None:
        self._connection.end(HarnessError(HarnessCode.STALLED, f"Harness {what} for {seconds:g} seconds."))

    def _answered(self) -> None:
        """Called in the order of the messages: what comes later belongs to no turn."""
        self._is_answered = True
        for request in self._requests:
            request.cancel()
        self._changed.set()
        self._room.set()

    def _finish(self) -> None:
        assert self._pending is not None
        self._is_over = True
        try:
            result = result_of(self._pending, "session/prompt")
        except RpcError as error:
            raise self._failed("session/prompt", error) from error
        self.stop_reason = text_in(result, "stopReason") or "end_turn"
        self.usage = usage_of(result)
