"""What needs a person, who is at work for them, and what was done, as the page's home shows it.

Contract: approvals 3, access 3, access 4, runs 6, channels 1.
"""

from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.agent import DailyLimits
from antiphon.domain.approval import Approval, ApprovalState
from antiphon.domain.classification import EVERYTHING
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.errors import REFUSALS
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.run import Run
from antiphon.domain.session import Session, SessionStatus, SessionSummary
from antiphon.domain.stored_task import StoredTask
from antiphon.engine.access.reach import Rights, find_reach_if_any
from antiphon.engine.chats.groups import list_groups
from antiphon.engine.chats.linking import AskedLink, list_asked
from antiphon.engine.chats.pairing import WaitingSender, count_waiting, list_waiting
from antiphon.engine.ledger.spending import day_of
from antiphon.engine.rules import Rules
from antiphon.engine.runs.decisions import count_open, list_requests
from antiphon.policy.acts import Act
from antiphon.policy.caps import GUESTS, caps_of
from antiphon.store import activities, deliveries, tasks, usage
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.activities import Activity
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.channel_groups import ChannelGroup
from antiphon.store.database import Database, Query
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.people import find_standing
from antiphon.store.sessions import SessionFilter

MOST_REQUESTS = 50
MOST_DEAD = 20
DEAD_FOR = timedelta(days=7)
"""How long a text that could not be delivered is shown as something to decide."""
MOST_TOLD = 5
MOST_CAPS = 20
MOST_STOPPED = 20
MOST_WORKING = 40
MOST_DONE = 15
LOOKED_AT = 60
"""How many of the newest sessions are looked at; those at rest are shown as done."""

T = TypeVar("T")


class ReachedCap(Struct, frozen=True, kw_only=True):
    """A daily cap that is used up, so that runs end until the next UTC day."""

    setting: str
    """The setting to raise."""
    who: str
    """Whose runs it ends: the id of an agent, a principal, `guests`, or nothing for all agents together."""
    limits: DailyLimits
    spent: usage.Spent


class Needs(Struct, frozen=True, kw_only=True):
    """What waits for this person's decision; what they may not decide is not in it."""

    requests: Sequence[Approval] = ()
    """Open requests that they may see as deciders, newest first."""
    has_more_requests: bool = False
    senders: Sequence[WaitingSender] = ()
    groups: Sequence[ChannelGroup] = ()
    links: Sequence[AskedLink] = ()
    """Accounts that wait to become theirs by a code of theirs."""
    dead: Sequence[Delivery] = ()
    """Texts of the last days that could not be delivered, newest first."""
    caps: Sequence[ReachedCap] = ()
    tasks: Sequence[StoredTask] = ()
    """Those that paused by themselves, the newest first."""
    sessions: Mapping[SessionRow, Session] = field(default_factory=dict[SessionRow, Session])
    """Those that ask, as far as the person reaches them."""
    count: int = 0
    """How much waits for them; of requests only those that they may decide, up to 100."""


class Working(Struct, frozen=True, kw_only=True):
    """A session at work."""

    activity: Activity
    session: Session
    run: Run
    last_event: Event | None
    """None if it may not be read."""


class Done(Struct, frozen=True, kw_only=True):
    """A session at rest, with the run that ended last."""

    session: SessionSummary
    run: Run


class Overview(Struct, frozen=True, kw_only=True):
    """One moment, as one person may see it."""

    needs: Needs
    working: Sequence[Working]
    """Active ones first, each kind by start."""
    working_count: int
    """Busy sessions, shown or not."""
    done: Sequence[Done]
    """The newest first."""
    told: Sequence[Delivery] = ()
    """What people were told last in place of a reply, for owners; newest first. Contract: groups 4."""


