"""When a unit was submitted and what it draws: if it runs again, the same."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from antiphon.clock import Clock, RandomIds, SystemClock
from antiphon.domain.ids import Ids
from antiphon.request_ids import current_request_id
from antiphon.store.codec import moment

T = TypeVar("T", str, int)


class Moment:
    """Belongs to one unit or read, on whatever thread it runs.

    The n-th id of a kind is drawn when it is asked for first, and stays what it is in each further run of the unit.
    """

    __slots__ = ("_drawn", "_ids", "_numbers", "now_ms", "process", "request_id")

    def __init__(self, now_ms: int, ids: Ids, request_id: str | None, process: str) -> None:
        self.now_ms = now_ms
        self.process = process
        self.request_id = request_id
        """The request in which the unit was submitted."""
        self._ids = ids
        self._drawn: dict[tuple[str | int, int], str] = {}
        self._numbers: dict[str | int, int] = {}

    @property
    def now(self) -> datetime:
        return moment(self.now_ms)

    def begin(self) -> None:
        """The unit runs, perhaps again: what it draws begins anew."""
        if self._numbers:
            self._numbers.clear()

    def new_id(self, kind: str) -> str:
        return self._draw(kind, self._ids.new)

    def random_hex(self, digits: int) -> str:
        return self._draw(digits, self._ids.random_hex)

    def _draw(self, kind: T, draw: Callable[[T], str]) -> str:
        number = self._numbers.get(kind, 0)
        self._numbers[kind] = number + 1
        drawn = self._drawn.get((kind, number))
        if drawn is None:
            drawn = self._drawn[kind, number] = draw(kind)
        return drawn


class AtMoment:
    """The part of a query or transaction that is its unit's moment, the same on both databases."""

    __slots__ = ("moment",)

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        """Of the present unit."""

    @property
    def now_ms(self) -> int:
        return self.moment.now_ms

    @property
    def now(self) -> datetime:
        return self.moment.now

    @property
    def request_id(self) -> str | None:
        return self.moment.request_id

    @property
    def process(self) -> str:
        return self.moment.process

    def new_id(self, kind: str) -> str:
        return self.moment.new_id(kind)

    def random_hex(self, digits: int) -> str:
        return self.moment.random_hex(digits)


class Moments:
    """Draws the moments of units."""

    def __init__(self, clock: Clock | None = None, ids: Ids | None = None, *, process: str = "") -> None:
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds(self._clock)
        self._process = process

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def draw(self) -> Moment:
        return Moment(self._clock.now_ms(), self._ids, current_request_id(), self._process)
