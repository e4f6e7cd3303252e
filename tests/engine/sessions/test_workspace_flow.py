"""What a workspace was made of, and whom that raises."""

import json
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.event import EventType
from antiphon.domain.ids import SessionId
from antiphon.engine.sessions.patches import session_columns
from antiphon.store import incarnations
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

INTERNAL = Classification(Level.INTERNAL)
SECRET = Classification(Level.CONFIDENTIAL)
HOST: dict[str, Any] = {"tools__run_command__mode": "host", "tools__approval__require": []}
CLEARED: dict[str, Any] = {**HOST, "tools__run_command__clearance": {"level": "CONFIDENTIAL"}}


def ledger() -> str:
    """Reads the books."""
    return "the books"


PARTS = Parts(tools=[tool(ledger, name="books", effects=["reads"], classification={"level": "CONFIDENTIAL"})])
BOOKS = to_call("books")


def command(text: str) -> str:
    return to_call("run_command", command=text)


async def output(character: Character, text: str) -> dict[str, Any]:
    return json.loads((await character.answers(command(text))).reply or "")


async def make_workspace(story: Story, character: Character, made_of: Classification) -> None:
    """The workspace was made of that; the session does not know yet."""
    session = await character.session()
    await story.app.database.run(incarnations.set_workspace, SessionId(session.id), made_of, sessions=(session.row,))


@requirement("flow:7")
async def test_a_command_on_the_host_takes_no_more_along_than_its_clearance(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **HOST) as story:
        desk = await story.opens("desk")
        assert (await output(desk, "echo one > notes; cat notes"))["stdout"] == "one\n"
        await desk.answers(BOOKS)
        refused = await output(desk, "echo two > notes")
        assert (refused["status"], refused["code"]) == ("forbidden", "write_down")
        assert (await desk.calls("run_command", command="echo two > notes"))["code"] == "write_down"
        assert (await desk.session()).workspace == PUBLIC
    async with telling(open_home, PARTS, **CLEARED) as story:
        assert (await output(story.session("desk"), "cat notes"))["stdout"] == "one\n"


@requirement("flow:8")
async def test_a_workspace_is_made_of_the_contexts_that_used_it(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **CLEARED) as story:
        desk, other = await story.opens("desk"), await story.opens("other", taint=INTERNAL)
        await output(desk, "echo one > notes")
        assert (await desk.session()).workspace == PUBLIC
        await desk.answers(BOOKS)
        await output(desk, "echo two > notes")
        assert (await desk.session()).workspace == SECRET
        await other.calls("run_command", command="echo one > notes")
        assert (await other.session()).workspace == INTERNAL


@requirement("flow:8")
async def test_whoever_reads_a_workspace_rises_to_what_it_was_made_of(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **CLEARED) as story:
        desk = await story.opens("desk")
        await output(desk, "echo one > notes")
        await make_workspace(story, desk, SECRET)
        assert (await output(desk, "cat notes"))["stdout"] == "one\n"
        assert (await desk.session()).taint == SECRET
        result = [event for event in await desk.log() if event.type == EventType.TOOL_RESULT][-1]
        assert result.classification == SECRET


@requirement("flow:2", "flow:8")
async def test_a_workspace_above_the_ceiling_is_not_read(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **CLEARED) as story:
        desk = await story.opens("desk")
        await desk.changes(**session_columns({"clearance": INTERNAL}))
        await make_workspace(story, desk, SECRET)
        assert (await output(desk, "ls"))["code"] == "above_clearance"
        assert (await desk.calls("run_command", command="ls"))["code"] == "above_clearance"
        assert (await desk.session()).taint == PUBLIC


@requirement("flow:7", "flow:8")
async def test_a_command_that_may_leave_takes_the_workspace_along(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **HOST) as story:
        desk = await story.opens("desk")
        await make_workspace(story, desk, SECRET)
        assert (await output(desk, "ls"))["code"] == "write_down"
        assert (await desk.calls("run_command", command="ls"))["code"] == "write_down"
        assert (await desk.session()).taint == PUBLIC


@requirement("sessions:6", "flow:8")
async def test_a_reset_begins_an_empty_workspace_and_the_old_one_stays(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **CLEARED) as story:
        desk = await story.opens("desk")
        await desk.answers(BOOKS)
        await output(desk, "echo one > notes")
        before = story.app.workspaces.of_session(await desk.session()).path
        await story.resets(desk)
        assert (await output(desk, "ls"))["stdout"] == ""
        session = await desk.session()
        assert (session.taint, session.workspace) == (PUBLIC, PUBLIC)
        assert (before / "notes").read_text("utf-8") == "one\n"
        present = story.app.workspaces.of_session(session).path
        assert present != before and present.is_dir()
        await story.deletes(desk)
        assert not before.exists() and not present.exists()
