"""Home: what needs the reader, who is at work, and what was done."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.delivery import Delivery
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import AgentId, TaskId
from antiphon.domain.keys import SessionKind
from antiphon.domain.message import AssistantMessage, ToolCallPart, ToolResult
from antiphon.domain.run import RunStatus
from antiphon.domain.schedule import in_words
from antiphon.domain.session import SessionSummary
from antiphon.domain.silence import spoken
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.task_words import WHY
from antiphon.domain.text import one_line, plain, short_age
from antiphon.engine.overview import Done, Needs, Overview, ReachedCap, Working
from antiphon.gateway.operations.operation import NoParams, OperationRequest
from antiphon.gateway.page.entries import PageEntry, request_entry
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import render, sum_of
from antiphon.gateway.page.titles import Titles, titles_of
from antiphon.policy.caps import GUESTS
from antiphon.wire.approvals import named_in

LONGEST_TEXT = 200
"""How many characters of a text that was not delivered are shown."""
LONGEST_RESULT = 2_000
"""How many characters of a task's result are shown."""


class WorkRow(Struct, frozen=True, kw_only=True):
    """A session at work or at rest, in a column of home."""

    session: SessionSummary
    title: str
    agent: str
    who: str
    """For whom it works."""
    state: str
    """`running | awaiting_approval | queued | failed`, or empty."""
    note: str
    """What it does, or how its last run ended, in words."""
    text: str = ""
    """The result of a task."""
    since: datetime | None
    age: str = ""
    """How long it has been at work."""
    spent: str


class CapRow(Struct, frozen=True, kw_only=True):
    """A daily cap that is used up."""

    who: str
    spent: str
    setting: str


class StoppedRow(Struct, frozen=True, kw_only=True):
    """A task that paused by itself."""

    id: TaskId
    name: str
    when: str
    why: str


class DeadRow(Struct, frozen=True, kw_only=True):
    """A text that could not be delivered."""

    delivery: Delivery
    text: str
    where: str
    why: str


@page_view("home", "Home")
async def show_home(request: OperationRequest, params: NoParams) -> Markup:
    """What needs the reader, who is at work, and what was done."""
    overview = await request.services.overviews.read(request.principal)
    names = await request.services.names.read(_principals_in(overview))
    titles, now, needs = titles_of(request.gateway), request.services.clock.now(), overview.needs
    values = {
        "needs": needs,
        "requests": _requests(needs, titles, names),
        "stopped": [_stopped(each) for each in needs.tasks],
        "dead": [_dead(each) for each in needs.dead],
        "desk": next((str(each.session.key) for each in (*overview.working, *overview.done)), None),
        "caps": [_cap(each, titles, names) for each in needs.caps],
        "working": [_working(each, titles, names, now) for each in overview.working],
        "working_count": overview.working_count,
        "done": [_done(each, titles, names) for each in overview.done],
        "told": [_dead(each) for each in overview.told],
    }
    return render("home.html", values)


def _principals_in(overview: Overview) -> list[str]:
    """Everybody whom home names."""
    runs = [each.run for each in (*overview.working, *overview.done)]
    caps = [cap.who for cap in overview.needs.caps if ":" in cap.who]
    asked = [name for each in overview.needs.requests for name in named_in(each)]
    return [*asked, *(str(each.principal) for each in runs), *caps]


def _requests(needs: Needs, titles: Titles, names: Mapping[str, str]) -> list[PageEntry]:
    found: list[PageEntry] = []
    for request in needs.requests:
        session = needs.sessions.get(request.session)
        title = None if session is None else titles.of(session)
        found.append(request_entry(request, names, agent=titles.agent(request.agent_id), title=title))
    return found


def _stopped(task: StoredTask) -> StoppedRow:
    assert task.why is not None
    return StoppedRow(id=task.id, name=plain(task.name), when=in_words(task.schedule), why=WHY[task.why])


