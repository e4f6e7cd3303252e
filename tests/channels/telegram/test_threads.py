"""Sub-agents in topics of their own: bound, used by several people, lost, over time. Contract: spawn 4, channels 3."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import Denied
from antiphon.domain.ids import AgentId
from antiphon.domain.message import text_content
from antiphon.domain.session import SessionType
from antiphon.engine.access.bindings import release_thread
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.chats.routing import LED_ELSEWHERE
from antiphon.engine.children.threads import NOT_BEGUN
from antiphon.store.sessions import SessionFilter
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram, Json, group
from tests.channels.telegram.bots import ANN, OLGA, Bot, open_bot
from tests.channels.telegram.test_group_members import invite
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock, find_session
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ROOM = -100
FORUM = group(ROOM, "Team", is_forum=True)
PLAIN = group(-200, "Plain")
GROUPS: dict[str, Any] = {"groups": {str(ROOM): {}, "-200": {}}, "access": "public"}


@asynccontextmanager
async def team(open_home: OpenHome, fake: FakeTelegram, clock: ManualClock | None = None) -> AsyncGenerator[Bot]:
    parts = None if clock is None else Parts(clock=clock)
    async with open_bot(open_home, fake, parts, **GROUPS) as bot:
        await bot.link_owner()
        yield bot


async def says(bot: Bot, text: str, sender: Json = OLGA, topic: int | None = None, chat: Json = FORUM) -> None:
    more: Json = {} if topic is None else {"message_thread_id": topic, "is_topic_message": True}
    bot.fake.write(text, sender=sender, chat=chat, **more)
    await bot.settles()


async def begin(bot: Bot, *task: str, label: str = "scout") -> int:
    """A sub-agent in a topic; the topic's number."""
    before = set(bot.fake.topics)
    await says(bot, to_spawn(*task, thread=True, label=label))
    (topic,) = set(bot.fake.topics) - before
    return topic


async def child_of(bot: Bot) -> str:
    page = await bot.app.services.sessions.list(OWNER, SessionFilter(include_inactive=True), limit=50)
    (child,) = [each.key for each in page.sessions if "subagent" in str(each.key)]
    return str(child)


async def records(bot: Bot) -> list[str]:
    """What was recorded of the sub-agent's results in the group's session."""
    target = bot.app.services.sessions.target(f"agent:main:telegram:group:{ROOM}")
    page = await bot.app.services.history.page(OWNER, target, limit=200)
    texts = [str(event.message) for event in page.events if event.message is not None]
    return [text for text in texts if "Sub-agent:" in text and "Result:" in text]


