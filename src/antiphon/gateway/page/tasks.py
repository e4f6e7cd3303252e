"""The views of tasks: all of them with a form for a new one, and one with its settings and its runs."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.ids import TaskId
from antiphon.domain.keys import SessionKey, main_key
from antiphon.domain.schedule import in_words, shown_time, upcoming
from antiphon.domain.send_to import place_text
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import MAX_NAME, MAX_PROMPT_BYTES, StoredTask, TaskSlot
from antiphon.domain.task import SlotOutcome, TaskState, Why
from antiphon.domain.task_words import WHY, results_words, state_words
from antiphon.domain.text import one_line, plain
from antiphon.domain.tokens import TokenScope
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import render
from antiphon.gateway.page.session import Fact
from antiphon.gateway.page.titles import titles_of
from antiphon.policy.acts import Act

SHOWN = 50
SHOWN_RUNS = 30
PREVIEW = 200
CHOICES = 40
"""How many sessions the form for a new task offers."""
EXAMPLE = "every weekday at 8 fetch https://example.org/news and tell me what is new"


class ShowTasks(Params, frozen=True, kw_only=True):
    after: str | None = None
    """The id of the last task of the page before."""


class ShowTask(Params, frozen=True, kw_only=True):
    task: str


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task in a list."""

    id: TaskId
    name: str
    when: str
    times: Sequence[str]
    """The next ones, in its zone."""
    state: TaskState
    reason: str
    """Why it paused or ended by itself, or reaches nobody."""
    results: str
    """Where its results go."""
    last: str
    """What became of its last time."""
    is_failing: bool
    prompt: str
    agent: str
    maker: str
    made_in: str
    """The key of the session in which it was made."""
    works_in: str
    """The key of the session of its runs."""


class TaskSlotRow(Struct, frozen=True, kw_only=True):
    at: str
    """In the zone of the task."""
    words: str
    is_bad: bool
    run: str | None


@page_view("tasks", "Tasks", act=Act.TASKS)
async def show_tasks(request: OperationRequest, params: ShowTasks) -> Markup:
    """What agents do at set times."""
    after = None if params.after is None else TaskId(params.after)
    found = await request.services.tasks.list(request.principal, after=after, limit=SHOWN + 1)
    shown = found[:SHOWN]
    names = await request.services.names.read(str(each.maker) for each in shown)
    values = {
        "tasks": [_row(request, each, names) for each in shown],
        "next": shown[-1].id if len(found) > SHOWN else None,
        "sessions": await _choices(request),
        "zone": request.services.rules.task_zone,
        "groups": await _groups(request),
        "example": EXAMPLE,
        "may_write": TokenScope.WRITE in request.scopes,
    }
    return render("tasks.html", values)


@page_view("task", "Task", act=Act.TASKS, is_listed=False)
async def show_task(request: OperationRequest, params: ShowTask) -> Markup:
    """One task: what it is, its settings, and what became of its times."""
    services = request.services
    stored = await services.tasks.get(request.principal, TaskId(params.task))
    names = await services.names.read([str(stored.maker)])
    slots = await services.tasks.runs(request.principal, stored.id, limit=SHOWN_RUNS)
    values = {
        "task": _row(request, stored, names),
        "stored": stored,
        "facts": _facts(stored),
        "slots": [_slot(each, stored.schedule.zone) for each in slots],
        "prompt": stored.prompt,
        "zone": stored.schedule.zone,
        "send_to": stored.written_send_to,
        "groups": await _groups(request),
        "longest_name": MAX_NAME,
        "longest_prompt": MAX_PROMPT_BYTES,
        "may_all": await services.people.may(request.principal, Act.APPROVE_ALWAYS),
    }
    return render("task.html", values)


async def _choices(request: OperationRequest) -> list[tuple[SessionKey, str]]:
    """The sessions in which a task may be made, those of agents first for an owner."""
    services, titles = request.services, titles_of(request.gateway)
    found: dict[SessionKey, str] = {}
    if await services.people.may(request.principal, Act.OPEN):
        agents = [services.rules.agents[services.rules.default_agent], *services.rules.agents.values()]
        found = {main_key(agent.id): plain(titles.agent(agent.id)) for agent in agents}
    page = await services.sessions.list(request.principal, SessionFilter(), limit=CHOICES)
    for session in page.sessions:
        found.setdefault(session.key, titles.of(session))
    return list(found.items())


