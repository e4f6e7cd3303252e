"""Which agent and session a chat uses: the settings', unless somebody chose others. Contract: keys 5, channels 2."""

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey
from antiphon.engine.access import bindings
from antiphon.engine.access.places import ChatAddress, name_of_route, read_key, rules_of, settings_agent
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.chats.chat import Chat
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.store import routes
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.routes import StoredRoute

LED_ELSEWHERE = "An owner has changed who answers in this thread. The sub-agent does not answer here any more."


async def change_route(
    tx: Transaction,
    address: ChatAddress,
    *,
    agent_id: AgentId | None,
    session_key: SessionKey | None,
    by: Principal,
    expected: int | None = None,
) -> StoredRoute:
    """Stores which agent and session the chat uses from its next message on; None for the settings'.

    `expected` is the version that was shown to somebody who edits it; refused (`route_changed`) if it is another now.
    """
    await bindings.forget(tx, address)
    own = await _find_own(tx, address)
    before = 0 if own is None else own.version
    changed = StoredRoute(
        channel=address.channel,
        account=address.account,
        peer=address.peer,
        thread=address.thread,
        agent_id=agent_id,
        session_key=None if session_key is None else str(session_key),
        version=before + 1,
        changed_by=str(by),
        changed_at=moment(tx.now_ms),
    )
    if expected not in (None, before) or not await routes.put(tx, changed, before=before):
        raise Conflict(
            f"Route was changed meanwhile: {address.peer!r} has version {before}. Read it again, then change it.",
            code="route_changed",
        )
    return changed


async def choose_agent(tx: Transaction, chat: Chat, agent_id: AgentId) -> None:
    """Makes the agent answer in the chat from the next message on, in the chat's own session with it."""
    await _choose(tx, chat, agent_id, None)


async def choose_session(tx: Transaction, chat: Chat, key: SessionKey | None) -> None:
    """Makes the chat use that session from the next message on; None for the chat's own."""
    stored = await _find_own(tx, chat.route.address)
    await _choose(tx, chat, None if stored is None else stored.agent_id, key)


async def _choose(tx: Transaction, chat: Chat, agent_id: AgentId | None, key: SessionKey | None) -> None:
    by = chat.standing.principal
    await change_route(tx, chat.route.address, agent_id=agent_id, session_key=key, by=by)


async def _find_own(query: Query, address: ChatAddress) -> StoredRoute | None:
    stored = await routes.find(query, name_of_route(address))
    return next((route for route in stored if route.thread == address.thread), None)


class ShownRoute(Struct, frozen=True, kw_only=True):
    """A stored route, and what it comes to now."""

    stored: StoredRoute
    agent_id: AgentId
    """The agent that answers."""
    is_fallback: bool
    """Whether the stored agent is not configured any more, so that the settings decide."""


class ChangeRoute(Struct, frozen=True, kw_only=True):
    rights: Rights
    address: ChatAddress
    agent_id: AgentId | None
    session_key: SessionKey | None
    expected: int | None


class Routes:
    """Use cases of routes. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(self, principal: Principal) -> list[ShownRoute]:
        """The chats whose agent or session somebody chose, by channel, account and chat."""
        return await self._database.read(_list, Rights(principal, self._rules))

    async def set(
        self,
        principal: Principal,
        address: ChatAddress,
        *,
        agent_id: AgentId | None = None,
        session_key: SessionKey | None = None,
        version: int | None = None,
    ) -> ShownRoute:
        """Chooses agent and session of the chat's next message; both None to follow the settings again.

        Raises `Invalid` for an agent that is not configured, and `Conflict` (`route_changed`) unless the stored
        version is `version`, where 0 means that nothing is stored; None changes any.
        """
        for agent in (agent_id, None if session_key is None else session_key.agent_id):
            if agent is not None:
                self._rules.agent(agent)
        command = ChangeRoute(
            rights=Rights(principal, self._rules),
            address=address,
            agent_id=agent_id,
            session_key=session_key,
            expected=version,
        )
        return await self._database.run(_set, command)


async def _list(query: Query, rights: Rights) -> list[ShownRoute]:
    await find_reach(query, rights, Act.CHATS)
    return [_shown(rights.rules, stored) for stored in await routes.list_all(query)]


async def _set(tx: Transaction, command: ChangeRoute) -> ShownRoute:
    await find_reach(tx, command.rights, Act.CHATS)
    binding = await bindings.find_binding(tx, command.address)
    stored = await change_route(
        tx,
        command.address,
        agent_id=command.agent_id,
        session_key=command.session_key,
        by=command.rights.principal,
        expected=command.expected,
    )
    if binding is not None:
        name = f"led elsewhere {' '.join(binding.name)} {binding.bound_ms}"
        await enqueue_notice(tx, binding.place, LED_ELSEWHERE, name=name)
    return _shown(command.rights.rules, stored)


def _shown(rules: Rules, stored: StoredRoute) -> ShownRoute:
    address = ChatAddress(channel=stored.channel, account=stored.account, peer=stored.peer, thread=stored.thread)
    named = None if stored.session_key is None else read_key(stored.session_key)
    wanted = stored.agent_id if named is None else named.agent_id or stored.agent_id
    is_fallback = wanted is not None and wanted not in rules.agents
    settings = settings_agent(rules, rules_of(rules, stored.channel, stored.account), address)
    return ShownRoute(
        stored=stored, agent_id=settings if wanted is None or is_fallback else wanted, is_fallback=is_fallback
    )
