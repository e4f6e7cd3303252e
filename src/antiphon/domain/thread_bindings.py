"""How long a thread is bound to a session: what is due, and when. Contract: spawn 4."""

from msgspec import Struct

HOUR_MS = 3_600_000


class BindingLimits(Struct, frozen=True):
    """After how many milliseconds a binding ends; None for never."""

    idle_ms: int | None
    """Without a message in the thread."""
    max_age_ms: int | None
    """From its beginning."""

    @staticmethod
    def of_hours(idle: float, max_age: float) -> "BindingLimits":
        """0 stands for never."""
        return BindingLimits(_or_never(idle), _or_never(max_age))

    def ends_at(self, *, bound_ms: int, used_ms: int) -> int | None:
        """When the binding ends, if nothing more is written in the thread; in milliseconds since 1970."""
        ends = [
            start + limit
            for start, limit in ((used_ms, self.idle_ms), (bound_ms, self.max_age_ms))
            if limit is not None
        ]
        return min(ends, default=None)


def _or_never(hours: float) -> int | None:
    return round(hours * HOUR_MS) or None
