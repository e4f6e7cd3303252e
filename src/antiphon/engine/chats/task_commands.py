"""`/task`: what the agent does at set times, created and changed in a chat. Contract: channels 3, 4, tasks 2.

A chat shows and changes the tasks that were made in its session; owners name any. Names and prompts are shown only if
anybody may read them, like the labels of sessions.
"""

from antiphon.domain.classification import PUBLIC
from antiphon.domain.commands import HERE, ChatCommand, Subcommand
from antiphon.domain.errors import REFUSALS, Invalid, TooLarge
from antiphon.domain.ids import TaskId
from antiphon.domain.keys import ChatType
from antiphon.domain.schedule import At, shown_time
from antiphon.domain.send_to import SendTo, parse_send_to
from antiphon.domain.stored_task import NewTask, StoredTask, TaskEdit, check_prompt, parse_name
from antiphon.domain.task import TaskState
from antiphon.domain.task_words import results_words, schedule_words, slot_words, state_words
from antiphon.domain.text import one_line
from antiphon.domain.words import folded
from antiphon.domain.written_task import WrittenTask
from antiphon.domain.written_times import schedule_of
from antiphon.engine.chats.chat import NO_SESSION, Chat
from antiphon.engine.chats.session_commands import opening_of
from antiphon.engine.rules import Rules
from antiphon.engine.schedules.tasks import (
    CreateTasks,
    EditTask,
    ListTasks,
    TaskCall,
    approve_task,
    cancel_task,
    create_tasks,
    edit_task,
    find_task,
    list_slots,
    list_tasks,
    pause_task,
    resume_task,
    run_task,
)
from antiphon.policy.flow import is_public
from antiphon.store.database import Query, Transaction

LISTED = 50
MOST_NAMES = 500
"""How many tasks of a chat are looked through for a name."""
SHOWN_RUNS = 5
MOST_RUNS = 10
SHOWN_PROMPT, LISTED_PROMPT = 500, 160
NO_TASKS = "There are no tasks yet. /task new every weekday at 8 fetch https://example.org/news and tell me what is new"
ELSEWHERE = "Tasks of other chats are listed in direct chats only, because everybody here would read them."


