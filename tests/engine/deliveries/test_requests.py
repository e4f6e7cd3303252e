"""Requests for approval in the chats of those who may decide: buttons, presses, and what the messages say after."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.classification import Classification, Compartments, Level
from antiphon.domain.ids import AgentId
from antiphon.domain.person import Identity, PersonRole, person_of
from antiphon.engine.access.reach import Rights
from antiphon.engine.deliveries.requests import MOST_OPEN, ask_deciders
from antiphon.engine.rules import Rules
from antiphon.engine.runs.presses import UNKNOWN, press
from antiphon.policy.chats import ChannelRules, ChatRules
from antiphon.store import people
from antiphon.store.database import Query, Transaction
from tests.channels.fake_channel import NAME, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, S, decide, pending, request_of
from tests.engine.approvals.test_deciders import CHAT, approving
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.stage import ManualClock, open_session, post, wait_end
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

CHATS = ChatRules(channels={(NAME, ""): ChannelRules(agent_id=AgentId("main"))})
DELETE = to_call("delete", name="backups")


class ServedConfig(Config):
    """Settings of a home whose channel has people in it."""

    def rules(self, compartments: Compartments | None = None) -> Rules:
        return replace(super().rules(compartments), chats=CHATS)


def served(settings: Config | None = None) -> Config:
    return ServedConfig.model_validate((settings or Config()).model_dump(exclude_unset=True))


async def link(app: App, person: Principal, account: str) -> None:
    """The account on the platform is the person's."""
    id = person_of(person)
    assert id is not None
    identity = Identity(channel=NAME, account="", platform_id=account)
    await app.database.run(people.insert_identity, identity, id, app.services.clock.now_ms())


async def pressed(app: App, who: Principal, data: str) -> str:
    return await app.database.run(press, Rights(who, app.services.rules), data)


@asynccontextmanager
async def deciding(
    open_home: OpenHome,
    channel: LiveFakeChannel,
    disk: Disk,
    *,
    clock: ManualClock | None = None,
    settings: Config | None = None,
) -> AsyncGenerator[App]:
    parts = replace(disk.parts(clock), channels=[channel])
    async with open_home(served(settings), parts) as app:
        yield app


async def asked(app: App, call: str = DELETE) -> Approval:
    await open_session(app, S)
    _, approval = await request_of(app, call)
    await quiet(app)
    return approval


def shown(channel: LiveFakeChannel) -> dict[str, tuple[str, list[str]]]:
    """Each visible message: to whom, and the labels of its buttons."""
    sent = {f"platform-{number}": taken for number, taken in enumerate(channel.taken, start=1)}
    return {
        sent[id].place.to or "": (part.text, [button.label for button in part.buttons])
        for id, part in channel.shown.items()
    }


