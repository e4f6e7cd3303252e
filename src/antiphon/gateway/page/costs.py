"""The view of costs: by day, agent, person and model, with the caps of the present day."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated

from markupsafe import Markup
from msgspec import Meta, Struct

from antiphon.domain.costs import Sums
from antiphon.domain.keys import parse_agent_id
from antiphon.domain.text import plain
from antiphon.engine.views.costs import CapLine, CostReport, NamedSums
from antiphon.gateway.operations.costs import MAX_DAYS
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import dollars, render
from antiphon.gateway.page.titles import titles_of
from antiphon.policy.acts import Act

PERIODS = (7, 30, 90)
CHART_HEIGHT = 100
_CAPS = {"limits.daily_total": "All agents together"}
"""The names of caps that are not of one agent, by setting. Other such caps are the reader's own."""


class ShowCosts(Params, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = 30
    agent: str | None = None


class Bar(Struct, frozen=True, kw_only=True):
    """A day in the chart."""

    day: date
    height: float
    """Of `CHART_HEIGHT`."""
    words: str


class CostRow(Struct, frozen=True, kw_only=True):
    name: str
    agent: str | None
    """The id of the agent to which the row leads."""
    spent: Sums


class CapMeter(Struct, frozen=True, kw_only=True):
    """How much of a cap is used today."""

    name: str
    words: str
    part: float
    """Of 1; more if the last step went beyond the cap."""
    is_reached: bool
    setting: str


class Chart(Struct, frozen=True, kw_only=True):
    bars: Sequence[Bar]
    unit: str
    cap: float | None
    """The height of the cap's line; None if it is above the chart, or if there is none."""
    cap_words: str


@page_view("costs", "Costs", act=Act.LIST_RUNS)
async def show_costs(request: OperationRequest, params: ShowCosts) -> Markup:
    """What runs used, as far as the reader sees them."""
    agent_id = None if params.agent is None else parse_agent_id(params.agent)
    report = await request.services.costs.read(request.principal, days=params.days, agent_id=agent_id)
    titles = titles_of(request.gateway)
    values = {
        "report": report,
        "days": params.days,
        "periods": PERIODS,
        "agent": agent_id,
        "agent_name": None if agent_id is None else titles.agent(agent_id),
        "chart": _chart(report),
        "meters": [_meter(line, titles.agent(line.agent_id) if line.agent_id else None) for line in report.caps],
        "tables": [
            ("Agents", "Agent", [_row(each, each.id) for each in report.agents]),
            ("People", "Person", [*map(_row, report.people), *_others("All others", report.other_people)]),
            ("Models", "Model", [*map(_row, report.models), *_others("All others", report.other_models)]),
        ],
    }
    return render("costs.html", values)


def spent_words(spent: Sums) -> str:
    """Money, and the tokens of models without a price."""
    about = "about " if spent.estimated_tokens else ""
    if spent.cost_microusd is None:
        return f"{about}{spent.total_tokens:,} tokens"
    unpriced = f" and {spent.unpriced_tokens:,} tokens without a price" if spent.unpriced_tokens else ""
    return f"{about}{dollars(spent.cost_microusd)}{unpriced}"


def _row(each: NamedSums, agent: str | None = None) -> CostRow:
    return CostRow(name=plain(each.name), agent=agent, spent=each.spent)


def _others(name: str, spent: Sums) -> list[CostRow]:
    return [CostRow(name=name, agent=None, spent=spent)] if spent.runs else []


def _chart(report: CostReport) -> Chart:
    """Money by day where any price is known, else tokens; with the line of the first cap."""
    has_prices = report.total.cost_microusd is not None
    sizes = [(each.spent.cost_microusd or 0) if has_prices else each.spent.total_tokens for each in report.days]
    top = max(*sizes, 1)
    limits = report.caps[0].cap.limits if report.caps else None
    limit = None if limits is None else limits.usd and limits.usd * 1_000_000 if has_prices else limits.tokens
    bars = [
        Bar(day=each.day, height=CHART_HEIGHT * size / top, words=f"{each.day:%-d %B}: {spent_words(each.spent)}")
        for each, size in zip(report.days, sizes, strict=True)
    ]
    is_within = limit is not None and limit <= top
    shown = "" if limit is None else f"Daily cap: {dollars(int(limit)) if has_prices else f'{int(limit):,} tokens'}"
    return Chart(
        bars=bars,
        unit=dollars(top) if has_prices else f"{top:,} tokens",
        cap=CHART_HEIGHT * limit / top if limit is not None and is_within else None,
        cap_words=shown if is_within or not shown else f"{shown}, above the chart",
    )


def _meter(line: CapLine, agent: str | None) -> CapMeter:
    limits, spent = line.cap.limits, line.spent
    parts: list[tuple[float, str]] = []
    if limits.usd is not None:
        used = spent.microusd / 1_000_000
        parts.append((_part(used, limits.usd), f"{dollars(spent.microusd)} of ${limits.usd:,.2f}"))
    if limits.tokens is not None:
        parts.append((_part(spent.tokens, limits.tokens), f"{spent.tokens:,} of {limits.tokens:,} tokens"))
    return CapMeter(
        name=plain(agent) if agent is not None else _CAPS.get(line.cap.setting, "You"),
        words=", ".join(words for _, words in parts) or "No limit is set.",
        part=max((part for part, _ in parts), default=0.0),
        is_reached=line.is_reached,
        setting=line.cap.setting,
    )


def _part(used: float, limit: float) -> float:
    return used / limit if limit else 1.0
