"""Replies that are shown while they are written are judged again as soon as something changes."""

from collections.abc import Awaitable, Callable

import pytest

from antiphon.building import App, Parts
from antiphon.domain.channel_form import ChannelForm, Streaming
from antiphon.domain.classification import NO_COMPARTMENTS
from antiphon.domain.ids import AgentId, RunId
from antiphon.domain.inbound import ChangeKind, ChatChange
from antiphon.domain.person import PersonRole
from antiphon.domain.session import HERE, DeliveryContext
from antiphon.engine.access.places import ChatAddress
from antiphon.store import channel_groups
from antiphon.store.channel_groups import ChannelGroup, GroupState
from antiphon.store.codec import moment
from antiphon.store.database import Transaction
from tests.channels.fake_channel import NAME, Act, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_live import GROUP, Scene, Writer, shown
from tests.engine.stage import OWNER, ManualClock
from tests.policy.test_written_rules import rule, rules_of

pytestmark = pytest.mark.anyio

MAIN = AgentId("main")
ROOM = ChannelGroup(
    channel=NAME,
    account="default",
    group_id="room",
    address="room",
    title="Room",
    state=GroupState.ALLOWED,
    created_at=moment(0),
)


async def forget_place(tx: Transaction, run: RunId) -> None:
    """The run answers where its session does, as runs of sessions without messages from people do."""
    await tx.execute("UPDATE runs SET place = NULL WHERE id = ?", (run,))


async def move_session(app: App, place: DeliveryContext) -> None:
    await app.services.sessions.open(OWNER, app.services.sessions.target(GROUP), place=place)


async def switch_sending_off(app: App) -> None:
    services = app.services
    await services.sessions.patch(OWNER, services.sessions.target(GROUP), {"send_policy": "deny"})


async def refuse_the_group(app: App) -> None:
    await app.services.groups.refuse(OWNER, NAME, "default", "room")


async def remove_the_bot(app: App) -> None:
    place = DeliveryContext(channel=NAME, to="room")
    await app.inside.reception.change(ChatChange(kind=ChangeKind.LEFT, place=place))


async def move_the_group(app: App) -> None:
    place = DeliveryContext(channel=NAME, to="room")
    await app.inside.reception.change(ChatChange(kind=ChangeKind.MOVED, place=place, moved_to="hall"))


async def route_the_chat_elsewhere(app: App) -> None:
    await app.services.routes.set(OWNER, ChatAddress(channel=NAME, account="default", peer="group:room"), agent_id=MAIN)


CHANGES: dict[str, tuple[Callable[[App], Awaitable[None]], list[str]]] = {
    "sending is switched off": (switch_sending_off, []),
    "an owner refuses the group": (refuse_the_group, ["Once upon a time."]),
    "the bot is removed": (remove_the_bot, ["Once upon a time."]),
    "the group has another id": (move_the_group, ["Once upon a time."]),
    "the chat is routed elsewhere": (route_the_chat_elsewhere, ["Once upon a time."]),
}
"""What happens while a reply is shown, and what stands in the chat at the end: the reply is decided by itself."""


@pytest.mark.parametrize("change", CHANGES)
@requirement("channels:1", "send_policy:3", "groups:1", "channels:2")
async def test_nothing_more_is_shown_once_the_chat_may_not_have_it(open_home: OpenHome, change: str) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        await app.database.run(channel_groups.insert, ROOM)
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=10)
        assert shown(channel) == ["Once"]
        happens, at_the_end = CHANGES[change]
        await happens(app)
        await scene.writes(context, " upon", seconds=10)
        await scene.writes(context, " a", seconds=30)
        assert shown(channel) == ["Once"], "nothing is shown after the change"
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == at_the_end


@requirement("flow:9")
@pytest.mark.parametrize("is_before", [True, False])
async def test_nothing_is_shown_while_rules_look_at_texts(open_home: OpenHome, *, is_before: bool) -> None:
    """Also once they come into force while a reply is shown."""
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    rules = rules_of(rule("numbers", ("text", "contains", "DE89"), hook="PRE_OUTPUT", action="REDACT"))
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene, written = Scene(app, clock, writer), app.services.rules.written
        if is_before:
            written.replace(rules, NO_COMPARTMENTS)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=10)
        assert shown(channel) == ([] if is_before else ["Once"])
        written.replace(rules, NO_COMPARTMENTS)
        await scene.writes(context, " DE89", seconds=10)
        await scene.writes(context, " more", seconds=30)
        assert shown(channel) == ([] if is_before else ["Once"])
        await scene.ends(context, "Once DE89 more.")
        assert shown(channel) == ["Once [redacted: numbers] more."]


@requirement("channels:1")
async def test_what_changes_elsewhere_interrupts_no_reply(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=10)
        another = ChatAddress(channel=NAME, account="default", peer="group:another")
        await app.services.routes.set(OWNER, another, agent_id=MAIN)
        await app.services.people.invite(OWNER, "Anna", PersonRole.USER)
        await scene.writes(context, " upon", seconds=10)
        assert shown(channel) == ["Once upon"]
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once upon a time."]


@requirement("channels:1")
async def test_words_that_were_judged_before_a_change_are_judged_again_before_they_are_shown(
    open_home: OpenHome,
) -> None:
    """The change comes after the judgement, while the words wait for their turn."""
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=0.1)
        await switch_sending_off(app)
        await scene.passes(10)
        assert shown(channel) == []
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == []


@requirement("channels:1")
async def test_a_chat_that_blocked_the_bot_gets_no_message_in_place_of_the_draft(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("main")
        await scene.writes(context, "Once", seconds=10)
        channel.will(Act.GONE)
        await scene.writes(context, " upon", seconds=10)
        await scene.writes(context, " a", seconds=30)
        assert ([text for _, text in channel.drafts], channel.asked) == (["Once"], [])


@requirement("channels:1", "flow:7")
async def test_a_reply_whose_session_moved_to_another_place_leaves_nothing_at_the_old_one(open_home: OpenHome) -> None:
    clock, writer = ManualClock(), Writer()
    channel = LiveFakeChannel(form=ChannelForm(streaming=Streaming.EDIT))
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await app.database.run(forget_place, context.run.id)
        await move_session(app, DeliveryContext(channel=NAME, to="room"))
        await scene.writes(context, "Once", seconds=10)
        (old,) = channel.shown
        await move_session(app, DeliveryContext(channel=NAME, to="hall"))
        await scene.writes(context, " upon", seconds=10)
        assert shown(channel) == ["Once"], "the old place sees no more of it"
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once upon a time."] and channel.withdrawn == [old]
        assert [asked.place.to for asked in channel.asked] == ["room", "hall"]


@requirement("channels:1")
async def test_a_reply_whose_place_is_the_log_now_leaves_nothing_outside(open_home: OpenHome) -> None:
    clock, writer = ManualClock(), Writer()
    channel = LiveFakeChannel(form=ChannelForm(streaming=Streaming.EDIT))
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await app.database.run(forget_place, context.run.id)
        await move_session(app, DeliveryContext(channel=NAME, to="room"))
        await scene.writes(context, "Once", seconds=10)
        assert shown(channel) == ["Once"]
        await move_session(app, HERE)
        await scene.ends(context, "Once upon a time.")
        assert (shown(channel), len(channel.asked)) == ([], 1)
