"""What an owner allows always runs unasked: the same calls, for the same principal, until it is revoked."""

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.errors import Denied, Invalid, NotFound
from antiphon.domain.ids import RunId, StandingApprovalId
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Run
from antiphon.domain.standing_approval import StandingApproval
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, S, asking, call, decide, pending, request_of
from tests.engine.stage import ask, config, wait_end

pytestmark = pytest.mark.anyio


async def allow_always(app: App, approval: Approval, *fields: str) -> None:
    named = {call.id: fields for call in approval.calls} if fields else None
    await app.services.approvals.resolve(OWNER, approval.id, Verdict.ALWAYS, fields=named)


async def standing(app: App) -> list[StandingApproval]:
    return await app.services.standing_approvals.list(OWNER, before=None, limit=50)


async def asks(app: App, who: Principal, text: str, chat: str = "one") -> bool:
    """Whether the run of the message waits for a yes; then it gets a no."""
    run_id = await hear(app, who, chat, text)
    found: Run | None = None
    while found is None or not (found.is_over or found.is_awaiting_approval):
        found = await app.services.runs.get(OWNER, run_id)
    if found.is_awaiting_approval:
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)
        await wait_end(app, run_id)
    return found.is_awaiting_approval


async def allowed_note(app: App, who: Principal, *fields: str, **arguments: Any) -> StandingApproval:
    """Allows a call of the person always, and returns what is allowed."""
    run_id = await hear(app, who, "one", to_call("note", **arguments))
    (approval,) = await pending(app)
    await allow_always(app, approval, *fields)
    await wait_end(app, run_id)
    return (await standing(app))[0]


@requirement("approvals:3")
async def test_what_is_allowed_always_is_not_asked_about_again_until_it_is_revoked(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="old"))
        await allow_always(app, approval)
        assert (await wait_end(app, run_id)).reply == "deleted old"
        (allowed,) = await standing(app)
        assert (allowed.tool, allowed.arguments, allowed.fields) == ("delete", '{"name":"old"}', None)
        assert (allowed.principal, allowed.created_by, allowed.approval) == (OWNER, OWNER, approval.id)
        assert (await ask(app, S, "again\n" + to_call("delete", name="old"))).reply == "deleted old"
        assert (await call(app, "delete", name="old"))["result"] == "deleted old"
        assert (await call(app, "delete", name="new"))["status"] == "pending"
        assert await app.services.standing_approvals.revoke(OWNER, allowed.id) == allowed
        assert (await call(app, "delete", name="old"))["status"] == "pending"
        assert disk.calls == ["delete old"] * 3 and await standing(app) == []
        with pytest.raises(NotFound):
            await app.services.standing_approvals.revoke(OWNER, allowed.id)


@requirement("approvals:3", "access:4")
async def test_what_is_allowed_to_one_person_is_allowed_to_nobody_else(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        await allowed_note(app, ann, text="milk")
        milk = to_call("note", text="milk")
        assert not await asks(app, ann, milk)
        assert await asks(app, ben, milk, "two")
        assert await asks(app, ann, to_call("note", text="bread"))


@requirement("approvals:3")
async def test_the_same_arguments_in_another_form_are_allowed_and_other_values_are_not(
    open_home: OpenHome,
) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("pay", amount=1))
        await allow_always(app, approval)
        await wait_end(app, run_id)
        assert (await ask(app, S, '!call pay {  "amount" : 1 }')).reply == "paid 1"
        for other in ("true", "1.0", '"1"', '1, "to": 1'):
            run_id, approval = await request_of(app, f'!call pay {{"amount": {other}}}')
            await decide(app, approval, Verdict.DENY)
            await wait_end(app, run_id)


@requirement("approvals:3")
async def test_named_fields_fix_only_those_arguments(open_home: OpenHome) -> None:
    sent: list[str] = []

    async def mail(to: str, text: str) -> str:
        """Sends."""
        sent.append(f"{to}: {text}")
        return "sent"

    async with open_home(config(), Parts(tools=[tool(mail, effects=["leaves"])])) as app:
        ann = await invite(app)
        run_id = await hear(app, ann, "one", to_call("mail", to="ben", text="hello"))
        (approval,) = await pending(app)
        for verdict, fields in ((Verdict.ALWAYS, ("from",)), (Verdict.ALWAYS, ()), (Verdict.ONCE, ("to",))):
            with pytest.raises(Invalid) as refused:
                await app.services.approvals.resolve(OWNER, approval.id, verdict, fields={"1": fields})
            assert refused.value.code == "invalid_always"
        assert await standing(app) == [] and sent == []
        await allow_always(app, approval, "to")
        await wait_end(app, run_id)
        assert (await standing(app))[0].fields == ("to",)
        assert not await asks(app, ann, to_call("mail", to="ben", text="more"))
        assert await asks(app, ann, to_call("mail", to="eve", text="hello"))
        assert await asks(app, ann, to_call("mail", text="hello"))
        assert sent == ["ben: hello", "ben: more"]


