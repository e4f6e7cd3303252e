"""Calls that wait for a person: asked, decided, denied, expired, withdrawn; beside other runs, and over restarts."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from antiphon.agents.toolset import tool
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal, PrincipalKind, session_principal
from antiphon.domain.approval import Approval, ApprovalState, Verdict, hash_of_text
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound, TooLarge
from antiphon.domain.event import Event
from antiphon.domain.ids import ApprovalId, RunId, SessionRow
from antiphon.domain.message import AssistantMessage, ToolResult, text_of
from antiphon.domain.person import PersonRole
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import NOWHERE, SessionStatus
from antiphon.engine.calls.steps import MAX_OPEN
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Query, SqlValue
from antiphon.store.sqlite import Cursor, SqliteConnection, connect_sqlite
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import (
    START,
    ManualClock,
    ask,
    config,
    facts,
    find_run,
    find_session,
    open_session,
    post,
    read_log,
    wait_end,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

S = "api:s"
GUEST = Principal(PrincipalKind.PERSON, "ann")


class Disk:
    """Tools that delete and pay, and note each call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def delete(self, name: str) -> str:
        """Deletes."""
        self.calls.append(f"delete {name}")
        return f"deleted {name}"

    async def pay(self, amount: int) -> str:
        """Pays."""
        self.calls.append(f"pay {amount}")
        return f"paid {amount}"

    async def note(self, text: str) -> str:
        """Notes."""
        self.calls.append(f"note {text}")
        return f"noted {text}"

    def parts(self, clock: ManualClock | None = None) -> Parts:
        tools = (
            tool(self.delete, effects=["deletes"]),
            tool(self.pay, effects=["spends"]),
            tool(self.note, effects=["writes"]),
        )
        return Parts(tools=tools, clock=clock)


@asynccontextmanager
async def asking(
    open_home: OpenHome, disk: Disk, clock: ManualClock | None = None, settings: Config | None = None
) -> AsyncGenerator[App]:
    async with open_home(settings, disk.parts(clock)) as app:
        await open_session(app, S)
        yield app


async def pending(app: App, count: int = 1) -> list[Approval]:
    """The open requests, newest first, once there are so many."""
    with anyio.fail_after(SECONDS):
        while True:
            found = await app.services.approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=50)
            if len(found) == count:
                return found
            await anyio.sleep(0.01)


async def request_of(app: App, *lines: str) -> tuple[RunId, Approval]:
    """A run that waits for an approval, and its request."""
    run_id = (await post(app, S, "\n".join(lines))).run_id
    assert run_id is not None
    (approval,) = await pending(app)
    return run_id, approval


async def decide(app: App, approval: Approval, verdict: Verdict = Verdict.ONCE, note: str | None = None) -> Approval:
    return await app.services.approvals.resolve(OWNER, approval.id, verdict, note=note)


async def until_status(app: App, run_id: RunId, status: RunStatus, *, is_parked: bool = False) -> Run:
    with anyio.fail_after(SECONDS):
        while True:
            run = await find_run(app, run_id)
            if (run.status, run.is_parked) == (status, is_parked):
                return run
            await anyio.sleep(0.01)


def results(events: list[Event]) -> list[str]:
    return [text_of(event.message.content) for event in events if isinstance(event.message, ToolResult)]


def code_of(result: str) -> str:
    return json.loads(result)["code"]


@requirement("approvals:1", "sessions:2", "events:1")
async def test_a_call_that_deletes_waits_and_nothing_runs_meanwhile(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        (call,) = approval.calls
        assert (call.tool, call.arguments, call.verdict) == ("delete", '{"name":"backups"}', None)
        assert (approval.run, approval.principal, approval.session_key) == (run_id, OWNER, "agent:main:api:s")
        assert approval.expires_at == START + timedelta(hours=168)
        assert (await find_run(app, run_id)).status is RunStatus.AWAITING_APPROVAL
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.AWAITING_APPROVAL, 1)
        (fact,) = facts(await read_log(app, S), "approval_requested")
        assert fact["approvalId"] == approval.id
        assert disk.calls == []
        await decide(app, approval)
        ended = await wait_end(app, run_id)
        assert (ended.id, ended.status, ended.reply) == (run_id, RunStatus.OK, "deleted backups")
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        assert disk.calls == ["delete backups"]
        types = [event.type for event in await read_log(app, S)]
        assert types.index("approval_requested") < types.index("approval_resolved") < types.index("tool_call")
        assert ended.attempt == 1 and not ended.is_parked


