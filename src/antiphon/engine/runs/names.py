"""The names around a run that people chose: of its person, its chat and its task. Prompts show them as data."""

from msgspec import Struct

from antiphon.domain.run import Run
from antiphon.domain.session import Session, SessionType
from antiphon.domain.stored_task import TaskSlot
from antiphon.store import people, tasks
from antiphon.store.database import Query


class RunNames(Struct, frozen=True, kw_only=True):
    """All of it is in the log or in the session's row already, with a classification not above the run's context."""

    person: str | None = None
    """The person who speaks, in direct chats; in groups each message names its own."""
    chat: str | None = None
    task: str | None = None
    last_run: TaskSlot | None = None
    """The task's run before this one; None if this is its first."""


NO_NAMES = RunNames()


async def find_names(query: Query, run: Run, session: Session) -> RunNames:
    named = RunNames(chat=session.display_name)
    if run.task is not None:
        task = await tasks.find(query, run.task)
        slots = await tasks.list_slots(query, run.task, 2)
        before = next((slot for slot in slots if slot.run != run.id), None)
        return RunNames(chat=named.chat, task=None if task is None else task.name, last_run=before)
    person = people.person_of(run.principal)
    if person is None or session.source.type is SessionType.GROUP:
        return named
    found = (await people.find_names(query, [person])).get(person)
    if found is None or found.shown == person:  # an id that nobody chose, such as `owner`, tells nothing
        return named
    return RunNames(chat=named.chat, person=found.shown)
