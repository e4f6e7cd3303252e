"""Whether the process is alive, and whether it can work."""

from antiphon.wire.encoding import Shape


class Alive(Shape, frozen=True, kw_only=True):
    ok: bool


class StallsShape(Shape, frozen=True, kw_only=True):
    """How late the event loop's timer was in the last hour."""

    p999_ms: float
    longest_ms: float


class ReadyShape(Shape, frozen=True, kw_only=True):
    ok: bool
    workers: int
    configured_alike: bool
    stalls: StallsShape
    note: str | None = None