@requirement("approvals:1", "approvals:4")
@pytest.mark.parametrize(
    "written",
    ['{"name": "a", "name": "backups"}', '{"name": "a"%s, "n\\u0061me": "backups"}' % (" " * 2600), "[]", "{"],
    ids=["twice", "twice behind blanks", "no object", "no JSON"],
)
async def test_a_call_that_says_two_things_is_refused_and_nobody_is_asked(open_home: OpenHome, written: str) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run = await ask(app, S, f"!call delete {written}\n!say so be it")
        assert (run.status, run.reply, disk.calls) == (RunStatus.OK, "so be it", [])
        (result,) = results(await read_log(app, S))
        assert code_of(result) == "invalid_arguments"
        assert facts(await read_log(app, S), "approval_requested") == []


@requirement("approvals:1", "approvals:3")
async def test_blanks_that_mean_nothing_are_not_asked_about(open_home: OpenHome) -> None:
    """Nor do they make another request of the same call."""
    disk = Disk()
    async with asking(open_home, disk) as app:
        loose = '{ "name" :%s "back  ups" }' % (" " * 2600)
        run_id, approval = await request_of(app, f"!call delete {loose}")
        assert approval.calls[0].arguments == '{"name":"back  ups"}'
        assert approval.calls[0].sha256 == hash_of_text('{"name":"back  ups"}')
        second = (await post(app, S, to_call("delete", name="back  ups"))).run_id
        assert second is not None and "already waits" in ((await wait_end(app, second)).reply or "")
        await decide(app, approval)
        assert (await wait_end(app, run_id)).status is RunStatus.OK
        assert disk.calls == ["delete back  ups"]


