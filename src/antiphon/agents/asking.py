"""Asking a model for one response: tried again, bounded while it streams, and its readers see why it takes long."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Protocol

import anyio
from msgspec import Struct

from antiphon.agents.model import Completion, Model, ModelError, Prompt, PromptPurpose, TextDelta
from antiphon.clock import Clock
from antiphon.domain.delay import SILENT, Delay
from antiphon.metrics import STEP_SECONDS

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
"""A response whose size is not counted yet has about one token for so many characters, and seldom fewer."""


class RetryPolicy(Struct, frozen=True):
    """How often, and at which intervals, to retry a failing provider."""

    attempts: int = 4
    first_delay_seconds: float = 1.0
    max_delay_seconds: float = 60.0
    silence_seconds: float = 2.0
    """After this long without an event, the run's readers see that the provider is silent."""

    def delay(self, attempt: int, error: ModelError) -> float:
        """Seconds before attempt number `attempt` + 1; the provider's own value has priority."""
        if error.retry_after_seconds is not None:
            return max(error.retry_after_seconds, 0.0)
        return min(self.first_delay_seconds * 2 ** (attempt - 1), self.max_delay_seconds)


class Room(Struct, frozen=True, kw_only=True):
    """How many more tokens a run may use, and how it ends if it uses them up."""

    tokens: float = inf
    code: str = ""
    error: str = ""


class RoomExceeded(Exception):
    """The response became larger than its room, and was stopped."""

    def __init__(self, room: Room, tokens: int) -> None:
        super().__init__(room.error)
        self.room = room
        self.tokens = tokens
        """About how many tokens the response had."""


class AsksModel(Protocol):
    """What asks a model: a run, whose readers see what streams and why it takes long; or work that nobody follows."""

    @property
    def clock(self) -> Clock: ...

    def begin_stream(self) -> None: ...

    def emit(self, text: str) -> None: ...

    async def begin_delay(self, delay: Delay) -> None: ...

    async def end_delay(self) -> None: ...


class Unfollowed(Struct, frozen=True):
    """Implements `AsksModel` for work that nobody follows."""

    clock: Clock

    def begin_stream(self) -> None:
        pass

    def emit(self, text: str) -> None:
        pass

    async def begin_delay(self, delay: Delay) -> None:
        pass

    async def end_delay(self) -> None:
        pass


class Asking(Struct, frozen=True, kw_only=True):
    """How to ask one model."""

    context: AsksModel
    model: Model
    retry: RetryPolicy
    room: Room = Room()

    async def ask(self, prompt: Prompt) -> Completion:
        """One response; retries errors that may pass, and withdraws the text that the failed attempt streamed.

        Raises `ModelError`, `RoomExceeded`.
        """
        attempt, began_at = 1, self.context.clock.monotonic()
        while True:
            self.context.begin_stream()
            try:
                completion = await self.listen(prompt, attempt)
            except ModelError as error:
                if not error.is_retryable or attempt >= self.retry.attempts:
                    raise
                seconds = self.retry.delay(attempt, error)
                logger.warning(
                    "Model is asked again",
                    extra={
                        "action": "model_retry",
                        "code": error.kind.value,
                        "seconds": seconds,
                        "attempt": attempt,
                    },
                )
                attempt += 1
                await self.context.begin_delay(self._retry_delay(error, seconds, attempt))
            else:
                STEP_SECONDS.observe(self.context.clock.monotonic() - began_at)
                return completion
            await anyio.sleep(seconds)
            await self.context.end_delay()

    async def listen(self, prompt: Prompt, attempt: int = 1) -> Completion:
        """One response, not tried again; only a turn's text is shown as it streams."""
        silence = _Silence(self, attempt)
        completion: Completion | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(silence.watch)
                async with aclosing(self.model.stream(prompt)) as stream:
                    completion = await self._take(stream, silence, is_reply=prompt.purpose is PromptPurpose.TURN)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        await self.context.end_delay()
        assert completion is not None
        return completion

    async def _take(
        self, stream: AsyncGenerator[TextDelta | Completion], silence: "_Silence", *, is_reply: bool
    ) -> Completion:
        characters = 0
        async for piece in stream:
            if isinstance(piece, Completion):
                return piece
            silence.heard_at = monotonic()
            if silence.is_shown:
                await silence.end()
            if piece.text and is_reply:
                self.context.emit(piece.text)
            characters += len(piece.text) + piece.unseen
            if characters > self.room.tokens * CHARACTERS_PER_TOKEN:
                raise RoomExceeded(self.room, characters // CHARACTERS_PER_TOKEN)
        raise AssertionError("a model's stream ends with an answer")

    def _retry_delay(self, error: ModelError, seconds: float, attempt: int) -> Delay:
        now = self.context.clock.now()
        again = f"Asked again in {seconds:.3g} s" if seconds < 90 else f"Asked again in {seconds / 60:.3g} min"
        return Delay(
            code=error.kind.value,
            text=f"{error.message.rstrip('.')}. {again} (attempt {attempt} of {self.retry.attempts}).",
            since=now,
            until=now + timedelta(seconds=seconds),
            attempt=attempt,
            attempts=self.retry.attempts,
        )

    def silent_since(self, since: datetime, attempt: int) -> Delay:
        provider = self.model.name.partition(":")[0]
        return Delay(
            code=SILENT,
            text=f"Provider {provider!r} is silent.",
            since=since,
            attempt=attempt,
            attempts=self.retry.attempts,
        )


class _Silence:
    """Shows that nothing comes from the provider, and that something comes again."""

    def __init__(self, asking: Asking, attempt: int) -> None:
        self.heard_at = monotonic()
        self.is_shown = False
        self._asking = asking
        self._attempt = attempt

    async def watch(self) -> None:
        """Runs until cancelled."""
        longest = self._asking.retry.silence_seconds
        while True:
            silent = monotonic() - self.heard_at
            if self.is_shown or silent < longest:
                await anyio.sleep(longest if self.is_shown else longest - silent)
                continue
            self.is_shown = True
            since = self._asking.context.clock.now() - timedelta(seconds=silent)
            await self._asking.context.begin_delay(self._asking.silent_since(since, self._attempt))

    async def end(self) -> None:
        self.is_shown = False
        await self._asking.context.end_delay()
