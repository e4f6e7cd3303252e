"""Calls from outside a run: joined while they wait, carried out once after the yes, by any process, over crashes."""

import json
from datetime import timedelta
from typing import Any, cast

import anyio
import pytest
from msgspec.structs import replace

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.call import OutsideCall
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import ApprovalId, ProcessId
from antiphon.domain.person import PersonRole
from antiphon.engine.calls.steps import BeginsNow, TakeCall, end_call, take_call
from antiphon.store import approvals as rows
from antiphon.store import calls
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, S, asking, call, decide, pending, request_of
from tests.engine.calls.test_keyed_calls import Unconfirmed
from tests.engine.stage import ManualClock, ask, config, find_session, open_session, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def outcome_of(app: App, approval: Approval) -> Any:
    """The answer of the approved call, once it has one."""
    answered = await app.services.approvals.wait(OWNER, approval.id, timedelta(seconds=SECONDS))
    return json.loads(answered.outcome or "null")


@requirement("approvals:3", "approvals:5")
async def test_an_identical_call_with_another_key_joins_and_one_decision_runs_it_once(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        answers = [await call(app, "delete", key, name="old") for key in ("one", "two", None)]
        (approval,) = await pending(app)
        assert {answer["approvalId"] for answer in answers} == {approval.id}
        assert (await find_session(app, S)).pending_approvals == 1
        await decide(app, approval)
        for key in ("one", "two", None, "two"):
            assert (await call(app, "delete", key, name="old"))["result"] == "deleted old"
        assert disk.calls == ["delete old"]
        assert (await call(app, "delete", "three", name="old"))["status"] == "pending", "it was one call"
        with pytest.raises(Conflict) as reused:
            await call(app, "delete", "two", name="new")
        assert reused.value.code == "idempotency_key_reused"


@requirement("approvals:5", "runs:8")
async def test_an_approved_call_whose_begin_was_stored_unconfirmed_is_carried_out_once(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        app.outside_calls._database = cast(Any, Unconfirmed(app.database, take_call))  # pyright: ignore[reportPrivateUsage]
        await call(app, "delete", "one", name="old")
        (approval,) = await pending(app)
        await decide(app, approval)
        with anyio.fail_after(SECONDS):
            while "result" not in (answer := await call(app, "delete", "one", name="old")):
                assert answer.get("code") is None
                await anyio.sleep(0.05)
        assert (answer["result"], disk.calls) == ("deleted old", ["delete old"])


@requirement("approvals:3", "approvals:5")
async def test_half_a_character_in_an_argument_is_replaced_in_what_is_asked_and_in_what_runs(
    open_home: OpenHome,
) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        assert (await call(app, "delete", "one", name="old\ud83d"))["status"] == "pending"
        (approval,) = await pending(app)
        await decide(app, approval)
        assert (await call(app, "delete", "one", name="old\ud83d"))["result"] == "deleted old\ufffd"
        assert disk.calls == ["delete old\ufffd"]


@requirement("approvals:3")
@pytest.mark.parametrize("differs", ["arguments", "tool", "asker"])
async def test_a_call_that_differs_does_not_join(open_home: OpenHome, differs: str) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        chat = "agent:main:test:direct:one"
        await wait_end(app, await hear(app, ann, "one"))
        target = app.services.sessions.target(chat)

        async def delete(who: Any, name: str, arguments: Any) -> str:
            return str((await app.tool_calls.call(who, target, name, arguments))["approvalId"])

        first = await delete(ann, "delete", {"name": "old"})
        match differs:
            case "arguments":
                second = await delete(ann, "delete", {"name": "new"})
            case "tool":
                second = await delete(ann, "note", {"name": "old"})
            case _:
                second = await delete(OWNER, "delete", {"name": "old"})
        assert first != second and len(await pending(app, 2)) == 2


@requirement("approvals:3", "approvals:5")
@pytest.mark.parametrize("verdict", [Verdict.ONCE, Verdict.DENY])
@pytest.mark.parametrize("is_beside", [False, True], ids=["undisturbed", "parked"])
async def test_a_call_from_outside_joins_what_a_run_asked_and_gets_its_result(
    open_home: OpenHome, verdict: Verdict, *, is_beside: bool
) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="old"))
        if is_beside:
            await ask(app, S, "hello")
        assert (await call(app, "delete", "k", name="old"))["approvalId"] == approval.id
        await decide(app, approval, verdict)
        await wait_end(app, run_id)
        answer = await call(app, "delete", "k", name="old")
        if verdict is Verdict.ONCE:
            assert answer["result"] == "deleted old" and disk.calls == ["delete old"]
        else:
            assert answer["code"] == "approval_denied" and disk.calls == []


