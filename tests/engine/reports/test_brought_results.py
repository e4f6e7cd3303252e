"""A withheld result: its owner lets the session read these words once, or rise to them, or neither."""

import pytest

from antiphon.domain.actor import OWNER, session_principal
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.classification import Classification, Integrity, Level
from antiphon.domain.errors import REFUSALS, Conflict
from antiphon.domain.event import Event, EventType
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.person import PersonId, person_principal
from antiphon.domain.run import RunStatus
from antiphon.engine.sessions.patches import session_columns
from antiphon.store.approvals import ApprovalFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_releases import clears
from tests.engine.deliveries.test_outgoing_flow import invite
from tests.engine.runs.test_classified_runs import BOOKS, PARTS, of_type
from tests.story import Character, Story, telling

CANARY = "canary-91b4"
pytestmark = [pytest.mark.anyio, requirement("flow:6", "flow:11")]


async def pending(story: Story) -> list[Approval]:
    where = ApprovalFilter(state=ApprovalState.PENDING)
    return await story.app.services.approvals.list(OWNER, where, limit=9)


async def withheld(story: Story, boss: Character, *lines: str) -> Approval:
    """The request about the result of a child that has read the books."""
    await boss.spawns(BOOKS, *lines, f"!say the secret {CANARY}")
    await story.settles()
    return (await pending(story))[0]


async def heard(boss: Character) -> list[Event]:
    return [
        event
        for event in await boss.log()
        if isinstance(event.message, UserMessage) and CANARY in text_of(event.message.content)
    ]


async def test_an_owner_releases_exactly_these_words_once(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        approval = await withheld(story, boss)
        (call,) = approval.calls
        assert call.release is not None and f"the secret {CANARY}" in call.release.text
        assert call.release.question == "Not for everyone → session boss." and approval.run is None
        assert not any(CANARY in str(event) for event in await boss.log())
        (asked,) = of_type(await boss.log(), EventType.APPROVAL_REQUESTED)
        assert asked.classification.level is Level.PUBLIC
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        await story.settles()
        (event,) = await heard(boss)
        assert event.message is not None and text_of(event.message.content) == call.release.text
        assert event.classification.level is Level.PUBLIC and (await boss.session()).taint.level is Level.PUBLIC
        assert event.run_id is not None and (await story.run(event.run_id)).status is RunStatus.OK
        with pytest.raises(Conflict):
            await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        assert len(await heard(boss)) == 1


async def test_an_owner_accepts_it_in_the_sessions_name_which_rises(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        approval = await withheld(story, boss)
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, accepts=True)
        await story.settles()
        (event,) = await heard(boss)
        assert event.classification.level is Level.CONFIDENTIAL
        assert (await boss.session()).taint.level is Level.CONFIDENTIAL and await pending(story) == []


@pytest.mark.parametrize("limit", ["clearance", "place"])
async def test_nothing_is_accepted_above_what_the_session_may_hold(open_home: OpenHome, limit: str) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        approval = await withheld(story, boss)
        if limit == "clearance":
            await boss.changes(**session_columns({"clearance": Classification(Level.INTERNAL)}))
        else:
            await boss.speaks_at("somewhere")
        rows = [(True, "above_clearance"), *([(False, "release_outdated")] if limit == "place" else [])]
        for accepts, code in rows:
            with pytest.raises(REFUSALS) as no:
                await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, accepts=accepts)
            assert getattr(no.value, "code", None) == code
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.DENY)
        await story.settles()
        assert await heard(boss) == [] and (await boss.session()).taint.level is Level.PUBLIC


async def test_who_may_not_read_it_is_not_shown_it_and_answers_nothing(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, access__roles={"user": {"approve": ["main"]}}) as story:
        app, boss = story.app, await story.opens("boss")
        ben = person_principal(PersonId(await invite(app, "Ben")))
        approval = await withheld(story, boss)
        for nobody in (ben, session_principal(boss.key)):
            for accepts in (False, True):
                with pytest.raises(REFUSALS):
                    await app.services.approvals.resolve(nobody, approval.id, Verdict.ONCE, accepts=accepts)
        assert await app.services.approvals.list(ben, ApprovalFilter(), limit=5) == []
        assert await app.services.approvals.count_open(ben) == 0
        await clears(story, "Ben", Level.RESTRICTED)
        assert len(await app.services.approvals.list(ben, ApprovalFilter(), limit=5)) == 1
        with pytest.raises(REFUSALS):
            await app.services.approvals.resolve(ben, approval.id, Verdict.ONCE)
        assert [each.id for each in await pending(story)] == [approval.id] and await heard(boss) == []


async def test_what_others_had_a_part_in_is_accepted_and_never_released(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        approval = await withheld(story, boss, to_call("weather"))
        for verdict in (Verdict.ONCE, Verdict.ALWAYS):
            with pytest.raises(REFUSALS):
                await story.app.services.approvals.resolve(OWNER, approval.id, verdict)
        assert await heard(boss) == []
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, accepts=True)
        await story.settles()
        (event,) = await heard(boss)
        assert event.classification.integrity is Integrity.UNTRUSTED


async def test_a_session_that_accepts_it_itself_ends_the_question(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, "!say the secret")
        await story.settles()
        (approval,) = await pending(story)
        await boss.answers(to_call("sessions_wait", runIds=[child.run_id], accept=True))
        assert await pending(story) == []
        with pytest.raises(Conflict) as withdrawn:
            await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        assert withdrawn.value.code == "approval_withdrawn"


async def test_nobody_accepts_where_there_is_no_result(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        run_id = await desk.hears(BOOKS, to_call("sessions_send", sessionKey=peer.key, message="hi"))
        (approval,) = await story.sees(lambda: pending(story), bool)
        with pytest.raises(REFUSALS) as no:
            await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, accepts=True)
        assert getattr(no.value, "code", None) == "nothing_to_accept"
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.DENY)
        await story.end_of(run_id)
