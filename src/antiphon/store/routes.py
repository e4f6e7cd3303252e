"""Which agent and session a chat uses, if somebody chose them. Contract: channels 2."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import PLACES
from antiphon.store.select_list import SelectList


class RouteName(NamedTuple):
    channel: str
    account: str
    peer: str
    thread: str


class StoredRoute(Struct, frozen=True, kw_only=True):
    channel: str
    account: str
    peer: str
    """`direct:<platform id>` or `group:<group id>`."""
    thread: str
    """Empty for the chat itself."""
    agent_id: AgentId | None
    """None for the agent that the settings name."""
    session_key: str | None
    """None for the chat's own session."""
    version: int
    changed_by: str
    changed_at: datetime


_ROUTE = SelectList(
    StoredRoute,
    "channel, account, peer, thread, agent_id, session_key, version, changed_by, changed_at",
    changed_at=codec.moment,
)
_CHAT = "channel = ? AND account = ? AND peer = ?"


async def find(query: Query, name: RouteName) -> list[StoredRoute]:
    """The route of the thread and that of its chat, as far as they are stored; the thread's first."""
    found = await query.fetch_all(
        f"SELECT {_ROUTE.text} FROM routes WHERE {_CHAT} AND thread IN ('', ?) ORDER BY thread DESC",
        name,
    )
    return [_ROUTE.read(row) for row in found]


async def list_all(query: Query) -> list[StoredRoute]:
    found = await query.fetch_all(f"SELECT {_ROUTE.text} FROM routes ORDER BY channel, account, peer, thread")
    return [_ROUTE.read(row) for row in found]


async def put(tx: Transaction, route: StoredRoute, *, before: int) -> bool:
    """Stores the route; False if its version is not `before` any more. 0 means that there was none."""
    values = (
        route.agent_id,
        route.session_key,
        route.version,
        route.changed_by,
        codec.milliseconds(route.changed_at),
    )
    named = (route.channel, route.account, route.peer, route.thread)
    if before == 0:
        changed = await tx.change(
            "INSERT INTO routes (channel, account, peer, thread, agent_id, session_key, version, changed_by, "
            "changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*named, *values),
        )
    else:
        changed = await tx.change(
            "UPDATE routes SET agent_id = ?, session_key = ?, version = ?, changed_by = ?, changed_at = ? "
            f"WHERE {_CHAT} AND thread = ? AND version = ?",
            (*values, *named, before),
        )
    tx.wake(PLACES)
    return changed == 1
