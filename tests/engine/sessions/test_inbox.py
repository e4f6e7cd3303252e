"""Posting and appending: idempotence, queue modes, groups."""

import json
from datetime import timedelta

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind, channel_principal
from antiphon.domain.errors import AntiphonError, Conflict, Invalid, NotFound
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    ProvenanceKind,
    Role,
    TextPart,
    ToolResult,
    text_content,
    text_of,
)
from antiphon.domain.person import PersonRole
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus, SessionType, Source
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.sessions.patches import session_columns
from antiphon.store import sessions as rows
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    ask,
    config,
    find_run,
    find_session,
    open_session,
    post,
    read_log,
    texts,
    wait_end,
)
from tests.unchanged import nothing_stored

pytestmark = pytest.mark.anyio

GUEST = Principal(PrincipalKind.PERSON, "ann")


@requirement("sessions:4")
async def test_the_same_message_again_gets_the_first_answer(open_home: OpenHome) -> None:
    async with open_home() as app:
        first = await post(app, "main", "hello", message_id="m-1")
        await wait_end(app, first.run_id)
        assert await post(app, "main", "hello", message_id="m-1") == first
    async with open_home() as app:
        assert await post(app, "main", "hello", message_id="m-1") == first
        assert texts(await read_log(app, "main")) == ["hello", "echo: hello"]
        assert (await find_session(app, "main")).message_count == 2


@requirement("sessions:4")
async def test_a_storm_of_repeats_stores_one_message_and_runs_once(open_home: OpenHome) -> None:
    async with open_home() as app:
        posted: list[Posted] = []

        async def repeat() -> None:
            posted.append(await post(app, "main", "hello", message_id="m-1"))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(repeat)
        assert len(set(map(repr, posted))) == 1
        await wait_end(app, posted[0].run_id)
        await ask(app, "main", "and then")
        assert texts(await read_log(app, "main")) == ["hello", "echo: hello", "and then", "echo: and then"]


@requirement("sessions:4", "sessions:5")
async def test_a_message_id_with_another_body_is_a_conflict(open_home: OpenHome) -> None:
    async with open_home() as app:
        await post(app, "main", "hello", message_id="m-1")
        with pytest.raises(Conflict) as raised:
            await post(app, "main", "goodbye", message_id="m-1")
        assert raised.value.code == "message_id_reused"
        with pytest.raises(Conflict) as raised:
            await app.services.inbox.append(
                OWNER, app.services.sessions.target("main"), text_content("goodbye"), message_id="m-1"
            )
        assert raised.value.code == "message_id_reused"