@requirement("approvals:3", "access:1")
async def test_only_owners_allow_always_and_it_counts_while_they_are_one(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann, eve = await invite(app), await invite(app, "Eve", PersonRole.OWNER)
        run_id = await hear(app, ann, "one", to_call("note", text="milk"))
        (approval,) = await pending(app)
        with pytest.raises(Denied):
            await app.services.approvals.resolve(ann, approval.id, Verdict.ALWAYS)
        await app.services.approvals.resolve(eve, approval.id, Verdict.ALWAYS)
        await wait_end(app, run_id)
        with pytest.raises(Denied):
            await app.services.standing_approvals.list(ann, before=None, limit=50)
        (allowed,) = await standing(app)
        with pytest.raises(Denied):
            await app.services.standing_approvals.revoke(ann, allowed.id)
        milk = to_call("note", text="milk")
        assert not await asks(app, ann, milk)
        await app.services.people.change_role(OWNER, "eve", PersonRole.USER)
        assert await asks(app, ann, milk)
        await app.services.people.change_role(OWNER, "eve", PersonRole.OWNER)
        assert not await asks(app, ann, milk)
        await app.services.people.suspend(OWNER, "eve")
        assert await asks(app, ann, milk)


@requirement("approvals:3", "access:1")
async def test_it_moves_with_a_merged_person_and_goes_with_a_removed_one(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        await allowed_note(app, ann, text="milk")
        await hear(app, ann, "one", to_call("delete", name="old"))
        (open_,) = await pending(app)
        await app.services.people.merge(OWNER, "ann", "ben")
        assert (await app.services.approvals.get(OWNER, open_.id)).principal == ben
        await decide(app, open_, Verdict.DENY)
        assert (await standing(app))[0].principal == ben
        milk = to_call("note", text="milk")
        assert not await asks(app, ben, milk, "two")
        assert not await asks(app, ann, milk)
        await app.services.people.remove(OWNER, "ben")
        assert await standing(app) == []


@requirement("approvals:3")
async def test_a_tool_that_changed_is_asked_about_anew_although_it_is_allowed_always(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        await allowed_note(app, ann, text="milk")

    async def note(text: str) -> str:
        """Notes, and deletes everything else."""
        return await disk.note(text)

    async with open_home(config(), Parts(tools=[note])) as app:
        assert await asks(app, ann, to_call("note", text="milk"))


@requirement("approvals:3", "access:1")
async def test_what_is_revoked_before_its_call_begins_does_not_run(open_home: OpenHome, home: Path) -> None:
    """The first call of the step revokes what allows the second, after both were judged."""
    disk, revoke = Disk(), list[StandingApprovalId]()

    async def change() -> str:
        """Revokes."""
        for id in revoke:
            await app.services.standing_approvals.revoke(OWNER, id)
        return "revoked"

    calls: list[dict[str, Any]] = [{"name": "change", "arguments": {}}, {"name": "note", "arguments": {"text": "milk"}}]
    home.mkdir(mode=0o700, exist_ok=True)
    script = {"sessions": {"*": [[{"calls": calls}, {"calls": calls}, {"text": "done"}]]}}
    (home / "calls.json").write_text(json.dumps(script), "utf-8")
    parts = Parts(tools=[tool(change, effects=["reads"]), tool(disk.note)])
    async with open_home(config(agents__defaults={"model": "scripted:calls.json"}), parts) as app:
        run_id = await hear(app, await invite(app), "one")
        (approval,) = await pending(app)
        revoke.append((await allowed_first(app, approval)).id)
        (again,) = await pending(app)
        assert again.run == run_id and disk.calls == ["note milk"]
        await decide(app, again, Verdict.DENY)
        assert (await wait_end(app, run_id)).reply == "done"
        assert disk.calls == ["note milk"]


async def allowed_first(app: App, approval: Approval) -> StandingApproval:
    await allow_always(app, approval)
    return (await standing(app))[0]


@requirement("approvals:3")
@pytest.mark.parametrize("is_beside", [False, True], ids=["undisturbed", "parked"])
async def test_a_command_is_allowed_until_its_run_ends(open_home: OpenHome, *, is_beside: bool) -> None:
    """Also when the run goes on as another, because its session worked on something else meanwhile."""
    ran: list[str] = []

    async def run_command(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "ran"

    command = to_call("run_command", command="make")
    async with open_home(config(), Parts(tools=[tool(run_command, effects=["deletes"])])) as app:
        await app.services.sessions.open(OWNER, app.services.sessions.target(S))
        run_id, approval = await request_of(app, command, command)
        if is_beside:
            await ask(app, S, "hello")
        await allow_always(app, approval)
        runs = await app.database.read(runs_allowed)
        assert len(runs) == 1 and (runs[0] == run_id) is not is_beside, "it is the run that goes on"
        await wait_end(app, run_id)
        # The offline model forgets the second command when another message came in between.
        assert ran == ["make"] * (1 if is_beside else 2) and await standing(app) == []
        _, second = await request_of(app, "once more\n" + command)
        assert second.calls[0].tool == "run_command"
        await decide(app, second, Verdict.DENY)
        outside = await call(app, "run_command", command="make")
        (third,) = await pending(app)
        assert outside["approvalId"] == third.id
        with pytest.raises(Invalid) as refused:
            await allow_always(app, third)
        assert refused.value.code == "invalid_always" and len(await pending(app)) == 1


async def runs_allowed(query: Query) -> list[RunId]:
    return [row[0] for row in await query.fetch_all("SELECT run FROM standing_approvals", ())]
