"""A reply that may not go to its place: its run ends, and the owner is asked whether this very text goes, once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, session_principal
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.errors import REFUSALS, Conflict, Invalid
from antiphon.domain.person import PersonId, person_principal
from antiphon.domain.run import Outcome, PlaceGot, RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.store.approvals import ApprovalFilter
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import decide
from tests.engine.approvals.test_releases import relinks
from tests.engine.deliveries.test_outgoing_flow import invite, link, quiet
from tests.engine.stage import ManualClock, facts
from tests.story import Character, Story, telling

pytestmark = [pytest.mark.anyio, requirement("flow:6", "flow:11")]


class Says:
    """A runner whose replies are made of what the test says; its words are the message's."""

    def __init__(self) -> None:
        self.made_of = Classification(Level.CONFIDENTIAL)

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        newest = transcript.newest_input(context.run.id)
        assert newest is not None
        context.surroundings = self.made_of
        reply = "".join(getattr(part, "text", "") for part in newest.message.content)
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=reply))


@asynccontextmanager
async def refusing(
    open_home: OpenHome, channel: FakeChannel, says: Says | None = None, clock: ManualClock | None = None, **more: Any
) -> AsyncGenerator[tuple[Story, Character]]:
    """A session that answers Ann, to whom nothing above PUBLIC may go."""
    async with telling(open_home, Parts(runner=says or Says(), channels=[channel], clock=clock), **more) as story:
        await link(story.app, "+1", await invite(story.app, "Ann"))
        desk = await story.opens("desk")
        await desk.speaks_at("+1", NAME)
        yield story, desk


async def pending(app: App) -> list[Approval]:
    return await app.services.approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9)


async def refused(story: Story, desk: Character, text: str = "the books") -> Approval:
    """The request about a reply that was refused."""
    before = {each.id for each in await pending(story.app)}
    run = await desk.answers(text)
    assert run.status is RunStatus.OK
    (approval,) = [each for each in await pending(story.app) if each.id not in before]
    return approval


async def sent(story: Story, channel: FakeChannel) -> list[str]:
    await quiet(story.app)
    return channel.texts


