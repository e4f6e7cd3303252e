"""Whether the process is alive, and whether it can work."""

from antiphon.wire.encoding import Shape


class Alive(Shape, frozen=True, kw_only=True):
    ok: bool


class ReadyShape(Shape, frozen=True, kw_only=True):
    ok: bool
    workers: int
    configured_alike: bool
    note: str | None = None
