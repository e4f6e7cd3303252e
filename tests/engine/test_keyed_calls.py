"""Calls from outside a run with an `Idempotency-Key`: each has its effect once, over crashes and merges."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import Conflict
from antiphon.domain.idempotency import KeyedCall
from antiphon.domain.ids import ProcessId
from antiphon.domain.person import PersonRole
from antiphon.engine.access.keyed_calls import CallOutcome, KeyedCalls, begin_keyed_call, end_keyed_call
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store import keyed_calls as rows
from antiphon.store.database import Transaction
from antiphon.store.keyed_calls import KEPT
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, find_session, open_session
from tests.engine.test_approvals import Disk, S, asking, call, pending
from tests.engine.test_people import hear, invite
from tests.engine.test_standing_approvals import allow_always
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NOTES = {"text": "milk"}


def noting(disk: Disk, *, is_idempotent: bool = False) -> Parts:
    return Parts(tools=[tool(disk.note, is_idempotent=is_idempotent)])


async def stored(app: App) -> list[KeyedCall]:
    async def read(tx: Transaction) -> list[str]:
        return [origin for (origin,) in await tx.fetch_all("SELECT origin FROM keyed_calls ORDER BY origin")]

    found = [await app.database.read(rows.find, origin) for origin in await app.database.run(read)]
    return [each for each in found if each is not None]


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


@requirement("tools:1", "runs:8")
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_call_that_was_cut_is_unknown_unless_it_may_be_repeated(
    open_home: OpenHome, *, is_idempotent: bool
) -> None:
    disk, begun = Disk(), anyio.Event()

    async def note(text: str) -> str:
        """Notes."""
        await disk.note(text)
        begun.set()
        await anyio.sleep_forever()
        return text

    async with open_home(None, Parts(tools=[tool(note, is_idempotent=is_idempotent)])) as app:
        await open_session(app, S)
        async with anyio.create_task_group() as tasks:

            async def calls() -> None:
                await call(app, "note", "k", **NOTES)

            tasks.start_soon(calls)
            await begun.wait()
            tasks.cancel_scope.cancel()
        if not is_idempotent:
            assert (await call(app, "note", "k", **NOTES))["code"] == "outcome_unknown"
    async with open_home(None, noting(disk, is_idempotent=is_idempotent)) as app:
        answer = await call(app, "note", "k", **NOTES)
        if is_idempotent:
            assert answer["result"] == "noted milk" and disk.calls == ["note milk"] * 2
        else:
            assert answer["code"] == "outcome_unknown" and disk.calls == ["note milk"]


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
        await call(app, "note", "first", **NOTES)
        (first,) = await stored(app)
        there = KeyedCall(
            origin=first.origin.replace("first", "k"),
            session=first.session,
            sha256=first.sha256,
            begun_at=first.begun_at,
            begun_by=other,
        )
        await app.database.run(lives, other)
        await app.database.run(begin_keyed_call, there, sessions=(there.session,))

        async def repeat() -> None:
            answers.append(await call(app, "note", "k", **NOTES))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(repeat)
            with anyio.move_on_after(0.05):
                await anyio.sleep_forever()
            assert answers == []
            if end == "answer":
                outcome = CallOutcome(json.dumps({"status": "ok", "result": "there"}), PUBLIC)
                await app.database.run(end_keyed_call, there, outcome, sessions=(there.session,))
            else:
                await app.database.run(dies, other)
        assert disk.calls == ["note milk"], "only the first one, which had another key"
        assert answers[0] == await call(app, "note", "k", **NOTES)
        assert answers[0].get("code") == (None if end == "answer" else "outcome_unknown")


@requirement("tools:1", "sessions:7")
async def test_a_key_is_new_again_in_a_session_made_anew_and_after_a_week(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    async with asking(open_home, disk, clock) as app:
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None)
        await call(app, "note", "k", **NOTES)
        await app.services.sessions.delete(OWNER, app.services.sessions.target(S))
        assert await stored(app) == []
        await open_session(app, S)
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 2
        clock.pass_time(KEPT - timedelta(hours=1))
        await upkeep.forget_keyed_calls()
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 2
        clock.pass_time(timedelta(hours=2))
        await upkeep.forget_keyed_calls()
        await call(app, "note", "k", **NOTES)
        assert disk.calls == ["note milk"] * 3


@requirement("tools:1")
async def test_a_session_that_is_deleted_during_its_call_keeps_no_answer(open_home: OpenHome) -> None:
    async with open_home() as app:
        await open_session(app, S)
        session = await find_session(app, S)
        keyed = KeyedCalls(app.database, app.services.waits, process=ProcessId("proc_one"), clock=app.services.clock)

        async def carry_out() -> CallOutcome:
            await app.services.sessions.delete(OWNER, app.services.sessions.target(S))
            return CallOutcome("{}", PUBLIC)

        ended = await keyed.once(session.row, "origin", "sha", carry_out)
        assert ended.outcome == "{}" and await stored(app) == []


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
