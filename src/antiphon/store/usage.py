"""What persons used, in rows of `daily_usage` beside those of agents, under periods of their own."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from antiphon.store.database import Query, Transaction
from antiphon.store.runs import Spent

MINUTE_MS = 60_000
_MINUTE = "minute"
"""The period of the rows that count messages: `tokens` is their number, `microusd` the time of the first in ms."""


class Pace(NamedTuple):
    """How many messages came within a minute, this one counted, and when the first of them did."""

    messages: int
    since_ms: int


async def add_spent(tx: Transaction, day: str, spender: str, spent: Spent) -> None:
    await tx.execute(
        "INSERT INTO daily_usage (day, agent_id, tokens, microusd) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (day, agent_id) DO UPDATE SET tokens = daily_usage.tokens + excluded.tokens, "
        "microusd = daily_usage.microusd + excluded.microusd",
        (_of_people(day), spender, spent.tokens, spent.microusd),
    )


async def find_spent(query: Query, day: str, spenders: Collection[str]) -> Mapping[str, Spent]:
    """What each of them spent on the UTC day `yyyy-mm-dd`; absent for nothing."""
    if not spenders:
        return {}
    rows = await query.fetch_all(
        "SELECT agent_id, tokens, microusd FROM daily_usage "
        f"WHERE day = ? AND agent_id IN ({', '.join('?' * len(spenders))})",
        (_of_people(day), *spenders),
    )
    return {spender: Spent(tokens, microusd) for spender, tokens, microusd in rows}


async def move_spent(tx: Transaction, day: str, old: str, new: str) -> None:
    """Adds what `old` spent on the day to what `new` did."""
    for spent in (await find_spent(tx, day, [old])).values():
        await add_spent(tx, day, new, spent)


async def note_told(tx: Transaction, day: str, spender: str) -> bool:
    """Notes that the spender is told of a cap on that day; False if that was noted before."""
    noted = await tx.change(
        "INSERT INTO daily_usage (day, agent_id, tokens, microusd) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING",
        (f"{day} told", spender),
    )
    return noted == 1


async def count_message(tx: Transaction, sender: str, at_ms: int) -> Pace:
    """Counts a message; a minute begins with the first message after the one before has passed."""
    row = await tx.fetch_one(
        "INSERT INTO daily_usage (day, agent_id, tokens, microusd) VALUES (?, ?, 1, ?) "
        "ON CONFLICT (day, agent_id) DO UPDATE SET "
        f"tokens = CASE WHEN {_IS_SAME_MINUTE} THEN daily_usage.tokens + 1 ELSE 1 END, "
        f"microusd = CASE WHEN {_IS_SAME_MINUTE} THEN daily_usage.microusd ELSE excluded.microusd END "
        "RETURNING tokens, microusd",
        (_MINUTE, sender, at_ms),
    )
    assert row is not None
    return Pace(*row)


_IS_SAME_MINUTE = f"excluded.microusd - daily_usage.microusd BETWEEN 0 AND {MINUTE_MS - 1}"


def _of_people(day: str) -> str:
    return f"{day} people"
