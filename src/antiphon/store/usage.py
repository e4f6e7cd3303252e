"""What agents and persons used: tokens and money in a UTC day; and messages of persons in a minute."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.ids import AgentId, SessionRow
from antiphon.store.database import Query, Transaction

MINUTE_MS = 60_000
PARTS = 64
"""In how many rows what an agent uses in a day is added up: a step locks one of them until it is stored."""


class Spent(Struct, frozen=True):
    """What somebody used in a day."""

    tokens: int = 0
    microusd: int = 0


class Pace(NamedTuple):
    """How many messages came within a minute, this one counted, and when the first of them did."""

    messages: int
    since_ms: int


def sum_spent(spent: Iterable[Spent]) -> Spent:
    tokens = microusd = 0
    for each in spent:
        tokens, microusd = tokens + each.tokens, microusd + each.microusd
    return Spent(tokens, microusd)


class AgentDay(NamedTuple):
    """A day of an agent, and the session in which it worked."""

    day: str
    agent_id: AgentId
    session: SessionRow


async def add_agent_spent(tx: Transaction, when: AgentDay, spent: Spent) -> None:
    """Adds to what the agent used on the UTC day, in the part of the session."""
    await tx.execute(
        "INSERT INTO daily_usage (day, agent_id, part, tokens, microusd) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (day, agent_id, part) DO UPDATE SET tokens = daily_usage.tokens + excluded.tokens, "
        "microusd = daily_usage.microusd + excluded.microusd",
        (when.day, when.agent_id, when.session % PARTS, spent.tokens, spent.microusd),
    )


async def find_agents_spent(query: Query, day: str) -> dict[AgentId, Spent]:
    """Each agent's usage on the UTC day `yyyy-mm-dd`, if it has any."""
    rows = await query.fetch_all(
        "SELECT agent_id, CAST(SUM(tokens) AS BIGINT), CAST(SUM(microusd) AS BIGINT) FROM daily_usage WHERE day = ? "
        "GROUP BY agent_id",
        (day,),
    )
    return {AgentId(agent_id): Spent(tokens, microusd) for agent_id, tokens, microusd in rows}


async def add_spent(tx: Transaction, day: str, spender: str, spent: Spent) -> None:
    await tx.execute(
        "INSERT INTO people_usage (day, spender, tokens, microusd) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (day, spender) DO UPDATE SET tokens = people_usage.tokens + excluded.tokens, "
        "microusd = people_usage.microusd + excluded.microusd",
        (day, spender, spent.tokens, spent.microusd),
    )


async def find_spent(query: Query, day: str, spenders: Collection[str]) -> Mapping[str, Spent]:
    """What each of them spent on the UTC day `yyyy-mm-dd`; absent for nothing."""
    if not spenders:
        return {}
    rows = await query.fetch_all(
        "SELECT spender, tokens, microusd FROM people_usage "
        f"WHERE day = ? AND spender IN ({', '.join('?' * len(spenders))})",
        (day, *spenders),
    )
    return {spender: Spent(tokens, microusd) for spender, tokens, microusd in rows}


async def list_spent(query: Query, day: str, *, tokens: int, microusd: int, limit: int) -> Mapping[str, Spent]:
    """Those who spent at least that much of either on the UTC day, who spent most first."""
    rows = await query.fetch_all(
        "SELECT spender, tokens, microusd FROM people_usage WHERE day = ? AND (tokens >= ? OR microusd >= ?) "
        "ORDER BY microusd DESC, tokens DESC, spender LIMIT ?",
        (day, tokens, microusd, limit),
    )
    return {spender: Spent(tokens, microusd) for spender, tokens, microusd in rows}


async def move_spent(tx: Transaction, day: str, old: str, new: str) -> None:
    """Adds what `old` spent on the day to what `new` did."""
    for spent in (await find_spent(tx, day, [old])).values():
        await add_spent(tx, day, new, spent)


async def return_spent(tx: Transaction, day: str, old: str, new: str) -> None:
    """Takes what `old` spent on the day from what `new` did."""
    for spent in (await find_spent(tx, day, [old])).values():
        await add_spent(tx, day, new, Spent(-spent.tokens, -spent.microusd))


async def note_told(tx: Transaction, day: str, spender: str) -> bool:
    """Notes that the spender is told of a cap on that day; False if that was noted before."""
    noted = await tx.change(
        "INSERT INTO people_usage (day, spender, is_told) VALUES (?, ?, 1) "
        "ON CONFLICT (day, spender) DO UPDATE SET is_told = 1 WHERE people_usage.is_told = 0",
        (day, spender),
    )
    return noted == 1


async def count_message(tx: Transaction, sender: str, at_ms: int) -> Pace:
    """Counts a message of that time; a minute begins with the first message after the one before has passed."""
    row = await tx.fetch_one(
        "INSERT INTO message_paces (sender, messages, since) VALUES (?, 1, ?) "
        "ON CONFLICT (sender) DO UPDATE SET "
        f"messages = CASE WHEN {_IS_SAME_MINUTE} THEN message_paces.messages + 1 ELSE 1 END, "
        f"since = CASE WHEN {_IS_SAME_MINUTE} THEN message_paces.since ELSE excluded.since END "
        "RETURNING messages, since",
        (sender, at_ms),
    )
    assert row is not None
    return Pace(*row)


_IS_SAME_MINUTE = f"excluded.since - message_paces.since BETWEEN {1 - MINUTE_MS} AND {MINUTE_MS - 1}"
"""Also of one that is a little older than the first: what people send to several chats does not come in its order."""