@requirement("approvals:3", "approvals:5")
async def test_a_run_joins_what_a_call_from_outside_asked(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        first = await call(app, "delete", "k", name="old")
        reply = json.loads((await ask(app, S, to_call("delete", name="old"))).reply or "")
        assert (reply["status"], reply["approvalId"]) == ("pending", first["approvalId"])
        (approval,) = await pending(app)
        await decide(app, approval)
        assert (await outcome_of(app, approval))["result"] == "deleted old"
        assert disk.calls == ["delete old"]


@requirement("approvals:5", "runs:8")
async def test_a_call_that_was_approved_runs_after_a_restart(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
    async with open_home() as app:  # a process without the tool leaves it to others
        await decide(app, approval)
        with anyio.move_on_after(0.05):
            await outcome_of(app, approval)
    assert disk.calls == []
    async with open_home(None, disk.parts()) as app:
        assert (await outcome_of(app, approval))["result"] == "deleted old"
        await open_session(app, S)
        assert (await call(app, "delete", "k", name="old"))["result"] == "deleted old"
    assert disk.calls == ["delete old"]


@requirement("approvals:5", "access:1")
async def test_a_call_that_need_not_ask_any_more_is_still_the_one_that_asked(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        await wait_end(app, await hear(app, ann, "one"))
        target = app.services.sessions.target("agent:main:test:direct:one")

        async def note(key: str) -> Any:
            return await app.tool_calls.call(ann, target, "note", {"text": "milk"}, idempotency_key=key)

        await note("k")
        (approval,) = await pending(app)
        await app.services.people.change_role(OWNER, "ann", PersonRole.OWNER)
        assert (await note("k"))["approvalId"] == approval.id
        await decide(app, approval)
        for _ in range(2):
            assert (await note("k"))["result"] == "noted milk"
        assert disk.calls == ["note milk"]
        assert (await note("other"))["result"] == "noted milk" and len(disk.calls) == 2


@requirement("approvals:5", "approvals:1")
async def test_a_call_from_outside_is_asked_on_one_day_and_decided_after_restarts_on_another(
    open_home: OpenHome,
) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        asked = await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
    for _ in range(3):
        clock.pass_time(timedelta(days=1))
        async with asking(open_home, disk, clock) as app:
            assert await call(app, "delete", "k", name="old") == asked and disk.calls == []
            assert [found.id for found in await pending(app)] == [approval.id]
    async with asking(open_home, disk, clock) as app:
        await decide(app, approval)
        assert (await call(app, "delete", "k", name="old"))["result"] == "deleted old"
    async with asking(open_home, disk, clock) as app:
        assert (await call(app, "delete", "k", name="old"))["result"] == "deleted old"
    assert disk.calls == ["delete old"]


async def begun_elsewhere(tx: Transaction, command: TakeCall) -> None:
    """As a process does that dies then."""
    assert await take_call(tx, command) is not None


@requirement("approvals:5", "runs:8")
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_call_that_was_cut_is_reported_as_unknown_unless_it_may_be_repeated(
    open_home: OpenHome, *, is_idempotent: bool
) -> None:
    disk = Disk()
    parts = Parts(tools=[tool(disk.delete, effects=["deletes"], is_idempotent=is_idempotent)])
    async with open_home(None, parts) as app:
        await open_session(app, S)
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
    async with open_home() as app:
        await decide(app, approval)
        command = TakeCall(
            id=approval.id,
            process=ProcessId("proc_dead"),
            rules=app.services.rules,
            may_repeat=is_idempotent,
        )
        await app.database.run(begun_elsewhere, command, sessions=(approval.session,))
    async with open_home(None, parts) as app:
        outcome = await outcome_of(app, approval)
        assert outcome.get("code") == (None if is_idempotent else "outcome_unknown")
        assert await call(app, "delete", "k", name="old") == outcome
    assert disk.calls == (["delete old"] if is_idempotent else [])


@requirement("approvals:5")
async def test_while_a_living_process_carries_it_out_no_other_begins_it(open_home: OpenHome) -> None:
    disk, held, begun = Disk(), anyio.Event(), anyio.Event()

    async def delete(name: str) -> str:
        """Deletes."""
        begun.set()
        await held.wait()
        return await disk.delete(name)

    async with open_home(None, Parts(tools=[tool(delete, effects=["deletes"])])) as app:
        await open_session(app, S)
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
        await decide(app, approval)
        with anyio.fail_after(SECONDS):
            await begun.wait()
        command = TakeCall(
            id=approval.id,
            process=(await begun_call(app, approval.id)).begun_by or ProcessId(""),
            rules=app.services.rules,
            may_repeat=True,
        )
        assert await app.database.run(take_call, command, sessions=(approval.session,)) is None
        held.set()
        assert (await outcome_of(app, approval))["result"] == "deleted old"
    assert disk.calls == ["delete old"]


@requirement("approvals:5", "runs:8")
async def test_a_process_whose_call_was_begun_again_leaves_the_answer_to_that_one(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
    async with open_home(config(), Parts()) as app:  # its tool is not installed there
        await decide(app, approval)
        held, answers = list[BeginsNow](), list[str | None]()

        async def begun_twice(tx: Transaction) -> None:
            for process in ("slow", "next"):  # neither shows itself
                command = TakeCall(
                    id=approval.id,
                    process=ProcessId(process),
                    rules=app.services.rules,
                    may_repeat=True,
                )
                begun = await take_call(tx, command)
                assert begun is not None
                held.append(begun)
            for each in held:
                await end_call(tx, replace(each.call, outcome=json.dumps(each.call.begun_by)))
                found = await rows.find(tx, approval.id)
                answers.append(None if found is None else found.outcome)

        await app.database.run(begun_twice, sessions=(approval.session,))
        assert answers == [None, '"next"']


async def begun_call(app: App, id: ApprovalId) -> OutsideCall:
    found = await app.database.read(calls.find, id)
    assert found is not None
    return found


async def stored(app: App, id: ApprovalId) -> Approval:
    found = await app.database.read(rows.find, id)
    assert found is not None
    return found


@requirement("approvals:3", "approvals:5", "access:1")
@pytest.mark.parametrize("change", ["suspended", "definition"])
async def test_what_is_not_allowed_any_more_does_not_run_although_it_was_approved(
    open_home: OpenHome, change: str
) -> None:
    disk = Disk()
    chat = "agent:main:test:direct:one"
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app, role=PersonRole.USER)
        await wait_end(app, await hear(app, ann, "one"))
        await app.tool_calls.call(ann, app.services.sessions.target(chat), "note", {"text": "x"}, idempotency_key="k")
        (approval,) = await pending(app)
    async with open_home(config()) as app:
        await decide(app, approval)
        if change == "suspended":
            await app.services.people.suspend(OWNER, "ann")

    async def note(text: str) -> str:
        """Notes, and deletes everything else."""
        return await disk.note(text)

    parts = disk.parts() if change == "suspended" else Parts(tools=[note])
    async with open_home(config(), parts) as app:
        expected = {"suspended": "suspended", "definition": "approval_outdated"}[change]
        assert (await outcome_of(app, approval))["code"] == expected
        assert (await stored(app, approval.id)).state is ApprovalState.DECIDED
    assert disk.calls == []


@requirement("approvals:2", "approvals:5")
async def test_an_approved_call_that_has_not_begun_ends_with_its_conversation(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        assert (await call(app, "delete", "k", name="old"))["status"] == "pending"
    async with open_home(config(), Parts()) as app:  # its tool is not installed there
        (approval,) = await pending(app)
        await decide(app, approval)
        await app.services.resets.reset(OWNER, app.services.sessions.target(S))
    async with asking(open_home, disk) as app:
        assert (await outcome_of(app, approval))["code"] == "reset"
        assert disk.calls == []