@requirement("spawn:4", "spawn:7")
async def test_a_sub_agent_gets_a_topic_whose_answers_are_seen_there_and_told_once(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say found it")
        assert fake.topics[topic] == "scout"
        assert fake.texts(ROOM, topic) == ["found it"]
        assert len(await records(bot)) == 1
        assert not [text for text in fake.texts(ROOM) if "found it" in text], "nothing is announced again"
        await says(bot, "and what more?", topic=topic)
        await says(bot, "and for me?", sender=ANN, topic=topic)
        assert fake.texts(ROOM, topic)[1:] == ["echo: and what more?", "echo: and for me?"]
        assert len(await records(bot)) == 3
        await says(bot, "hello")
        assert fake.texts(ROOM)[-1].endswith("hello"), "the chat keeps its own agent"


@requirement("spawn:4")
async def test_a_restart_keeps_the_topic_with_its_sub_agent(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say found it")
        child = await child_of(bot)
    async with open_bot(open_home, fake, **GROUPS) as bot:
        await says(bot, "still there?", topic=topic)
        assert fake.texts(ROOM, topic)[-1] == "echo: still there?"
        assert await child_of(bot) == child


@requirement("spawn:4")
@pytest.mark.parametrize("lost", ["message thread not found", "TOPIC_CLOSED"])
async def test_a_topic_that_is_deleted_under_a_working_sub_agent_loses_nothing(
    open_home: OpenHome, fake: FakeTelegram, lost: str
) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say begun")
        fake.lost_topics[ROOM, topic] = lost
        await says(bot, "go on", topic=topic)
        assert fake.texts(ROOM)[-1].endswith("closed or was deleted.\n\necho: go on"), fake.texts(ROOM)
        route = [each for each in await bot.app.services.routes.list(OWNER) if each.stored.thread == str(topic)]
        assert [each.stored.session_key for each in route] == [None]
        assert len(await records(bot)) == 2


@requirement("spawn:4")
async def test_a_topic_whose_sub_agent_is_deleted_is_told_so_and_goes_to_the_chats_agent(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say begun")
        sessions = bot.app.services.sessions
        await sessions.delete(OWNER, sessions.target(await child_of(bot)))
        await bot.settles()
        assert "it was deleted" in fake.texts(ROOM, topic)[-1]
        await says(bot, "who answers?", topic=topic)
        log = sessions.target(f"agent:main:telegram:group:{ROOM}:topic:{topic}")
        page = await bot.app.services.history.page(OWNER, log, limit=20)
        assert any("who answers?" in str(event.message) for event in page.events)


@requirement("spawn:4")
async def test_a_text_for_another_topic_that_is_lost_unbinds_nothing(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say begun")
        child = (await find_session(bot.app, await child_of(bot))).row
        assert await bot.app.database.run(release_thread, child, str(topic + 1)) is None
        await says(bot, "go on", topic=topic)
        assert fake.texts(ROOM, topic)[-1] == "echo: go on" and len(await records(bot)) == 2
        assert await bot.app.database.run(release_thread, child, str(topic)) is not None


@requirement("spawn:4", "channels:3")
async def test_a_topic_that_nobody_uses_is_unbound_and_says_so(open_home: OpenHome, fake: FakeTelegram) -> None:
    clock = ManualClock()
    async with team(open_home, fake, clock) as bot:
        await invite(bot.app, "Ann", 7)
        topic = await begin(bot, "!say found it")
        await says(bot, "/session idle 2 hours", sender=ANN, topic=topic)
        assert "Only who had it begun" in fake.texts(ROOM, topic)[-1]
        await says(bot, "/session idle 2 hours", topic=topic)
        assert "until 2 hours without a message" in fake.texts(ROOM, topic)[-1]
        clock.pass_time(timedelta(hours=1))
        await says(bot, "still there?", topic=topic)
        clock.pass_time(timedelta(hours=1, minutes=30))
        await says(bot, "and now?", topic=topic)
        assert fake.texts(ROOM, topic)[-1] == "echo: and now?"
        clock.pass_time(timedelta(hours=3))
        await bot.app.due_children.settle_due()
        await fake.until(lambda: any("nobody wrote here for 2 hours" in text for text in fake.texts(ROOM, topic)))
        await says(bot, "who answers?", topic=topic)
        log = bot.app.services.sessions.target(f"agent:main:telegram:group:{ROOM}:topic:{topic}")
        page = await bot.app.services.history.page(OWNER, log, limit=20)
        assert any("who answers?" in str(event.message) for event in page.events)


@requirement("spawn:4")
async def test_what_has_no_topics_begins_no_sub_agent(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with team(open_home, fake) as bot:
        await says(bot, to_spawn("x", thread=True), chat=PLAIN)
        assert "not a forum" in fake.texts(-200)[-1] and "thread_failed" in fake.texts(-200)[-1]
        page = await bot.app.services.sessions.list(OWNER, SessionFilter(include_inactive=True), limit=50)
        assert not [each for each in page.sessions if "subagent" in str(each.key)]
        main = bot.app.services.sessions.target("main")
        posted = await bot.app.services.inbox.post(OWNER, main, text_content(to_spawn("x", thread=True)))
        assert posted.run_id is not None
        await bot.settles()
        reply = (await bot.app.services.runs.get(OWNER, posted.run_id)).reply or ""
        assert "unsupported" in reply and "Channels with threads: telegram" in reply


@requirement("spawn:4")
async def test_a_topic_stays_bound_while_its_sub_agent_works(open_home: OpenHome, fake: FakeTelegram) -> None:
    gates, clock = Gates(), ManualClock()
    async with open_bot(open_home, fake, Parts(clock=clock, tools=[gates.tool]), **GROUPS) as bot:
        await bot.link_owner()
        fake.write(to_spawn(wait_at("child", "found it"), thread=True), sender=OLGA, chat=FORUM)
        await fake.until(lambda: fake.topics)
        (topic,) = fake.topics
        await gates.until_reached("child")
        clock.pass_time(timedelta(hours=30))
        await bot.app.due_children.settle_due()
        gates.open("child")
        await bot.settles()
        assert fake.texts(ROOM, topic) == ["found it"]


@requirement("spawn:4", "access:4")
async def test_people_in_a_group_may_do_no_more_with_a_bound_sub_agent_than_with_the_groups_own_session(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with team(open_home, fake) as bot:
        ann = await invite(bot.app, "Ann", 7)
        topic = await begin(bot, "!say begun")
        await says(bot, "hello", sender=ANN, topic=topic)
        target = bot.app.services.sessions.target(await child_of(bot))
        who = Principal.parse(f"person:{ann}")
        room = bot.app.services.sessions.target(f"agent:main:telegram:group:{ROOM}")
        await says(bot, "hello", sender=ANN)
        for each in (room, target):
            with pytest.raises(Denied):
                await bot.app.services.resets.reset(who, each)
        found = await bot.app.services.sessions.get(OWNER, target)
        assert found.session.source.type is SessionType.GROUP, "prompts name who speaks"
        await bot.app.services.sessions.delete(OWNER, target)
        await bot.settles()
        assert "it was deleted" in fake.texts(ROOM, topic)[-1]
        await says(bot, "who answers?", topic=topic)
        log = bot.app.services.sessions.target(f"agent:main:telegram:group:{ROOM}:topic:{topic}")
        page = await bot.app.services.history.page(OWNER, log, limit=20)
        assert any("who answers?" in str(event.message) for event in page.events)


@requirement("spawn:4", "channels:3")
async def test_a_topic_that_its_maker_leads_elsewhere_gets_a_chats_own_session(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say begun")
        await says(bot, "/session new", topic=topic)
        await says(bot, "hello", topic=topic)
        page = await bot.app.services.sessions.list(OWNER, SessionFilter(include_inactive=True), limit=50)
        (new,) = [each for each in page.sessions if ":chat:" in str(each.key)]
        assert (new.source.kind, new.source.type) == ("channel", SessionType.GROUP)


@requirement("spawn:4")
async def test_a_platform_that_gives_the_topic_of_another_sub_agent_again_begins_none(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with team(open_home, fake) as bot:
        topic = fake.next_topic = await begin(bot, "!say begun")
        first = await child_of(bot)
        await says(bot, to_spawn("!say taken", thread=True))
        assert "thread_failed" in fake.texts(ROOM)[-1], fake.texts(ROOM)
        assert await child_of(bot) == first and fake.texts(ROOM, topic) == ["begun"]


@requirement("spawn:4", "channels:2")
async def test_a_topic_that_an_owner_leads_elsewhere_says_so(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with team(open_home, fake) as bot:
        topic = await begin(bot, "!say found it")
        address = ChatAddress(channel="telegram", account="default", peer=f"group:{ROOM}", thread=str(topic))
        for _ in range(2):
            await bot.app.services.routes.set(OWNER, address, agent_id=AgentId("main"))
        await bot.settles()
        assert fake.texts(ROOM, topic) == ["found it", LED_ELSEWHERE]


class SlowTopics(FakeTelegram):
    """Begins no topic before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_begin = Event()

    def _create_forum_topic(self, sent: Json) -> Json:
        assert self.may_begin.wait(SECONDS)
        return super()._create_forum_topic(sent)


@requirement("spawn:2", "spawn:4")
async def test_a_topic_that_was_begun_for_a_sub_agent_which_is_refused_then_says_so(open_home: OpenHome) -> None:
    """Another sub-agent was faster, and there may be one."""
    async with serve_fake(SlowTopics()) as fake:
        more: dict[str, Any] = {"agents__defaults__subagents__max_children_per_agent": 1}
        gates = Gates()
        async with open_bot(open_home, fake, Parts(tools=[gates.tool]), **GROUPS, **more) as bot:
            await bot.link_owner()
            await says(bot, "hello")
            fake.write(to_spawn("!say found it", thread=True), sender=OLGA, chat=FORUM)
            await fake.until(lambda: any(method == "createForumTopic" for method, _ in fake.requests))
            room = bot.app.services.sessions.target(f"agent:main:telegram:group:{ROOM}")
            other = await bot.app.tool_calls.call(OWNER, room, "sessions_spawn", {"task": wait_at("go")})
            assert other["status"] == "accepted"
            fake.may_begin.set()
            await fake.until(lambda: any("spawn_children" in text for text in fake.texts(ROOM)))
            (topic,) = fake.topics
            await fake.until(lambda: fake.texts(ROOM, topic) == [NOT_BEGUN])
            gates.open("go")
            await bot.settles()


@requirement("spawn:4", "spawn:7")
@pytest.mark.parametrize("more", ['!call gate {"name": "go"}', ""], ids=["ends first", "ends later"])
async def test_a_sub_agents_sub_agent_in_a_topic_answers_there_alone(
    open_home: OpenHome, fake: FakeTelegram, more: str
) -> None:
    """The run that spawned it does not wait for it, nor begins another one with its result."""
    gates = Gates()
    depth: dict[str, Any] = {"agents__defaults__subagents__max_spawn_depth": 3}
    async with open_bot(open_home, fake, Parts(tools=[gates.tool]), **GROUPS, **depth) as bot:
        await bot.link_owner()
        outer = await begin(bot, "!say found it")
        spawn = to_spawn("!say deeper", thread=True, label="inner")
        there: Json = {"chat": FORUM, "message_thread_id": outer, "is_topic_message": True}
        fake.write(f"{spawn}\n{more}\n!say begun", sender=OLGA, **there)
        await fake.until(lambda: any("deeper" in fake.texts(ROOM, each) for each in fake.topics))
        gates.open("go")
        await bot.settles()
        (inner,) = set(fake.topics) - {outer}
        assert (fake.texts(ROOM, outer), fake.texts(ROOM, inner)) == (["found it", "begun"], ["deeper"])
        assert not any("deeper" in each for each in await records(bot)), "the group has what the outer one said"
        await says(bot, "and more?", topic=inner)
        assert (fake.texts(ROOM, outer), fake.texts(ROOM, inner)[1:]) == (["found it", "begun"], ["echo: and more?"])