@requirement("sessions:4", "access:4")
async def test_anothers_message_of_the_same_id_and_text_is_a_conflict(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await open_session(app, "api:shared")
        await app.database.run(rows.add_participant, session.row, str(GUEST))
        await ask(app, "api:shared", "hello")
        with pytest.raises(Conflict) as raised:
            await post(app, "api:shared", "hello", principal=GUEST)
        assert raised.value.code == "message_id_reused"


async def test_ids_of_different_sessions_do_not_meet(open_home: OpenHome) -> None:
    async with open_home() as app:
        for name in ("api:one", "api:two"):
            await open_session(app, name)
            await post(app, name, f"to {name}", message_id="m-1")
        assert texts(await read_log(app, "api:two"))[0] == "to api:two"


@pytest.mark.parametrize("message_id", ["", "x" * 201, "new\nline"])
async def test_a_message_id_is_printable_and_short(open_home: OpenHome, message_id: str) -> None:
    async with open_home() as app:
        with pytest.raises(Invalid) as raised:
            await app.services.inbox.post(
                OWNER, app.services.sessions.target("main"), text_content("hello"), message_id=message_id
            )
        assert raised.value.code == "invalid_message_id"


BLANK = ["", " ", "\n\t ", "\u00a0", "\u200b", "\u2800", "\ufe0f\u200d"]


@pytest.mark.parametrize("text", BLANK)
async def test_a_message_that_shows_nothing_is_refused_at_every_door(open_home: OpenHome, text: str) -> None:
    """A provider would refuse it, and every later turn with it."""
    async with open_home() as app:
        target = app.services.sessions.target("main")
        for content in ((), (TextPart(text=text),), (TextPart(text=text), TextPart(text=" "))):
            for act in (app.services.inbox.post, app.services.inbox.append):
                with pytest.raises(Invalid) as raised:
                    await act(OWNER, target, content)
                assert raised.value.code == "empty_message"
        await ask(app, "main", "!call sessions_spawn " + json.dumps({"task": text}))
        await ask(app, "main", "!call sessions_send " + json.dumps({"label": "x", "message": text}))
        replies = [event for event in await read_log(app, "main") if isinstance(event.message, ToolResult)]
        codes = [json.loads(text_of(event.message.content))["code"] for event in replies if event.message]
        assert codes == ["empty_task", "empty_message"]
        picture = ImagePart(mime_type="image/png", data="aGk=")
        assert (await app.services.inbox.append(OWNER, target, (TextPart(text=text), picture))).seq


@requirement("sessions:5")
async def test_an_appended_message_runs_nothing_and_is_seen_by_later_turns(open_home: OpenHome) -> None:
    async with open_home() as app:
        await open_session(app, "api:notes")
        target = app.services.sessions.target("api:notes")
        first = await app.services.inbox.append(OWNER, target, text_content("aside"), message_id="a-1")
        assert (first.run_id, first.triggered) == (None, False)
        assert await app.services.inbox.append(OWNER, target, text_content("aside"), message_id="a-1") == first
        said = await app.services.inbox.append(OWNER, target, text_content("I said so"), role=Role.ASSISTANT)
        events = await read_log(app, "api:notes")
        assert [event.type for event in events] == ["session_started", "user_message", "assistant_message"]
        message = events[said.seq - 1].message
        assert isinstance(message, AssistantMessage) and message.provenance is not None
        assert message.provenance.kind is ProvenanceKind.SYNTHETIC
        with pytest.raises(Invalid) as raised:
            await app.services.inbox.append(OWNER, target, text_content("x"), role=Role.TOOL_RESULT)
        assert raised.value.code == "invalid_role"


@requirement("sessions:5")
async def test_a_message_that_occurred_earlier_does_not_move_the_session_back(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(parts=Parts(clock=clock)) as app:
        await open_session(app, "api:notes")
        target = app.services.sessions.target("api:notes")
        clock.pass_time(timedelta(hours=1))
        await app.services.inbox.append(OWNER, target, text_content("now"))
        before = (await find_session(app, "api:notes")).updated_at
        long_ago = clock.now() - timedelta(days=30)
        await app.services.inbox.append(OWNER, target, text_content("then"), occurred_at=long_ago)
        clock.pass_time(-timedelta(hours=5))
        await app.services.inbox.append(OWNER, target, text_content("the clock was set back"))
        assert (await find_session(app, "api:notes")).updated_at == before
        assert (await read_log(app, "api:notes"))[2].created_at == long_ago


@requirement("sessions:1")
async def test_a_post_keeps_the_sessions_columns(open_home: OpenHome) -> None:
    async with open_home() as app:
        await ask(app, "main", "word " * 40)
        session = await find_session(app, "main")
        assert session.description == ("word " * 16)[:77] + "..."
        assert session.preview is not None and session.preview.startswith("echo: word word")
        assert (session.message_count, session.turn_count) == (2, 1)


@requirement("runs:4", "runs:1")
async def test_messages_to_a_busy_session_are_queued_one_run_each(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        posted = [await post(app, "main", f"m-{number}") for number in range(3)]
        assert len({each.run_id for each in posted}) == 3
        await runner.until_begun(1)
        assert [(await find_run(app, each.run_id)).status for each in posted] == [
            RunStatus.RUNNING,
            RunStatus.QUEUED,
            RunStatus.QUEUED,
        ]
        runner.release_all()
        assert [(await wait_end(app, each.run_id)).reply for each in posted] == [
            "answer to m-0",
            "answer to m-1",
            "answer to m-2",
        ]


@requirement("runs:4")
async def test_collected_messages_share_the_run_that_waits(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first = await post(app, "main", "m-1")
        await runner.until_begun(1)
        second = await post(app, "main", "m-2", mode=QueueMode.COLLECT)
        third = await post(app, "main", "m-3", mode=QueueMode.COLLECT)
        assert second.run_id == third.run_id != first.run_id
        runner.release_all()
        assert (await wait_end(app, third.run_id)).reply == "answer to m-3"
        assert len(runner.begun) == 2


@requirement("runs:4", "runs:7")
async def test_only_messages_of_one_principal_are_folded(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        session = await open_session(app, "api:shared")
        await app.database.run(rows.add_participant, session.row, str(GUEST))
        owners = await post(app, "api:shared", "m-1")
        await runner.until_begun(1)
        for mode in (QueueMode.STEER, QueueMode.COLLECT):
            guests = await post(app, "api:shared", f"{mode} of a guest", mode=mode, principal=GUEST)
            folded = await post(app, "api:shared", f"{mode} of the owner", mode=mode)
            assert guests.run_id not in (owners.run_id, folded.run_id)
            assert (await find_run(app, guests.run_id)).principal == GUEST
        runner.release_all()
        await wait_end(app, folded.run_id)


@requirement("runs:4")
async def test_a_steered_message_joins_the_running_run_and_is_answered_by_it(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first = await post(app, "main", "m-1")
        await runner.until_begun(1)
        steered = await post(app, "main", "m-2", mode=QueueMode.STEER)
        assert steered.run_id == first.run_id
        runner.release_all()
        assert (await wait_end(app, first.run_id)).reply == "answer to m-2"
        assert texts(await read_log(app, "main")) == ["m-1", "m-2", "answer to m-1", "answer to m-2"]
        later = await post(app, "main", "m-3", mode=QueueMode.STEER)
        assert later.run_id != first.run_id


@requirement("runs:4")
async def test_an_interrupt_cancels_the_running_run_and_goes_before_queued_ones(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first = await post(app, "main", "m-1")
        await runner.until_begun(1)
        queued = await post(app, "main", "m-2")
        urgent = await post(app, "main", "m-3", mode=QueueMode.INTERRUPT)
        await runner.until_begun(2)
        runner.release_all()
        assert (await wait_end(app, first.run_id)).status is RunStatus.CANCELLED
        assert (await wait_end(app, queued.run_id)).status is RunStatus.OK
        assert runner.begun == [first.run_id, urgent.run_id, queued.run_id]


@requirement("runs:4")
async def test_a_busy_session_rejects_where_it_is_asked_to(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first = await post(app, "main", "m-1")
        with pytest.raises(Conflict) as raised:
            await post(app, "main", "m-2", mode=QueueMode.REJECT)
        assert raised.value.code == "session_busy"
        assert texts(await read_log(app, "main")) == ["m-1"]
        runner.release_all()
        await wait_end(app, first.run_id)
        assert (await post(app, "main", "m-2", mode=QueueMode.REJECT)).triggered


@requirement("runs:4")
async def test_a_message_goes_before_its_session_and_that_before_the_configuration(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(messages__queue__mode="reject"), Parts(runner=runner)) as app:
        await open_session(app, "api:desk")
        sessions, target = app.services.sessions, app.services.sessions.target("api:desk")

        async def sets(mode: QueueMode | None) -> None:
            changed = await sessions.patch(OWNER, target, session_columns({"queue_mode": mode}))
            assert changed.queue_mode == mode

        first = await post(app, "api:desk", "m-1")
        await runner.until_begun(1)
        with pytest.raises(Conflict):
            await post(app, "api:desk", "refused by the configuration")
        await sets(QueueMode.COLLECT)
        second, third = await post(app, "api:desk", "m-2"), await post(app, "api:desk", "m-3")
        assert second.run_id == third.run_id != first.run_id
        fourth = await post(app, "api:desk", "m-4", mode=QueueMode.ENQUEUE)
        assert fourth.run_id != third.run_id
        await sets(QueueMode.STEER)
        assert (await post(app, "api:desk", "m-5")).run_id == first.run_id
        await sets(None)
        with pytest.raises(Conflict):
            await post(app, "api:desk", "refused again")
        runner.release_all()
        for posted in (first, third, fourth):
            assert (await wait_end(app, posted.run_id)).status is RunStatus.OK


@requirement("runs:4", "runs:7")
async def test_a_session_that_interrupts_does_so_for_nobody_who_may_not(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        session = await open_session(app, "api:shared")
        await app.database.run(rows.add_participant, session.row, str(GUEST))
        sessions = app.services.sessions
        columns = session_columns({"queue_mode": QueueMode.INTERRUPT})
        await sessions.patch(OWNER, sessions.target("api:shared"), columns)
        owners = await post(app, "api:shared", "m-1")
        await runner.until_begun(1)
        guests = await post(app, "api:shared", "m-2", principal=GUEST)
        assert not (await find_run(app, owners.run_id)).is_cancel_requested
        assert (await find_run(app, guests.run_id)).mode is QueueMode.ENQUEUE
        runner.release_all()
        for posted in (owners, guests):
            assert (await wait_end(app, posted.run_id)).status is RunStatus.OK


async def test_a_group_message_that_does_not_mention_the_agent_is_stored_only(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await open_session(app, "agent:main:telegram:group:-100", source=Source(type=SessionType.GROUP))
        await app.database.run(rows.add_participant, session.row, str(GUEST))
        name = str(session.key)
        aside = await post(app, name, "lunch?", principal=GUEST, mentioned=False)
        assert (aside.run_id, aside.triggered) == (None, False)
        assert (await post(app, name, "hey agent", principal=GUEST)).triggered
        owners = await post(app, name, "to nobody", mentioned=False)
        assert owners.triggered
        await wait_end(app, owners.run_id)
        assert texts(await read_log(app, name))[:2] == ["lunch?", "hey agent"]


async def test_a_message_of_a_direct_chat_needs_no_mention(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await open_session(app, "agent:main:telegram:direct:7", source=Source(kind="channel"))
        await app.database.run(rows.add_participant, session.row, str(GUEST))
        posted = await post(app, str(session.key), "hello", principal=GUEST, mentioned=False)
        assert posted.triggered
        assert (await wait_end(app, posted.run_id)).reply == "echo: hello"


@requirement("sessions:4")
async def test_the_main_session_comes_into_being_and_no_other(open_home: OpenHome) -> None:
    async with open_home() as app:
        posted = await post(app, "main", "hello")
        assert posted.session_key == "agent:main:main"
        for name in ("api:nothing", "agent:main:nothing", "agent:other:main"):
            with pytest.raises(NotFound) as raised:
                await post(app, name, "hello")
            assert raised.value.code == "not_found"
        with pytest.raises(AntiphonError):
            await post(app, "main", "hello", principal=GUEST)


@requirement("sessions:4", "access:2")
async def test_only_an_owner_brings_a_main_session_into_being(open_home: OpenHome) -> None:
    """No guest, no user, and no program of a channel, which opens what is in its namespace."""
    async with open_home() as app:
        user = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        for principal in (GUEST, user, channel_principal("telegram")):
            async with nothing_stored(app):
                with pytest.raises(NotFound):
                    await post(app, "main", "hello", principal=principal)


@requirement("sessions:2")
async def test_an_inactive_session_becomes_idle_when_it_is_posted_to(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await open_session(app, "api:old")
        await app.services.sessions.patch(
            OWNER, app.services.sessions.target("api:old"), {"status": SessionStatus.INACTIVE.value}
        )
        target = app.services.sessions.target("api:old")
        await app.services.inbox.append(OWNER, target, text_content("for later"))
        assert (await find_session(app, "api:old")).status is SessionStatus.INACTIVE
        await ask(app, "api:old", "wake up")
        assert (await find_session(app, "api:old")).status is SessionStatus.IDLE
        assert session.row == (await find_session(app, "api:old")).row


@requirement("runs:2")
async def test_the_run_is_named_before_the_model_is_asked_and_keeps_the_reply(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        posted = await post(app, "main", "m-1")
        assert runner.begun == []
        assert (await find_run(app, posted.run_id)).reply is None
        runner.release_all()
        await wait_end(app, posted.run_id)
    async with open_home() as app:
        assert (await find_run(app, posted.run_id)).reply == "answer to m-1"


async def test_content_of_several_parts_is_kept_as_it_was_sent(open_home: OpenHome) -> None:
    content = (TextPart(text="one"), TextPart(text="two"))
    async with open_home() as app:
        posted = await app.services.inbox.post(OWNER, app.services.sessions.target("main"), content)
        stored = (await read_log(app, "main"))[posted.seq - 1].message
        assert stored is not None and stored.content == content
