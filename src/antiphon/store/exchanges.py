"""Rows of exchanges. `domain/exchange` decides which state may follow which."""

from antiphon.domain.exchange import BLIND, Exchange, ExchangeState
from antiphon.domain.ids import RunId, SessionRow
from antiphon.store import codec
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.select_list import SelectList

_EXCHANGE = SelectList(
    Exchange,
    "id, origin, origin_run, requester, requester_incarnation, target, target_incarnation, principal, chain, hops, "
    "is_sandboxed, request, request_run, stage, turn, max_turns, max_chain_tokens, is_awaited, wait_until, "
    "is_withheld, first_reply, latest_reply, code, task",
    principal=codec.stored_principal,
    is_sandboxed=bool,
    stage=codec.member_of(ExchangeState),
    is_awaited=bool,
    wait_until=codec.moment,
    is_withheld=bool,
)
SEALED = SessionRow(-5)
"""Not a session's row; woken when a request was sealed."""

_SELECT = f"SELECT {_EXCHANGE.text} FROM exchanges"
_PLACES = ", ".join("?" * (len(_EXCHANGE.names) + 1))
_INSERT = f"INSERT INTO exchanges ({_EXCHANGE.text}, created_at) VALUES ({_PLACES})"
_CHANGING = ("origin_run", "stage", "turn", "is_awaited", "is_withheld", "first_reply", "latest_reply", "code")
_SET = ", ".join(f"{column} = ?" for column in _CHANGING)
_UPDATE = f"UPDATE exchanges SET {_SET}, ended_at = ? WHERE id = ?"


async def insert(tx: Transaction, exchange: Exchange, at_ms: int) -> None:
    values = _values(exchange)
    await tx.execute(_INSERT, (*(values[column] for column in _EXCHANGE.names), at_ms))


async def update(tx: Transaction, exchange: Exchange, at_ms: int) -> None:
    """Stores the state; an exchange never leaves its final state."""
    values = _values(exchange)
    ended_at = at_ms if exchange.stage is ExchangeState.DONE else None
    await tx.execute(_UPDATE, (*(values[column] for column in _CHANGING), ended_at, exchange.id))


async def find(query: Query, id: str) -> Exchange | None:
    row = await query.fetch_one(f"{_SELECT} WHERE id = ?", (id,))
    return None if row is None else _EXCHANGE.read(row)


async def find_by_origin(query: Query, origin: str) -> Exchange | None:
    row = await query.fetch_one(f"{_SELECT} WHERE origin = ?", (origin,))
    return None if row is None else _EXCHANGE.read(row)


async def list_answered(query: Query, origin_run: RunId) -> list[Exchange]:
    """Exchanges whose first reply is a tool result of the run, oldest first."""
    rows = await query.fetch_all(f"{_SELECT} WHERE origin_run = ? AND stage = 'answered' ORDER BY id", (origin_run,))
    return [_EXCHANGE.read(row) for row in rows]


async def list_unanswered(query: Query, target: SessionRow) -> list[Exchange]:
    """Exchanges whose request the target has not answered, oldest first."""
    rows = await query.fetch_all(f"{_SELECT} WHERE target = ? AND stage = 'request' ORDER BY id", (target,))
    return [_EXCHANGE.read(row) for row in rows]


async def list_sealed(query: Query, limit: int) -> list[Exchange]:
    """Requests that wait to be put into the logs of their targets."""
    rows = await query.fetch_all(f"{_SELECT} WHERE stage = 'sealed' ORDER BY id LIMIT ?", (limit,))
    return [_EXCHANGE.read(row) for row in rows]


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    """Deletes the exchanges of a deleted session, on either side; their pending actions do not happen.

    Sealed requests to it stay: who sent them does not learn that it is gone. Contract: flow 4.
    """
    await tx.execute(
        f"DELETE FROM exchanges WHERE requester = ? OR (target = ? AND COALESCE(code, '') <> '{BLIND}')",
        (session, session),
    )


def _values(exchange: Exchange) -> dict[str, SqlValue]:
    until = exchange.wait_until
    return {
        "id": exchange.id,
        "origin": exchange.origin,
        "origin_run": exchange.origin_run,
        "requester": exchange.requester,
        "requester_incarnation": exchange.requester_incarnation,
        "target": exchange.target,
        "target_incarnation": exchange.target_incarnation,
        "principal": str(exchange.principal),
        "chain": exchange.chain,
        "hops": exchange.hops,
        "is_sandboxed": int(exchange.is_sandboxed),
        "request": exchange.request,
        "request_run": exchange.request_run,
        "stage": exchange.stage.value,
        "turn": exchange.turn,
        "max_turns": exchange.max_turns,
        "max_chain_tokens": exchange.max_chain_tokens,
        "is_awaited": int(exchange.is_awaited),
        "wait_until": None if until is None else codec.milliseconds(until),
        "is_withheld": int(exchange.is_withheld),
        "first_reply": exchange.first_reply,
        "latest_reply": exchange.latest_reply,
        "code": exchange.code,
        "task": exchange.task,
    }
