"""Logs refused connections without letting strangers fill the log."""

import logging
import time

logger = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""Between two lines about one kind of refusal."""


class RefusedRequests:
    """Logs one line a minute for each kind of refusal, with the number since the last line."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, code: str) -> None:
        """Counts one refusal. `code` is one of our constants, never received text."""
        now = time.monotonic()
        count = self._untold.get(code, 0) + 1
        told_at = self._told_at.get(code)
        if told_at is not None and now - told_at < QUIET_SECONDS:
            self._untold[code] = count
            return
        self._told_at[code] = now
        self._untold[code] = 0
        logger.warning("Connections refused", extra={"action": "connection_refused", "code": code, "count": count})
