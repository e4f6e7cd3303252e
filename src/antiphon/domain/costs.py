"""What runs used, summed by day, agent, person and model."""

from collections.abc import Callable, Hashable, Iterable
from datetime import date
from typing import TypeVar

from msgspec import Struct

from antiphon.domain.ids import AgentId


class UsedBy(Struct, frozen=True, kw_only=True):
    """What the runs of one UTC day, agent, principal and model used."""

    day: date
    agent_id: AgentId
    principal: str
    model: str | None
    """None for runs of versions that did not store it, and for runs that ended before their first step."""
    spent: "Sums"


class Sums(Struct, frozen=True, kw_only=True):
    """What some runs used."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that providers read from their caches."""
    cost_microusd: int | None = None
    """The sum of known costs; None if none is known."""
    unpriced_tokens: int = 0
    """The tokens of runs whose cost is not known."""
    estimated_tokens: int = 0
    """The part of the tokens that is estimated."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Sums") -> "Sums":
        costs = [each for each in (self.cost_microusd, other.cost_microusd) if each is not None]
        return Sums(
            runs=self.runs + other.runs,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_microusd=sum(costs) if costs else None,
            unpriced_tokens=self.unpriced_tokens + other.unpriced_tokens,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
        )


NO_SUMS = Sums()
K = TypeVar("K", bound=Hashable)


def summed(used: Iterable[UsedBy], key: Callable[[UsedBy], K]) -> dict[K, Sums]:
    """The sums for each value of the key."""
    found: dict[K, Sums] = {}
    for each in used:
        name = key(each)
        before = found.get(name)
        found[name] = each.spent if before is None else before + each.spent
    return found


def most_first(sums: dict[K, Sums]) -> list[tuple[K, Sums]]:
    """The dearest first; those without a known cost by their tokens."""
    return sorted(sums.items(), key=lambda each: (each[1].cost_microusd or 0, each[1].total_tokens), reverse=True)
