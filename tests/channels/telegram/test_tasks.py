"""A month of a task that was set in a chat: its results come to that chat, each once, on weekdays alone."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict
from antiphon.domain.finding import Record, read_record
from antiphon.domain.ids import AgentId
from antiphon.domain.task import TaskState, Why
from antiphon.store import routes
from antiphon.store.routes import StoredRoute
from antiphon.testing.telegram import FakeTelegram
from tests.channels.telegram.bots import ANN, FAMILY, OLGA, Bot, open_bot
from tests.channels.telegram.test_group_members import invite
from tests.channels.telegram.test_messages_to_groups import leave
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, read_log

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 9, 12, tzinfo=UTC)
"""A Monday, with the change of clocks in the month that follows."""


@requirement("tasks:1", "channels:3")
async def test_a_weekday_task_brings_its_result_once_every_weekday_for_a_month(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    settings = {"tasks__zone": "Europe/Berlin"}
    async with open_bot(open_home, fake, Parts(clock=clock), **settings) as bot:
        await bot.link_owner()
        fake.write("/task new every weekday at 8 News: !say the news", sender={"id": 1, "first_name": "Olga"})
        await fake.until(lambda: any("Created task" in text for text in fake.texts(1)))
        (said,) = [text for text in fake.texts(1) if "Created task" in text]
        assert "at 08:00 on Monday through Friday (Europe/Berlin)" in said
        assert "Tue 2026-03-10 08:00 CET, Wed 2026-03-11 08:00 CET, Thu 2026-03-12 08:00 CET" in said
        came: list[datetime] = []
        for _ in range(30 * 4):
            clock.pass_time(timedelta(hours=6))
            before = fake.texts(1).count("the news")
            await bot.app.scheduler.settle_due()
            await bot.settles()
            new = fake.texts(1).count("the news") - before
            assert new in (0, 1)
            came += [clock.now()] * new
        days = [START.date() + timedelta(days=number) for number in range(1, 31)]
        assert [time.date() for time in came] == [day for day in days if day.weekday() < 5]
        fake.write("/task runs News 10", sender={"id": 1, "first_name": "Olga"})
        await fake.until(lambda: any("- Wed 2026-04-08 08:00 CEST: ok" in text for text in fake.texts(1)))


@requirement("tasks:1")
async def test_a_silent_reply_sends_nothing_and_the_slot_is_accounted_for(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    async with open_bot(open_home, fake, Parts(clock=clock)) as bot:
        await bot.link_owner()
        fake.write("/task new every 1h Quiet: !say <NO_REPLY>", sender={"id": 1, "first_name": "Olga"})
        await fake.until(lambda: any("Created task" in text for text in fake.texts(1)))
        before = len(fake.texts(1))
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert len(fake.texts(1)) == before
        fake.write("/task last Quiet", sender={"id": 1, "first_name": "Olga"})
        await fake.until(lambda: any("13:00 UTC: ok" in text for text in fake.texts(1)))


@requirement("channels:4", "tasks:1")
async def test_three_lines_in_a_chat_make_three_tasks_with_the_times_at_which_clocks_change(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(datetime(2026, 3, 27, 12, tzinfo=UTC))
    olga = {"id": 1, "first_name": "Olga"}
    async with open_bot(open_home, fake, Parts(clock=clock), tasks__zone="Europe/Berlin") as bot:
        await bot.link_owner()
        lines = [
            "/task new every day at 2:30 Night: look",
            "/task new every 2h Walk: walk",
            "/task new cron 0 0 9 * * 1 -- x",
        ]
        fake.write("\n".join(lines), sender=olga)
        await fake.until(lambda: any("6 fields" in text for text in fake.texts(1)))
        (refused,) = [text for text in fake.texts(1) if "6 fields" in text]
        assert refused.startswith("Task 3: ") and "Nothing was saved." in refused
        fake.write("/task list", sender=olga)
        await fake.until(lambda: any("There are no tasks yet" in text for text in fake.texts(1)))
        fake.write("\n".join([*lines[:2], "/task new cron 0 9 * * 1 -- Week: plan"]), sender=olga)
        await fake.until(lambda: any("Created 3 tasks" in text for text in fake.texts(1)))
        (made,) = [text for text in fake.texts(1) if "Created 3 tasks" in text]
        assert "Sat 2026-03-28 02:30 CET, Sun 2026-03-29 03:00 CEST, Mon 2026-03-30 02:30 CEST" in made


@requirement("tasks:1", "channels:3")
async def test_a_result_set_in_a_chat_is_told_there_once_and_stands_in_its_log_as_the_tasks(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    async with open_bot(open_home, fake, Parts(clock=clock)) as bot:
        await bot.link_owner()
        fake.write("/task new every 1h News: !say the news", sender=OLGA)
        await fake.until(lambda: any("Created task" in text for text in fake.texts(1)))
        (task,) = await bot.app.services.tasks.list(OWNER, limit=9)
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(1).count("the news") == 1
        assert [record.name for record in await records_in(bot, task.session_key)] == ["News"]
        fake.write("/task send News log", sender=OLGA)
        await fake.until(lambda: any("sends its results to its log only" in text for text in fake.texts(1)))
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(1).count("the news") == 1 and len(await records_in(bot, task.session_key)) == 1
        for to, said in (
            ("me", "sends its results to its maker's own chat on a channel"),
            ("here", "sends its results to the chat in which it was made"),
            ("nowhere", "Place of results is not known: 'nowhere'. Write chat,"),
            (
                "telegram/-500",
                "Group not found: '-500' on channel 'telegram'. Name a group in which this agent answers",
            ),
            ("", "Usage: /task send <id> here | me | log"),
        ):
            fake.write(f"/task send News {to}".strip(), sender=OLGA)
            await fake.until(lambda said=said: any(said in text for text in fake.texts(1)))
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(1).count("the news") == 2 and len(await records_in(bot, task.session_key)) == 2


def _route_to(agent: str, at: datetime) -> StoredRoute:
    """That the agent answers in the group of the family."""
    return StoredRoute(
        channel="telegram",
        account="default",
        peer="group:-100",
        thread="",
        agent_id=AgentId(agent),
        session_key=None,
        version=1,
        changed_by=str(OWNER),
        changed_at=at,
    )


async def records_in(bot: Bot, key: str) -> list[Record]:
    """The results of tasks in the log of the session."""
    log = await read_log(bot.app, key)
    found = [read_record(event.message.content) for event in log if event.message is not None]
    return [record for record in found if record is not None and record.is_of_task]


@requirement("tasks:1", "tasks:2", "groups:1")
async def test_a_group_gets_the_result_until_the_bot_is_removed_and_then_the_maker_hears_of_it(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    async with open_bot(open_home, fake, Parts(clock=clock)) as bot:
        await bot.link_owner()
        fake.write("hello", sender=OLGA, chat=FAMILY)
        await bot.settles()
        fake.write("/task new every 1h News: !say the news", sender=OLGA)
        await fake.until(lambda: any("Created task" in text for text in fake.texts(1)))
        fake.write("/task send News telegram/-100", sender=OLGA)
        await fake.until(lambda: any("Group not found" in text for text in fake.texts(1)))
        await bot.app.services.groups.allow(OWNER, "telegram", "default", "-100")
        fake.write("/task send News telegram/-100", sender=OLGA)
        await fake.until(lambda: any("sends its results to telegram/-100" in text for text in fake.texts(1)))
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(-100) == ["the news"] and "the news" not in fake.texts(1)
        leave(fake, FAMILY)
        await bot.settles()
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await fake.until(lambda: any("was left or deleted" in text for text in fake.texts(1)))
        await bot.settles()
        assert fake.texts(-100) == ["the news"]
        (task,) = await bot.app.services.tasks.list(OWNER, limit=9)
        assert (task.state, task.why) == (TaskState.PAUSED, Why.PLACE_GONE)


@requirement("tasks:1", "groups:1")
async def test_a_group_in_which_another_agent_answers_by_now_gets_nothing(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    agents = [{"id": "main"}, {"id": "other"}]
    async with open_bot(open_home, fake, Parts(clock=clock), agents__list=agents) as bot:
        await bot.link_owner()
        fake.write("hello", sender=OLGA, chat=FAMILY)
        await bot.settles()
        await bot.app.services.groups.allow(OWNER, "telegram", "default", "-100")
        fake.write("/task new every 1h News: !say the news", sender=OLGA)
        await fake.until(lambda: any("Created task" in text for text in fake.texts(1)))
        fake.write("/task send News telegram/-100", sender=OLGA)
        await fake.until(lambda: any("sends its results to telegram/-100" in text for text in fake.texts(1)))
        await bot.app.database.run(partial(routes.put, before=0), _route_to("other", clock.now()))
        (task,) = await bot.app.services.tasks.list(OWNER, limit=9)
        with pytest.raises(Conflict, match="or is not its maker's any more"):
            await bot.app.services.tasks.run(OWNER, task.id)
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(-100) == []
        (task,) = await bot.app.services.tasks.list(OWNER, limit=9)
        assert (task.state, task.why) == (TaskState.PAUSED, Why.PLACE_GONE)


@requirement("tasks:1", "groups:1")
async def test_a_task_that_was_made_in_a_group_tells_its_result_there_and_nowhere_else(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock(START)
    async with open_bot(open_home, fake, Parts(clock=clock), access__roles={"user": {"agents": ["main"]}}) as bot:
        await bot.link_owner()
        fake.write("hello", sender=OLGA, chat=FAMILY)
        await bot.settles()
        await bot.app.services.groups.allow(OWNER, "telegram", "default", "-100")
        fake.write("/task new every 1h News: !say the news", sender=OLGA, chat=FAMILY)
        await fake.until(lambda: any("Created task" in text for text in fake.texts(-100)))
        (task,) = await bot.app.services.tasks.list(OWNER, limit=9)
        clock.pass_time(timedelta(hours=1))
        await bot.app.scheduler.settle_due()
        await bot.settles()
        assert fake.texts(-100).count("the news") == 1 and "the news" not in fake.texts(1)
        assert [record.name for record in await records_in(bot, task.session_key)] == ["News"]
        # Ann is a member who may use the agent, but does not take part in the group: it is as if there were none.
        await invite(bot.app, "Ann", 7)
        fake.write("/task new every 1h Mine: !say mine", sender=ANN)
        await fake.until(lambda: any("Created task" in text for text in fake.texts(7)))
        fake.write("/task send Mine telegram/-100", sender=ANN)
        await fake.until(lambda: any("Group not found" in text for text in fake.texts(7)))
        fake.write(f"/task send Mine chat:{task.session_key}", sender=ANN)
        await fake.until(lambda: any("not found" in text and "Group" not in text for text in fake.texts(7)))
