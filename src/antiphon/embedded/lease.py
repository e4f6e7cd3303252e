"""What all handles of an open system share, and how they learn that it was closed, or has failed."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from antiphon.building import App
from antiphon.domain.errors import AntiphonError, Conflict, Invalid, Unavailable
from antiphon.engine.services import Services

R = TypeVar("R")

DEFAULT_WAIT = timedelta(minutes=10)


class Lease:
    """An open system; every call of a handle goes through it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._is_open = True
        self._has_failed = False
        self._cause: BaseException | None = None
        self._on_close: dict[object, Callable[[], None]] = {}

    @property
    def app(self) -> App:
        """Raises `Conflict` (`closed`) after `close`, and `Unavailable` (`app_failed`) after a failure."""
        self.check()
        return self._app

    @property
    def services(self) -> Services:
        """Raises like `app`."""
        return self.app.services

    def check(self) -> None:
        """Raises like `app`."""
        if not self._is_open:
            raise self.closed() from self._cause

    def close(self) -> None:
        """No call works from now on."""
        self._is_open = False
        for tell in tuple(self._on_close.values()):
            tell()

    def fail(self, cause: BaseException | None = None) -> None:
        """Like `close`, by an error of the system itself, which calls name once it is known."""
        self._has_failed, self._cause = True, cause or self._cause
        self.close()

    def end_waits(self) -> None:
        """Whoever waits for a run or a request learns that nothing comes any more."""
        self._app.services.waits.close()

    def on_close(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Calls `tell` when the system is closed; returns the function that ends this."""
        token = object()
        self._on_close[token] = tell

        def forget() -> None:
            self._on_close.pop(token, None)

        return forget

    async def ending(self, waiting: Awaitable[R]) -> R:
        """What is waited for. If the system fails meanwhile, raises like `app`."""
        try:
            return await waiting
        except Unavailable as error:
            if self._has_failed:
                raise self.closed() from (self._cause or error)
            raise

    def closed(self) -> AntiphonError:
        """Why no call works any more."""
        if not self._has_failed:
            return Conflict(
                "Antiphon is closed: its `async with antiphon.open(…)` block has ended. Make this call inside the "
                "block.",
                code="closed",
            )
        said = "" if self._cause is None else f" ({type(self._cause).__name__}: {self._cause})"
        return Unavailable(
            f"Antiphon was closed by an error of its own{said}. Leave the block of `antiphon.open`, and open it again.",
            code="app_failed",
        )


def duration(timeout: float | timedelta) -> timedelta:
    """The time; numbers are seconds. Raises `Invalid`."""
    try:
        found = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    except (OverflowError, TypeError, ValueError) as error:
        raise _not_a_time(timeout) from error
    if found < timedelta():
        raise _not_a_time(timeout)
    return found


def _not_a_time(timeout: object) -> Invalid:
    return Invalid(
        f"Timeout is not a time: {timeout!r}. Give seconds from 0 on, or a timedelta.", code="invalid_request"
    )
