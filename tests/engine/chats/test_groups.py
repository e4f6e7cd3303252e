import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import ChangeKind
from antiphon.engine.chats.groups import MOST_ASKED
from antiphon.policy.chats import ChannelRules, GroupRules
from antiphon.policy.trigger import OwnerTrigger
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, OWNERS_ID, Lobby, lobby
from tests.engine.stage import HeldRunner, find_session
from tests.people import guest

pytestmark = pytest.mark.anyio

GROUP = "-100"
KEY = f"agent:main:telegram:group:{GROUP}"
MAIN = AgentId("main")


async def allowed(scene: Lobby, group: str = GROUP) -> None:
    await scene.sees(ChangeKind.ADDED, group)
    await scene.app.services.groups.allow(OWNER, CHANNEL, ACCOUNT, group)


@requirement("groups:1")
async def test_a_group_is_answered_only_once_an_owner_has_allowed_it(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        await scene.sees(ChangeKind.ADDED, GROUP)
        assert f"Group {GROUP}" in (await scene.told(OWNERS_ID))[-1]
        for sender in (OWNERS_ID, "42"):
            assert (await scene.hears(sender, "hello", group=GROUP)).outcome is ArrivalOutcome.IGNORED
        assert await scene.count("sessions") == 0
        await scene.app.services.groups.allow(OWNER, CHANNEL, ACCOUNT, GROUP)
        received = await scene.hears("42", "hello", group=GROUP)
        assert received.posted is not None and received.posted.session_key == KEY and received.posted.triggered
        assert await scene.told(GROUP) == []


@requirement("groups:1")
async def test_it_follows_an_invitation_once_an_owner_has_allowed_the_group(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        before = len(await scene.told(OWNERS_ID))
        for _ in range(2):
            assert not (await scene.sees(ChangeKind.INVITED, GROUP)).may_enter
        assert len(await scene.told(OWNERS_ID)) == before + 1
        await scene.app.services.groups.allow(OWNER, CHANNEL, ACCOUNT, GROUP)
        assert (await scene.sees(ChangeKind.INVITED, GROUP)).may_enter
        await scene.app.services.groups.refuse(OWNER, CHANNEL, ACCOUNT, GROUP)
        assert not (await scene.sees(ChangeKind.INVITED, GROUP)).may_enter


@requirement("access:3")
@pytest.mark.parametrize(("access", "may"), [("private", False), ("pairing", True), ("public", True)])
async def test_it_follows_a_person_where_a_message_of_theirs_would_be_answered(
    open_home: OpenHome, access: str, may: bool
) -> None:
    async with lobby(open_home, access=ChannelAccess(access)) as scene:
        await scene.knows_owner()
        assert (await scene.sees(ChangeKind.INVITED, "42", by="42")).may_enter is may
        assert (await scene.sees(ChangeKind.INVITED, OWNERS_ID, by=OWNERS_ID)).may_enter


@requirement("groups:1")
async def test_owners_are_asked_once_even_if_the_bot_never_saw_itself_being_added(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        before = len(await scene.told(OWNERS_ID))
        for _ in range(3):
            await scene.hears("42", "hello", group=GROUP)
        await scene.sees(ChangeKind.ADDED, GROUP)
        assert len(await scene.told(OWNERS_ID)) == before + 1


@requirement("groups:1")
async def test_many_groups_at_once_do_not_flood_the_owners(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        before = len(await scene.told(OWNERS_ID))
        for number in range(2 * MOST_ASKED):
            await scene.sees(ChangeKind.ADDED, f"-{number}")
        assert len(await scene.told(OWNERS_ID)) == before + MOST_ASKED


@requirement("groups:1")
async def test_a_refused_group_stays_silent_and_a_left_one_is_asked_about_again(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        await allowed(scene)
        await scene.sees(ChangeKind.LEFT, GROUP)
        await scene.sees(ChangeKind.ADDED, GROUP)
        assert (await scene.hears("42", "hello", group=GROUP)).outcome is ArrivalOutcome.IGNORED
        await scene.app.services.groups.refuse(OWNER, CHANNEL, ACCOUNT, GROUP)
        told = len(await scene.told(OWNERS_ID))
        for kind in (ChangeKind.LEFT, ChangeKind.ADDED):
            await scene.sees(kind, GROUP)
        assert (await scene.hears("42", "hello", group=GROUP)).outcome is ArrivalOutcome.IGNORED
        assert len(await scene.told(OWNERS_ID)) == told


@requirement("groups:1")
async def test_only_owners_see_and_decide_groups(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        groups = scene.app.services.groups
        await scene.sees(ChangeKind.ADDED, GROUP)
        with pytest.raises(Denied):
            await groups.list(guest("somebody"))
        with pytest.raises(Denied):
            await groups.allow(guest("somebody"), CHANNEL, ACCOUNT, GROUP)
        with pytest.raises(NotFound):
            await groups.allow(OWNER, CHANNEL, ACCOUNT, "-7")
        assert [group.is_asking for group in await groups.list(OWNER)] == [True]


@requirement("groups:1")
async def test_a_members_message_that_is_not_for_the_bot_is_stored_without_a_run(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        await allowed(scene)
        aside = await scene.hears("42", "lunch?", group=GROUP, is_meant=False)
        assert aside.posted is not None and not aside.posted.triggered
        owners = await scene.hears(OWNERS_ID, "yes", group=GROUP, is_meant=False)
        assert owners.posted is not None and owners.posted.triggered
        assert await scene.messages(KEY) == ["lunch?", "yes"]


@requirement("groups:1")
async def test_the_settings_of_a_group_allow_it_and_choose_its_agent_and_trigger(open_home: OpenHome) -> None:
    rules = ChannelRules(
        agent_id=MAIN,
        groups={
            "-1": GroupRules(agent_id=AgentId("ops"), owner_trigger=OwnerTrigger.MENTION),
            "-2": GroupRules(is_silent=True),
        },
    )
    agents = [{"id": "main"}, {"id": "ops"}]
    async with lobby(open_home, channel_rules=rules, agents__list=agents) as scene:
        await scene.knows_owner()
        ops = await scene.hears(OWNERS_ID, "hello", group="-1", is_meant=False)
        assert ops.posted is not None and not ops.posted.triggered
        assert ops.posted.session_key == "agent:ops:telegram:group:-1"
        silent = await scene.hears(OWNERS_ID, "hello", group="-2")
        assert silent.posted is not None and not silent.posted.triggered


@requirement("groups:1", "keys:1")
async def test_each_topic_has_a_session_of_its_own(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await allowed(scene)
        general = await scene.hears("42", "hello", group=GROUP)
        topic = await scene.hears("42", "hello", group=GROUP, topic="7")
        assert general.posted is not None and topic.posted is not None
        assert (general.posted.session_key, topic.posted.session_key) == (KEY, f"{KEY}:topic:7")
        session = await find_session(scene.app, f"{KEY}:topic:7")
        assert (session.delivery.to, session.delivery.thread_id) == (GROUP, "7")


@requirement("groups:1")
@pytest.mark.parametrize("is_named", [False, True])
async def test_a_group_that_moves_keeps_its_session_and_its_permission(open_home: OpenHome, is_named: bool) -> None:
    groups = {GROUP: GroupRules()} if is_named else {}
    async with lobby(open_home, channel_rules=ChannelRules(agent_id=MAIN, groups=groups)) as scene:
        if not is_named:
            await allowed(scene)
        before = await scene.hears("42", "before", group=GROUP)
        await scene.sees(ChangeKind.ADDED, "-2000")
        for _ in range(2):
            await scene.sees(ChangeKind.MOVED, GROUP, moved_to="-2000")
        after = await scene.hears("42", "after", group="-2000")
        assert before.posted is not None and after.posted is not None
        assert before.posted.session_key == after.posted.session_key == KEY
        assert await scene.messages(KEY) == ["before", "after"]
        assert (await find_session(scene.app, KEY)).delivery.to == "-2000"


@requirement("groups:1")
async def test_an_answer_that_is_under_way_follows_its_group(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with lobby(open_home, Parts(runner=runner)) as scene:
        await allowed(scene)
        await scene.hears("42", "before", group=GROUP)
        await runner.until_begun(1)
        await scene.sees(ChangeKind.MOVED, GROUP, moved_to="-2000")
        runner.release_all()
        places = await scene.rows("SELECT place FROM runs")
        assert [GROUP in place for (place,) in places] == [False]


@requirement("groups:1", "runs:4")
async def test_persons_of_a_group_never_share_a_run(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with lobby(open_home, Parts(runner=runner)) as scene:
        await allowed(scene)
        await scene.hears("41", "first", group=GROUP)
        await runner.until_begun(1)
        ben, carla, again = [(await scene.hears(sender, "next", group=GROUP)).posted for sender in ("42", "43", "43")]
        assert ben is not None and carla is not None and again is not None
        assert ben.run_id != carla.run_id == again.run_id
        runner.release_all()


@requirement("groups:2")
async def test_the_log_names_who_wrote_in_a_group(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await allowed(scene)
        await scene.hears("42", "hello", group=GROUP, name="Anna")
        services = scene.app.services
        row = (await find_session(scene.app, KEY)).row
        events = (await services.history.read_logs({row: 0}))[row].events
        assert [getattr(event.message, "sender", None) for event in events if event.type == "user_message"] == ["Anna"]
