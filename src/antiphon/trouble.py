"""Failures that last: logged once when they begin and once when they are over, and counted in between."""

import logging
import time
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass

from antiphon.domain.errors import AntiphonError, Unavailable

QUIET_SECONDS = 60.0
"""A failure that comes and goes is logged again after this time."""
FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 300.0
"""An item that fails again and again is tried this seldom, so that it costs nothing."""
MAX_RESTING = 1_000
"""Items that are remembered; the one that failed longest ago is tried again if there are more."""


class Trouble:
    """The failures of one place that tries again and again, such as a sweep. May be used from any thread."""

    def __init__(self, logger: logging.Logger, name: str, *, action: str, means: str) -> None:
        """`means` is what the failure means to a person who reads the log, as a sentence."""
        self._logger = logger
        self._name = name
        self._action = action
        self._means = means
        self._since: float | None = None
        self._count = 0
        self._told: set[str] = set()
        """Kinds of failure that were logged since the trouble began."""
        self._told_at: dict[str, float] = {}

    def failed(self, error: BaseException, **facts: object) -> None:
        """Counts the failure, and logs it with the facts if it is the first of its kind."""
        kind, now = code_of(error), time.monotonic()
        self._count += 1
        if self._since is None:
            self._since = now
        if kind in self._told or now - self._told_at.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._told.add(kind)
        self._told_at[kind] = now
        is_ours = isinstance(error, AntiphonError | OSError)
        self._logger.warning(
            f"{self._name} failed",
            exc_info=None if is_ours else error,
            extra={"action": self._action, "code": kind, "error": _text_of(error), "means": self._means, **facts},
        )

    def worked(self) -> None:
        """Logs the end of the trouble, if there was any."""
        if self._since is None:
            return
        since, self._since = self._since, None
        count, self._count = self._count, 0
        told, self._told = self._told, set()
        if told:
            self._logger.warning(
                f"{self._name} works again",
                extra={
                    "action": f"{self._action}_over",
                    "failures": count,
                    "seconds": round(time.monotonic() - since, 1),
                },
            )


@dataclass(slots=True)
class _Rest:
    until: float
    seconds: float


class Setbacks:
    """Items of one loop that failed: each is logged with its ids and rests, longer each time, while others go on.

    What fails for all items alike, `Unavailable`, is not the item's: the loop gets it. A row that cannot be read is.
    """

    def __init__(self, logger: logging.Logger, name: str, *, action: str, means: str) -> None:
        """`means` is what the failure means to a person who reads the log, as a sentence."""
        self._logger = logger
        self._name = name
        self._action = action
        self._means = means
        self._rests: dict[Hashable, _Rest] = {}

    def __len__(self) -> int:
        """How many items failed and have not worked since: a list of what is due has to be longer by these."""
        return len(self._rests)

    def rests(self, item: Hashable) -> bool:
        """Whether the item failed so lately that it is to be passed over."""
        rest = self._rests.get(item)
        return rest is not None and time.monotonic() < rest.until

    @contextmanager
    def attempt(self, item: Hashable, **ids: object) -> Generator[None]:
        """Within it the item is tried; an error ends here. Raises `Unavailable` that concerns all items."""
        try:
            yield
        except Exception as error:
            if is_of_all(error):
                raise
            self.failed(item, error, **ids)
        else:
            self.worked(item, **ids)

    def failed(self, item: Hashable, error: Exception, **ids: object) -> None:
        """Notes that the item failed, and logs it if it is the first time."""
        earlier = self._rests.pop(item, None)
        seconds = FIRST_REST_SECONDS if earlier is None else min(2 * earlier.seconds, LONGEST_REST_SECONDS)
        self._rests[item] = _Rest(time.monotonic() + seconds, seconds)
        while len(self._rests) > MAX_RESTING:
            del self._rests[next(iter(self._rests))]
        if earlier is None:
            facts = {"code": code_of(error), "error": _text_of(error), "means": self._means, **ids}
            is_ours = isinstance(error, AntiphonError | OSError)
            self._logger.error(
                f"{self._name} failed", exc_info=None if is_ours else error, extra={"action": self._action, **facts}
            )

    def worked(self, item: Hashable, **ids: object) -> None:
        """Forgets that the item failed, and logs that it works again."""
        if self._rests.pop(item, None) is not None:
            self._logger.warning(f"{self._name} works again", extra={"action": f"{self._action}_over", **ids})


def is_of_all(error: Exception) -> bool:
    """Whether the store fails for everybody, and not only for the row at hand."""
    return isinstance(error, Unavailable) and error.code != "store_corrupt"


def code_of(error: BaseException) -> str:
    """What tells kinds of failure apart: the stable code, or the class."""
    return error.code if isinstance(error, AntiphonError) else type(error).__name__


def _text_of(error: BaseException) -> str:
    return error.message if isinstance(error, AntiphonError) else str(error)