@requirement("approvals:3", "approvals:4")
async def test_an_owner_gets_the_exact_call_with_buttons_and_decides_by_one(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        await link(app, OWNER, "42")
        approval = await asked(app)
        ((text, labels),) = shown(channel).values()
        assert labels == ["Approve once", "Always", "Deny"]
        assert approval.calls[0].arguments in text and "delete" in text and approval.calls[0].reason in text
        buttons = channel.parts[0].buttons
        assert [button.data for button in buttons] == [f"{approval.id}:{each}" for each in ("once", "always", "deny")]
        assert all(len(button.data.encode()) <= 64 for button in buttons)
        assert await pressed(app, OWNER, buttons[0].data) == "Approved once."
        await wait_end(app, approval.run)
        assert disk.calls == ["delete backups"]
        await quiet(app)
        ((text, labels),) = shown(channel).values()
        assert labels == [] and approval.calls[0].arguments in text and "Approved once by " in text
        assert [found.status for found in await Story(app).deliveries()] == ["sent"]


@requirement("approvals:3")
async def test_a_second_press_and_one_by_somebody_else_get_the_right_answer(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        ann = await invite(app)
        approval = await asked(app)
        once, deny = f"{approval.id}:once", f"{approval.id}:deny"
        assert "may decide" in await pressed(app, ann, once)
        assert disk.calls == []
        assert await pressed(app, OWNER, deny) == "Denied."
        assert "already decided" in await pressed(app, OWNER, once)
        for data in ("appr_none:once", approval.id, f"{approval.id}:maybe", "", "x" * 64):
            assert await pressed(app, OWNER, data) == UNKNOWN
        assert disk.calls == []


@requirement("approvals:3")
async def test_buttons_outlive_a_restart_and_the_request(open_home: OpenHome) -> None:
    disk, channel, clock = Disk(), LiveFakeChannel(), ManualClock()
    async with deciding(open_home, channel, disk, clock=clock) as app:
        await link(app, OWNER, "42")
        approval = await asked(app)
    async with deciding(open_home, channel, disk, clock=clock) as app:
        clock.pass_time(timedelta(days=8))
        assert await pressed(app, OWNER, f"{approval.id}:once") == "Too late: the request has expired and was denied."
        await wait_end(app, approval.run)
        await quiet(app)
        ((text, labels),) = shown(channel).values()
        assert labels == [] and "Nobody decided in time" in text
        assert disk.calls == []


@requirement("approvals:3")
async def test_a_decision_on_the_page_and_a_withdrawal_change_the_messages(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        await link(app, OWNER, "42")
        approval = await asked(app)
        await decide(app, approval, Verdict.DENY)
        await quiet(app)
        ((text, labels),) = shown(channel).values()
        assert labels == [] and "Denied by " in text
        await wait_end(app, approval.run)
        approval = await asked(app, to_call("delete", name="more"))
        assert approval.run is not None
        await app.services.runs.cancel(OWNER, approval.run)
        await quiet(app)
        assert [part.text.rpartition("\n")[2][:9] for part in channel.shown.values()] == ["Denied by", "Withdrawn"]
        assert all(part.buttons == () for part in channel.shown.values())


@requirement("approvals:3", "approvals:4")
async def test_a_request_answered_before_it_left_is_not_sent_and_one_on_its_way_is_changed(
    open_home: OpenHome,
) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        await link(app, OWNER, "42")
        channel.hold()
        await open_session(app, S)
        _, first = await request_of(app, DELETE)
        await channel.until_asked(1)
        await decide(app, first)
        await wait_end(app, first.run)
        _, second = await request_of(app, to_call("delete", name="more"))
        await decide(app, second)
        await wait_end(app, second.run)
        channel.release()
        await quiet(app)
        ((text, labels),) = shown(channel).values()
        assert labels == [] and "Approved once by " in text and "more" not in text


@requirement("approvals:3", "access:4")
async def test_those_who_may_not_decide_get_no_message_and_users_get_no_always(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk, settings=approving("main")) as app:
        ann, ben, eve = await invite(app), await invite(app, "Ben"), await invite(app, "Eve", PersonRole.GUEST)
        for person, account in ((OWNER, "1"), (ann, "2"), (ben, "3"), (eve, "4")):
            await link(app, person, account)
        await hear(app, ann, "one", to_call("note", text="milk"))
        await pending(app)
        await quiet(app)
        labels = {to: labels for to, (_, labels) in shown(channel).items()}
        assert labels == {"1": ["Approve once", "Always", "Deny"], "3": ["Approve once", "Deny"]}
        assert CHAT not in channel.texts


@requirement("flow:7", "approvals:4")
async def test_a_chat_that_may_not_have_the_call_gets_no_call_and_no_buttons(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with asking_with(open_home, channel, disk) as app:
        await link(app, OWNER, "42")
        _, approval = await request_of(app, DELETE)

        async def ask_above(tx: Transaction) -> None:
            rules = replace(app.services.rules, chats=CHATS)
            made_of = Classification(Level.CONFIDENTIAL)
            await ask_deciders(tx, approval.id, made_of, rules)

        await app.database.run(ask_above)
        await quiet(app)
        ((text, labels),) = shown(channel).values()
        assert labels == [] and "backups" not in text and "look at the page" in text
        await decide(app, approval, Verdict.DENY)
        await quiet(app)
        assert channel.shown == {} and "backups" not in str(channel.texts)


@asynccontextmanager
async def asking_with(open_home: OpenHome, channel: LiveFakeChannel, disk: Disk) -> AsyncGenerator[App]:
    """A home whose own requests go to nobody's chat."""
    async with open_home(None, replace(disk.parts(), channels=[channel])) as app:
        await open_session(app, S)
        yield app


@requirement("approvals:4")
async def test_of_more_than_twenty_open_requests_one_message_counts_the_others(open_home: OpenHome) -> None:
    """It is changed while it counts; once it has counted none, the next one is a new message."""
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        await link(app, OWNER, "42")

        async def ask_one(number: int) -> None:
            await open_session(app, f"api:s{number}")
            await post(app, f"api:s{number}", to_call("delete", name=f"backup {number}"))

        async def seen() -> tuple[int, list[str]]:
            """How many requests are shown with buttons, and the messages that count others."""
            with anyio.fail_after(SECONDS):
                while await app.database.read(_is_any_to_send):  # what was stored may be seen before it wakes anybody
                    await anyio.lowlevel.checkpoint()
            await quiet(app)
            shown = list(channel.shown.values())
            return sum(bool(part.buttons) for part in shown), [
                part.text for part in shown if part.text.startswith("And ")
            ]

        async def until_seen(wanted: tuple[int, list[str]]) -> None:
            with anyio.fail_after(SECONDS):  # a message is changed a moment after what it counts
                while await seen() != wanted:
                    await anyio.sleep(0.01)

        for number in range(1, MOST_OPEN + 1):
            await ask_one(number)
        found = await pending(app, MOST_OPEN)
        await until_seen((MOST_OPEN, []))
        for number in range(MOST_OPEN + 1, MOST_OPEN + 4):
            await ask_one(number)
        found = await pending(app, MOST_OPEN + 3)
        count = "more requests for approval of owner, which are not sent one by one. The page shows them."
        await until_seen((MOST_OPEN, [f"And 3 {count}"]))
        await decide(app, found[0], Verdict.DENY)
        await until_seen((MOST_OPEN, [f"And 2 {count}"]))
        for each in found[1:3]:
            await decide(app, each, Verdict.DENY)
        await until_seen((MOST_OPEN, []))
        assert [part.text for part in channel.shown.values()][-1] == "No more requests for approval wait for owner."
        await ask_one(99)
        await pending(app, MOST_OPEN + 1)
        with anyio.fail_after(SECONDS):
            while (await seen())[1] != [f"And 1 {count.replace('requests', 'request')}"]:
                await anyio.sleep(0.01)
        assert len(channel.shown) == MOST_OPEN + 2, "a new message, which people notice"


async def _is_any_to_send(query: Query) -> bool:
    return await query.fetch_one("SELECT 1 FROM deliveries WHERE status IN ('queued', 'claimed') LIMIT 1") is not None


@requirement("approvals:4", "flow:7")
async def test_somebody_else_s_requests_are_sent_while_one_person_has_too_many_open(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        ann = await invite(app)
        await link(app, OWNER, "42")
        for number in range(MOST_OPEN + 2):
            await open_session(app, f"api:s{number}")
            await post(app, f"api:s{number}", to_call("delete", name=f"backup {number}"))
        await pending(app, MOST_OPEN + 2)
        await hear(app, ann, "one", to_call("note", text="milk"))
        await pending(app, MOST_OPEN + 3)
        await quiet(app)
        assert any("milk" in part.text and part.buttons for part in channel.shown.values())
