"""Who decides: owners, and users for the agents named in the settings; nobody below owner for themselves."""

from datetime import timedelta

import pytest

from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal, session_principal
from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.errors import AntiphonError, Denied, NotFound
from antiphon.domain.ids import ApprovalId
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from antiphon.domain.session import NOWHERE
from antiphon.store.approvals import ApprovalFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite, refusal
from tests.engine.approvals.test_approvals import Disk, pending
from tests.engine.stage import config, find_run, wait_end
from tests.people import guest

pytestmark = pytest.mark.anyio

NOTE = to_call("note", text="milk")
CHAT = "agent:main:test:direct:one"


def approving(*agents: str) -> Config:
    """Users may approve calls of these agents."""
    listed = [{"id": "main"}, {"id": "porter"}]
    return config(access={"roles": {"user": {"approve": list(agents)}}}, agents__list=listed)


async def asked_by(app: App, who: Principal) -> Approval:
    await hear(app, who, "one", NOTE)
    (approval,) = await pending(app)
    return approval


async def listed(app: App, who: Principal) -> list[ApprovalId]:
    return [found.id for found in await app.services.approvals.list(who, ApprovalFilter(), limit=50)]


@requirement("approvals:3", "access:4")
async def test_a_user_decides_for_a_named_agent_and_sees_the_call_but_not_the_session(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(approving("main"), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        assert await listed(app, ben) == [approval.id]
        assert (await app.services.approvals.get(ben, approval.id)).calls == approval.calls
        target = app.services.sessions.target(CHAT)
        assert isinstance(await refusal(app.services.history.page(ben, target, limit=5)), NotFound)
        decided = await app.services.approvals.resolve(ben, approval.id, Verdict.ONCE, note="well")
        assert (decided.decided_by, decided.note) == (ben, "well")
        assert approval.run is not None
        assert (await wait_end(app, approval.run)).reply == "noted milk"
        assert isinstance(await refusal(app.services.runs.get(ben, approval.run)), NotFound)


@requirement("approvals:3", "access:4")
async def test_nobody_below_owner_decides_what_they_asked_for(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(approving("main"), disk.parts()) as app:
        ann = await invite(app)
        approval = await asked_by(app, ann)
        for verdict in (Verdict.ONCE, Verdict.DENY):
            refused = await refusal(app.services.approvals.resolve(ann, approval.id, verdict))
            assert isinstance(refused, Denied) and refused.code == "own_request"
        await app.services.people.change_role(OWNER, "ann", PersonRole.OWNER)
        await app.services.approvals.resolve(ann, approval.id, Verdict.ONCE)
        assert (await wait_end(app, approval.run)).reply == "noted milk"


@requirement("approvals:3")
async def test_only_owners_allow_always(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(approving("main"), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        refused = await refusal(app.services.approvals.resolve(ben, approval.id, Verdict.ALWAYS))
        assert isinstance(refused, Denied) and (await pending(app))[0].id == approval.id
        assert await app.services.standing_approvals.list(OWNER, before=None, limit=5) == []
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.ALWAYS)
        assert len(await app.services.standing_approvals.list(OWNER, before=None, limit=5)) == 1


@requirement("approvals:3", "access:1")
@pytest.mark.parametrize("who", ["user", "guest", "session", "suspended", "demoted"])
async def test_others_decide_nothing_and_learn_nothing(open_home: OpenHome, who: str) -> None:
    """A user where none may approve; and where they may, those who are no users, or no more."""
    disk = Disk()
    async with open_home(approving() if who == "user" else approving("main"), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        other = {"guest": guest("eve"), "session": session_principal(CHAT)}.get(who, ben)
        if who == "suspended":
            await app.services.people.suspend(OWNER, "ben")
        if who == "demoted":
            await app.services.people.change_role(OWNER, "ben", PersonRole.GUEST)
        told: set[tuple[str, str]] = set()
        for id in (approval.id, ApprovalId("appr_none")):
            for refused in (
                await refusal(app.services.approvals.get(other, id)),
                await refusal(app.services.approvals.wait(other, id, timedelta(0))),
                await refusal(app.services.approvals.resolve(other, id, Verdict.ONCE)),
            ):
                told.add((refused.code, refused.message))
        assert len(told) == 1 and told.pop()[0] == ("suspended" if who == "suspended" else "forbidden")
        with pytest.raises(Denied):
            await listed(app, other)
        assert (await find_run(app, approval.run)).status is RunStatus.AWAITING_APPROVAL and disk.calls == []


@requirement("approvals:3", "access:4")
async def test_a_request_of_another_agent_is_as_good_as_missing(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(approving("porter"), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        assert await listed(app, ben) == []
        hidden: list[AntiphonError] = []
        for id in (approval.id, ApprovalId("appr_none")):
            hidden += [
                await refusal(app.services.approvals.get(ben, id)),
                await refusal(app.services.approvals.resolve(ben, id, Verdict.ONCE)),
            ]
        assert {type(each) for each in hidden} == {NotFound}
        assert {each.message.replace(approval.id, "ID").replace("appr_none", "ID") for each in hidden} == {
            "Request for approval not found: 'ID'"
        }
        target = app.services.sessions.target("agent:porter:test:direct:two")
        await app.services.sessions.open(OWNER, target, place=NOWHERE)
        await app.services.inbox.post(OWNER, target, text_content(to_call("delete", name="old")))
        newest, _ = await pending(app, 2)
        assert await listed(app, ben) == [newest.id]
        await app.services.approvals.resolve(ben, newest.id, Verdict.ONCE)
        await wait_end(app, newest.run)
        assert disk.calls == ["delete old"]


@requirement("approvals:5", "approvals:3")
async def test_the_one_who_asked_sees_what_became_of_the_request(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        assert (await app.services.approvals.get(ann, approval.id)).is_pending
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.DENY, note="no")
        assert (await app.services.approvals.wait(ann, approval.id, timedelta(0))).note == "no"
        assert isinstance(await refusal(app.services.approvals.get(ben, approval.id)), Denied)
        assert isinstance(await refusal(app.services.approvals.resolve(ann, approval.id, Verdict.ONCE)), Denied)


@requirement("approvals:3", "approvals:4")
async def test_each_decider_is_told_how_many_requests_wait_for_them(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(approving("main"), disk.parts()) as app:
        ann, ben, count_open = await invite(app), await invite(app, "Ben"), app.services.approvals.count_open
        assert [await count_open(who) for who in (OWNER, ann, ben)] == [0, 0, 0]
        assert [await count_open(who) for who in (guest("eve"), session_principal(CHAT))] == [None, None]
        approval = await asked_by(app, ann)
        assert [await count_open(who) for who in (OWNER, ann, ben)] == [1, 0, 1], "nobody below owner decides their own"
        target = app.services.sessions.target("agent:porter:test:direct:two")
        await app.services.sessions.open(OWNER, target, place=NOWHERE)
        await app.services.inbox.post(OWNER, target, text_content(to_call("delete", name="old")))
        newest, _ = await pending(app, 2)
        assert [await count_open(who) for who in (OWNER, ann, ben)] == [2, 0, 1]
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        await app.services.approvals.resolve(OWNER, newest.id, Verdict.DENY)
        assert [await count_open(who) for who in (OWNER, ann, ben)] == [0, 0, 0]
        for run in (approval.run, newest.run):
            await wait_end(app, run)