async def _groups(request: OperationRequest) -> list[tuple[str, str]]:
    """The groups to which an owner may let results go, as a task names them; others write theirs in a chat."""
    if not await request.services.people.may(request.principal, Act.CHATS):
        return []
    found = await request.services.groups.list(request.principal)
    places = [
        (DeliveryContext(channel=each.channel, to=each.address, account_id=each.account), each)
        for each in found
        if each.state == "allowed"
    ]
    return [(place_text(place), plain(each.title or each.address)) for place, each in places]


def _row(request: OperationRequest, task: StoredTask, names: Mapping[str, str]) -> TaskRow:
    zone, is_active = task.schedule.zone, task.state is TaskState.ACTIVE
    maker = str(task.maker)
    return TaskRow(
        id=task.id,
        name=plain(task.name),
        when=in_words(task.schedule),
        times=[shown_time(time, zone) for time in upcoming(task.schedule, task.next_at)] if is_active else [],
        state=task.state,
        reason="" if task.why is None or (is_active and task.why is not Why.NO_OWN_CHAT) else WHY[task.why],
        results=plain(results_words(task)),
        last=_last(task),
        is_failing=task.errors > 0,
        prompt=plain(one_line(task.prompt, PREVIEW)),
        agent=titles_of(request.gateway).agent(task.agent_id),
        maker=plain(names.get(maker, maker)),
        made_in=task.session_key,
        works_in=str(task.key),
    )


def _last(task: StoredTask) -> str:
    if task.last_slot_at is None:
        return "has not run yet"
    outcome = "at work" if task.last_outcome is None else _OUTCOMES[task.last_outcome]
    return f"{outcome}, {shown_time(task.last_slot_at, task.schedule.zone)}"


_OUTCOMES = {
    SlotOutcome.OK: "ok",
    SlotOutcome.ERROR: "failed",
    SlotOutcome.SKIPPED: "skipped",
    SlotOutcome.RECOVERED: "cut off by a crash",
}


def _facts(task: StoredTask) -> list[Fact]:
    limits = task.limits
    named = [
        (limits.runs_an_hour, "runs an hour"),
        (limits.tokens_a_day, "tokens a day"),
        (None if limits.microusd_a_day is None else limits.microusd_a_day / 1_000_000, "dollars a day"),
        (limits.total_runs, "runs in all"),
    ]
    bounds = [f"{value:,g} {words}" for value, words in named if value is not None]
    if limits.stop_text is not None:
        bounds.append(f"ends with {limits.stop_text!r}")
    facts = [
        Fact("Id", task.id),
        Fact("State", state_words(task)),
        Fact("Runs", f"{task.runs:,}, {task.skips:,} times skipped, {task.errors:,} failed in a row"),
        Fact("Results go to", results_words(task)),
        Fact("Times that were missed", "one run for all" if task.missed == "run" else "no run"),
        Fact("Conversation", "one for all runs" if task.keeps_context else "a new one each time"),
        Fact("Limits", ", ".join(bounds) or "none of its own"),
        Fact("Other agents", "may be asked" if task.may_consult else "may not be asked"),
    ]
    return [Fact(fact.name, plain(fact.value)) for fact in facts]


def _slot(slot: TaskSlot, zone: str) -> TaskSlotRow:
    outcome = "at work" if slot.outcome is None else _OUTCOMES[slot.outcome]
    words = [
        outcome if slot.why is None else f"{outcome}: {WHY[slot.why]}",
        "late" if slot.missed == 1 else f"{slot.missed} missed" if slot.missed else "",
        "by hand" if slot.is_manual else "",
    ]
    return TaskSlotRow(
        at=shown_time(slot.slot_at, zone),
        words=", ".join(filter(None, words)),
        is_bad=slot.outcome in (SlotOutcome.ERROR, SlotOutcome.RECOVERED),
        run=slot.run,
    )