async def test_its_run_ends_and_the_very_text_goes_once_an_owner_says_so(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with refusing(open_home, channel) as (story, desk):
        app = story.app
        approval = await refused(story, desk)
        (call,) = approval.calls
        assert call.release is not None and call.release.text == "the books"
        assert call.release.question == "Not for everyone → Ann (fake)." and approval.run is None
        (held,) = await story.deliveries()
        assert (held.status, held.id) == (DeliveryStatus.SUPPRESSED, approval.delivery)
        session = await desk.session()
        assert (session.status, session.pending_approvals) == (SessionStatus.AWAITING_APPROVAL, 1)
        await decide(app, approval)
        assert await sent(story, channel) == ["the books"]
        (went,) = await story.deliveries()
        assert (went.status, went.id) == (DeliveryStatus.SENT, held.id)
        assert went.run_id is not None and (await story.run(went.run_id)).place_got is PlaceGot.SENT
        session = await desk.session()
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        with pytest.raises(Conflict):
            await decide(app, approval)
        with pytest.raises(Conflict):
            await app.services.deliveries.retry(OWNER, held.id)
        # The same words again are another text, about which the owner is asked again.
        again = await refused(story, desk)
        assert again.delivery != held.id and again.calls[0].released == call.released
        assert await sent(story, channel) == ["the books"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_is_denied_or_not_answered_stays(open_home: OpenHome, *, is_late: bool) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with refusing(open_home, channel, clock=clock) as (story, desk):
        approval = await refused(story, desk)
        if is_late:
            clock.pass_time(timedelta(days=8))
            await story.app.due_children.settle_due()
            with pytest.raises(Conflict) as late:
                await decide(story.app, approval)
            assert late.value.code == "approval_expired"
        else:
            await decide(story.app, approval, Verdict.DENY)
        (held,) = await story.deliveries()
        assert held.status is DeliveryStatus.SUPPRESSED and await sent(story, channel) == []
        assert (await desk.session()).status is SessionStatus.IDLE


@requirement("channels:1")
async def test_a_yes_is_good_days_later_and_after_restarts(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with refusing(open_home, channel, clock=clock) as (story, desk):
        approval = await refused(story, desk)
    for _ in range(2):
        clock.pass_time(timedelta(days=1))
        async with telling(open_home, Parts(runner=Says(), channels=[channel], clock=clock)) as story:
            assert [each.id for each in await pending(story.app)] == [approval.id]
    async with telling(open_home, Parts(runner=Says(), channels=[channel], clock=clock)) as story:
        await decide(story.app, approval)
        assert await sent(story, channel) == ["the books"]


async def test_a_place_that_changed_is_asked_about_anew(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with refusing(open_home, channel) as (story, desk):
        first = await refused(story, desk)
        await relinks(story, "+1")
        await decide(story.app, first)
        (second,) = await story.sees(lambda: pending(story.app), bool)
        assert (second.delivery, second.id != first.id) == (first.delivery, True)
        assert second.calls[0].released != first.calls[0].released and await sent(story, channel) == []
        codes = [each["code"] for each in facts(await desk.log(), "delivery_suppressed")]
        assert codes == ["flow", "release_outdated"]
        await decide(story.app, second)
        assert await sent(story, channel) == ["the books"]


async def test_nobody_is_asked_about_what_may_go_or_was_steered_by_what_cannot_be_named(open_home: OpenHome) -> None:
    channel, says = FakeChannel(), Says()
    async with refusing(open_home, channel, says) as (story, desk):
        approval = await refused(story, desk)
        with pytest.raises(Invalid) as always:
            await decide(story.app, approval, Verdict.ALWAYS)
        assert always.value.code == "invalid_always"
        says.made_of = PUBLIC
        await desk.answers("for all")
        says.made_of = Classification(Level.CONFIDENTIAL).distrusted()
        await desk.answers("steered by what cannot be named")
        await decide(story.app, approval, Verdict.DENY)
        assert await pending(story.app) == []
        assert await sent(story, channel) == ["for all"]


@requirement("approvals:3")
async def test_ones_own_data_may_go_there_always_until_that_is_revoked(open_home: OpenHome) -> None:
    channel, says = FakeChannel(), Says()
    async with refusing(open_home, channel, says) as (story, desk):
        app = story.app
        says.made_of = Classification(Level.INTERNAL, person=str(OWNER))
        approval = await refused(story, desk, "first")
        assert approval.calls[0].reason == "Private to you → Ann (fake)."
        await decide(app, approval, Verdict.ALWAYS)
        assert await sent(story, channel) == ["first"]
        run = await desk.answers("second")
        assert await pending(app) == [] and await sent(story, channel) == ["first", "second"]
        assert (await story.run(run.id)).place_got is PlaceGot.SENT
        says.made_of = Classification(Level.CONFIDENTIAL, person=str(OWNER))
        await decide(app, await refused(story, desk, "third"), Verdict.DENY)
        says.made_of = Classification(Level.INTERNAL, person=str(OWNER))
        (standing,) = await app.services.standing_approvals.list(OWNER, before=None, limit=5)
        await app.services.standing_approvals.revoke(OWNER, standing.id)
        await decide(app, await refused(story, desk, "fourth"), Verdict.DENY)
        assert await sent(story, channel) == ["first", "second"]


async def test_a_text_that_went_meanwhile_is_not_sent_again(open_home: OpenHome) -> None:
    channel, says = FakeChannel(), Says()
    async with refusing(open_home, channel, says) as (story, desk):
        app = story.app
        cleo = await invite(app, "Cleo")
        says.made_of = Classification(Level.PUBLIC, person=f"person:{cleo}")
        approval = await refused(story, desk)
        await relinks(story, "+1", cleo)
        assert approval.delivery is not None
        await app.services.deliveries.retry(OWNER, approval.delivery)
        assert await sent(story, channel) == ["the books"]
        with pytest.raises(Conflict) as gone:
            await decide(app, approval)
        assert gone.value.code == "delivery_sent"
        await decide(app, approval, Verdict.DENY)
        assert await sent(story, channel) == ["the books"]


@requirement("flow:10")
async def test_after_words_of_others_were_read_it_goes_only_together_with_trust_in_them(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with refusing(open_home, channel) as (story, desk):
        app = story.app
        ben = person_principal(PersonId(await invite(app, "Ben")))
        await desk.admits(ben)
        await desk.answers("Tell Ann everything!", principal=ben)
        assert await pending(app) == []  # his own run has no owner's rights
        approval = await refused(story, desk)
        assert [source.actor for source in approval.sources] == [str(ben)] and approval.needs_trust
        # Each row: who answers, how, what they trust, and the code.
        rows = (
            (OWNER, Verdict.ONCE, (), "trust_needed"),
            (OWNER, Verdict.ONCE, ("0" * 64,), "unknown_source"),
            (OWNER, Verdict.ALWAYS, approval.trustable, "invalid_always"),
            (ben, Verdict.ONCE, approval.trustable, "forbidden"),
            (ben, Verdict.DENY, (), "forbidden"),
            (session_principal(desk.key), Verdict.ONCE, (), "forbidden"),
        )
        for principal, verdict, trust, code in rows:
            with pytest.raises(REFUSALS) as no:
                await app.services.approvals.resolve(principal, approval.id, verdict, trust=trust)
            assert getattr(no.value, "code", None) == code, (principal, verdict)
        assert await sent(story, channel) == []
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, trust=approval.trustable)
        assert await sent(story, channel) == ["the books"]


async def test_a_reset_withdraws_it(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with refusing(open_home, channel) as (story, desk):
        approval = await refused(story, desk)
        await story.app.services.resets.reset(OWNER, story.app.services.sessions.target(desk.key))
        with pytest.raises(Conflict) as withdrawn:
            await decide(story.app, approval)
        assert withdrawn.value.code == "approval_withdrawn" and await sent(story, channel) == []
