"""What agents, persons and models cost. Contract: runs 6."""

from collections.abc import Sequence

from antiphon.domain.costs import Sums
from antiphon.engine.views.costs import CapLine, CostReport, NamedSums
from antiphon.wire.encoding import Shape, dollars


class SumsShape(Shape, frozen=True, kw_only=True):
    runs: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """The part of `inputTokens` that providers read from their caches."""
    cost_usd: float | None = None
    """The sum of known costs; missing if none is known."""
    unpriced_tokens: int = 0
    """The tokens of runs whose cost is not known."""
    estimated: bool | None = None
    """Whether tokens of it are estimated, because a provider counted none."""


class DailySumsShape(Shape, frozen=True, kw_only=True):
    day: str
    """A UTC day, `yyyy-mm-dd`. An ended run counts on the day of its end, another on the present day."""
    spent: SumsShape


class NamedSumsShape(Shape, frozen=True, kw_only=True):
    id: str
    """An agent's id, a principal, or a model's name; empty for runs whose model is not known."""
    name: str
    spent: SumsShape


class CapShape(Shape, frozen=True, kw_only=True):
    """A cap of the present UTC day."""

    name: str
    setting: str
    agent_id: str | None = None
    tokens: int | None = None
    """The limit; missing for none."""
    usd: float | None = None
    spent_tokens: int
    spent_usd: float
    reached: bool


class CostsShape(Shape, frozen=True, kw_only=True):
    """Costs by day, agent, person and model; agents, people and models begin with the dearest."""

    first_day: str
    last_day: str
    total: SumsShape
    checkpoints: SumsShape
    """The part of `total` that checkpoints used, beside turns."""
    days: Sequence[DailySumsShape]
    agents: Sequence[NamedSumsShape]
    people: Sequence[NamedSumsShape]
    models: Sequence[NamedSumsShape]
    other_people: SumsShape | None = None
    """Those that the list leaves out."""
    other_models: SumsShape | None = None
    caps: Sequence[CapShape]


def sums(spent: Sums) -> SumsShape:
    return SumsShape(
        runs=spent.runs,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cached_tokens=spent.cached_tokens,
        cost_usd=dollars(spent.cost_microusd),
        unpriced_tokens=spent.unpriced_tokens,
        estimated=spent.estimated_tokens > 0 or None,
    )


def costs(report: CostReport) -> CostsShape:
    return CostsShape(
        first_day=report.first.isoformat(),
        last_day=report.last.isoformat(),
        total=sums(report.total),
        checkpoints=sums(report.checkpoints),
        days=[DailySumsShape(day=each.day.isoformat(), spent=sums(each.spent)) for each in report.days],
        agents=[_named(each) for each in report.agents],
        people=[_named(each) for each in report.people],
        models=[_named(each) for each in report.models],
        other_people=_others(report.other_people),
        other_models=_others(report.other_models),
        caps=[_cap(line) for line in report.caps],
    )


def _named(each: NamedSums) -> NamedSumsShape:
    return NamedSumsShape(id=each.id, name=each.name, spent=sums(each.spent))


def _others(spent: Sums) -> SumsShape | None:
    return sums(spent) if spent.runs else None


def _cap(line: CapLine) -> CapShape:
    limits = line.cap.limits
    return CapShape(
        name=line.cap.name,
        setting=line.cap.setting,
        agent_id=line.agent_id,
        tokens=limits.tokens,
        usd=limits.usd,
        spent_tokens=line.spent.tokens,
        spent_usd=line.spent.microusd / 1_000_000,
        reached=line.is_reached,
    )
