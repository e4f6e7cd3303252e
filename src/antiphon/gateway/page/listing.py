"""The list of sessions as the page shows it: children are folded under the session that spawned them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.domain.cursors import Cursors
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import SessionKind
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Session, SessionStatus, SessionSummary
from antiphon.domain.text import isolated, plain, short_age
from antiphon.engine.views.trees import LastRun, Member, Tree
from antiphon.gateway.page.titles import Titles

AT_FIRST = 30
"""How many children an opened session shows; asking for more adds as many."""
MOST_CHILDREN = 300
MOST_OPENED = 40
_OPENED = re.compile(r"([a-z2-7]{1,60})(?::(\d{1,4}))?")
_FOLDS = ("opened sessions of the page",)
_FAILED = {RunStatus.ERROR, RunStatus.TIMEOUT}


class Item(Struct, frozen=True, kw_only=True):
    """A session in the list."""

    session: SessionSummary
    state: str = ""
    """`running | awaiting_approval | queued | failed`, or empty for an idle session."""
    note: str = ""
    """The state in words, with the age of an unfinished run."""
    age: str = ""
    """The age of the unfinished run."""
    tokens: int = 0
    cost_microusd: int | None = None
    all_tokens: int = 0
    """Of the session and its descendants."""
    all_cost_microusd: int | None = None
    below: int = 0
    """The number of descendants."""
    busy_below: int = 0
    is_open: bool = False
    children: list["Item"] = field(default_factory=lambda: list[Item]())
    rest: int = 0
    """How many children are not shown although it is open."""
    next: int | None = None
    """How many children to request to see more; None if no more can be shown."""

    @property
    def is_busy(self) -> bool:
        """Whether it or a descendant has work that can be cancelled."""
        return bool(self.age or self.busy_below)


class Grouping(StrEnum):
    """What the list is grouped by."""

    NONE = "none"
    AGENT = "agent"
    CHANNEL = "channel"


class Group(Struct, frozen=True):
    """A part of the list, with its heading; the parts have the order of their first items."""

    name: str
    items: list[Item]


def groups_of(items: Sequence[Item], grouping: Grouping, titles: Titles) -> list[Group]:
    """All items, in one part without a heading if they are not grouped."""
    found: dict[str, list[Item]] = {}
    for item in items:
        match grouping:
            case Grouping.AGENT:
                name = titles.agent(item.session.agent_id)
            case Grouping.CHANNEL:
                name = channel_of(item.session)
            case Grouping.NONE:
                name = ""
        found.setdefault(name, []).append(item)
    return [Group(name, members) for name, members in found.items()]


def channel_of(session: SessionSummary) -> str:
    """The channel on which people write there, or what else writes there."""
    platform = session.delivery.channel or session.source.platform
    if platform is not None:
        return plain(platform)
    return session.key.kind.value if session.key.kind in _PROGRAMS else session.source.kind


_PROGRAMS = (SessionKind.CRON, SessionKind.HOOK, SessionKind.NODE)


class Folds(Struct, frozen=True):
    """The names by which the page says which sessions are open; sealed, because row numbers count hidden sessions."""

    cursors: Cursors

    def name(self, row: SessionRow) -> str:
        return self.cursors.seal(_FOLDS, row)

    def read(self, text: str) -> dict[SessionRow, int]:
        """The sessions that a page has open, each with the number of children shown. Ignores anything else."""
        found: dict[SessionRow, int] = {}
        for part in text.split(",")[:MOST_OPENED]:
            if match := _OPENED.fullmatch(part):
                with suppress(Invalid):
                    row, _ = self.cursors.unseal(_FOLDS, match[1])
                    found[SessionRow(row)] = min(max(int(match[2] or 0), AT_FIRST), MOST_CHILDREN)
        return found

    def write(self, opened: Mapping[SessionRow, int]) -> str:
        names = {self.name(row): shown for row, shown in opened.items()}
        return ",".join(f"{name}:{shown}" if shown != AT_FIRST else name for name, shown in names.items())


def opened_around(session: Session) -> dict[SessionRow, int]:
    """The sessions that must be open to show this one."""
    return {row: AT_FIRST for row in session.ancestors if row is not None}


def items_of(tree: Tree, opened: Mapping[SessionRow, int], now: datetime) -> list[Item]:
    """The roots, with the children of open sessions."""
    path: list[Item] = []
    roots: list[Item] = []
    for member in tree.members:
        item = _item(member, now)
        if shown := opened.get(member.session.row):
            rest = max(0, member.children - shown)
            more = min(shown + AT_FIRST, MOST_CHILDREN) if rest and shown < MOST_CHILDREN else None
            item = replace(item, is_open=True, rest=rest, next=more)
        del path[member.level :]
        (path[-1].children if path else roots).append(item)
        path.append(item)
    return roots


def _item(member: Member, now: datetime) -> Item:
    session, below = member.session, member.below
    state, note = _state(member, now)
    return Item(
        session=session,
        state=state,
        note=note,
        age=short_age((now - member.activity.since).total_seconds()) if member.activity else "",
        tokens=session.usage.total_tokens,
        cost_microusd=session.usage.cost_microusd,
        all_tokens=session.usage.total_tokens + below.tokens,
        all_cost_microusd=_sum([session.usage.cost_microusd, below.cost_microusd]),
        below=below.listed,
        busy_below=below.busy,
    )


def plain_item(session: SessionSummary, last: LastRun | None) -> Item:
    """The item without its descendants, for search results."""
    if session.status in (SessionStatus.IDLE, SessionStatus.INACTIVE):
        state, note = _rest(last)
        return Item(session=session, state=state, note=note)
    return Item(session=session, state=session.status.value, note=session.status.value.replace("_", " "))


def _state(member: Member, now: datetime) -> tuple[str, str]:
    if activity := member.activity:
        state = RunStatus.RUNNING if activity.is_parked else activity.status
        word = state.value.replace("_", " ")
        if activity.waits_for:
            first, *others = activity.waits_for
            word = f"waits for {f'{len(others) + 1} sessions' if others else isolated(first.label or first.key)}"
        return state.value, f"{word}, {short_age((now - activity.since).total_seconds())}"
    return _rest(member.last_run)


def _rest(last: LastRun | None) -> tuple[str, str]:
    """The state of a session without work: how its last run ended."""
    if last is not None and last.status in _FAILED:
        return "failed", f"failed: {plain(last.error)}" if last.error else "failed"
    if last is not None and last.status is RunStatus.CANCELLED:
        return "", "cancelled"
    return "", "done" if last is not None else "no run yet"


def _sum(costs: Sequence[int | None]) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
