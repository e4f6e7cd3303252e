"""What this process counts and measures. Contract: gateway 4.

The numbers belong to the process and begin at zero with it. Counting costs about a tenth of a microsecond, and may be
done from any thread whose counts no other thread changes. No label holds a key, a text or a person.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from msgspec import Struct


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(Struct, frozen=True):
    """One number of a metric."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    """What is added to the metric's name; only for histograms."""


class Metric(Struct, frozen=True, kw_only=True):
    """A metric with its present numbers."""

    name: str
    kind: MetricKind
    help: str
    """One sentence."""
    samples: Sequence[Sample]


class PlainCount:
    """A number that only grows, or one that goes up and down."""

    __slots__ = ("_value", "help", "kind", "name")

    def __init__(self, name: str, help: str, kind: MetricKind = MetricKind.COUNTER) -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self._value: float = 0

    def add(self, amount: float = 1) -> None:
        self._value += amount

    def read(self) -> Metric:
        return Metric(name=self.name, kind=self.kind, help=self.help, samples=(Sample(self._value),))


class LabelledCount:
    """One number for each value of a label. All values are known in advance, so that their number is bounded."""

    __slots__ = ("_counts", "_label", "help", "kind", "name")

    def __init__(
        self, name: str, help: str, label: str, *, values: Sequence[str], kind: MetricKind = MetricKind.COUNTER
    ) -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self._label = label
        self._counts: dict[str, float] = dict.fromkeys(values, 0)

    def add(self, value: str, amount: float = 1) -> None:
        """Raises `KeyError` for a value that was not named in advance."""
        self._counts[value] += amount

    @contextmanager
    def during(self, value: str) -> Generator[None]:
        """Counts one more while the block runs."""
        self.add(value)
        try:
            yield
        finally:
            self.add(value, -1)

    def read(self) -> Metric:
        samples = [Sample(count, ((self._label, value),)) for value, count in self._counts.items()]
        return Metric(name=self.name, kind=self.kind, help=self.help, samples=samples)


class Histogram:
    """How often something took how long, in seconds."""

    __slots__ = ("_bounds", "_counts", "_sum", "help", "name")

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help = help
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def read(self) -> Metric:
        return Metric(name=self.name, kind=MetricKind.HISTOGRAM, help=self.help, samples=tuple(self._samples()))

    def _samples(self) -> Iterator[Sample]:
        total = 0
        for bound, count in zip((*map(_plain, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield Sample(total, (("le", bound),), "_bucket")
        yield Sample(self._sum, (), "_sum")
        yield Sample(total, (), "_count")


def _plain(bound: float) -> str:
    return f"{bound:g}"


SSE, WEBSOCKET = "sse", "websocket"
"""The transports of readers."""

HTTP_REQUESTS = LabelledCount(
    "antiphon_http_requests_total",
    "HTTP requests that were answered, by the class of their status.",
    "status",
    values=("1xx", "2xx", "3xx", "4xx", "5xx"),
)
READERS = LabelledCount(
    "antiphon_readers",
    "Readers that follow sessions at present.",
    "transport",
    values=(SSE, WEBSOCKET),
    kind=MetricKind.GAUGE,
)
READERS_CUT = PlainCount("antiphon_readers_cut_total", "Readers that were disconnected because they did not read.")
DELTAS_DROPPED = PlainCount(
    "antiphon_reader_dropped_characters_total",
    "Characters of replies being written that a slow reader did not get; the complete reply follows.",
)
RUNS_ENDED = LabelledCount(
    "antiphon_runs_ended_total",
    "Runs that ended in this process, by status.",
    "status",
    values=("ok", "error", "timeout", "cancelled"),
)
RUN_SECONDS = Histogram(
    "antiphon_run_duration_seconds",
    "How long runs took from their start to their end, waits included.",
    (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
)
STEP_SECONDS = Histogram(
    "antiphon_step_duration_seconds",
    "How long models took for one response, repeated attempts included.",
    (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320),
)
DELIVERIES_DEAD = PlainCount("antiphon_deliveries_dead_total", "Texts for channels that this process gave up.")
RUNS_SILENT = PlainCount(
    "antiphon_runs_silent_total",
    "Runs whose place got neither words nor a reason for silence; zero unless there is a bug.",
)
TRUSTED, UNTRUSTED = "trusted", "untrusted"
"""Where calls asked: whether their turn had read words that it does not trust."""
APPROVALS_ASKED = LabelledCount(
    "antiphon_approvals_asked_total",
    "Requests for approval that this process stored, by whether words of others were read before.",
    "context",
    values=(TRUSTED, UNTRUSTED),
)
APPROVALS_ANSWERED = LabelledCount(
    "antiphon_approvals_answered_total",
    "Requests for approval that people decided in this process, by whether words of others were read before.",
    "context",
    values=(TRUSTED, UNTRUSTED),
)
UNITS = PlainCount("antiphon_database_units_total", "Units of work that this process committed.")
COMMIT_SECONDS = Histogram(
    "antiphon_database_commit_seconds",
    "How long the database took for one COMMIT, which holds up to 64 units.",
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
OF_PROCESS = (
    HTTP_REQUESTS,
    READERS,
    READERS_CUT,
    DELTAS_DROPPED,
    RUNS_ENDED,
    RUN_SECONDS,
    STEP_SECONDS,
    DELIVERIES_DEAD,
    RUNS_SILENT,
    APPROVALS_ASKED,
    APPROVALS_ANSWERED,
    UNITS,
    COMMIT_SECONDS,
)
"""All that is counted as it happens."""


def read_process() -> list[Metric]:
    """What was counted and measured so far."""
    return [each.read() for each in OF_PROCESS]