class Overviews:
    """Each answer is one snapshot, read by a number of statements that does not grow with the sessions."""

    def __init__(self, database: Database, rules: Rules, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock

    async def read(self, principal: Principal) -> Overview:
        return await self._database.read(_read, self._onlooker(principal))

    async def needs(self, principal: Principal) -> int:
        """How much waits for the principal, as `Needs.count`."""
        return await self._database.read(_count, self._onlooker(principal))

    def _onlooker(self, principal: Principal) -> "_Onlooker":
        return _Onlooker(Rights(principal, self._rules), self._clock.now_ms())


class _Onlooker(NamedTuple):
    """Who looks, and when."""

    rights: Rights
    at_ms: int


async def _read(query: Query, who: _Onlooker) -> Overview:
    working, total = await _working(query, who)
    return Overview(
        needs=await _needs(query, who),
        working=working,
        working_count=total,
        done=await _done(query, who),
        told=await _told(query, who),
    )


async def _count(query: Query, who: _Onlooker) -> int:
    requests, waiting = await count_open(query, who.rights), await count_waiting(query, who.rights)
    dead, caps, stopped = await _dead(query, who), await _caps(query, who), await _stopped(query, who)
    links = await _links(query, who)
    return (requests or 0) + (waiting or 0) + len(dead) + len(caps) + len(stopped) + len(links)


async def find_needs(query: Query, rights: Rights, at_ms: int) -> Needs:
    """What waits for the principal's decision at that time."""
    return await _needs(query, _Onlooker(rights, at_ms))


async def _needs(query: Query, who: _Onlooker) -> Needs:
    where = ApprovalFilter(state=ApprovalState.PENDING)
    requests = await _unless_refused(list_requests(query, who.rights, where, MOST_REQUESTS + 1))
    groups = await _unless_refused(list_groups(query, who.rights))
    reach = await find_reach_if_any(query, who.rights, Act.READ)
    asking = sorted({request.session for request in requests})
    reached = [] if reach is None else await rows.list_reached(query, reach, asking)
    return Needs(
        sessions={session.row: session for session in reached},
        requests=requests[:MOST_REQUESTS],
        has_more_requests=len(requests) > MOST_REQUESTS,
        senders=await _unless_refused(list_waiting(query, who.rights)),
        groups=[group for group in groups if group.is_asking],
        links=await _links(query, who),
        dead=await _dead(query, who),
        caps=await _caps(query, who),
        tasks=await _stopped(query, who),
        count=await _count(query, who),
    )


async def _links(query: Query, who: _Onlooker) -> Sequence[AskedLink]:
    return await list_asked(query, who.rights.principal)


async def _unless_refused(finding: Coroutine[Any, Any, Sequence[T]]) -> Sequence[T]:
    """Nothing for somebody who may not see any."""
    try:
        return await finding
    except REFUSALS:
        return ()


async def _dead(query: Query, who: _Onlooker) -> Sequence[Delivery]:
    reach = await find_reach_if_any(query, who.rights, Act.DELIVER)
    if reach is None:
        return ()
    since = who.at_ms - int(DEAD_FOR.total_seconds() * 1000)
    where = DeliveryFilter(statuses=frozenset({DeliveryStatus.DEAD}), since_ms=since)
    return await deliveries.list_page(query, reach, where, MOST_DEAD)


async def _told(query: Query, who: _Onlooker) -> Sequence[Delivery]:
    reach = await find_reach_if_any(query, who.rights, Act.DELIVER)
    if reach is None:
        return ()
    return await deliveries.list_page(query, reach, DeliveryFilter(is_told=True), MOST_TOLD)


async def _stopped(query: Query, who: _Onlooker) -> Sequence[StoredTask]:
    reach = await find_reach_if_any(query, who.rights, Act.TASKS)
    return () if reach is None else await tasks.list_stopped(query, reach, MOST_STOPPED)


async def _caps(query: Query, who: _Onlooker) -> Sequence[ReachedCap]:
    """Those of agents, of all agents together, and of people, for owners."""
    reach = await find_reach_if_any(query, who.rights, Act.PEOPLE)
    if reach is None or reach.clearance is not EVERYTHING:
        return ()  # what was spent says something of every run
    rules, day = who.rights.rules, day_of(who.at_ms)
    spent = await usage.find_agents_spent(query, day)
    total = usage.sum_spent(spent.values())
    caps = [
        ReachedCap(setting="limits.daily", who=agent.id, limits=agent.daily, spent=spent[agent.id])
        for agent in rules.agents.values()
        if agent.id in spent
    ]
    caps.append(ReachedCap(setting="limits.daily_total", who="", limits=rules.daily_total, spent=total))
    caps += await _caps_of_people(query, who, day)
    return [cap for cap in caps if cap.limits.are_reached(cap.spent.tokens, cap.spent.microusd)][:MOST_CAPS]


async def _caps_of_people(query: Query, who: _Onlooker, day: str) -> list[ReachedCap]:
    """The caps of those who spent most today, reached or not."""
    caps = who.rights.rules.person_caps
    limits = (caps.guest, caps.user, caps.guests)
    tokens = [each.tokens for each in limits if each.tokens is not None]
    dollars = [each.usd for each in limits if each.usd is not None]
    if not tokens and not dollars:
        return []
    floors = {"tokens": min(tokens, default=_NEVER), "microusd": int(min(dollars, default=_NEVER) * 1_000_000)}
    found: list[ReachedCap] = []
    for spender, spent in (await usage.list_spent(query, day, **floors, limit=MOST_CAPS)).items():
        if spender == GUESTS:
            found.append(ReachedCap(setting="limits.guests", who=GUESTS, limits=caps.guests, spent=spent))
            continue
        standing = await find_standing(query, Principal.parse(spender))
        cap = caps_of(standing, caps).get(spender)
        if cap is not None:
            found.append(ReachedCap(setting=cap.setting, who=spender, limits=cap.limits, spent=spent))
    return found


_NEVER = 2**40
_RESTING = (SessionStatus.IDLE, SessionStatus.INACTIVE)


async def _working(query: Query, who: _Onlooker) -> tuple[Sequence[Working], int]:
    """None for guests, who may not see who is at work."""
    reach = await find_reach_if_any(query, who.rights, Act.LIST_WORK)
    if reach is None:
        return (), 0
    page = await activities.list_activities(query, reach, limit=MOST_WORKING)
    busy = [activity.session for activity in page.activities]
    sessions = {session.row: session for session in await rows.list_reached(query, reach, busy)}
    runs = await ledger.list_named(query, reach, [activity.run for activity in page.activities])
    events = await activities.read_last_events(query, reach, busy)
    working = [
        Working(
            activity=activity,
            session=sessions[activity.session],
            run=runs[activity.run],
            last_event=events.get(activity.session),
        )
        for activity in page.activities
        if activity.session in sessions and activity.run in runs
    ]
    return working, page.total


async def _done(query: Query, who: _Onlooker) -> Sequence[Done]:
    reach = await find_reach_if_any(query, who.rights, Act.LIST)
    if reach is None:
        return ()
    newest = await rows.list_page(query, reach, SessionFilter(), limit=LOOKED_AT, after=None)
    resting = {session.row: session for session in newest if session.status in _RESTING}
    last: Mapping[SessionRow, activities.LastRun] = await activities.find_last_runs(query, reach, list(resting))
    runs = await ledger.list_named(query, reach, [run.run for run in last.values()])
    done = [
        Done(session=session, run=runs[last[row].run])
        for row, session in resting.items()
        if row in last and last[row].run in runs
    ]
    return done[:MOST_DONE]
