"""What an adapter remembers of its platform while its process lives, such as names: never more than is useful."""

from collections import OrderedDict
from typing import Generic, TypeVar

from antiphon.clock import Clock

MOST = 2_000
"""Things of one kind; the oldest are forgotten."""

Known = TypeVar("Known")


class Remembered(Generic[Known]):
    """Things by their ids on the platform. Nothing may depend on them: they are gone after a restart."""

    def __init__(self, clock: Clock | None = None, *, seconds: float = 0.0) -> None:
        """With a clock, each is forgotten after so many seconds."""
        self._clock = clock
        self._seconds = seconds
        self._found: OrderedDict[str, tuple[float, Known]] = OrderedDict()

    def get(self, id: str) -> Known | None:
        at, known = self._found.get(id, (0.0, None))
        return known if self._now() - at <= self._seconds else None

    def put(self, id: str, known: Known) -> Known:
        self._found.pop(id, None)
        self._found[id] = self._now(), known
        while len(self._found) > MOST:
            self._found.popitem(last=False)
        return known

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock.monotonic()
