"""The names around a run that people chose: of its person, its chat and its task. Prompts show them as data."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Integrity
from antiphon.domain.distrust import ReadSource, source_of_name
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session, SessionType
from antiphon.domain.stored_task import TaskSlot
from antiphon.engine.access.recipients import account_of
from antiphon.policy.rights import integrity_of_any
from antiphon.store import channel_groups, chat_names, people, tasks
from antiphon.store.database import Query


class RunNames(Struct, frozen=True, kw_only=True):
    """All of it is in the log or in the session's row already, with a classification not above the run's context.

    A task's name is as trusted as its prompt, and the person speaks for themselves.
    """

    person: str | None = None
    """The person who speaks, in direct chats; in groups each message names its own."""
    chat: str | None = None
    task: str | None = None
    last_run: TaskSlot | None = None
    """The task's run before this one; None if this is its first."""
    sources: tuple[ReadSource, ...] = ()
    """The chat's name, if somebody below owner may have given it. Contract: flow 2."""


NO_NAMES = RunNames()


async def find_names(query: Query, run: Run, session: Session) -> RunNames:
    named = RunNames(chat=session.display_name, sources=await _sources(query, run, session))
    if run.task is not None:
        task = await tasks.find(query, run.task)
        slots = await tasks.list_slots(query, run.task, 2)
        before = next((slot for slot in slots if slot.run != run.id), None)
        return replace(named, task=None if task is None else task.name, last_run=before)
    person = people.person_of(run.principal)
    if person is None or session.source.type is SessionType.GROUP:
        return named
    found = (await people.find_names(query, [person])).get(person)
    if found is None or found.shown == person:  # an id that nobody chose, such as `owner`, tells nothing
        return named
    return replace(named, person=found.shown)


async def _sources(query: Query, run: Run, session: Session) -> tuple[ReadSource, ...]:
    """Reads nothing for a chat without a name, and for one in which nobody but the person of the run takes part."""
    name = session.display_name
    worth = Integrity.TRUSTED if name is None else await _worth_of_name(query, run, session, name)
    return () if name is None or worth is Integrity.TRUSTED else (source_of_name(name, worth),)


async def _worth_of_name(query: Query, run: Run, session: Session, name: str) -> Integrity:
    """Anybody may rename a group; who takes part may name a session, also without a word in it."""
    place = session.delivery
    if session.source.type is SessionType.GROUP and place.is_outside:
        if await _is_vouched_for(query, place, name):
            return Integrity.TRUSTED
        if name == await chat_names.find(query, place):
            return Integrity.UNTRUSTED
    others = [each for each in session.participants if each != str(run.principal)]
    return integrity_of_any(others, await people.find_roles(query)) if others else Integrity.TRUSTED


async def _is_vouched_for(query: Query, place: DeliveryContext, title: str) -> bool:
    """Whether an owner has seen the group's title when they allowed it, or given it."""
    assert place.channel is not None and place.to is not None
    group = await channel_groups.find_by_address(query, place.channel, account_of(place), place.to)
    return group is not None and group.known_title == title
