"""Where answers go: to the place that the message came from, which is the log unless a channel brought it."""

import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Run
from antiphon.domain.session import HERE, WEBCHAT
from antiphon.engine.sessions.inbox import Envelope, Posted
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio


async def chat(story: Story) -> tuple[Character, Character]:
    """A session that speaks in a room, as people in the room and as people in front of the log write to it."""
    room = await story.opens("desk")
    await room.speaks_at("room")
    return room, story.session("desk")


async def texts(story: Story) -> list[str]:
    return [delivery.text for delivery in await story.deliveries()]


async def speak(
    story: Story, desk: Character, text: str, *, id: str | None = None, principal: Principal = OWNER
) -> Posted:
    return await story.app.services.inbox.post(
        principal, desk.target, text_content(text), message_id=id, envelope=Envelope(deliver=True)
    )


async def end(story: Story, posted: Posted) -> Run:
    assert posted.run_id is not None
    return await story.end_of(posted.run_id)


@requirement("sessions:4", "channels:1")
async def test_a_reply_goes_where_its_message_came_from(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        room, log = await chat(story)
        assert (await room.answers("!say to the room")).reply == "to the room"
        assert (await log.answers("!say to the log")).reply == "to the log"
        assert await texts(story) == ["to the room"]
        assert (await log.texts())[1::2] == ["to the room", "to the log"]


@requirement("sessions:4", "spawn:7", "spawn:8")
@pytest.mark.parametrize("words", ["!say asked", "!call sessions_yield {}"], ids=["announced", "yielded"])
async def test_what_follows_from_a_run_goes_where_the_run_was_asked(open_home: OpenHome, words: str) -> None:
    task = to_spawn("!announce worded\n!say found")
    async with telling(open_home) as story:
        room, log = await chat(story)
        await log.answers(task, words)
        await story.settles()
        assert await texts(story) == [] and [record.result for record in await log.records()] == ["found"]
        assert (await log.runs())[0].place == HERE
        await room.answers(task, words)
        await story.settles()
        assert len(await texts(story)) == (2 if words == "!say asked" else 1)


@requirement("sessions:4")
async def test_an_answer_stays_in_the_log_if_the_session_speaks_elsewhere_by_then(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        log = await story.opens("desk")
        asked = await log.hears(wait_at("end"), "!say private")
        await story.comes_to("end")
        await story.session("desk").speaks_at("room")
        story.opens_gate("end")
        assert (await story.end_of(asked)).reply == "private"
        assert await texts(story) == []


@requirement("sessions:4", "channels:1")
async def test_an_owner_speaks_through_the_session_if_they_say_so(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        _, log = await chat(story)
        run = await end(story, await speak(story, log, "!say hello yourself", id="m-1"))
        assert run.reply == "hello yourself"
        again = await speak(story, log, "!say hello yourself", id="m-1")
        assert again.run_id == run.id
        sent = await story.deliveries()
        assert [(each.text, each.place.to, each.run_id) for each in sent] == [
            ("!say hello yourself", "room", run.id),
            ("hello yourself", "room", run.id),
        ]


@requirement("sessions:4", "access:4")
async def test_nobody_else_does_and_nothing_leaves_from_nowhere(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        _, log = await chat(story)
        invited = await story.app.services.people.invite(OWNER, "Ann", PersonRole.USER)
        ann = invited.person.principal
        with pytest.raises(NotFound):
            await speak(story, log, "hidden", principal=ann)
        await log.admits(ann)
        with pytest.raises(Denied) as denied:
            await speak(story, log, "not hers", principal=ann)
        mute = await story.opens("mute")
        with pytest.raises(Conflict) as nowhere:
            await speak(story, mute, "to nobody")
        assert (denied.value.code, nowhere.value.code) == ("forbidden", "no_place")
        remedies = {refused.value.message.partition(". ")[2].rstrip(".") for refused in (denied, nowhere)}
        assert remedies == {"Leave out 'deliver': the message and its reply then stay in the log"}
        assert await texts(story) == [] == await mute.texts() == await log.texts()


@requirement("send_policy:3", "sessions:4")
async def test_where_nothing_may_be_sent_nobody_speaks(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        _, log = await chat(story)
        await log.changes(send_policy="deny")
        with pytest.raises(Denied) as denied:
            await speak(story, log, "silence")
        assert denied.value.code == "send_denied" and await texts(story) == []


@requirement("send_policy:1", "send_policy:3")
async def test_a_rule_on_the_page_holds_for_its_first_message_too(open_home: OpenHome) -> None:
    rules = [{"match": {"channel": "webchat"}, "action": "deny"}]
    async with telling(open_home, session__sendPolicy={"rules": rules}) as story:
        fresh, inbox = await story.opens("fresh"), story.app.services.inbox
        on_page = Envelope(channel=WEBCHAT)
        for _ in range(2):
            with pytest.raises(Denied) as denied:
                await inbox.post(OWNER, fresh.target, text_content("hello"), envelope=on_page)
            assert denied.value.code == "send_denied"
        main = story.app.services.sessions.target("main")
        with pytest.raises(Denied):
            await inbox.post(OWNER, main, text_content("hello"), envelope=on_page)
        assert await fresh.texts() == []
        assert (await fresh.answers("!say from a program")).reply == "from a program"
