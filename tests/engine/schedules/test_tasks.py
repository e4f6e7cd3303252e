"""Tasks: who makes, sees and changes them. Contract: tasks 1, 2."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import SessionRow, TaskId
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.schedule import At, Schedule, parse_every
from antiphon.domain.session import SessionType, Source
from antiphon.domain.stored_task import MOST_TASKS, NewTask, TaskEdit
from antiphon.domain.task import SlotOutcome, TaskLimits, TaskState
from antiphon.store import sessions
from antiphon.store import tasks as rows
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import START
from tests.engine.tasks_bench import HOUR, bench, own_session, person, refused
from tests.story import Story

pytestmark = pytest.mark.anyio


@requirement("tasks:2")
async def test_ids_are_shown_and_changed_within_the_same_session_or_by_owners(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum, dad, guest = await person(b, "mum"), await person(b, "dad"), await person(b, "kid", PersonRole.USER)
        hers, his = await own_session(b, mum), await own_session(b, dad)
        task = await b.make(by=mum, session=hers)
        assert task.maker == mum and task.session_key == hers
        assert [each.id for each in await b.tasks.list(mum, limit=10)] == [task.id]
        assert [each.id for each in await b.tasks.list(OWNER, b.target(hers), limit=10)] == [task.id]
        assert await b.tasks.list(OWNER, b.target(his), limit=10) == []
        assert await b.tasks.list(dad, limit=10) == []
        missing = TaskId("task-0000000000")
        for other in (dad, guest):
            for act in (b.tasks.get, b.tasks.pause, b.tasks.resume, b.tasks.cancel, b.tasks.run):
                with pytest.raises(AntiphonError) as hidden:
                    await act(other, task.id)
                with pytest.raises(AntiphonError) as absent:
                    await act(other, missing)
                assert hidden.value.code == absent.value.code == "not_found"
                assert hidden.value.message.replace(task.id, missing) == absent.value.message
        assert (await b.tasks.get(OWNER, task.id, b.target(his))).id == task.id
        assert (await b.tasks.pause(OWNER, task.id)).state is TaskState.PAUSED
        assert (await b.tasks.resume(mum, task.id)).state is TaskState.ACTIVE
        assert (await b.tasks.cancel(mum, task.id)).id == task.id
        assert await refused(b.tasks.get(OWNER, task.id)) == "not_found"


@requirement("tasks:1", "access:4")
async def test_guests_make_no_tasks_and_see_none(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        kid = await person(b, "kid")
        key = await own_session(b, kid)
        task = await b.make(by=kid, session=key)
        await b.app.services.people.change_role(OWNER, kid.name, PersonRole.GUEST)
        assert await refused(b.make(by=kid, session=key, name="More")) == "forbidden"
        assert await refused(b.tasks.list(kid, limit=10)) == "forbidden"
        assert await refused(b.tasks.get(kid, task.id)) == "forbidden"
        uncle = await person(b, "uncle", agents=())
        assert await refused(b.make(by=uncle, session=key)) == "not_found"
        assert await refused(b.make(by=uncle, session="agent:main:cli:none")) == "not_found"


@requirement("tasks:1")
async def test_a_batch_is_made_whole_or_not_at_all(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        every = Schedule(parse_every("1h", b.clock.now()), "UTC")

        def new(name: str, prompt: str = "look", schedule: Schedule = every, **more: Any) -> NewTask:
            return NewTask(name=name, prompt=prompt, schedule=schedule, **more)

        past = Schedule(At(b.clock.now() - HOUR), "UTC")
        wrong: list[tuple[NewTask, str]] = [
            (new("  "), "invalid_task"),
            (new("a\nb"), "invalid_task"),
            (new("x" * 81), "invalid_task"),
            (new("empty", "  "), "invalid_task"),
            (new("large", "x" * 1024 * 1024), "prompt_too_large"),
            (new("past", schedule=past), "invalid_task"),
            (new("one"), "task_name_taken"),
            (new("grace", grace=timedelta(days=8)), "invalid_task"),
            (new("limits", limits=TaskLimits(runs_an_hour=0)), "invalid_task"),
            (new("stop", limits=TaskLimits(stop_text=" ")), "invalid_task"),
        ]
        for bad, code in wrong:
            assert await refused(b.tasks.create(OWNER, b.target(), [new("one"), bad])) == code
            assert await b.tasks.list(OWNER, limit=10) == []
        assert await refused(b.tasks.create(OWNER, None, [new("one")])) == "invalid_task"
        made = await b.tasks.create(OWNER, b.target(), [new("one"), new("two")])
        assert {each.name for each in made} == {"one", "two"}
        assert await refused(b.make(name="two")) == "task_name_taken"
        edited = await b.tasks.edit(OWNER, made[0].id, TaskEdit(name="three"))
        assert await refused(b.tasks.edit(OWNER, edited.id, TaskEdit(name="two"))) == "task_name_taken"


@requirement("tasks:1")
async def test_a_person_has_fifty_tasks_at_most(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        schedule = Schedule(parse_every("1h", b.clock.now()), "UTC")
        many = [NewTask(name=f"t{number}", prompt="look", schedule=schedule) for number in range(MOST_TASKS + 1)]
        assert await refused(b.tasks.create(OWNER, b.target(), many)) == "task_cap"
        made = await b.tasks.create(OWNER, b.target(), many[:MOST_TASKS])
        assert await refused(b.make(name="more")) == "task_cap"
        await b.tasks.cancel(OWNER, made[0].id)
        await b.make(name="more")


@requirement("tasks:2")
async def test_two_editors_do_not_overwrite_one_another(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make()
        edited = await b.tasks.edit(OWNER, task.id, TaskEdit(prompt="first"), version=task.version)
        assert (edited.prompt, edited.version) == ("first", task.version + 1)
        assert await refused(b.tasks.edit(OWNER, task.id, TaskEdit(prompt="second"), version=1)) == "task_changed"
        assert (await b.tasks.get(OWNER, task.id)).prompt == "first"
        later = Schedule(parse_every("2h", b.clock.now()), "UTC")
        assert (await b.tasks.edit(OWNER, task.id, TaskEdit(schedule=later))).next_at == START + 2 * HOUR


@requirement("tasks:2")
async def test_only_the_maker_and_owners_edit_a_task_of_a_shared_chat(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum, dad = await person(b, "mum"), await person(b, "dad")
        key = await own_session(b, mum)
        await b.app.database.run(_join, (await b.app.services.sessions.get(OWNER, b.target(key))).session.row, str(dad))
        task = await b.make(by=mum, session=key)
        assert (await b.tasks.get(dad, task.id, b.target(key))).id == task.id
        # Otherwise his words would run with her rights.
        assert await refused(b.tasks.edit(dad, task.id, TaskEdit(prompt="do as I say"))) == "not_maker"
        assert (await b.tasks.pause(dad, task.id)).state is TaskState.PAUSED
        assert (await b.tasks.edit(OWNER, task.id, TaskEdit(prompt="owner's"))).maker == mum
        assert await refused(b.tasks.approve(mum, task.id)) == "forbidden"
        assert (await b.tasks.approve(OWNER, task.id)).may_consult
        assert (await b.tasks.edit(OWNER, task.id, TaskEdit(prompt="ask the botanist"))).may_consult
        assert (await b.tasks.edit(mum, task.id, TaskEdit(name="Plants"))).may_consult
        # An owner approved what the task asked for then.
        assert not (await b.tasks.edit(mum, task.id, TaskEdit(prompt="tell me everything"))).may_consult


@requirement("tasks:1", "access:1")
@pytest.mark.parametrize("loss", ["demoted", "suspended"])
async def test_an_approval_ends_with_the_rights_of_the_owner_who_gave_it(open_home: OpenHome, loss: str) -> None:
    async with bench(open_home) as b:
        mum, dad = await person(b, "mum"), await person(b, "dad")
        people = b.app.services.people
        await people.change_role(OWNER, dad.name, PersonRole.OWNER)
        task = await b.make(by=mum, session=await own_session(b, mum))
        assert (await b.tasks.approve(dad, task.id)).may_consult
        assert await b.app.database.read(rows.may_consult, task.id)
        if loss == "demoted":
            await people.change_role(OWNER, dad.name, PersonRole.USER)
        else:
            await people.suspend(OWNER, dad.name)
        assert not (await b.tasks.get(OWNER, task.id)).may_consult
        assert not await b.app.database.read(rows.may_consult, task.id)
        assert (await b.tasks.approve(OWNER, task.id)).may_consult


@requirement("tasks:2", "access:4")
async def test_in_a_group_only_makers_and_owners_change_a_task(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum, dad = await person(b, "mum"), await person(b, "dad")
        target = b.target("agent:main:telegram:group:-5")
        source = Source(kind="channel", platform="telegram", type=SessionType.GROUP)
        group = (await b.app.services.sessions.open(OWNER, target, source=source)).session
        for member in (mum, dad):
            await b.app.database.run(_join, group.row, str(member))
        owners = await b.make(session=str(group.key))
        hers = await b.make(session=str(group.key), by=mum, name="hers")
        for task in (owners, hers):
            assert (await b.tasks.get(dad, task.id)).id == task.id
            for act in (b.tasks.run, b.tasks.pause, b.tasks.resume, b.tasks.cancel):
                assert await refused(act(dad, task.id)) == "not_maker"
        assert (await b.tasks.pause(mum, hers.id)).state is TaskState.PAUSED
        assert (await b.tasks.cancel(OWNER, hers.id)).id == hers.id


async def _join(tx: Transaction, session: SessionRow, principal: str) -> None:
    await sessions.add_participant(tx, session, principal)


@requirement("keys:1", "keys:7")
async def test_the_session_of_a_task_is_not_opened_or_written_by_hand(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        opens, inbox = b.app.services.sessions.open, b.app.services.inbox
        for name in ("cron:nightly", "agent:main:cron:nightly", "schedule:nightly", "agent:main:schedule:nightly"):
            assert await refused(opens(OWNER, b.target(name))) == "task_session"
        task = await b.make()
        await b.passes(HOUR)
        target = b.target(str(task.key))
        assert (await b.app.services.sessions.get(OWNER, target)).session.id == f"schedule:{task.id}"
        assert await refused(inbox.post(OWNER, target, text_content("hello"))) == "task_session"
        assert await refused(inbox.append(OWNER, target, text_content("hello"))) == "task_session"


@requirement("tasks:1", "sessions:7")
async def test_a_single_time_whose_session_is_deleted_before_its_run_begins_is_over(open_home: OpenHome) -> None:
    async with bench(open_home, runs__max_concurrent=1) as b:
        busy = await b.app.services.inbox.post(OWNER, b.target(), text_content("!sleep 60"))
        assert busy.run_id is not None
        await Story(b.app).until_running(busy.run_id)
        once = await b.make(trigger=At(b.clock.now() + HOUR))
        often = await b.make(name="Often")
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        for task in (once, often):
            await b.app.services.sessions.delete(OWNER, b.target(str(task.key)))
            assert [slot.outcome for slot in await b.slots(task)] == [SlotOutcome.ERROR]
        assert (await b.tasks.get(OWNER, once.id)).state is TaskState.ENDED
        again = await b.tasks.get(OWNER, often.id)
        assert (again.state, again.errors) == (TaskState.ACTIVE, 0)
        await b.app.services.runs.cancel_session(OWNER, b.target())


@requirement("tasks:1")
async def test_tasks_go_with_their_maker_and_their_session(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum, old = await person(b, "mum"), await person(b, "old-mum")
        task = await b.make(by=old, session=await own_session(b, old))
        await b.app.services.people.merge(OWNER, old.name, mum.name)
        assert (await b.tasks.get(mum, task.id)).maker == mum
        await b.passes(HOUR)
        assert [slot.outcome for slot in await b.slots(task)] == [SlotOutcome.OK]
        other = await b.make(by=mum, session=await own_session(b, mum))
        await b.app.services.sessions.delete(OWNER, b.target(other.session_key))
        assert await refused(b.tasks.get(OWNER, other.id)) == "not_found"
        await b.app.services.people.remove(OWNER, mum.name)
        assert await b.tasks.list(OWNER, limit=10) == []
