"""Calls from outside a run with an `Idempotency-Key`: each has its effect once, over crashes and merges."""

import json
from datetime import timedelta
from functools import partial
from typing import Any, cast

import anyio
import pytest
from anyio.abc import TaskGroup
from msgspec.structs import replace

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, hash_of_text
from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import AntiphonError, Conflict, Denied, Limited, Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.domain.message import JsonObject
from antiphon.domain.person import PersonRole
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.reach import Outsider, Rights, TokenHolder
from antiphon.engine.calls.calls import CallOutcome, KeyedRequest
from antiphon.engine.calls.steps import MAX_AT_WORK, BeginKeyedCall, begin_keyed_call, end_call
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.feed.local import LocalNotifier
from antiphon.store import calls as rows
from antiphon.store.calls import KEPT
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import NAMES
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_ownership import SlowDatabase
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, S, asking, call, decide, pending
from tests.engine.approvals.test_standing_approvals import allow_always
from tests.engine.stage import ManualClock, ask, config, open_session, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NOTES: JsonObject = {"text": "milk"}
CHAT = "agent:main:test:direct:one"


def noting(disk: Disk, *, is_idempotent: bool = False) -> Parts:
    return Parts(tools=[tool(disk.note, is_idempotent=is_idempotent)])


async def _count(query: Query) -> int:
    row = await query.fetch_one("SELECT COUNT(*) FROM calls")
    assert row is not None
    return row[0]


