"""Of the processes that could look back at a session one does, and one that was taken over changes nothing."""

from contextlib import AsyncExitStack

import anyio
import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.backends import describe_process
from antiphon.building import App, Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import ProcessId
from antiphon.domain.message import Usage
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, DecidedChanges, LookedBack, NoteChange
from antiphon.engine.checkpoints.steps import (
    BeginCheckpoint,
    FinishCheckpoint,
    UsedByCheckpoint,
    begin_checkpoint,
    finish_checkpoint,
    hand_back_checkpoint,
    note_usage,
)
from antiphon.engine.memory.people import NoteSearch
from antiphon.store import checkpoints, processes
from antiphon.store import sessions as rows
from antiphon.store.checkpoints import DueCheckpoint
from antiphon.testing import fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.checkpoints.test_checkpoints import introspections, looking, looks_back, noting, until_facts
from tests.engine.stage import ask, find_session, open_with_provider, read_log

pytestmark = pytest.mark.anyio

ROUNDS = 5


async def live(app: App, name: str) -> ProcessId:
    """A process that the others see as living."""
    process = describe_process(ProcessId(name), "all", version="1", fingerprint="", agents=())
    await app.database.run(processes.insert, process, 0)
    return process.id


async def begin(app: App, process: ProcessId) -> BegunCheckpoint | None:
    session = await find_session(app, "main")
    command = BeginCheckpoint(
        due=DueCheckpoint(session.row, session.id),
        process=process,
        rules=app.services.rules,
    )
    return await app.database.run(begin_checkpoint, command, sessions=(session.row,))


async def finish(app: App, begun: BegunCheckpoint, words: str) -> bool:
    """Ends it with those words as all that it decided; whether that counted."""
    changes = DecidedChanges(working_memory=words, description=words, notes=(NoteChange(text=words),))
    command = FinishCheckpoint(
        begun=begun,
        looked=LookedBack(changes=changes),
        rules=app.services.rules,
    )
    return await app.database.run(finish_checkpoint, command, sessions=(begun.session.row,))


async def use(app: App, begun: BegunCheckpoint) -> bool:
    used = UsedByCheckpoint(usage=Usage(10, 10, steps=1), model="m", is_counted=True, at_ms=0)
    return await app.database.run(note_usage, begun, used, sessions=(begun.session.row,))


async def make_due(app: App) -> None:
    """The idle time of the session has passed."""
    await app.database.run(rows.update, (await find_session(app, "main")).row, {"checkpoint_at": 1})


async def texts_of_notes(app: App) -> list[str]:
    return [note.text for note in await app.services.notes.list(OWNER, NoteSearch(), limit=10)]


@requirement("checkpoints:1")
async def test_a_process_whose_checkpoint_was_taken_over_changes_nothing(open_home: OpenHome) -> None:
    async with looking(open_home, noting()) as (app, _):
        await ask(app, "main", "Good morning.")
        await app.checkpointer.drain(0)
        await make_due(app)
        one, two = await live(app, "one"), await live(app, "two")
        dead = await begin(app, one)
        assert dead is not None and await begin(app, two) is None
        await app.database.run(processes.delete, one)
        taken = await begin(app, two)
        assert taken is not None and taken.fence.number == dead.fence.number + 1
        assert (taken.run, taken.after, taken.through) == (dead.run, dead.after, dead.through)
        events, row = await read_log(app, "main"), await app.database.read(checkpoints.find, taken.incarnation)
        assert not await finish(app, dead, "of the dead") and not await use(app, dead)
        await app.database.run(hand_back_checkpoint, dead.fence, sessions=(dead.session.row,))
        assert await read_log(app, "main") == events
        assert await app.database.read(checkpoints.find, taken.incarnation) == row
        assert await texts_of_notes(app) == []
        assert await use(app, taken) and await finish(app, taken, "of the living")
        assert not await finish(app, taken, "again") and not await finish(app, dead, "of the dead")
        session = await find_session(app, "main")
        assert (session.description, session.working_memory) == ("of the living", "of the living")
        assert await texts_of_notes(app) == ["of the living"]
        assert introspections(await read_log(app, "main")) == ["introspection_started", "introspection_finished"]


@requirement("checkpoints:1")
async def test_of_two_processes_that_find_a_checkpoint_due_one_has_it(open_home: OpenHome) -> None:
    async with looking(open_home, noting()) as (app, _):
        await app.checkpointer.drain(0)
        processes_at_work = [await live(app, "one"), await live(app, "two")]
        for number in range(ROUNDS):
            await ask(app, "main", f"question {number}")
            await make_due(app)
            begun: list[BegunCheckpoint] = []

            async def begin_too(process: ProcessId, into: list[BegunCheckpoint]) -> None:
                if (one := await begin(app, process)) is not None:
                    into.append(one)

            async with anyio.create_task_group() as tasks:
                for process in processes_at_work:
                    tasks.start_soon(begin_too, process, begun)
            (one,) = begun
            assert await finish(app, one, f"words {number}")
        assert await texts_of_notes(app) == [f"words {number}" for number in reversed(range(ROUNDS))]


@requirement("checkpoints:1")
async def test_two_running_systems_look_back_once(open_home: OpenHome, database_section: DatabaseSection) -> None:
    if database_section.url is None:
        pytest.skip("a file has one process")
    async with fake_provider(noting()) as fake, AsyncExitStack() as stack:
        apps = [
            await stack.enter_async_context(
                open_with_provider(open_home, fake, Parts(retry=RetryPolicy(attempts=1)), checkpoints__enabled=True)
            )
            for _ in range(2)
        ]
        for number in range(ROUNDS):
            await ask(apps[number % 2], "main", f"question {number}")
            await make_due(apps[0])
            for app in apps:
                app.checkpointer.wake()
            await until_facts(apps[0], "main", "introspection_finished", number + 1)
        both = ["introspection_started", "introspection_finished"]
        assert introspections(await read_log(apps[0], "main")) == both * ROUNDS
        assert len([request for request in fake.requests if looks_back(request)]) == ROUNDS
