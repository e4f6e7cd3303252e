"""Actions that units request for after their COMMIT."""

from dataclasses import dataclass, field

from antiphon.domain.ids import SessionRow


@dataclass(slots=True)
class Effects:
    """Hints, collected while units run; false if empty."""

    woken: set[SessionRow] = field(default_factory=set[SessionRow])
    dispatched: dict[SessionRow, None] = field(default_factory=dict[SessionRow, None])
    interrupted: set[SessionRow] = field(default_factory=set[SessionRow])

    def __bool__(self) -> bool:
        return bool(self.woken or self.dispatched or self.interrupted)

    def copy(self) -> "Effects":
        return Effects(set(self.woken), dict(self.dispatched), set(self.interrupted))