@requirement("tools:1")
async def test_a_call_that_needs_no_yes_runs_once_for_its_key(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        first = await call(app, "note", "k", **NOTES)
        assert first["result"] == "noted milk"
        assert await call(app, "note", "k", **NOTES) == first
        assert disk.calls == ["note milk"]
        for name, arguments in (("note", {"text": "eggs"}), ("delete", {"name": "old"}), ("note", {})):
            with pytest.raises(Conflict) as reused:
                await call(app, name, "k", **arguments)
            assert reused.value.code == "idempotency_key_reused"
        for key in ("other", None, None):
            await call(app, "note", key, **NOTES)
        assert disk.calls == ["note milk"] * 4 and await pending(app, 0) == []
    async with asking(open_home, disk) as app:
        assert await call(app, "note", "k", **NOTES) == first
    assert disk.calls == ["note milk"] * 4


@requirement("tools:1", "approvals:3")
async def test_a_call_that_is_allowed_always_runs_once_for_its_key(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        await call(app, "delete", name="old")
        (approval,) = await pending(app)
        await allow_always(app, approval)
        await call(app, "delete", name="old")
        disk.calls.clear()
        answers = [await call(app, "delete", "k", name="old") for _ in range(3)]
        assert [answer["result"] for answer in answers] == ["deleted old"] * 3
        assert disk.calls == ["delete old"]


@requirement("tools:1")
async def test_bad_arguments_and_failures_are_answered_alike_again(open_home: OpenHome) -> None:
    tried: list[str] = []

    async def fails(text: str) -> str:
        """Fails."""
        tried.append(text)
        raise ValueError("no " * len(tried))

    async with open_home(None, Parts(tools=[tool(fails)])) as app:
        await open_session(app, S)
        for key, arguments in (("a", {"text": 5}), ("b", {"text": "x"})):
            first = await call(app, "fails", key, **arguments)
            assert first["status"] == "error"
            assert await call(app, "fails", key, **arguments) == first
        assert tried == ["x"]


@requirement("tools:1")
async def test_of_calls_with_one_key_at_once_one_has_the_effect_and_all_its_answer(open_home: OpenHome) -> None:
    disk, answers = Disk(), list[Any]()

    async def note(text: str) -> str:
        """Notes."""
        await anyio.sleep(0.05)
        return await disk.note(text)

    async with open_home(None, Parts(tools=[tool(note)])) as app:
        await open_session(app, S)

        async def repeat() -> None:
            answers.append(await call(app, "note", "k", **NOTES))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(repeat)
        assert [answer["result"] for answer in answers] == ["noted milk"] * 10
        assert disk.calls == ["note milk"]


class Counter:
    """A tool that has its effect at once, and answers once it is let go."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.begun, self.released = anyio.Event(), anyio.Event()

    async def note(self, text: str) -> str:
        """Notes."""
        self.calls.append(text)
        self.begun.set()
        await self.released.wait()
        return f"canary {text}"

    def parts(self, clock: ManualClock | None = None, **declared: Any) -> Parts:
        return Parts(tools=[tool(self.note, **declared)], clock=clock)


async def asking_beside(app: App, tasks: TaskGroup, answers: list[Any], who: Outsider = OWNER, chat: str = S) -> None:
    """Begins the call with the key `k` beside the test; its answer or error joins the answers."""

    async def ask() -> None:
        target = app.services.sessions.target(chat)
        try:
            answers.append(await app.tool_calls.call(who, target, "note", NOTES, idempotency_key="k"))
        except AntiphonError as error:
            answers.append(error)

    tasks.start_soon(ask)


@requirement("tools:1", "runs:8")
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_call_that_was_cut_is_unknown_unless_it_may_be_repeated(
    open_home: OpenHome, *, is_idempotent: bool
) -> None:
    counter, disk = Counter(), Disk()
    cut = config(gateway__drain_seconds=0)
    async with open_home(cut, counter.parts(is_idempotent=is_idempotent)) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, [])
            await counter.begun.wait()
            tasks.cancel_scope.cancel()
    async with open_home(None, noting(disk, is_idempotent=is_idempotent)) as app:
        answer = await call(app, "note", "k", **NOTES)
        if is_idempotent:
            assert (answer["result"], disk.calls) == ("noted milk", ["note milk"])
        else:
            assert (answer["code"], disk.calls) == ("outcome_unknown", [])
            assert await call(app, "note", "k", **NOTES) == answer
    assert counter.calls == ["milk"]


@requirement("tools:1")
async def test_a_caller_that_goes_away_does_not_end_its_call(open_home: OpenHome) -> None:
    counter = Counter()
    async with open_home(None, counter.parts()) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, [])
            await counter.begun.wait()
            tasks.cancel_scope.cancel()
        counter.released.set()
        assert (await call(app, "note", "k", **NOTES))["result"] == "canary milk"
        assert counter.calls == ["milk"]


@requirement("tools:1", "runs:8")
async def test_who_waits_when_the_gateway_stops_is_told_so(open_home: OpenHome) -> None:
    counter, answers = Counter(), list[Any]()
    stopping = config(gateway__drain_seconds=0)
    async with anyio.create_task_group() as tasks, open_home(stopping, counter.parts()) as app:
        await open_session(app, S)
        await asking_beside(app, tasks, answers)
        await counter.begun.wait()
    assert [answer.code for answer in answers] == ["stopped"]


@requirement("tools:1")
async def test_a_key_that_is_in_use_for_another_call_is_refused_at_once(open_home: OpenHome) -> None:
    counter = Counter()
    async with open_home(None, counter.parts()) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, [])
            await counter.begun.wait()
            with pytest.raises(Conflict) as reused:
                await call(app, "note", "k", text="eggs")
            assert reused.value.code == "idempotency_key_reused" and not counter.released.is_set()
            counter.released.set()


@requirement("tools:1")
async def test_a_caller_has_no_more_than_so_many_calls_at_work(open_home: OpenHome) -> None:
    counter, answers = Counter(), list[Any]()
    async with open_home(None, counter.parts()) as app:
        session = await open_session(app, S)
        ann = await invite(app, "Ann", PersonRole.OWNER)
        async with anyio.create_task_group() as tasks:
            for n in range(MAX_AT_WORK):
                tasks.start_soon(partial(call, app, "note", f"k{n}", text=str(n)))
            with anyio.fail_after(SECONDS):
                while len(counter.calls) < MAX_AT_WORK:
                    await anyio.lowlevel.checkpoint()
            with pytest.raises(Limited) as limited:
                await call(app, "note", "more", **NOTES)
            assert limited.value.code == "too_many_calls" and len(counter.calls) == MAX_AT_WORK
            with pytest.raises(Conflict):  # of what has begun it is told all the same
                await call(app, "note", "k0", **NOTES)
            holder = TokenHolder(principal=OWNER, session=session.row, session_key=str(session.key))
            for other in (ann, holder):  # a token does not use up what its maker may have at work
                await asking_beside(app, tasks, answers, other)
            counter.released.set()
        assert [answer["result"] for answer in answers] == ["canary milk"] * 2
        assert (await call(app, "note", "more", **NOTES))["result"] == "canary milk"


@requirement("tools:1", "access:2")
@pytest.mark.parametrize("seconds", [0, 1])
@pytest.mark.parametrize("change", ["suspend", "demote", "remove"])
async def test_who_lost_their_rights_meanwhile_gets_no_answer(open_home: OpenHome, change: str, seconds: int) -> None:
    counter, clock, answers = Counter(), ManualClock(), list[Any]()
    async with open_home(config(), counter.parts(clock, classification={"level": "CONFIDENTIAL"})) as app:
        ann, people = await invite(app, "Ann", PersonRole.OWNER), app.services.people
        await wait_end(app, await hear(app, ann, "one"))
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, answers, ann, CHAT)
            await counter.begun.wait()
            await asking_beside(app, tasks, answers, ann, CHAT)
            match change:
                case "suspend":
                    await people.suspend(OWNER, "ann")
                case "demote":
                    await people.change_role(OWNER, "ann", PersonRole.GUEST)
                case _:
                    await people.remove(OWNER, "ann")
            clock.pass_time(timedelta(seconds=seconds))
            counter.released.set()
        assert len(answers) == 2 and "canary" not in str(answers)
        assert counter.calls == ["milk"]


@requirement("tools:1", "access:2")
async def test_rights_that_end_while_they_are_read_again_are_not_those_of_a_call(open_home: OpenHome) -> None:
    async with open_home() as app:
        await open_session(app, S)
        ann = await invite(app, "Ann", PersonRole.OWNER)
        database, notifier, people = SlowDatabase(app.database), LocalNotifier(), app.services.people
        callers = Callers(cast(Database, database), notifier, app.services.rules, ManualClock())
        target, refused = app.services.sessions.target(S), list[str]()

        async def present() -> None:
            found = await callers.find(ann, target, "k")
            notifier.publish([NAMES])
            database.is_slow = True
            try:
                await callers.present(found, ann, target, "k")
            except AntiphonError as error:
                refused.append(error.code)

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(present)
                await database.has_read.wait()
                await people.suspend(OWNER, "ann")
                notifier.publish([NAMES])
                database.may_answer.set()
    assert refused == ["suspended"]


async def lives(tx: Transaction, process: ProcessId) -> None:
    """The row of another process, which is alive while it exists."""
    await tx.execute(
        "INSERT INTO processes (id, role, host, pid, version, fingerprint, agents, beats, started_at) "
        "VALUES (?, 'gateway', 'elsewhere', 1, '1', 'x', '[]', 0, 0)",
        (process,),
    )


async def dies(tx: Transaction, process: ProcessId) -> None:
    await tx.execute("DELETE FROM processes WHERE id = ?", (process,))


@requirement("tools:1", "runs:8")
@pytest.mark.parametrize("end", ["answer", "death"])
async def test_a_call_of_another_process_is_waited_for_until_that_ends(open_home: OpenHome, end: str) -> None:
    disk, other, answers = Disk(), ProcessId("proc_other"), list[Any]()
    async with asking(open_home, disk) as app:
        command = BeginKeyedCall(
            id="call_there",
            rights=Rights(OWNER, app.services.rules),
            target=app.services.sessions.target(S),
            key="k",
            sha256=hash_of_text('note {"text": "milk"}'),
            process=other,
        )
        await app.database.run(lives, other)
        await app.database.run(begin_keyed_call, command, sessions=(command.target,))
        there = await app.database.read(rows.find, command.id)
        assert there is not None
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, answers)
            with anyio.move_on_after(0.05):
                await anyio.sleep_forever()
            assert answers == []
            if end == "answer":
                ended = replace(there, outcome=json.dumps({"status": "ok", "result": "there"}))
                await app.database.run(end_call, ended, sessions=(there.session,))
            else:
                await app.database.run(dies, other)
        assert answers[0] == await call(app, "note", "k", **NOTES) and disk.calls == []
        assert answers[0].get("code") == (None if end == "answer" else "outcome_unknown")


@requirement("tools:1", "sessions:7")
async def test_a_key_is_new_again_in_a_session_made_anew_and_after_a_week(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None)
        await call(app, "note", "k", **NOTES)
        await app.services.sessions.delete(OWNER, app.services.sessions.target(S))
        assert await app.database.read(_count) == 0
        await open_session(app, S)
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 2
        clock.pass_time(KEPT - timedelta(hours=1))
        await upkeep.forget_calls()
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 2
        clock.pass_time(timedelta(hours=2))
        await upkeep.forget_calls()
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 3


@requirement("tools:1")
async def test_a_session_that_is_deleted_during_its_call_keeps_no_answer(open_home: OpenHome) -> None:
    counter, answers = Counter(), list[Any]()
    async with open_home(None, counter.parts()) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, answers)
            await counter.begun.wait()
            await app.services.sessions.delete(OWNER, app.services.sessions.target(S))
            counter.released.set()
        assert answers[0]["result"] == "canary milk" and await app.database.read(_count) == 0


@requirement("tools:1")
async def test_a_call_under_way_is_not_forgotten_when_the_clock_jumps_ahead(open_home: OpenHome) -> None:
    counter, clock, answers = Counter(), ManualClock(), list[Any]()
    async with open_home(None, counter.parts(clock)) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:
            await asking_beside(app, tasks, answers)
            await counter.begun.wait()
            clock.step(KEPT + timedelta(hours=1))
            await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None).forget_calls()
            await asking_beside(app, tasks, answers)
            counter.released.set()
        assert [answer["result"] for answer in answers] == ["canary milk"] * 2 and counter.calls == ["milk"]


@requirement("tools:1")
async def test_a_repetition_is_told_what_became_of_its_call_also_if_it_may_not_be_made_any_more(
    open_home: OpenHome,
) -> None:
    disk = Disk()

    def books() -> str:
        """Reads the books."""
        return "the books"

    parts = Parts(tools=[tool(disk.note), tool(books, effects=["reads"], classification={"level": "CONFIDENTIAL"})])
    async with open_home(None, parts) as app:
        await open_session(app, S)
        first = await call(app, "note", "k", **NOTES)
        await ask(app, S, to_call("books"))
        assert await call(app, "note", "k", **NOTES) == first
        assert (await call(app, "note", "other", **NOTES))["code"] == "write_down"
        assert disk.calls == ["note milk"]


HALF = ("half \ud83d", '{"status": "ok", "text": "\\ud83d"}')


@requirement("tools:1", "approvals:5")
@pytest.mark.parametrize("answer", HALF, ids=["text", "json"])
@pytest.mark.parametrize("effect", ["writes", "deletes"])
async def test_half_a_character_in_an_answer_is_replaced(open_home: OpenHome, answer: str, effect: str) -> None:
    done: list[str] = []

    async def note(text: str) -> str:
        """Notes."""
        done.append(text)
        return answer

    async with open_home(None, Parts(tools=[tool(note, effects=[effect])])) as app:
        await open_session(app, S)
        first = await call(app, "note", "k", **NOTES)
        if effect == "deletes":
            (approval,) = await pending(app)
            await decide(app, approval)
            first = await call(app, "note", "k", **NOTES)
        assert first["status"] == "ok" and "\ufffd" in str(first)
        assert await call(app, "note", "k", **NOTES) == first and done == ["milk"]


@requirement("tools:1", "access:1")
async def test_a_merged_person_gets_the_first_answer_and_each_person_has_keys_of_their_own(
    open_home: OpenHome,
) -> None:
    disk = Disk()
    async with open_home(Config(), disk.parts()) as app:
        ann, old = await invite(app, "Ann", PersonRole.OWNER), await invite(app, "Old", PersonRole.OWNER)
        await hear(app, ann, "one")
        target = app.services.sessions.target("agent:main:test:direct:one")

        async def note(who: Any, text: str = "milk") -> Any:
            return await app.tool_calls.call(who, target, "note", {"text": text}, idempotency_key="k")

        first = await note(old)
        with anyio.fail_after(SECONDS):
            await app.services.people.merge(OWNER, "old", "ann")
        assert await note(ann) == first and disk.calls == ["note milk"]
        await note(OWNER, "eggs")
        assert disk.calls == ["note milk", "note eggs"]


@requirement("tools:1", "access:1")
async def test_a_merge_during_calls_with_one_key_leaves_one_effect_and_one_answer(open_home: OpenHome) -> None:
    counter, answers = Counter(), list[Any]()
    async with open_home(config(), counter.parts()) as app:
        ann, old = await invite(app, "Ann", PersonRole.OWNER), await invite(app, "Old", PersonRole.OWNER)
        await wait_end(app, await hear(app, ann, "one"))
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                await asking_beside(app, tasks, answers, old, CHAT)
            await counter.begun.wait()
            await app.services.people.merge(OWNER, "old", "ann")
            for _ in range(8):
                await asking_beside(app, tasks, answers, ann, CHAT)
            with anyio.move_on_after(0.05):
                await anyio.sleep_forever()
            assert answers == []
            counter.released.set()
        assert counter.calls == ["milk"]
        assert [answer["result"] for answer in answers] == ["canary milk"] * 16


async def _holds_olds(tx: Transaction) -> None:
    await tx.execute("UPDATE incarnations SET taint_person = 'person:old'")


@requirement("tools:1", "access:1", "flow:1")
async def test_the_answer_made_of_a_merged_persons_data_is_the_survivors(open_home: OpenHome) -> None:
    disk = Disk()
    settings: dict[str, Any] = {"tools__approval": {"people": []}}
    parts = Parts(tools=[tool(disk.note, clearance={"level": "CONFIDENTIAL"})])
    async with open_home(config(**settings), parts) as app:
        ann, old = await invite(app, "Ann"), await invite(app, "Old")
        await wait_end(app, await hear(app, old, "one"))
        await app.database.run(_holds_olds)
        target = app.services.sessions.target(CHAT)
        first = await app.tool_calls.call(old, target, "note", NOTES, idempotency_key="k")
        assert first["result"] == "noted milk", first
        await app.services.people.merge(OWNER, "old", "ann")
        assert await app.tool_calls.call(ann, target, "note", NOTES, idempotency_key="k") == first


@requirement("tools:1", "access:1", "approvals:5")
@pytest.mark.parametrize("change", ["suspended", "merged", "asked"])
async def test_the_begin_counts_with_what_is_true_then(open_home: OpenHome, change: str) -> None:
    """Between finding the caller and the begin, a person may be suspended or merged, or the call may have asked."""
    disk = Disk()
    async with open_home(config(access__roles={"user": {"agents": ["main"]}}), disk.parts()) as app:
        ann, old = await invite(app, "Ann", PersonRole.OWNER), await invite(app, "Old", PersonRole.USER)
        people, target = app.services.people, app.services.sessions.target(CHAT)
        await wait_end(app, await hear(app, old, "one"))
        begun: list[str] = []

        async def carry_out(found: FoundCaller) -> CallOutcome:
            begun.append(str(found.caller.principal))
            return CallOutcome("{}", PUBLIC)

        request = KeyedRequest(old, target, "k", "sha")
        match change:
            case "suspended":
                await people.suspend(OWNER, "old")
                with pytest.raises(Denied):
                    await app.outside_calls.once(request, carry_out)
                assert begun == []
            case "merged":
                await people.merge(OWNER, "old", "ann")
                for who in (old, ann):
                    await app.outside_calls.once(request._replace(actor=who), carry_out)
                assert begun == [str(ann)]
            case _:
                await app.tool_calls.call(old, target, "note", NOTES, idempotency_key="k")
                (approval,) = await pending(app)
                told = await app.outside_calls.once(request, carry_out)
                assert isinstance(told, Approval) and told.id == approval.id and begun == []


@requirement("tools:1", "access:1", "approvals:5")
@pytest.mark.parametrize("key", ["k", None])
async def test_who_is_merged_while_they_ask_again_gets_the_answer_of_the_first_request(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """The repeated call was found to be another person's, and asks once that person is merged."""
    disk = Disk()
    async with asking(open_home, disk) as app:
        await invite(app, "Ann", PersonRole.OWNER)
        old = await invite(app, "Old", PersonRole.OWNER)
        target = app.services.sessions.target(CHAT)
        await wait_end(app, await hear(app, old, "one"))

        async def delete() -> JsonObject:
            return await app.tool_calls.call(old, target, "delete", {"name": "old"}, idempotency_key=key)

        await delete()
        (approval,) = await pending(app)
        await decide(app, approval)
        ask = app.outside_calls.ask

        async def merge_and_ask(*arguments: Any) -> Any:
            monkeypatch.undo()
            await app.services.people.merge(OWNER, "old", "ann")
            return await ask(*arguments)

        async def find_nothing(origin: str) -> None:
            """As before the other call of the same moment asked."""

        monkeypatch.setattr(app.outside_calls, "find", find_nothing)
        monkeypatch.setattr(app.outside_calls, "ask", merge_and_ask)
        assert (await delete())["result"] == "deleted old"
        assert disk.calls == ["delete old"]


class Unconfirmed:
    """A store that keeps the next begin of a call and does not confirm it, as a server that is lost at its COMMIT."""

    def __init__(self, database: Database, lost: Any = begin_keyed_call) -> None:
        self._database = database
        self._lost = lost
        self._is_lost = True

    async def read(self, query: Any, *arguments: Any) -> Any:
        return await self._database.read(query, *arguments)

    async def run(self, unit: Any, *arguments: Any, **named: Any) -> Any:
        result = await self._database.run(unit, *arguments, **named)
        if unit is self._lost and self._is_lost:
            self._is_lost = False
            raise Unavailable("Outcome is unknown", code="outcome_unknown")
        return result


@requirement("tools:1")
async def test_a_begin_that_was_stored_unconfirmed_is_unknown_at_once(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        app.outside_calls._database = cast(Any, Unconfirmed(app.database))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(Unavailable):
            await call(app, "note", "k", **NOTES)
        with anyio.fail_after(SECONDS):
            answer = await call(app, "note", "k", **NOTES)
        assert (answer["code"], disk.calls) == ("outcome_unknown", [])
        assert await call(app, "note", "k", **NOTES) == answer