@requirement("approvals:3")
async def test_a_denied_call_does_not_run_and_the_model_reads_the_note(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"), "!say then not")
        await decide(app, approval, Verdict.DENY, "keep the newest")
        assert (await wait_end(app, run_id)).reply == "then not"
        events = await read_log(app, S)
        (result,) = results(events)
        assert code_of(result) == "approval_denied" and "keep the newest" in result
        (fact,) = facts(events, "approval_resolved")
        assert fact["note"] == "keep the newest" and fact["state"] == "decided"
        (resolved,) = [event for event in events if event.type == "approval_resolved"]
        assert resolved.actor == str(OWNER)
        assert disk.calls == []


@requirement("approvals:4")
async def test_one_step_makes_one_request_with_an_answer_for_each_call(open_home: OpenHome, home: Any) -> None:
    disk = Disk()
    calls = [("note", {"text": "a"}), ("delete", {"name": "b"}), ("note", {"text": "c"}), ("pay", {"amount": 4})]
    async with scripted(open_home, home, disk, calls) as app:
        run_id, approval = await request_of(app, "go")
        assert disk.calls == ["note a"], "what comes before the first that asks has run, nothing after it"
        assert [(call.id, call.tool, call.index) for call in approval.calls] == [("1", "delete", 1), ("2", "pay", 3)]
        with pytest.raises(Invalid) as unknown:
            await app.services.approvals.resolve(OWNER, approval.id, {"1": Verdict.ONCE})
        assert unknown.value.code == "unknown_call"
        await app.services.approvals.resolve(OWNER, approval.id, {"1": Verdict.DENY, "2": Verdict.ONCE})
        assert (await wait_end(app, run_id)).reply == "done"
        assert disk.calls == ["note a", "note c", "pay 4"]
        first, denied, *rest = results(await read_log(app, S))
        assert (first, code_of(denied), rest) == ("noted a", "approval_denied", ["noted c", "paid 4"])


@asynccontextmanager
async def scripted(
    open_home: OpenHome, home: Any, disk: Disk, calls: list[tuple[str, dict[str, Any]]]
) -> AsyncGenerator[App]:
    """A model that makes these calls at once."""
    home.mkdir(mode=0o700, exist_ok=True)
    step = {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    script = {"sessions": {"*": [[step, {"text": "done"}]]}}
    (home / "calls.json").write_text(json.dumps(script), "utf-8")
    async with asking(open_home, disk, settings=config(agents__defaults={"model": "scripted:calls.json"})) as app:
        yield app


@requirement("approvals:1")
async def test_an_unanswered_request_expires_and_the_run_goes_on(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"), "!say so be it")
        clock.pass_time(timedelta(hours=167, minutes=59))
        await app.due_children.settle_due()
        assert (await find_run(app, run_id)).status is RunStatus.AWAITING_APPROVAL
        clock.pass_time(timedelta(minutes=1))
        await app.due_children.settle_due()
        assert (await wait_end(app, run_id)).reply == "so be it"
        assert code_of(results(await read_log(app, S))[0]) == "approval_expired"
        with pytest.raises(Conflict) as late:
            await decide(app, approval)
        assert late.value.code == "approval_expired"
        assert disk.calls == []


@requirement("approvals:1")
async def test_a_decision_after_the_time_is_over_expires_the_request_itself(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock, config(tools__approval={"expireHours": 1})) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        clock.pass_time(timedelta(hours=2))
        with pytest.raises(Conflict) as late:
            await decide(app, approval)
        assert late.value.code == "approval_expired"
        assert code_of((await wait_end(app, run_id)).reply or "") == "approval_expired"
        assert disk.calls == []


@requirement("approvals:1", "runs:8")
async def test_asked_on_one_day_and_decided_after_restarts_on_another(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
    for _ in range(3):
        clock.pass_time(timedelta(days=1))
        async with asking(open_home, disk, clock) as app:
            assert (await find_run(app, run_id)).status is RunStatus.AWAITING_APPROVAL
            assert [found.id for found in await pending(app)] == [approval.id]
    async with asking(open_home, disk, clock) as app:
        await decide(app, approval)
        assert (await wait_end(app, run_id)).reply == "deleted backups"
    assert disk.calls == ["delete backups"]


@requirement("approvals:1", "runs:1")
async def test_the_wait_does_not_count_against_the_time_of_the_run(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    limits = {"run": {"timeSeconds": 60}}
    async with asking(open_home, disk, clock, config(limits=limits)) as app:
        for is_beside in (False, True):
            run_id, approval = await request_of(app, f"{to_call('delete', name='backups')}\n{is_beside}")
            asked = await find_run(app, run_id)
            assert asked.deadline is None and asked.time_limit == timedelta(seconds=60)
            if is_beside:
                assert (await ask(app, S, "hello")).status is RunStatus.OK
            clock.pass_time(timedelta(days=2))
            await app.due_children.settle_due()
            await decide(app, approval)
            assert (await wait_end(app, run_id)).status is RunStatus.OK


@requirement("approvals:2")
async def test_other_messages_are_answered_meanwhile_and_the_approval_is_still_good(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        for number in range(10):
            assert (await ask(app, S, f"hello {number}")).reply == f"echo: hello {number}"
        waiting = await find_run(app, run_id)
        assert (waiting.status, waiting.is_parked) == (RunStatus.AWAITING_APPROVAL, True)
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.AWAITING_APPROVAL, 1)
        assert "waits for approval" in results(await read_log(app, S))[0]
        assert disk.calls == []
        await decide(app, approval)
        ended = await wait_end(app, run_id)
        assert ended.status is RunStatus.OK
        assert disk.calls == ["delete backups"]
        run = await find_run(app, run_id)
        assert run.continued_by is not None
        continuation = await find_run(app, run.continued_by)
        assert (continuation.continues, continuation.principal) == (run_id, OWNER)
        events = await read_log(app, S)
        assert results(events)[-1] == "deleted backups"
        repeated = [
            event.message
            for event in events
            if event.run_id == continuation.id and isinstance(event.message, AssistantMessage) and event.message.calls
        ]
        assert [call.arguments for call in repeated[0].calls] == ['{"name": "backups"}']
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


@requirement("approvals:2")
async def test_a_decision_does_not_disturb_the_run_at_work_and_its_calls_follow_that_run(open_home: OpenHome) -> None:
    disk, gates = Disk(), Gates()
    parts = disk.parts()
    async with open_home(None, replace(parts, tools=[*parts.tools, gates.tool])) as app:
        await open_session(app, S)
        asker, approval = await request_of(app, to_call("delete", name="backups"))
        beside = (await post(app, S, wait_at("gate", "said beside"))).run_id
        await gates.until_reached("gate")
        queued = (await post(app, S, "queued before the decision")).run_id
        await decide(app, approval)
        gates.open("gate")
        assert (await wait_end(app, beside)).reply == "said beside"
        assert (await wait_end(app, queued)).reply == "echo: queued before the decision"
        assert (await wait_end(app, asker)).status is RunStatus.OK
        assert disk.calls == ["delete backups"]
        events = await read_log(app, S)
        assert results(events)[-1] == "deleted backups"
        by_run = [event.run_id for event in events if isinstance(event.message, AssistantMessage)]
        run = await find_run(app, asker)
        assert by_run == [asker, beside, beside, queued, run.continued_by, run.continued_by]


@requirement("approvals:2")
async def test_what_is_to_be_repeated_is_kept_until_then(open_home: OpenHome) -> None:
    disk, gates, clock = Disk(), Gates(), ManualClock()
    parts = disk.parts(clock)
    async with open_home(None, replace(parts, tools=[*parts.tools, gates.tool])) as app:
        await open_session(app, S)
        asker, approval = await request_of(app, to_call("delete", name="backups"))
        clock.pass_time(timedelta(days=3))
        await post(app, S, wait_at("gate"))
        await gates.until_reached("gate")
        await decide(app, approval)
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=timedelta(days=1))
        assert await upkeep.prune() > 0
        gates.open("gate")
        assert (await wait_end(app, asker)).status is RunStatus.OK
        assert disk.calls == ["delete backups"]


@requirement("approvals:2")
async def test_a_run_that_was_queued_before_parks_the_one_that_asks(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        asker = (await post(app, S, "!sleep 0.2\n" + to_call("delete", name="backups"))).run_id
        second = (await post(app, S, "second")).run_id
        assert (await wait_end(app, second)).reply == "echo: second"
        assert asker is not None
        await until_status(app, asker, RunStatus.AWAITING_APPROVAL, is_parked=True)
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)
        assert (await wait_end(app, asker)).status is RunStatus.OK
        assert disk.calls == []


@requirement("approvals:2", "approvals:4")
async def test_all_open_calls_of_a_parked_run_run_in_order_after_the_decision(open_home: OpenHome, home: Any) -> None:
    disk = Disk()
    calls = [("note", {"text": "a"}), ("delete", {"name": "b"}), ("note", {"text": "c"}), ("pay", {"amount": 4})]
    async with scripted(open_home, home, disk, calls) as app:
        run_id, approval = await request_of(app, "go")
        await app.services.sessions.patch(OWNER, app.services.sessions.target(S), {"model": "offline"})
        assert (await ask(app, S, "hello")).reply == "echo: hello"
        assert disk.calls == ["note a"]
        await app.services.approvals.resolve(OWNER, approval.id, {"1": Verdict.ONCE, "2": Verdict.DENY})
        await wait_end(app, run_id)
        assert disk.calls == ["note a", "delete b", "note c"]
        *_, first, second, third = results(await read_log(app, S))
        assert (first, second, code_of(third)) == ("deleted b", "noted c", "approval_denied")


@requirement("approvals:2")
async def test_two_parked_runs_of_a_session_are_decided_in_any_order(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        one = (await post(app, S, to_call("delete", name="one"))).run_id
        await pending(app)
        two = (await post(app, S, to_call("delete", name="two"))).run_id
        newest, oldest = await pending(app, 2)
        assert (await find_session(app, S)).pending_approvals == 2
        assert (oldest.run, newest.run) == (one, two)
        await decide(app, newest)
        assert (await wait_end(app, two)).reply == "deleted two"
        assert (await find_session(app, S)).status is SessionStatus.AWAITING_APPROVAL
        await decide(app, oldest)
        await wait_end(app, one)
        assert disk.calls == ["delete two", "delete one"]
        assert (await find_session(app, S)).status is SessionStatus.IDLE


@requirement("approvals:3")
async def test_the_same_call_of_another_run_joins_the_open_request(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="one"))
        again = await ask(app, S, f"please\n{to_call('delete', name='one')}")
        answer = json.loads(again.reply or "")
        assert (answer["status"], answer["approvalId"]) == ("pending", approval.id)
        assert len(await pending(app)) == 1
        await decide(app, approval)
        await wait_end(app, run_id)
        assert disk.calls == ["delete one"]


@requirement("approvals:2", "runs:5")
@pytest.mark.parametrize("is_beside", [False, True], ids=["undisturbed", "parked"])
@pytest.mark.parametrize("by", ["run", "session", "reset"])
async def test_cancelling_and_resetting_withdraw_the_request(open_home: OpenHome, by: str, *, is_beside: bool) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        if is_beside:
            await ask(app, S, "hello")
        target = app.services.sessions.target(S)
        match by:
            case "run":
                await app.services.runs.cancel(OWNER, run_id)
            case "session":
                await app.services.runs.cancel_session(OWNER, target)
            case _:
                await app.services.resets.reset(OWNER, target)
        ended = await wait_end(app, run_id)
        assert (ended.status, ended.code) == (RunStatus.CANCELLED, "reset" if by == "reset" else "cancelled")
        with pytest.raises(Conflict) as late:
            await decide(app, approval)
        assert late.value.code == "approval_withdrawn"
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        assert (await ask(app, S, "and now")).reply == "echo: and now"
        assert disk.calls == []
        assert len(results(await read_log(app, S))) == 1, "the call has one result, so no later run executes it"


async def person_asks(app: App, name: str = "Ann") -> tuple[Principal, RunId, Approval]:
    """A user's run that waits for an approval, and its request."""
    who = (await app.services.people.invite(OWNER, name, PersonRole.USER)).person.principal
    await app.services.sessions.open(who, app.services.sessions.target(S), place=NOWHERE)
    run_id = (await post(app, S, to_call("delete", name="backups"), principal=who)).run_id
    assert run_id is not None
    (approval,) = await pending(app)
    return who, run_id, approval


@requirement("approvals:2", "access:1")
@pytest.mark.parametrize("by", ["suspend", "remove"])
@pytest.mark.parametrize("is_beside", [False, True])
async def test_what_a_suspended_or_removed_person_asked_is_withdrawn(
    open_home: OpenHome, by: str, *, is_beside: bool
) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        who, run_id, _ = await person_asks(app)
        if is_beside:
            await ask(app, S, "hello")
        await app.tool_calls.call(who, app.services.sessions.target(S), "pay", {"amount": 5})
        asked = await pending(app, 2)
        await getattr(app.services.people, by)(OWNER, who.name)
        assert (await wait_end(app, run_id)).status is RunStatus.CANCELLED
        await pending(app, 0)
        for approval in asked:
            assert (await app.services.approvals.get(OWNER, approval.id)).state is ApprovalState.WITHDRAWN
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        assert disk.calls == []


def connect_in_between(path: Path) -> SqliteConnection:
    return CancelledInBetween(connect_sqlite(path))


class CancelledInBetween:
    """A connection in which another unit has the run cancelled just before it stops to ask."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> Cursor:
        if statement.startswith("UPDATE runs SET") and RunStatus.AWAITING_APPROVAL.value in parameters:
            self._connection.execute("UPDATE runs SET cancel_requested = 1 WHERE id = ?", parameters[-1:])
        return self._connection.execute(statement, parameters)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        self._connection.close()


@requirement("approvals:2", "access:1")
async def test_a_run_that_is_cancelled_while_it_stops_to_ask_does_not_ask(home: Path) -> None:
    disk = Disk()
    parts = replace(disk.parts(), connect=connect_in_between)
    async with open_app(home, Config(), parts) as app:
        await open_session(app, S)
        run_id = (await post(app, S, to_call("delete", name="backups"))).run_id
        assert run_id is not None
        assert (await wait_end(app, run_id)).status is RunStatus.CANCELLED
        await pending(app, 0)
        assert disk.calls == []


@requirement("approvals:3", "access:3")
async def test_what_a_merged_person_asked_is_the_others(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        ann, run_id, approval = await person_asks(app)
        ben = (await app.services.people.invite(OWNER, "Ben", PersonRole.USER)).person.principal
        await app.services.people.merge(OWNER, ann.name, ben.name)
        assert (await app.services.approvals.get(OWNER, approval.id)).principal == ben
        await decide(app, approval)
        assert (await wait_end(app, run_id)).principal == ben
        assert disk.calls == ["delete backups"]


@requirement("approvals:5")
async def test_a_key_is_its_principals_own(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        target = app.services.sessions.target(S)
        await app.services.sessions.open(ann, target, place=NOWHERE)
        for key, guessed in (("k", "k"), (None, f"same:{OWNER}:delete:{hash_of_text(json.dumps({'name': 'old'}))}")):
            first = await call(app, "delete", key, name="old")
            other = await app.tool_calls.call(ann, target, "delete", {"name": "old"}, idempotency_key=guessed)
            assert first["approvalId"] != other["approvalId"]


@requirement("runs:4", "approvals:2")
async def test_an_interrupt_withdraws_the_request_and_its_message_is_answered(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        posted = await post(app, S, "instead", mode=QueueMode.INTERRUPT)
        assert (await wait_end(app, posted.run_id)).reply == "echo: instead"
        assert (await wait_end(app, run_id)).status is RunStatus.CANCELLED
        assert (await app.services.approvals.get(OWNER, approval.id)).state is ApprovalState.WITHDRAWN
        events = await read_log(app, S)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


@requirement("sessions:7")
async def test_a_session_that_waits_for_an_approval_is_not_deleted(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        target = app.services.sessions.target(S)
        for beside in (None, "hello"):
            if beside is not None:
                await ask(app, S, beside)
            with pytest.raises(Conflict) as refused:
                await app.services.sessions.delete(OWNER, target)
            assert refused.value.code == "awaiting_approval"
        await decide(app, approval, Verdict.DENY)
        await wait_end(app, run_id)
        await app.services.sessions.delete(OWNER, target)
        with pytest.raises(NotFound):
            await app.services.approvals.get(OWNER, approval.id)


@requirement("sessions:6", "approvals:2")
async def test_a_stale_session_does_not_begin_anew_while_a_request_is_open(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    settings = config(session__reset={"mode": "idle", "idleMinutes": 30})
    async with asking(open_home, disk, clock, settings) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        first = (await find_session(app, S)).id
        for text in ("one", "two"):
            clock.pass_time(timedelta(hours=1))
            await ask(app, S, text)
        assert (await find_session(app, S)).id == first
        await decide(app, approval)
        await wait_end(app, run_id)
        clock.pass_time(timedelta(hours=1))
        await ask(app, S, "three")
        assert (await find_session(app, S)).id != first


@requirement("approvals:3")
async def test_only_the_owner_decides(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        for other in (GUEST, session_principal("agent:main:api:s")):
            with pytest.raises(Denied):
                await app.services.approvals.list(other, ApprovalFilter(), limit=50)
            for id in (approval.id, ApprovalId("appr_none")):
                with pytest.raises(Denied) as denied:
                    await app.services.approvals.resolve(other, id, Verdict.ONCE)
                assert denied.value.code == "forbidden"
        with pytest.raises(NotFound):
            await app.services.approvals.get(OWNER, ApprovalId("appr_none"))
        with pytest.raises(TooLarge) as large:
            await app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, note="x" * 1024 * 1024)
        assert large.value.code == "note_too_large"
        assert (await find_run(app, run_id)).status is RunStatus.AWAITING_APPROVAL and disk.calls == []
        await decide(app, approval)
        await wait_end(app, run_id)
        with pytest.raises(Conflict) as second:
            await decide(app, approval, Verdict.DENY)
        assert second.value.code == "approval_decided" and "by owner" in second.value.message


@requirement("approvals:3")
@pytest.mark.parametrize("is_beside", [False, True], ids=["undisturbed", "parked"])
async def test_of_two_deciders_at_once_one_wins(open_home: OpenHome, *, is_beside: bool) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        for number in range(5):
            run_id, approval = await request_of(app, to_call("delete", name=f"b{number}"))
            if is_beside:
                await ask(app, S, f"hello {number}")
            told = await decide_at_once(app, approval)
            assert sorted(told) == ["approval_decided", "won"]
            await wait_end(app, run_id)
            stored = await app.services.approvals.get(OWNER, approval.id)
            has_run = f"delete b{number}" in disk.calls
            assert has_run is (stored.calls[0].verdict is Verdict.ONCE)
            assert len(facts(await read_log(app, S), "approval_resolved")) == number + 1


async def decide_at_once(app: App, approval: Approval) -> list[str]:
    """What each of two deciders is told who answer differently behind one barrier."""
    begin, told = anyio.Event(), list[str]()

    async def answer(verdict: Verdict) -> None:
        await begin.wait()
        try:
            await decide(app, approval, verdict)
            told.append("won")
        except Conflict as conflict:
            told.append(conflict.code)

    async with anyio.create_task_group() as tasks:
        for verdict in (Verdict.ONCE, Verdict.DENY):
            tasks.start_soon(answer, verdict)
        begin.set()
    return told


@requirement("approvals:3")
async def test_a_tool_whose_definition_changed_is_asked_about_again(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))

    async def delete(name: str) -> str:
        """Deletes, and everything else with it."""
        disk.calls.append("changed")
        return "changed"

    async with open_home(None, Parts(tools=[tool(delete, effects=["deletes"])], clock=clock)) as app:
        await decide(app, approval)
        (again,) = await pending(app)
        assert again.id != approval.id and again.run == run_id and disk.calls == []
        await decide(app, again)
        assert (await wait_end(app, run_id)).reply == "changed"


@requirement("approvals:1")
async def test_what_was_approved_runs_even_if_it_would_not_have_to_ask_any_more_and_a_denial_stands(
    open_home: OpenHome,
) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
    async with asking(open_home, disk, clock, config(tools__approval={"require": []})) as app:
        await decide(app, approval, Verdict.DENY)
        assert code_of((await wait_end(app, run_id)).reply or "") == "approval_denied"
        assert (await ask(app, S, to_call("delete", name="other"))).reply == "deleted other"
    assert disk.calls == ["delete other"]


@requirement("runs:1", "approvals:1")
async def test_a_run_that_waits_takes_no_place_among_those_at_work(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk, settings=config(runs__max_concurrent=1)) as app:
        run_id, approval = await request_of(app, to_call("delete", name="backups"))
        await open_session(app, "api:other")
        assert (await ask(app, "api:other", "hello")).reply == "echo: hello"
        await decide(app, approval)
        await wait_end(app, run_id)


@requirement("spawn:8", "approvals:2")
async def test_cancelling_a_parent_withdraws_what_its_child_asked(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        spawning = to_call("sessions_spawn", task=to_call("delete", name="backups"))
        parent = (await post(app, S, f"{spawning}\n!sleep 60")).run_id
        (approval,) = await pending(app)
        assert approval.session_key.startswith("agent:main:subagent:")
        await app.services.runs.cancel_session(OWNER, app.services.sessions.target(S))
        assert (await wait_end(app, parent)).status is RunStatus.CANCELLED
        assert approval.run is not None
        assert (await wait_end(app, approval.run)).status is RunStatus.CANCELLED
        assert (await app.services.approvals.get(OWNER, approval.id)).state is ApprovalState.WITHDRAWN
        assert disk.calls == []


@requirement("spawn:7", "approvals:2")
async def test_the_result_of_a_child_that_asked_comes_after_the_decision(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        parent = await ask(app, S, to_call("sessions_spawn", task=to_call("delete", name="backups")) + "\n!say ok")
        assert parent.reply == "ok"
        (approval,) = await pending(app)
        assert (await ask(app, approval.session_key, "hello")).status is RunStatus.OK
        await decide(app, approval)
        assert approval.run is not None
        ended = await wait_end(app, approval.run)
        assert ended.status is RunStatus.OK and disk.calls == ["delete backups"]
        with anyio.fail_after(SECONDS):
            while not any("Status: ok" in text for text in await texts_of(app, S)):
                await anyio.sleep(0.01)


async def texts_of(app: App, name: str) -> list[str]:
    return [text_of(event.message.content) for event in await read_log(app, name) if event.message is not None]


@requirement("sessions:2")
async def test_the_count_of_open_requests_is_that_of_the_rows(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await request_of(app, to_call("delete", name="one"))
        await post(app, S, to_call("pay", amount=3))
        await pending(app, 2)
        row = (await find_session(app, S)).row
        assert await app.database.read(count_pending, row) == (await find_session(app, S)).pending_approvals == 2


async def count_pending(query: Query, row: SessionRow) -> int:
    found = await query.fetch_one("SELECT COUNT(*) FROM approvals WHERE session = ? AND state = 'pending'", (row,))
    assert found is not None
    return int(found[0])


async def call(app: App, tool: str, key: str | None = None, **arguments: Any) -> Any:
    target = app.services.sessions.target(S)
    return await app.tool_calls.call(OWNER, target, tool, arguments, idempotency_key=key)


@requirement("approvals:5", "tools:1")
async def test_a_call_from_outside_is_pending_and_runs_once_after_the_decision(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        first = await call(app, "delete", "k", name="old")
        assert first["status"] == "pending" and disk.calls == []
        assert await call(app, "delete", "k", name="old") == first
        (approval,) = await pending(app)
        assert (approval.id, approval.run) == (first["approvalId"], None)
        session = await find_session(app, S)
        assert (session.status, session.pending_approvals) == (SessionStatus.AWAITING_APPROVAL, 1)
        assert (await ask(app, S, "hello")).reply == "echo: hello"
        with pytest.raises(Conflict) as reused:
            await call(app, "delete", "k", name="new")
        assert reused.value.code == "idempotency_key_reused"
        await decide(app, approval)
        assert (await find_session(app, S)).status is SessionStatus.IDLE
        answered = await app.services.approvals.wait(OWNER, approval.id, timedelta(seconds=SECONDS))
        assert json.loads(answered.outcome or "")["result"] == "deleted old"
        assert disk.calls == ["delete old"], "the decision runs it, and no repetition is needed"
        for _ in range(2):
            assert (await call(app, "delete", "k", name="old"))["result"] == "deleted old"
        assert disk.calls == ["delete old"]
        assert (await call(app, "note", text="free"))["result"] == "noted free"


@requirement("approvals:5")
async def test_of_many_repetitions_of_an_approved_call_one_runs(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
        await decide(app, approval)
        answers: list[Any] = []

        async def repeat() -> None:
            answers.append(await call(app, "delete", "k", name="old"))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(repeat)
        assert disk.calls == ["delete old"]
        assert [answer["result"] for answer in answers] == ["deleted old"] * 5


@requirement("approvals:5")
@pytest.mark.parametrize("key", ["k", None])
async def test_a_denied_call_from_outside_does_not_run(open_home: OpenHome, key: str | None) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", key, name="old")
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY, "keep it")
        denied = await call(app, "delete", key, name="old")
        assert denied["code"] == "approval_denied" and "keep it" in denied["error"]
        again = await call(app, "delete", key, name="old")
        assert again.get("code") == ("approval_denied" if key else None)
        assert disk.calls == []


@requirement("approvals:5")
async def test_without_a_key_the_same_call_is_asked_once_and_again_after_it_ran(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        first = await call(app, "delete", name="old")
        assert await call(app, "delete", name="old") == first
        (approval,) = await pending(app)
        await decide(app, approval)
        assert (await call(app, "delete", name="old"))["result"] == "deleted old"
        assert (await call(app, "delete", name="old"))["status"] == "pending"
        assert disk.calls == ["delete old"]


@requirement("approvals:5")
async def test_calls_from_outside_ask_only_so_often(open_home: OpenHome) -> None:
    async with asking(open_home, Disk()) as app:
        for number in range(MAX_OPEN):
            assert (await call(app, "delete", name=f"old {number}"))["status"] == "pending"
        with pytest.raises(Conflict) as refused:
            await call(app, "delete", name="one more")
        assert refused.value.code == "too_many_approvals"
        assert (await call(app, "delete", name="old 0"))["status"] == "pending"


@requirement("approvals:5", "approvals:2")
async def test_a_reset_withdraws_what_calls_from_outside_asked(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", "k", name="old")
        (approval,) = await pending(app)
        session = await app.services.resets.reset(OWNER, app.services.sessions.target(S))
        assert (session.status, session.pending_approvals) == (SessionStatus.IDLE, 0)
        with pytest.raises(Conflict):
            await decide(app, approval)
        assert (await call(app, "delete", "k", name="old"))["code"] == "approval_withdrawn"
        assert disk.calls == []
