"""Metrics as text, in the format 0.0.4 of Prometheus. Contract: gateway 4."""

from collections.abc import Iterable

from antiphon.metrics import Metric, Sample
from antiphon.wire.encoding import Shape

MEDIA_TYPE = "text/plain; version=0.0.4"


class MetricsShape(Shape, frozen=True, kw_only=True):
    text: str
    """Metrics in the text format of Prometheus; over HTTP the text alone."""


def metrics_text(metrics: Iterable[Metric]) -> str:
    """Each metric with its help, its kind and a line for each number. Names and labels are our own constants."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples:
        yield f"{metric.name}{sample.suffix}{_labels(sample)} {_number(sample.value)}"


def _labels(sample: Sample) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in sample.labels) + "}" if sample.labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
