"""What a session holds, which its deletion takes away. Contract: sessions 7."""

from antiphon.domain.actor import Principal
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights, find_reach, find_session
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.store.contents import MAX_COUNTED, SessionContents, count_contents
from antiphon.store.database import Database, Query

MOST = MAX_COUNTED
"""A number this high means at least so many."""


class ContentsOfSessions:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def read(self, principal: Principal, target: NamedTarget) -> SessionContents:
        """How many messages, runs, conversations, children and unsent texts the session has. Raises `NotFound`."""
        return await self._database.read(_read, Rights(principal, self._rules), target)


async def _read(query: Query, rights: Rights, target: NamedTarget) -> SessionContents:
    found = await find_session(query, rights, Act.READ, target)
    reach = await find_reach(query, rights, Act.READ)
    return await count_contents(query, found.grant, reach)
