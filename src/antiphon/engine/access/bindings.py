"""Threads that are bound to sub-agents: what is written there goes to the sub-agent, whose answers come there.

A binding is a route with the person whose rights the spawn had. Contract: spawn 4, channels 2.
"""

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.domain.thread_bindings import BindingLimits
from antiphon.engine.access.places import ChatAddress, name_of_route, rules_of
from antiphon.engine.access.recipients import account_of
from antiphon.engine.rules import Rules
from antiphon.store import routes, thread_bindings
from antiphon.store import sessions as rows
from antiphon.store.codec import moment, place_columns
from antiphon.store.database import Query, Transaction
from antiphon.store.routes import StoredRoute
from antiphon.store.thread_bindings import ThreadBinding

MOST_TRIES = 5
BUSY_MS = 300_000
"""How much longer a thread stays bound whose sub-agent works when its time is over."""


def limits_at(rules: Rules, place: DeliveryContext) -> BindingLimits | None:
    """How long threads of the account stay bound; None if sub-agents get none there."""
    if place.channel is None or (place.channel, account_of(place)) not in rules.chats.channels:
        return None
    return rules_of(rules, place.channel, account_of(place)).threads


def channels_with_threads(rules: Rules) -> list[str]:
    """The connected channels in which sub-agents may get threads, by name."""
    return sorted({channel for (channel, _), each in rules.chats.channels.items() if each.threads is not None})


async def bind(
    tx: Transaction,
    address: ChatAddress,
    place: DeliveryContext,
    child: SessionRow,
    *,
    key: SessionKey,
    by: Principal,
    limits: BindingLimits,
) -> bool:
    """Leads the thread to the child from now on; False if it is bound to another one."""
    assert place.to is not None
    binding = ThreadBinding(
        name=name_of_route(address),
        child=child,
        chat=place.to,
        bound_by=str(by),
        bound_ms=tx.now_ms,
        used_ms=tx.now_ms,
        limits=limits,
        ends_ms=limits.ends_at(bound_ms=tx.now_ms, used_ms=tx.now_ms),
    )
    if not await thread_bindings.insert(tx, binding):
        return False
    await _put_route(tx, binding, key, by=str(by))
    return True


async def unbind(tx: Transaction, binding: ThreadBinding) -> bool:
    """Leads the thread to its chat's agent again; False if it leads elsewhere by now.

    The child stays, without a place of its own.
    """
    tx.hold(binding.child)
    if not await thread_bindings.delete(tx, binding):
        return False
    await _put_route(tx, binding, None, by=binding.bound_by)
    await rows.update(tx, binding.child, place_columns(NOWHERE))
    return True


async def forget(tx: Transaction, address: ChatAddress) -> None:
    """Ends the binding of a thread that somebody leads elsewhere, in the same unit."""
    binding = await thread_bindings.find(tx, name_of_route(address))
    if binding is None:
        return
    tx.hold(binding.child)
    if await thread_bindings.delete(tx, binding):
        await rows.update(tx, binding.child, place_columns(NOWHERE))


async def release_thread(tx: Transaction, child: SessionRow, lost: str | None = None) -> ThreadBinding | None:
    """Ends the binding of a child that is deleted, or whose thread is the one that is lost, and returns it."""
    binding = await thread_bindings.find_of_child(tx, child)
    if binding is None or lost not in (None, binding.name.thread) or not await unbind(tx, binding):
        return None
    return binding


async def find_binding(query: Query, address: ChatAddress) -> ThreadBinding | None:
    return await thread_bindings.find(query, name_of_route(address))


async def note_use(tx: Transaction, address: ChatAddress) -> None:
    """Somebody wrote in the thread, which may be bound."""
    binding = await thread_bindings.find(tx, name_of_route(address))
    if binding is not None:
        await thread_bindings.set_times(tx, _timed(replace(binding, used_ms=tx.now_ms)))


async def set_limits(tx: Transaction, binding: ThreadBinding, limits: BindingLimits) -> None:
    await thread_bindings.set_times(tx, _timed(replace(binding, limits=limits)))


async def put_off(tx: Transaction, binding: ThreadBinding) -> None:
    """Keeps a thread bound for some minutes more, because its sub-agent works."""
    await thread_bindings.set_times(tx, replace(binding, ends_ms=tx.now_ms + BUSY_MS))


def _timed(binding: ThreadBinding) -> ThreadBinding:
    ends_ms = binding.limits.ends_at(bound_ms=binding.bound_ms, used_ms=binding.used_ms)
    return replace(binding, ends_ms=ends_ms)


async def _put_route(tx: Transaction, binding: ThreadBinding, key: SessionKey | None, *, by: str) -> None:
    """Stores where the thread leads, whoever led it elsewhere while this unit waited for them."""
    for _ in range(MOST_TRIES):
        if await _try_route(tx, binding, key, by=by):
            return
    raise Unavailable("Thread is led elsewhere again and again. Try once more.", code="store_busy")


async def _try_route(tx: Transaction, binding: ThreadBinding, key: SessionKey | None, *, by: str) -> bool:
    stored = await routes.find(tx, binding.name)
    before = next((route for route in stored if route.thread == binding.name.thread), None)
    version = 0 if before is None else before.version
    channel, account, peer, thread = binding.name
    route = StoredRoute(
        channel=channel,
        account=account,
        peer=peer,
        thread=thread,
        agent_id=None if before is None else before.agent_id,
        session_key=None if key is None else str(key),
        version=version + 1,
        changed_by=by,
        changed_at=moment(tx.now_ms),
    )
    return await routes.put(tx, route, before=version)
