"""How long a thread is bound to a session: what is due, and when. Contract: spawn 4."""

from datetime import timedelta

from msgspec import Struct

from antiphon.domain.durations import duration_text

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


def said_at_end(limits: BindingLimits, used_ms: int, now_ms: int) -> str:
    """What people read in a thread that is not the sub-agent's any more."""
    is_idle = limits.idle_ms is not None and used_ms + limits.idle_ms <= now_ms
    length = limits.idle_ms if is_idle else limits.max_age_ms
    shown = _shown(length or 0)
    why = f"nobody wrote here for {shown}" if is_idle else f"{shown} have passed since it began"
    return _over(why)


def said_of_deleted() -> str:
    """What people read in the thread of a sub-agent that was deleted."""
    return _over("it was deleted")


def _over(why: str) -> str:
    return f"The sub-agent does not answer here any more: {why}. What you write here goes to this chat's agent again."


def said_of_limits(limits: BindingLimits) -> str:
    """When the sub-agent stops answering in the thread, as people read it."""
    ends = [
        f"{_shown(limit)} {what}"
        for limit, what in ((limits.idle_ms, "without a message"), (limits.max_age_ms, "from its beginning"))
        if limit is not None
    ]
    if not ends:
        return "The sub-agent answers in this thread for as long as the thread exists."
    return f"The sub-agent answers in this thread until {', or '.join(ends)}."


def _shown(milliseconds: int) -> str:
    text = duration_text(timedelta(milliseconds=milliseconds))
    return text if text[:1].isdigit() else f"1 {text}"
