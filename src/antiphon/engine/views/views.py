"""The view of one session on others: lists, transcripts, status, agents. Contract: list, history, session_status."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from antiphon.domain.agent import Agent
from antiphon.domain.classification import Integrity
from antiphon.domain.errors import Denied
from antiphon.domain.event import Event
from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session, SessionSummary, SessionType
from antiphon.domain.targets import WrittenTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.reach import Found, Rights, find_reach, find_target
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import SessionPageRequest
from antiphon.engine.views.history import HistoryPage, HistoryPageRequest, read_page
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant, grant_listed, is_as_far
from antiphon.policy.rights import integrity_of_any
from antiphon.store import code_agents, people
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query
from antiphon.store.sessions import ListCursor, SessionFilter

MAX_CHILDREN = 1_000
"""Children named in one list, for all its sessions together."""


class ListedSession(Struct, frozen=True):
    session: SessionSummary
    children: Sequence[str]
    """Keys of the sessions that it spawned, as far as the caller sees them."""
    messages: Sequence[Event]
    """The newest messages without tool results, oldest first."""
    names_worth: Integrity = Integrity.TRUSTED
    """What its names are worth, whoever gave them."""


class ListedPage(Struct, frozen=True):
    sessions: Sequence[ListedSession]
    next: ListCursor | None


class StatusView(Struct, frozen=True):
    session: Session
    user: str | None
    """The principal of its newest run; None if it has had none."""
    active_run: RunId | None
    is_runner_missing: bool = False
    """Whether its agent's runner is not there, so that its runs wait. Contract: foreign_agents 1."""


class AgentsView(Struct, frozen=True):
    requester: AgentId
    allow_any: bool
    agents: Sequence[tuple[AgentId, Agent | None]]
    """The requester first, then the others under which it may spawn; None for an agent not configured."""


class Views:
    """The views that tools show. Every answer stays within the caller's scope, in one snapshot."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(
        self, caller: Caller, where: SessionFilter, *, limit: int, message_limit: int, after: ListCursor | None
    ) -> ListedPage:
        """Sessions that the caller sees, newest first; filtered before the limit. Contract: list 1, visibility 4."""
        wanted = SessionPageRequest(where, limit, after)
        return await self._database.read(_list, Rights(caller, self._rules), wanted, message_limit)

    async def history(
        self,
        caller: Caller,
        target: WrittenTarget,
        *,
        limit: int,
        before: int | None,
        include_tools: bool,
    ) -> HistoryPage:
        """The newest `limit` messages below `before`. Raises `NotFound`, `Conflict` for a pruned cursor."""
        rights, wanted = Rights(caller, self._rules), HistoryPageRequest(limit, before, include_tools)
        return await self._database.read(_history, rights, target, wanted)

    async def status(self, caller: Caller, target: WrittenTarget) -> StatusView:
        return await self._database.read(_status, Rights(caller, self._rules), target)

    def agents(self, caller: Caller) -> AgentsView:
        """The agents under which the caller may spawn sessions. Contract: agents_list 1."""
        agents = self._rules.agents
        own = agents.get(caller.agent_id)
        named = own.subagents.allowed if own is not None else ()
        allow_any = "*" in named
        others = set(agents) if allow_any else {AgentId(name) for name in named}
        listed = [caller.agent_id, *sorted(others - {caller.agent_id})]
        return AgentsView(
            requester=caller.agent_id,
            allow_any=allow_any,
            agents=[(id, agents.get(id)) for id in listed],
        )


async def _list(query: Query, rights: Rights, wanted: SessionPageRequest, message_limit: int) -> ListedPage:
    reach = await find_reach(query, rights, Act.LIST)
    found = await rows.list_page(query, reach, wanted.where, limit=wanted.limit + 1, after=wanted.after)
    page = found[: wanted.limit]
    children: dict[SessionRow, list[str]] = {}
    for child in await rows.list_children(query, reach, [session.row for session in page], MAX_CHILDREN):
        children.setdefault(child.parent, []).append(child.key)
    messages: dict[SessionRow, list[Event]] = {}
    if message_limit:
        readable = await find_reach(query, rights, Act.READ)
        if not is_as_far(readable, reach):
            assert reach.viewer is not None
            raise _unreadable(reach.viewer.session.agent_id)
        for session in page:
            messages[session.row] = await _newest(query, grant_listed(readable, session), session, message_limit)
    roles = await people.find_roles(query) if any(map(_is_named, page)) else {}
    return ListedPage(
        [
            ListedSession(
                session, children.get(session.row, ()), messages.get(session.row, ()), _worth_of_names(session, roles)
            )
            for session in page
        ],
        rows.cursor_of(page[-1]) if len(found) > wanted.limit else None,
    )


def _is_named(session: SessionSummary) -> bool:
    return session.label is not None or session.display_name is not None


def _worth_of_names(session: SessionSummary, roles: Mapping[str, PersonRole]) -> Integrity:
    """Who takes part may name a session, also without a word in it; anybody may have named a group.

    Contract: flow 2.
    """
    if not _is_named(session):
        return Integrity.TRUSTED
    if session.source.type is SessionType.GROUP and session.display_name is not None:
        return Integrity.UNTRUSTED
    return integrity_of_any(session.participants, roles)


def _unreadable(agent_id: AgentId) -> Denied:
    return Denied(
        f"Messages may not be listed: agent {agent_id!r} may list more sessions than it may read. "
        "Use messageLimit 0, and sessions_history.",
        code="act_narrowed",
    )


async def _newest(query: Query, grant: Grant, session: SessionSummary, limit: int) -> list[Event]:
    found = await log.read_numbered_before(
        query,
        grant,
        SessionId(session.id),
        from_seq=0,
        before=session.last_seq + 1,
        limit=limit,
        include_tools=False,
    )
    return found.events[::-1]


async def _history(query: Query, rights: Rights, target: WrittenTarget, wanted: HistoryPageRequest) -> HistoryPage:
    found = await _find(query, rights, Act.READ, target)
    return await read_page(query, found, wanted, is_for_session=True)


async def _find(query: Query, rights: Rights, act: Act, written: WrittenTarget) -> Found:
    reach = await find_reach(query, rights, act)
    return await find_target(query, reach, written.target, written.text)


async def _status(query: Query, rights: Rights, target: WrittenTarget) -> StatusView:
    found = await _find(query, rights, Act.STATUS, target)
    active = await ledger.find_active(query, found.session.row)
    user = await ledger.newest_principal(query, found.session.row)
    agent, rules = found.session.agent_id, rights.rules
    is_missing = agent in rules.missing_runners or (
        agent not in rules.agents and await code_agents.exists(query, agent)
    )
    return StatusView(found.session, user, None if active is None else active.id, is_missing)
