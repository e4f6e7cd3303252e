"""Notifications through Apprise's own library, to a service that takes them over HTTP."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.channels.apprise.kind import APPRISE
from antiphon.config.config import Config
from antiphon.config.readiness import missing
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.chat_state import NO_CHATS
from antiphon.domain.check_result import Grade
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.errors import Invalid
from antiphon.domain.person import Person, PersonId, PersonRole
from antiphon.domain.session import DeliveryContext
from antiphon.engine.notifications import PAUSE
from antiphon.store import people
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Transaction
from antiphon.store.deliveries import DeliveryFilter
from tests.channels.fake_channel import Act, FakeChannel
from tests.channels.receiver import Receiver
from tests.channels.settings import read_settings
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.stage import ManualClock
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

PAGE = "https://agents.example"
SECRET_NAME = "the-letters-of-ann"
BOOKS = Classification(Level.CONFIDENTIAL)


def wipe(name: str) -> str:
    """Deletes."""
    return f"wiped {name}"


class Desk:
    """A home whose owner is notified, and a session that asks."""

    def __init__(self, story: Story, clock: ManualClock, receiver: Receiver) -> None:
        self.story, self.app, self.clock = story, story.app, clock
        self._receiver = receiver

    @property
    def said(self) -> list[str]:
        """The texts that the service took, and those that it refused."""
        return [body["message"] for body in self._receiver.bodies]

    async def asks(self, name: str = SECRET_NAME, taint: Classification | None = None) -> None:
        """One request more waits, and time passes."""
        before = await self.pending()
        desk = await self.story.opens(f"desk-{before}-{self.clock.now_ms()}", taint=taint)
        await desk.hears(to_call("wipe", name=name))
        await self.story.sees(self.pending, lambda now: now > before)
        self.clock.pass_time(timedelta(seconds=1))

    async def pending(self) -> int:
        return await self.app.services.approvals.count_open(OWNER) or 0

    async def looks(self) -> None:
        """What is due is queued and sent."""
        await self.app.notifications.look()
        await self.app.deliverer.wait_idle()

    async def statuses(self) -> list[DeliveryStatus]:
        found = await self.app.services.deliveries.list(OWNER, DeliveryFilter(), limit=50)
        return [each.status for each in found if each.place.channel == "apprise"]


@asynccontextmanager
async def open_desk(
    open_home: OpenHome, receiver: Receiver, *, channels: Sequence[FakeChannel] = (), **section: Any
) -> AsyncGenerator[Desk]:
    clock = ManualClock()
    gateway = {"public_url": PAGE, "drain_seconds": 0}
    settings = {"apprise": {"url": receiver.url.replace("http:", "json:"), **section}}
    wiping = tool(wipe, effects=["deletes"], clearance={"level": "CONFIDENTIAL"})
    parts = Parts(tools=[wiping], clock=clock, channels=channels)
    async with telling(open_home, parts, gateway=gateway, channels=settings) as story:
        yield Desk(story, clock, receiver)


@requirement("approvals:4")
async def test_the_owner_is_told_how_much_waits_and_nothing_else(open_home: OpenHome, receiver: Receiver) -> None:
    async with open_desk(open_home, receiver) as desk:
        await desk.looks()
        assert desk.said == []
        await desk.asks()
        await desk.looks()
        assert desk.said == [f"1 thing waits for you: {PAGE}"]
        assert SECRET_NAME not in json.dumps(receiver.bodies)


async def test_one_notification_a_minute_while_the_number_grows(open_home: OpenHome, receiver: Receiver) -> None:
    async with open_desk(open_home, receiver) as desk:
        for _ in range(3):
            await desk.asks()
            await desk.looks()
        assert len(desk.said) == 1
        desk.clock.pass_time(PAUSE)
        await desk.looks()
        assert desk.said[1:] == [f"3 things wait for you: {PAGE}"]
        for _ in range(3):
            desk.clock.pass_time(PAUSE)
            await desk.looks()
        assert len(desk.said) == 2  # nothing new


async def test_what_was_decided_before_the_notification_went_is_not_told(
    open_home: OpenHome, receiver: Receiver
) -> None:
    receiver.answers = [(503, {}, b"")]
    async with open_desk(open_home, receiver) as desk:
        await desk.asks()
        await desk.looks()
        assert await desk.statuses() == [DeliveryStatus.QUEUED]
        await desk.asks()
        await desk.looks()  # the number in the one that waits grows
        desk.clock.pass_time(timedelta(seconds=30))
        await desk.looks()
        assert desk.said[1:] == [f"2 things wait for you: {PAGE}"]

        receiver.answers = [(503, {}, b"")]
        desk.clock.pass_time(PAUSE)
        await desk.asks()
        await desk.looks()
        assert await desk.statuses() == [DeliveryStatus.QUEUED, DeliveryStatus.SENT]
        for request in await desk.app.services.approvals.list(
            OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9
        ):
            await desk.app.services.approvals.resolve(OWNER, request.id, Verdict.DENY)
        await desk.looks()
        assert await desk.statuses() == [DeliveryStatus.SENT]


async def test_a_restart_tells_nothing_twice(open_home: OpenHome, receiver: Receiver) -> None:
    async with open_desk(open_home, receiver) as desk:
        await desk.asks()
        await desk.looks()
    clock = desk.clock
    clock.pass_time(2 * PAUSE)
    url = receiver.url.replace("http:", "json:")
    async with telling(open_home, Parts(clock=clock), channels={"apprise": {"url": url}}) as story:
        await story.app.notifications.look()
        await story.app.deliverer.wait_idle()
    assert len(receiver.requests) == 1


@requirement("flow:7")
@pytest.mark.parametrize(
    ("level", "made_of", "holds"),
    [
        (None, PUBLIC, False),
        ("PUBLIC", PUBLIC, True),
        ("PUBLIC", BOOKS, False),
        ("CONFIDENTIAL", BOOKS, True),
    ],
)
async def test_requests_stand_in_it_only_by_a_clearance(
    open_home: OpenHome, receiver: Receiver, level: str | None, made_of: Classification, *, holds: bool
) -> None:
    section: dict[str, Any] = {} if level is None else {"clearance": {"level": level}}
    async with open_desk(open_home, receiver, **section) as desk:
        await desk.asks(taint=made_of)
        await desk.looks()
        (text,) = desk.said
        assert (SECRET_NAME in text) is holds
        assert text.startswith(f"1 thing waits for you: {PAGE}")


async def test_an_answer_that_a_chat_refuses_for_good_is_told(open_home: OpenHome, receiver: Receiver) -> None:
    chat = FakeChannel()
    async with open_desk(open_home, receiver, channels=[chat]) as desk:
        writer = await desk.story.opens("writer")
        await writer.speaks_at("room", chat.name)
        chat.will(Act.REFUSE)
        await writer.answers("hello")
        await desk.app.deliverer.wait_idle()
        await desk.looks()
        assert desk.said == [f"1 thing waits for you: {PAGE}"]


async def test_a_notification_that_could_not_be_delivered_causes_none(open_home: OpenHome, receiver: Receiver) -> None:
    async with open_desk(open_home, receiver) as desk:
        place = DeliveryContext(channel="apprise", to="owner", account_id="default")
        receiver.answers = [(503, {}, b"")] * 60
        await desk.asks()
        await desk.looks()
        for _ in range(20):
            desk.clock.pass_time(timedelta(minutes=11))
            await desk.looks()
        assert await desk.statuses() == [DeliveryStatus.DEAD]
        needs = (await desk.app.services.overviews.read(OWNER)).needs
        assert [each.place for each in needs.dead] == [place]
        receiver.answers = []
        told = len(desk.said)
        for _ in range(3):
            desk.clock.pass_time(PAUSE)
            await desk.looks()
        assert len(desk.said) == told


async def test_only_the_person_of_the_account_is_told_of_what_is_theirs(
    open_home: OpenHome, receiver: Receiver
) -> None:
    async with open_desk(open_home, receiver, person="ann") as desk:
        await desk.app.database.run(_add, "ann")
        await desk.asks()
        await desk.looks()
        assert desk.said == []  # only owners decide it


async def _add(tx: Transaction, name: str) -> None:
    await people.insert(tx, Person(id=PersonId(name), name=name, role=PersonRole.USER, created_at=tx.now))


async def test_agents_cannot_write_to_it(open_home: OpenHome, receiver: Receiver) -> None:
    async with open_desk(open_home, receiver, clearance={"level": "PUBLIC"}) as desk:
        writer = await desk.story.opens("writer")
        for recipient in ("owner", "default", "person:owner"):
            call = to_call("message", channel="apprise", recipient=recipient, text="pst")
            run = await writer.answers(call)
            assert "not_found" in str(run.reply) or "no_place" in str(run.reply), run.reply
        await desk.app.deliverer.wait_idle()
        assert receiver.requests == []


def test_a_missing_url_is_named_with_its_setting() -> None:
    config = Config.model_validate({"channels": {"apprise": {"accounts": {"phone": {"url_env": "NO_SUCH_URL"}}}}})
    (problem,) = list(missing(config))
    assert "NO_SUCH_URL" in problem and "ntfys://" in problem
    with pytest.raises(Invalid, match="Apprise has no url"):
        read_settings(config, "apprise")


@pytest.mark.parametrize(
    ("url", "grade", "words"),
    [
        ("json://127.0.0.1:1/x", Grade.OK, "notifies owner"),
        ("nonsense://127.0.0.1", Grade.BROKEN, "does not understand the url"),
    ],
)
def test_doctor_looks_at_the_url_and_never_shows_it(url: str, grade: Grade, words: str) -> None:
    config = Config.model_validate({"channels": {"apprise": {"url": url}}})
    ((_, given),) = list(config.given_channels())
    first, link = list(APPRISE.check(given, NO_CHATS, is_running=False))
    assert first.grade is grade and words in first.detail and "127.0.0.1" not in first.detail
    assert link.grade is Grade.WARNING and "public_url" in link.detail


def test_the_library_is_imported_for_the_first_notification_alone() -> None:
    program = (
        "import sys\n"
        "from antiphon.channels.apprise.kind import APPRISE\n"
        "from antiphon.clock import SystemClock\n"
        "APPRISE.open({'default': 'json://127.0.0.1'}, SystemClock())\n"
        "assert 'apprise' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
