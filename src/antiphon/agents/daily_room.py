"""How many tokens a response may have before a cap of the day is reached. Contract: runs 6."""

from msgspec import Struct

from antiphon.agents.asking import Room
from antiphon.domain.agent import Agent
from antiphon.engine.ledger.spending import SpentToday
from antiphon.engine.rules import Rules
from antiphon.policy.caps import Cap, without_reserve


class Capped(Struct, frozen=True):
    """A cap is reached: no model is asked."""

    code: str
    error: str
    """Names the limit, not the sum: sessions that the reader does not see share the budget. Contract: flow 13."""


def find_daily_room(today: SpentToday, agent: Agent, rules: Rules) -> Capped | Room:
    room, own, total = Room(), agent.daily, rules.daily_total
    if today.leaves_reserve:
        own, total = without_reserve(own), without_reserve(total)
    for spent, cap_of_it in (
        (today.own, Cap(limits=own, setting="limits.daily")),
        (today.total, Cap(limits=total, setting="limits.daily_total")),
        *today.by_person,
    ):
        cap, name = cap_of_it.limits, cap_of_it.name
        if cap.tokens is not None and spent.tokens >= cap.tokens:
            return _capped(cap_of_it, f"{cap.tokens} tokens")
        if cap.tokens is not None and cap.tokens - spent.tokens < room.tokens:
            reached = f"with it the {name}, {cap.tokens} tokens, is reached ({cap_of_it.setting})"
            room = Room(
                tokens=cap.tokens - spent.tokens, code=cap_of_it.code, error=f"The answer was stopped: {reached}."
            )
        if cap.usd is not None and spent.microusd >= cap.usd * 1_000_000:
            return _capped(cap_of_it, f"{cap.usd:.2f} USD")
    return room


def _capped(cap: Cap, limit: str) -> Capped:
    return Capped(
        cap.code,
        f"The {cap.name} is reached: {limit} a day (UTC). Messages are still stored. "
        f"Raise {cap.setting} in the configuration, or wait until tomorrow.",
    )