async def perform_task(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    if command.sub is Subcommand.NEW:
        return await _create(tx, chat, command.tasks, rules)
    if command.sub is Subcommand.LIST:
        return await _list(tx, chat, rules, is_everywhere=command.is_everywhere)
    if chat.session is None:
        return NO_SESSION
    id = await _named(tx, chat, command.argument or "", rules)
    call = TaskCall(rights=chat.rights(rules), id=id, target=chat.target)
    match command.sub:
        case Subcommand.RUN:
            slot = await run_task(tx, call)
            return f"Task {id} runs now ({slot.run})."
        case Subcommand.RUNS | Subcommand.LAST:
            most = 1 if command.sub is Subcommand.LAST else min(command.most or SHOWN_RUNS, MOST_RUNS)
            return await _runs(tx, call, most)
        case Subcommand.SHOW:
            return _shown(await find_task(tx, call))
        case Subcommand.PAUSE:
            return _said(await pause_task(tx, call), "is paused.")
        case Subcommand.RESUME:
            resumed = await resume_task(tx, call)
            return _said(resumed, _resumed(resumed))
        case Subcommand.SEND:
            return await _send(tx, chat, call, command.send_to or "")
        case Subcommand.APPROVE:
            return _said(await approve_task(tx, call), "may ask other agents, as far as the settings allow.")
        case _:
            return _said(await cancel_task(tx, call), "is removed. A run in progress goes on.")


async def _send(tx: Transaction, chat: Chat, call: TaskCall, to: str) -> str:
    """Changes where results go; `here` is the chat in which the command is given."""
    is_here = to.lower() == HERE
    assert chat.session is not None
    written = SendTo(session_key=str(chat.session.key)) if is_here else parse_send_to(to)
    route = PUBLIC if chat.rules is None else chat.rules.classification
    place = chat.place if is_here else None
    edit = EditTask(call=call, edit=TaskEdit(send_to=written), version=None, route=route, place=place)
    changed = await edit_task(tx, edit)
    return _said(changed, f"sends its results to {results_words(changed)}.")


def _said(changed: StoredTask, words: str) -> str:
    return f"{_name(changed)} {words}"


def _resumed(task: StoredTask) -> str:
    if task.state is TaskState.ENDED:
        return f"has ended: its time came while it was paused ({_when(task)}). Make a new one with /task new."
    return f"goes on: {_when(task)}"


async def _create(tx: Transaction, chat: Chat, written: tuple[WrittenTask, ...], rules: Rules) -> str:
    """Makes all of them or none, in a session that is opened if the chat has none yet."""
    new: list[NewTask] = []
    for number, each in enumerate(written, start=1):
        try:
            check_prompt(each.prompt)
            schedule = schedule_of(each.time, rules.task_zone, tx.now)
            new.append(NewTask(name=parse_name(each.name), prompt=each.prompt, schedule=schedule))
        except (Invalid, TooLarge) as error:
            return error.message if len(written) == 1 else f"Task {number}: {error.message}\nNothing was saved."
    is_new = chat.session is None
    command = CreateTasks(
        rights=chat.rights(rules),
        target=chat.target,
        opening=opening_of(chat, chat.route.session_key, None, rules) if is_new else None,
        new=tuple(new),
        place=chat.place,
        route=PUBLIC if chat.rules is None else chat.rules.classification,
    )
    try:
        async with tx.attempt():
            created = await create_tasks(tx, command)
    except REFUSALS as error:
        return error.message if len(written) == 1 else f"{error.message}\nNothing was saved."
    if len(created) == 1:
        return f"Created task {_made(created[0], SHOWN_PROMPT)}"
    lines = (f"- {_made(task, LISTED_PROMPT)}" for task in created)
    return "\n".join([f"Created {len(created)} tasks", *lines])


def _made(task: StoredTask, length: int) -> str:
    """What was understood: when it fires, and what is left as its prompt."""
    return "\n".join(filter(None, [f"{_name(task)}: {_when(task)}", _prompt(task, length)]))


async def _list(query: Query, chat: Chat, rules: Rules, *, is_everywhere: bool) -> str:
    if is_everywhere and chat.chat_type is not ChatType.DIRECT:
        return ELSEWHERE
    if chat.session is None and not is_everywhere:
        return NO_TASKS
    target = None if is_everywhere else chat.target
    command = ListTasks(rights=chat.rights(rules), target=target, after=None, limit=LISTED + 1)
    found = await list_tasks(query, command)
    if not found:
        return NO_TASKS
    lines = [f"- {_name(task)}: {_summary(task)}" for task in found[:LISTED]]
    return "\n".join(["Tasks", *lines, *(["... and more"] if len(found) > LISTED else [])])


async def _named(query: Query, chat: Chat, text: str, rules: Rules) -> TaskId:
    """The task of that name in this chat; else the text is taken for an id."""
    command = ListTasks(rights=chat.rights(rules), target=chat.target, after=None, limit=MOST_NAMES)
    try:
        found = await list_tasks(query, command)
    except REFUSALS:
        return TaskId(text)
    wanted = folded(text.strip('"'))
    return next((task.id for task in found if folded(task.name) == wanted), TaskId(text))


async def _runs(query: Query, call: TaskCall, most: int) -> str:
    found = await find_task(query, call)
    slots = await list_slots(query, call, most)
    if not slots:
        return f"{_name(found)} has not run yet. /task run {found.id} runs it now."
    return "\n".join([_name(found), *(f"- {slot_words(slot, found.schedule.zone)}" for slot in slots)])


def _shown(task: StoredTask) -> str:
    lines = [
        _name(task),
        _when(task),
        f"State: {state_words(task)}",
        f"Runs: {task.runs}, skipped: {task.skips}" + (f", failed in a row: {task.errors}" if task.errors else ""),
        f"Results go to: {results_words(task)}",
        "Asks other agents: yes" if task.may_consult else "",
        _prompt(task, SHOWN_PROMPT),
    ]
    return "\n".join(line for line in lines if line)


def _name(task: StoredTask) -> str:
    """The name and the id; the id alone if not everybody may read the name."""
    return f'"{task.name}" ({task.id})' if is_public(task.made_of) else str(task.id)


def _prompt(task: StoredTask, length: int) -> str:
    """Its prompt on one line; nothing if not everybody may read it."""
    return f"Prompt: {one_line(task.prompt, length)}" if is_public(task.made_of) else ""


def _when(task: StoredTask) -> str:
    return schedule_words(task.schedule, task.next_at if task.state is TaskState.ACTIVE else None)


def _summary(task: StoredTask) -> str:
    """The schedule with the next time, or why there is none."""
    words = schedule_words(task.schedule, None)
    if task.state is not TaskState.ACTIVE or task.next_at is None:
        return f"{words}, {state_words(task)}"
    if isinstance(task.schedule.trigger, At):
        return words
    return f"{words}. Next: {shown_time(task.next_at, task.schedule.zone)}"
