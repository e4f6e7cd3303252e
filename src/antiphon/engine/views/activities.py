"""Current work: the sessions with a run that has not ended, and the living processes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.ids import ProcessId, RunId
from antiphon.domain.text import one_line
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.rules import Rules
from antiphon.engine.work.processes import Processes
from antiphon.policy.acts import Act
from antiphon.store import activities
from antiphon.store.activities import Activity, ActivityPage
from antiphon.store.database import Database, Query
from antiphon.store.processes import Process

LONGEST_REQUEST = 200
"""Longest excerpt of the message that a run answers, in characters."""


class Work(Struct, frozen=True, kw_only=True):
    """All work at one moment."""

    activities: Sequence[Activity]
    """One for each busy session: active ones first, then queued ones, each by their start."""
    requests: Mapping[RunId, str]
    """The beginning of the message that each run answers."""
    total: int
    """Number of busy sessions, shown or not."""
    processes: Mapping[ProcessId, Process]
    """The live processes, in the order of their start; none for principals who do not reach all sessions."""


class Activities:
    def __init__(self, database: Database, rules: Rules, processes: Processes | None, this: Process) -> None:
        self._database = database
        self._rules = rules
        self._processes = processes
        self._this = this

    async def now(self, principal: Principal, *, limit: int) -> Work:
        """At most `limit` busy sessions that the principal sees. Raises `Denied` for guests."""
        read = await self._database.read(_read, Rights(principal, self._rules), limit)
        return Work(
            activities=read.page.activities,
            requests=read.requests,
            total=read.page.total,
            processes={process.id: process for process in await self._living()} if read.is_everything else {},
        )

    async def _living(self) -> Sequence[Process]:
        return [self._this] if self._processes is None else await self._processes.list()


class _Read(NamedTuple):
    page: ActivityPage
    requests: dict[RunId, str]
    is_everything: bool
    """Whether the principal reaches all sessions."""


async def _read(query: Query, rights: Rights, limit: int) -> _Read:
    reach = await find_reach(query, rights, Act.LIST_WORK)
    page = await activities.list_activities(query, reach, limit=limit)
    requests = await activities.read_requests(query, reach, page.activities)
    shown = {run: one_line(text, LONGEST_REQUEST) for run, text in requests.items()}
    return _Read(page, shown, reach.is_everything)
