"""Reactions to messages that are answered: who gets one, until when, and what a restart leaves."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.delivery import DeliveryFailed
from antiphon.domain.ids import AgentId
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.reception import Reception
from antiphon.engine.deliveries.acknowledgements import Acknowledgements
from antiphon.engine.deliveries.paces import RateLimits
from antiphon.policy.chats import ChannelRules, GroupRules
from antiphon.store import sessions as rows
from antiphon.store.arrivals import ArrivalOutcome
from antiphon.store.deliveries import ChannelAccount
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, Lobby, lobby
from tests.engine.deliveries.test_live import Writer
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

EYES = "👀"


class ReactingFake(FakeChannel):
    """Implements `ReactingChannel`."""

    def __init__(self) -> None:
        super().__init__(ACCOUNT)
        self.name = CHANNEL
        self.reactions: dict[str, str] = {}
        self.asked_for: list[tuple[str, bool, int]] = []
        """Each request: the message, whether the reaction is shown, and how many texts had arrived."""
        self.is_failing = False

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        self.asked_for.append((platform_id, is_shown, len(self.taken)))
        if self.is_failing:
            raise DeliveryFailed("No reactions here.", code="channel_refused", is_permanent=True)
        if is_shown:
            self.reactions[platform_id] = emoji
        else:
            self.reactions.pop(platform_id, None)


@asynccontextmanager
async def reacting(scene: Lobby, channel: ReactingFake) -> AsyncGenerator[None]:
    services = scene.app.services
    acknowledgements = Acknowledgements(
        database=scene.app.database,
        notifier=scene.app.live._notifier,  # pyright: ignore[reportPrivateUsage]
        channels={ChannelAccount(CHANNEL, ACCOUNT): channel},
        rules=scene.rules,
        paces=RateLimits(services.clock),
    )
    scene.reception = Reception(
        scene.app.database,
        scene.rules,
        scene.app.workspaces,
        clock=services.clock,
        acknowledge=acknowledgements.note,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(acknowledgements.run)
        await anyio.wait_all_tasks_blocked()
        yield
        tasks.cancel_scope.cancel()


def rules(access: ChannelAccess = ChannelAccess.PUBLIC) -> ChannelRules:
    groups = {"-100": GroupRules(is_silent=True)}
    return ChannelRules(agent_id=AgentId("main"), access=access, acknowledgement=EYES, groups=groups)


async def until(is_so: Callable[[], Any]) -> None:
    with anyio.fail_after(SECONDS):
        while not is_so():
            await anyio.sleep(0.01)


@requirement("channels:1")
async def test_a_message_has_the_reaction_until_its_answer_was_sent(open_home: OpenHome) -> None:
    writer, channel = Writer(), ReactingFake()
    async with (
        lobby(open_home, Parts(runner=writer, channels=[channel]), channel_rules=rules()) as scene,
        reacting(scene, channel),
    ):
        await scene.hears("42", "hello", id="m1")
        context = await writer.begins()
        await until(lambda: channel.reactions == {"m1": EYES})
        again = await scene.hears("42", "hello", id="m1")
        assert again.is_repeated
        writer.end(context, "done")
        await until(lambda: channel.asked_for == [("m1", True, 0), ("m1", False, 1)])
        assert channel.reactions == {}


@requirement("channels:1", "groups:1")
async def test_what_is_not_answered_looks_ignored(open_home: OpenHome) -> None:
    writer, channel = Writer(), ReactingFake()
    async with (
        lobby(open_home, Parts(runner=writer, channels=[channel]), channel_rules=rules()) as scene,
        reacting(scene, channel),
    ):
        kept = await scene.hears("42", "among us", group="-100")
        strange = await scene.hears("42", "who are you?", group="-200")
        command = await scene.hears("42", "/status")
        assert kept.outcome is ArrivalOutcome.POSTED and strange.outcome is ArrivalOutcome.IGNORED
        assert command.outcome is ArrivalOutcome.COMMAND
        await scene.hears("43", "hello", id="asked")
        await writer.begins()
        await until(lambda: channel.asked_for)
        assert [id for id, _, _ in channel.asked_for] == ["asked"]


@requirement("send_policy:3", "channels:1")
async def test_a_chat_in_which_nothing_may_be_said_gets_no_reaction(open_home: OpenHome) -> None:
    writer, channel = Writer(), ReactingFake()
    async with (
        lobby(open_home, Parts(runner=writer, channels=[channel]), channel_rules=rules()) as scene,
        reacting(scene, channel),
    ):
        heard = await scene.hears("42", "hello", id="first")
        context = await writer.begins()
        await until(lambda: channel.reactions)
        writer.end(context, "done")
        await until(lambda: channel.asked_for[-1:] == [("first", False, 1)])
        assert heard.posted is not None
        session = await scene.app.database.read(rows.find_by_row, heard.posted.session)
        assert session is not None
        sessions = scene.app.services.sessions
        await sessions.patch(OWNER, sessions.target(str(session.key)), {"send_policy": "deny"})
        await scene.hears("42", "and now?", id="muted")
        await scene.hears("43", "hello", id="other")
        await until(lambda: ("other", True, 1) in channel.asked_for)
        assert "muted" not in [id for id, _, _ in channel.asked_for]


@requirement("channels:1")
async def test_a_restart_takes_away_what_the_process_before_gave(open_home: OpenHome) -> None:
    writer, channel = Writer(), ReactingFake()
    async with lobby(open_home, Parts(runner=writer, channels=[channel]), channel_rules=rules()) as scene:
        async with reacting(scene, channel):
            await scene.hears("42", "hello", id="m1")
            context = await writer.begins()
            await until(lambda: channel.reactions)
        async with reacting(scene, channel):
            writer.end(context, "done")
            await until(lambda: not channel.reactions)
        assert channel.asked_for == [("m1", True, 0), ("m1", False, 1)]


@requirement("channels:1")
async def test_a_platform_that_refuses_is_not_asked_again_and_delays_nothing(open_home: OpenHome) -> None:
    writer, channel = Writer(), ReactingFake()
    channel.is_failing = True
    async with (
        lobby(open_home, Parts(runner=writer, channels=[channel]), channel_rules=rules()) as scene,
        reacting(scene, channel),
    ):
        await scene.hears("42", "hello", id="m1")
        context = await writer.begins()
        await until(lambda: channel.asked_for)
        writer.end(context, "done")
        await until(lambda: channel.texts == ["done"])
        await scene.hears("42", "more", id="m2")
        await writer.begins(2)
        await until(lambda: len(channel.asked_for) > 1)
        assert channel.asked_for == [("m1", True, 0), ("m2", True, 1)]
