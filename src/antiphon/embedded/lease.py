"""What all handles of an open system share, and how they learn that it was closed."""

from datetime import timedelta

from antiphon.building import App
from antiphon.domain.errors import Conflict, Invalid
from antiphon.engine.services import Services

DEFAULT_WAIT = timedelta(minutes=10)


class Lease:
    """An open system; every call of a handle goes through it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._is_open = True

    @property
    def app(self) -> App:
        """Raises `Conflict` (`closed`) after `close`."""
        if not self._is_open:
            raise closed()
        return self._app

    @property
    def services(self) -> Services:
        """Raises `Conflict` (`closed`) after `close`."""
        return self.app.services

    def close(self) -> None:
        self._is_open = False


def closed() -> Conflict:
    return Conflict(
        "Antiphon is closed: its `async with antiphon.open(…)` block has ended. Make this call inside the block.",
        code="closed",
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
