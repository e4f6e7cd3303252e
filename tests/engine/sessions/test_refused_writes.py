"""A refused act leaves nothing behind: its unit is undone, and what goes together is one unit."""

from datetime import timedelta

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Conflict, Denied, Invalid, Limited
from antiphon.domain.inbound import InboundFile
from antiphon.domain.message import text_content
from antiphon.domain.schedule import At, Schedule, parse_every
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.domain.stored_task import NewTask, TaskEdit
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.policy.chats import ChannelRules, ChatRules
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import Disk, pending
from tests.engine.chats.lobby import Lobby
from tests.engine.stage import START, HeldRunner, ManualClock, config, post
from tests.engine.tasks_bench import HOUR, bench, own_session, person
from tests.people import guest
from tests.unchanged import nothing_stored

SECRET = Classification(level=Level.CONFIDENTIAL)


def open_to_all(app: App) -> Lobby:
    """A channel on which anybody may write."""
    rules = ChannelRules(agent_id=app.services.rules.default_agent, access=ChannelAccess.PUBLIC)
    return Lobby(app, ChatRules(channels={("telegram", "default"): rules}))


@pytest.mark.anyio
@requirement("tasks:1", "approvals:4")
async def test_a_refused_edit_of_a_task_leaves_what_was_allowed_to_it(open_home: OpenHome) -> None:
    disk = Disk()
    async with bench(open_home, parts={"tools": disk.parts().tools}) as b:
        mum, prompt = await person(b, "mum"), to_call("delete", name="old")
        task = await b.make(prompt, by=mum, session=await own_session(b, mum))
        await b.passes(HOUR)
        (asked,) = await pending(b.app)
        await b.app.services.approvals.resolve(OWNER, asked.id, Verdict.ALWAYS)
        await b.rests()
        past = Schedule(At(START - HOUR), "UTC")
        async with nothing_stored(b.app):
            with pytest.raises(Invalid, match="never fires"):
                await b.tasks.edit(mum, task.id, TaskEdit(prompt=f"{prompt}\n!say more", schedule=past))


@pytest.mark.anyio
@requirement("tasks:1", "sessions:4")
async def test_refused_tasks_and_messages_open_no_main_session(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        new = NewTask(name="Standup", prompt="!say done", schedule=Schedule(parse_every("1h", START), "UTC"))
        async with nothing_stored(b.app):
            with pytest.raises(Conflict, match="name is taken"):
                await b.tasks.create(OWNER, b.target("main"), [new, new])
            with pytest.raises(Conflict, match="has no channel"):
                await b.app.services.inbox.post(
                    OWNER, b.target("main"), text_content("hello"), envelope=Envelope(deliver=True)
                )


@pytest.mark.anyio
@requirement("channels:2", "access:3")
async def test_a_refused_message_of_a_chat_makes_its_sender_nobody(open_home: OpenHome) -> None:
    """Neither a participant of a session that is there, nor a person with a session of their own."""
    async with open_home(config(limits__guest={"storedBytes": 20})) as app:
        chat = app.services.sessions.target("agent:main:telegram:direct:7")
        await app.services.sessions.open(guest("other"), chat, place=NOWHERE)
        lobby = open_to_all(app)
        for sender in ("7", "8"):
            received = await lobby.hears(sender, "what is longer than twenty bytes")
            assert isinstance(received.refused, Denied) and received.refused.code == "guest_bytes"
            assert await lobby.person_of(sender) is None
            assert await lobby.count("participants") == 1
        assert await lobby.count("sessions") == 1


@pytest.mark.anyio
@requirement("channels:2", "spawn:5")
async def test_files_of_a_refused_message_open_no_session(open_home: OpenHome) -> None:
    async with open_home(config(limits__guest={"storedBytes": 20})) as app:
        lobby = open_to_all(app)
        file = InboundFile(name="a.txt", data=b"1", kind="document")
        received = await lobby.hears("7", "what is longer than twenty bytes", files=(file,))
        assert isinstance(received.refused, Denied) and received.refused.code == "guest_bytes"
        assert await lobby.count("sessions") == await lobby.count("participants") == 0


@pytest.mark.anyio
@requirement("runs:4", "sessions:6")
async def test_a_refused_message_begins_no_stale_session_anew(open_home: OpenHome) -> None:
    clock, runner = ManualClock(), HeldRunner()
    reset = {"mode": "idle", "idleMinutes": 30}
    settings = config(session__reset=reset, limits__guest={"queuedRuns": 1})
    async with open_home(settings, Parts(clock=clock, runner=runner)) as app:
        eve, busy, idle = guest("eve"), "agent:main:test:direct:busy", "agent:main:test:direct:idle"
        for name in (busy, idle):
            await app.services.sessions.open(eve, app.services.sessions.target(name), place=NOWHERE)
        await post(app, busy, "one", principal=eve)
        await runner.until_begun(1)
        await post(app, busy, "two", principal=eve)
        clock.pass_time(timedelta(hours=1))
        async with nothing_stored(app):
            with pytest.raises(Limited, match="waiting runs"):
                await post(app, idle, "three", principal=eve)
        runner.release_all()


@pytest.mark.anyio
@requirement("access:2", "flow:2")
async def test_nobody_takes_part_in_a_session_that_may_not_be_opened_for_them(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        await sessions.open(OWNER, sessions.target("main"), attributes=SessionAttributes(taint=SECRET))
        outside = DeliveryContext(channel="webhook", to="7", account_id="door")
        async with nothing_stored(app):
            with pytest.raises(Denied, match="clearance"):
                await sessions.open(guest("eve"), sessions.target("main"), place=outside)
