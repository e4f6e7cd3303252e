"""Figures of rounds that alternate between Antiphon and another store."""

from dataclasses import dataclass, field

from bench.measure import micros, p50


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    id: str
    what: str
    unit: str = "s"
    """`s`, `/s` or `×`."""

    @property
    def is_better_high(self) -> bool:
        return self.unit == "/s"

    def text(self, value: float) -> str:
        match self.unit:
            case "/s":
                return f"{value:,.0f}/s"
            case "×":
                return f"{value:.2f}"
            case _:
                return micros(value)


MEASURES = (
    Measure(id="B1", what="one durable append at 10,000 messages, p50"),
    Measure(id="B1 at 100", what="the same at 100 messages"),
    Measure(id="B2", what="growth: p50(10,000) ÷ p50(100)", unit="×"),
    Measure(id="B3", what="32 tasks, 32 sessions, appends a second", unit="/s"),
    Measure(id="B3 p99", what="the same, p99 of one append"),
    Measure(id="B4", what="list the 50 newest of 10,000 sessions, p50"),
    Measure(id="B4 at 1,000", what="the same of 1,000 sessions"),
    Measure(id="B4 growth", what="p50(10,000) ÷ p50(1,000)", unit="×"),
    Measure(id="B5", what="the last 50 of 10,000 messages, decoded, p50"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    value: float
    """The median of the rounds."""
    ratio: float
    """The median of theirs ÷ ours, each of one pair of rounds."""


@dataclass(slots=True)
class Comparison:
    """Pairs of rounds, ours and theirs, by measure and by the other's name."""

    pairs: dict[str, dict[str, list[tuple[float, float]]]] = field(
        default_factory=dict[str, dict[str, list[tuple[float, float]]]]
    )
    notes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """What to know about a figure, by measure and name."""

    def add(self, measure: str, name: str, *, ours: float, theirs: float) -> None:
        self.pairs.setdefault(measure, {}).setdefault(name, []).append((ours, theirs))

    def note(self, measure: str, name: str, text: str) -> None:
        self.notes.setdefault(measure, {})[name] = text

    def add_growth(self, measure: str, *, of: str, since: str) -> None:
        """The ratio of two measures, round by round."""
        for name, later in self.pairs[of].items():
            for (ours, theirs), (ours_before, theirs_before) in zip(later, self.pairs[since][name], strict=True):
                self.add(measure, name, ours=ours / ours_before, theirs=theirs / theirs_before)

    def ours(self, measure: str) -> float:
        return p50([ours for pairs in self.pairs[measure].values() for ours, _ in pairs])

    def figures(self, measure: str) -> dict[str, Figure]:
        return {
            name: Figure(
                value=p50([theirs for _, theirs in pairs]), ratio=p50([theirs / ours for ours, theirs in pairs])
            )
            for name, pairs in self.pairs[measure].items()
        }
