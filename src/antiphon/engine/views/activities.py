"""Current work: the sessions with a run that has not ended, and the living processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from antiphon.domain.actor import Principal
from antiphon.domain.ids import ProcessId, RunId
from antiphon.domain.text import one_line
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.engine.work.processes import Processes
from antiphon.policy.acts import Act
from antiphon.store import activities
from antiphon.store.activities import Activity, ActivityPage
from antiphon.store.database import Database, Query
from antiphon.store.processes import Process

LONGEST_REQUEST = 200
"""Longest excerpt of the message that a run answers, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All work at one moment."""

    activities: Sequence[Activity]
    """One for each busy session: active ones first, then queued ones, each by their start."""
    requests: Mapping[RunId, str]
    """The beginning of the message that each run answers."""
    total: int
    """Number of busy sessions, shown or not."""
    processes: Mapping[ProcessId, Process]
    """The living processes, in the order of their start."""


class Activities:
    def __init__(self, database: Database, rules: Rules, processes: Processes | None, this: Process) -> None:
        self._database = database
        self._rules = rules
        self._processes = processes
        self._this = this

    async def now(self, principal: Principal, *, limit: int) -> Work:
        """At most `limit` busy sessions. Raises `Denied` for anyone but the owner."""
        page, requests = accepted(await self._database.read(_read, Rights(principal, self._rules), limit))
        living = [self._this] if self._processes is None else await self._processes.list()
        return Work(
            activities=page.activities,
            requests=requests,
            total=page.total,
            processes={process.id: process for process in living},
        )


async def _read(query: Query, rights: Rights, limit: int) -> tuple[ActivityPage, dict[RunId, str]] | Refusal:
    reach = await find_reach(query, rights, Act.LIST_WORK)
    if isinstance(reach, Refusal):
        return reach
    page = await activities.list_activities(query, reach, limit=limit)
    requests = await activities.read_requests(query, reach, page.activities)
    return page, {run: one_line(text, LONGEST_REQUEST) for run, text in requests.items()}
