"""Failures that last: logged once when they begin and once when they are over, and counted in between."""

import logging
import time

from antiphon.domain.errors import AntiphonError

QUIET_SECONDS = 60.0
"""A failure that comes and goes is logged again after this time."""


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


def code_of(error: BaseException) -> str:
    """What tells kinds of failure apart: the stable code, or the class."""
    return error.code if isinstance(error, AntiphonError) else type(error).__name__


def _text_of(error: BaseException) -> str:
    return error.message if isinstance(error, AntiphonError) else str(error)
