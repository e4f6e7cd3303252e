"""What leaves the system: only what the channel and its recipient may have, checked when queued and when claimed."""

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_form import PLAIN_FORM
from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, UNTRUSTED, Classification, Level
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.ids import ProcessId, SessionId
from antiphon.domain.person import Identity, PersonId, PersonRole
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.recipients import find_recipient, may_leave
from antiphon.engine.deliveries.deliveries import ClaimDelivery, claim_delivery
from antiphon.engine.deliveries.outbox import name_of
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.policy.sinks import Sinks
from antiphon.store import people
from antiphon.store.database import Transaction
from antiphon.store.deliveries import NewDelivery, insert
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.counted import CountedDatabase
from tests.engine.stage import facts
from tests.story import Character, telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)
OPEN = Sinks(channels={f"{NAME}:None": EVERYTHING})
"""A channel through which anything may go that the recipient may have."""


def place(to: str) -> DeliveryContext:
    return DeliveryContext(channel=NAME, to=to)


async def link(app: App, to: str, person: str) -> None:
    """The account is the person's from now on."""

    async def store(tx: Transaction) -> None:
        identity = Identity(channel=NAME, account="", platform_id=to)
        await people.insert_identity(tx, identity, PersonId(person), app.services.clock.now_ms())

    await app.database.run(store)


async def invite(app: App, name: str, role: PersonRole = PersonRole.USER) -> str:
    return (await app.services.people.invite(OWNER, name, role)).person.id


async def recipient(app: App, to: str) -> Classification | None:
    return await app.database.read(find_recipient, place(to), Sinks())


@requirement("flow:7")
async def test_a_recipient_is_cleared_as_the_person_to_whom_the_account_is_linked(open_home: OpenHome) -> None:
    async with open_home() as app:
        ann, old = await invite(app, "Ann"), await invite(app, "Anne")
        for to, person in (("+1", ann), ("+2", old), ("+3", "owner")):
            await link(app, to, person)
        anns = Classification(Level.PUBLIC, person=f"person:{ann}")
        assert await recipient(app, "+1") == anns
        assert await recipient(app, "+3") == EVERYTHING
        assert await recipient(app, "+9") is None
        assert await app.database.read(find_recipient, DeliveryContext(), Sinks()) is None
        await app.services.people.merge(OWNER, old, ann)
        assert await recipient(app, "+2") == anns
        await app.services.people.suspend(OWNER, ann)
        assert await recipient(app, "+1") is None and await recipient(app, "+2") is None


@requirement("flow:7")
async def test_public_data_goes_anywhere_and_costs_no_statement(open_home: OpenHome) -> None:
    async with open_home() as app:
        counted = CountedDatabase(app.database)
        for data in (PUBLIC, UNTRUSTED):
            assert await counted.read(may_leave, data, place("+9"), Sinks())
        assert counted.statements == 0
        assert not await counted.read(may_leave, SECRET, place("+9"), Sinks())
        assert counted.statements > 0


@requirement("flow:7")
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("channel", Level)
@pytest.mark.parametrize("person", Level)
async def test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient(
    level: Level, channel: Level, person: Level
) -> None:
    sinks = Sinks(channels={f"{NAME}:None": Classification(channel, person=PEOPLE)})
    cleared = sinks.of_place(place("x"), Classification(person))
    assert Classification(level).flows_to(cleared) is (level <= min(channel, person))
    assert Classification(level).flows_to(sinks.of_place(place("x"), None)) is (level is Level.PUBLIC)


async def queue(app: App, session: Character, to: str, text: str, made_of: Classification) -> str:
    own = await session.session()

    async def store(tx: Transaction) -> str:
        delivery = NewDelivery(
            name=name_of(text),
            session=own.row,
            incarnation=SessionId(own.id),
            run_id=None,
            place=place(to),
            text=text,
            made_of=made_of,
        )
        return await insert(tx, delivery, app.services.clock.now_ms())

    return await app.database.run(store, sessions=(own.row,))


async def quiet(app: App) -> None:
    with anyio.fail_after(SECONDS):
        await app.deliverer.wait_idle()


