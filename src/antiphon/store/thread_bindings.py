"""Threads that are bound to sub-agents. Contract: spawn 4."""

from msgspec import Struct

from antiphon.domain.ids import SessionRow
from antiphon.domain.session import DeliveryContext
from antiphon.domain.thread_bindings import BindingLimits
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Query, Transaction
from antiphon.store.routes import RouteName
from antiphon.store.spawns import DUE

_NAMED = "channel = ? AND account = ? AND peer = ? AND thread = ?"
_COLUMNS = "channel, account, peer, thread, child, chat, bound_by, bound_at, used_at, idle_ms, max_age_ms, ends_at"


class ThreadBinding(Struct, frozen=True, kw_only=True):
    """A thread whose messages go to a sub-agent, and which has its answers."""

    name: RouteName
    """The thread, as routes call it."""
    child: SessionRow
    chat: str
    """The platform's present id of the chat."""
    bound_by: str
    """The principal with whose rights the sub-agent was spawned."""
    bound_ms: int
    used_ms: int
    """When somebody wrote in it last."""
    limits: BindingLimits
    ends_ms: int | None = None
    """When it ends, unless somebody writes in it before; in milliseconds since 1970."""

    @property
    def place(self) -> DeliveryContext:
        return DeliveryContext(
            channel=self.name.channel, to=self.chat, account_id=self.name.account, thread_id=self.name.thread
        )


async def insert(tx: Transaction, binding: ThreadBinding) -> bool:
    """False if the thread is bound already."""
    limits = binding.limits
    changed = await tx.change(
        f"INSERT INTO thread_bindings ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            *binding.name,
            binding.child,
            binding.chat,
            binding.bound_by,
            binding.bound_ms,
            binding.used_ms,
            limits.idle_ms,
            limits.max_age_ms,
            binding.ends_ms,
        ),
    )
    tx.wake(DUE)
    return changed == 1


async def find(query: Query, name: RouteName) -> ThreadBinding | None:
    return _read(await query.fetch_one(f"SELECT {_COLUMNS} FROM thread_bindings WHERE {_NAMED}", name))


async def find_of_child(query: Query, child: SessionRow) -> ThreadBinding | None:
    return _read(await query.fetch_one(f"SELECT {_COLUMNS} FROM thread_bindings WHERE child = ?", (child,)))


async def set_times(tx: Transaction, binding: ThreadBinding) -> None:
    """Stores when the thread was used, its limits, and when it ends."""
    limits = binding.limits
    await tx.execute(
        f"UPDATE thread_bindings SET used_at = ?, idle_ms = ?, max_age_ms = ?, ends_at = ? WHERE {_NAMED}",
        (binding.used_ms, limits.idle_ms, limits.max_age_ms, binding.ends_ms, *binding.name),
    )
    tx.wake(DUE)


async def delete(tx: Transaction, binding: ThreadBinding) -> bool:
    """False if it is not bound to that sub-agent any more."""
    statement = f"DELETE FROM thread_bindings WHERE {_NAMED} AND child = ?"
    return await tx.change(statement, (*binding.name, binding.child)) == 1


async def move(tx: Transaction, name: AccountName, chat: str, moved_to: str) -> None:
    """A group has a new id on its platform."""
    await tx.execute(
        "UPDATE thread_bindings SET chat = ? WHERE channel = ? AND account = ? AND chat = ?",
        (moved_to, *name, chat),
    )


async def list_due(query: Query, now_ms: int, limit: int) -> list[ThreadBinding]:
    """Those whose time is over, the longest first."""
    found = await query.fetch_all(
        f"SELECT {_COLUMNS} FROM thread_bindings WHERE ends_at <= ? ORDER BY ends_at LIMIT ?", (now_ms, limit)
    )
    return [binding for row in found if (binding := _read(row)) is not None]


async def next_due(query: Query) -> int | None:
    row = await query.fetch_one("SELECT min(ends_at) FROM thread_bindings WHERE ends_at IS NOT NULL")
    return None if row is None else row[0]


def _read(row: tuple[object, ...] | None) -> ThreadBinding | None:
    if row is None:
        return None
    channel, account, peer, thread, child, chat, bound_by, bound_ms, used_ms, idle_ms, max_age_ms, ends_ms = row
    return ThreadBinding(
        name=RouteName(str(channel), str(account), str(peer), str(thread)),
        child=SessionRow(_number(child)),
        chat=str(chat),
        bound_by=str(bound_by),
        bound_ms=_number(bound_ms),
        used_ms=_number(used_ms),
        limits=BindingLimits(_maybe(idle_ms), _maybe(max_age_ms)),
        ends_ms=_maybe(ends_ms),
    )


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _maybe(value: object) -> int | None:
    return None if value is None else _number(value)
