"""Rows of the report, and how samples become figures."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report."""

    id: str
    what: str
    measured: str
    reference: str
    target: str
    is_met: bool
    figures: dict[str, Any] = field(default_factory=dict[str, Any])


def p50(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def p99(samples: Sequence[float]) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))]


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