def _dead(delivery: Delivery) -> DeadRow:
    place = delivery.place
    return DeadRow(
        delivery=delivery,
        text=plain(one_line(delivery.text, LONGEST_TEXT)),
        where=plain(f"{place.channel} {place.to}"),
        why=plain(delivery.error or delivery.code or "No reason was given."),
    )


def _cap(cap: ReachedCap, titles: Titles, names: Mapping[str, str]) -> CapRow:
    match cap.who:
        case "":
            who = "All agents together"
        case who if who == GUESTS:
            who = "All guests together"
        case who if ":" in who:
            who = names.get(who, who)
        case _:
            who = titles.agent(AgentId(who))
    return CapRow(who=plain(who), spent=sum_of(cap.spent.tokens, cap.spent.microusd or None), setting=cap.setting)


def _working(each: Working, titles: Titles, names: Mapping[str, str], now: datetime) -> WorkRow:
    activity, run = each.activity, each.run
    state = RunStatus.RUNNING if activity.is_parked else activity.status
    return WorkRow(
        session=each.session,
        title=titles.of(each.session),
        agent=titles.agent(activity.agent_id),
        who=names.get(str(run.principal), str(run.principal)),
        state=state.value,
        note=_doing(each),
        since=activity.since,
        age=short_age((now - activity.since).total_seconds()),
        spent=sum_of(run.usage.total_tokens, run.usage.cost_microusd),
    )


def _doing(each: Working) -> str:
    """The last step of the run, in words."""
    activity, run = each.activity, each.run
    if activity.status is RunStatus.AWAITING_APPROVAL and not activity.is_parked:
        return "waits for approval"
    if activity.waits_for:
        others = len(activity.waits_for)
        return f"waits for {'another session' if others == 1 else f'{others} sessions'}"
    if activity.status is RunStatus.QUEUED:
        return "waits for its turn"
    if run.delay is not None:
        return run.delay.text
    return "at work" if each.last_event is None else _step(each.last_event)


def _step(event: Event) -> str:
    match event.message:
        case AssistantMessage() as message:
            calls = [part.name for part in message.content if isinstance(part, ToolCallPart)]
            return f"uses {', '.join(calls[:3])}" if calls else "wrote a message"
        case ToolResult() as message:
            return f"received the result of {message.tool}"
        case _:
            return _STEPS.get(event.type, "at work")


_STEPS: Mapping[str, str] = {
    EventType.USER_MESSAGE: "has a new message",
    EventType.RUN_STARTED: "has started",
    EventType.TOOL_CALL: "uses a tool",
    EventType.APPROVAL_RESOLVED: "continues after a decision",
    EventType.COMPACTED: "has summarised its conversation",
    EventType.LEFT_OUT: "leaves out what its provider refuses",
}


def _done(each: Done, titles: Titles, names: Mapping[str, str]) -> WorkRow:
    run, session = each.run, each.session
    state, note = _ending(run.status, run.error)
    return WorkRow(
        session=session,
        title=titles.of(session),
        agent=titles.agent(session.agent_id),
        who=names.get(str(run.principal), str(run.principal)),
        state=state,
        note=note or plain(session.preview or ""),
        text=_result(each),
        since=run.ended_at or session.updated_at,
        spent=sum_of(run.usage.total_tokens, run.usage.cost_microusd),
    )


def _result(each: Done) -> str:
    """What a task found, as far as the reader may have it; of other sessions the conversation shows it."""
    if each.session.key.kind is not SessionKind.CRON:
        return ""
    text = plain(spoken(each.run.reply or "").strip())
    return text if len(text) <= LONGEST_RESULT else f"{text[:LONGEST_RESULT]} …"


_FAILED: Sequence[RunStatus] = (RunStatus.ERROR, RunStatus.TIMEOUT)


def _ending(status: RunStatus, error: str | None) -> tuple[str, str]:
    """The state, and the words for an end that was not a success."""
    if status in _FAILED:
        return "failed", f"failed: {plain(error)}" if error else "failed"
    return "", "cancelled" if status is RunStatus.CANCELLED else ""
