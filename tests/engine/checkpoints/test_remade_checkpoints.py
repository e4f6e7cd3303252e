"""A checkpoint that began in a deleted session writes nothing into the session that was made anew."""

import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import ProcessId
from antiphon.engine.checkpoints.introspector import BegunCheckpoint
from antiphon.engine.checkpoints.steps import BeginCheckpoint, begin_checkpoint
from antiphon.store import sessions as rows
from antiphon.store.checkpoints import DueCheckpoint
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.checkpoints.test_checkpoint_claims import finish, live
from tests.engine.checkpoints.test_checkpoints import looking, noting
from tests.engine.stage import ask, find_session, open_session

pytestmark = pytest.mark.anyio

NAME = "agent:main:cli:work"


async def begin(app: App, process: ProcessId) -> BegunCheckpoint:
    """The session's idle time is over, and the process looks back at it."""
    session = await find_session(app, NAME)
    await app.database.run(rows.update, session.row, {"checkpoint_at": 1})
    command = BeginCheckpoint(
        due=DueCheckpoint(session.row, session.id),
        process=process,
        rules=app.services.rules,
    )
    begun = await app.database.run(begin_checkpoint, command, sessions=(session.row,))
    assert begun is not None
    return begun


@requirement("checkpoints:1", "sessions:7")
async def test_a_checkpoint_of_a_deleted_session_does_not_enter_the_one_made_anew(open_home: OpenHome) -> None:
    async with looking(open_home, noting()) as (app, _):
        await app.checkpointer.drain(0)
        one, two = await live(app, "one"), await live(app, "two")
        await open_session(app, NAME)
        await ask(app, NAME, "an old secret")
        old = await begin(app, one)
        await app.services.sessions.delete(OWNER, app.services.sessions.target(NAME))
        await open_session(app, NAME)
        await ask(app, NAME, "hello")
        await begin(app, two)
        assert not await finish(app, old, "the old secret")
        assert (await find_session(app, NAME)).working_memory != "the old secret"