@requirement("flow:7", "channels:1")
async def test_a_text_is_checked_when_it_is_claimed_and_suppressed_with_an_event(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        ann = await invite(app, "Ann")
        await link(app, "+1", ann)
        desk = await story.opens("desk")
        of_ann = Classification(Level.PUBLIC, person=f"person:{ann}")
        for to, text, made_of in (
            ("+9", "for all", PUBLIC),
            ("+1", "for ann", of_ann),
            ("+9", "ann's to a stranger", of_ann),
            ("+1", "secret", SECRET),
            ("+1", "of people", Classification(Level.PUBLIC, person=PEOPLE)),
        ):
            await queue(app, desk, to, text, made_of)
        stored = {each.text: each for each in await story.sees(story.deliveries, _are_over)}
        assert sorted(channel.texts) == ["for all", "for ann"]
        for text in ("ann's to a stranger", "secret", "of people"):
            held = stored[text]
            assert (held.status, held.code) == (DeliveryStatus.SUPPRESSED, "flow")
            assert held.error and "CONFIDENTIAL" not in held.error
        told = facts(await desk.log(), "delivery_suppressed")
        held = sorted(stored[text].id for text in ("ann's to a stranger", "secret", "of people"))
        assert sorted(str(each["deliveryId"]) for each in told) == held
        assert [each["code"] for each in told] == ["flow"] * 3


def _are_over(found: list[Any]) -> bool:
    return len(found) == 5 and all(each.status.is_terminal for each in found)


@requirement("flow:7")
async def test_a_waiting_text_is_held_back_once_its_recipient_may_not_have_it_any_more(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        ann = await invite(app, "Ann")
        await link(app, "+1", ann)
        desk = await story.opens("desk")
        channel.hold()
        await queue(app, desk, "+1", "first", PUBLIC)
        await channel.until_asked(1)
        await queue(app, desk, "+1", "second", Classification(Level.PUBLIC, person=f"person:{ann}"))
        await app.services.people.suspend(OWNER, ann)
        channel.release()
        await story.sees(story.deliveries, lambda found: len(found) == 2 and all(e.status.is_terminal for e in found))
        assert channel.texts == ["first"]


@requirement("flow:7")
async def test_a_claim_asks_the_channel_and_the_recipient_together(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        app = story.app
        await link(app, "+1", "owner")
        desk = await story.opens("desk")
        outcomes: list[bool] = []
        for number, (to, sinks) in enumerate((("+1", OPEN), ("+1", Sinks()), ("+9", OPEN))):
            id = await queue(app, desk, to, f"secret {number}", SECRET)
            command = ClaimDelivery(
                form=PLAIN_FORM,
                id=id,
                process=ProcessId("prc_test"),
                rules=replace(app.services.rules, sinks=sinks),
            )
            claimed = await app.database.run(claim_delivery, command, sessions=((await desk.session()).row,))
            outcomes.append(claimed is not None)
            if claimed is not None:
                await app.database.run(_end, id)
        assert outcomes == [True, False, False]


async def _end(tx: Transaction, id: str) -> None:
    await tx.execute("UPDATE deliveries SET status = 'sent' WHERE id = ?", (id,))


class Risen:
    """A runner whose reply is made of secrets."""

    async def run(self, context: RunContext) -> RunEnding:
        context.surroundings = SECRET
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="the secret"))


@requirement("flow:7", "flow:4")
async def test_a_reply_that_may_not_go_to_its_place_is_held_back_when_it_is_queued(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(runner=Risen(), channels=[channel])) as story:
        desk = await story.opens("desk")
        await desk.speaks_at("room", NAME)
        assert (await desk.answers("hello")).made_of == SECRET
        (held,) = await story.deliveries()
        assert (held.status, held.code, held.attempts) == (DeliveryStatus.SUPPRESSED, "flow", 0)
        assert held.made_of == SECRET
        await quiet(story.app)
        assert channel.asked == []
        assert [each["code"] for each in facts(await desk.log(), "delivery_suppressed")] == ["flow"]


@requirement("flow:7")
async def test_a_suppressed_text_is_checked_again_when_the_owner_retries_it(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        ann = await invite(app, "Ann")
        desk = await story.opens("desk")
        id = await queue(app, desk, "+1", "hers", Classification(Level.PUBLIC, person=f"person:{ann}"))
        await story.sees(story.deliveries, lambda found: found[0].status.is_terminal)
        await app.services.deliveries.retry(OWNER, id)
        await story.sees(story.deliveries, lambda found: found[0].status.is_terminal)
        assert channel.texts == []
        await link(app, "+1", ann)
        await app.services.deliveries.retry(OWNER, id)
        await channel.until_asked(1)
        assert channel.texts == ["hers"]
