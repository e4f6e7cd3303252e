"""How runs share the places: some are the owner's, and guests take turns at the others."""

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Asker, Principal
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.session import NOWHERE
from antiphon.engine.work.line import Line
from antiphon.engine.work.slots import Slots
from antiphon.policy.shares import most_of_one, reserve_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, config, post, wait_end
from tests.people import asker, guest

pytestmark = pytest.mark.anyio


EVE, BOB = guest("eve"), guest("bob")
EVES, BOBS, OWNERS = asker(EVE), asker(BOB), asker(OWNER)


async def say(app: App, who: Principal, chat: str) -> RunId:
    """A message of the guest in a chat of their own; returns its run."""
    sessions = app.services.sessions
    target = sessions.target(f"agent:main:test:direct:{chat}")
    await sessions.open(who, target, place=NOWHERE)
    posted = await app.services.inbox.post(who, target, text_content("hello"))
    assert posted.run_id is not None
    return posted.run_id


@requirement("runs:1")
async def test_the_owners_work_begins_however_much_guests_have_queued(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=4), Parts(runner=runner)) as app:
        runs = [await say(app, guest(f"g{number % 7}"), f"chat-{number}") for number in range(14)]
        await runner.until_begun(3)
        owners = await post(app, "main", "now")
        await runner.until_begun(4)
        assert runner.begun[3] == owners.run_id
        assert runner.most_at_once == 4
        runner.release_all()
        for run in runs:
            assert (await wait_end(app, run)).status == "ok"
        assert runner.most_at_once == 4


@requirement("runs:1")
async def test_one_guest_leaves_a_place_to_another(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=6), Parts(runner=runner)) as app:
        eves = [await say(app, EVE, f"eve-{number}") for number in range(10)]
        await runner.until_begun(2)
        bobs = [await say(app, BOB, f"bob-{number}") for number in range(4)]
        await runner.until_begun(4)
        assert set(runner.begun[:2]) <= set(eves)
        assert set(runner.begun[2:4]) <= set(bobs)
        runner.release_all()
        for run in (*eves, *bobs):
            await wait_end(app, run)


@requirement("runs:1")
async def test_one_guest_leaves_a_place_to_another_after_a_start(open_home: OpenHome) -> None:
    """All sessions are delivered at once, and the first begin before anybody knows whose they are."""
    settings = config(runs__max_concurrent=6, gateway__drain_seconds=0)
    async with open_home(settings, Parts(runner=HeldRunner())) as app:
        eves = [await say(app, EVE, f"eve-{number}") for number in range(10)]
        bobs = [await say(app, BOB, f"bob-{number}") for number in range(4)]
    runner = HeldRunner()
    async with open_home(settings, Parts(runner=runner)) as app:
        await runner.until_begun(4)
        assert len(set(runner.begun) & set(eves)) == len(set(runner.begun) & set(bobs)) == 2
        runner.release_all()
        for run in (*eves, *bobs):
            await wait_end(app, run)


@requirement("runs:1")
async def test_the_owner_is_not_held_up_by_a_guests_message_that_waits_before_theirs(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=2), Parts(runner=runner)) as app:
        first = await say(app, EVE, "one")
        await runner.until_begun(1)
        waiting = await say(app, BOB, "two")
        owners = (await post(app, "agent:main:test:direct:two", "let me see")).run_id
        await runner.until_begun(2)
        assert runner.begun == [first, waiting]
        runner.release(waiting)
        await runner.until_begun(3)
        assert runner.begun[2] == owners
        runner.release_all()
        for run in (first, owners):
            await wait_end(app, run)


@requirement("runs:1")
async def test_places_are_counted_right_through_turns_of_all_kinds(open_home: OpenHome) -> None:
    runner = HeldRunner()
    runner.release_all()
    async with open_home(config(runs__max_concurrent=3), Parts(runner=runner)) as app:
        runs: list[RunId | None] = []
        for number in range(30):
            runs.append(await say(app, guest(f"g{number % 4}"), f"chat-{number % 9}"))
            runs.append(
                (await post(app, "main" if number % 2 else "agent:main:test:direct:chat-0", f"m{number}")).run_id
            )
        for run in runs:
            assert (await wait_end(app, run)).status == "ok"
        assert runner.most_at_once <= 3
        held = [await say(app, guest(f"h{number}"), f"held-{number}") for number in range(2)]
        for run in held:
            await wait_end(app, run)


def test_the_owner_has_a_reserve_and_one_guest_at_most_half_of_the_rest() -> None:
    assert [reserve_of(count) for count in (1, 2, 5, 6, 16)] == [0, 1, 1, 2, 2]
    assert [most_of_one(count) for count in (1, 2, 3, 6, 16)] == [1, 1, 1, 2, 7]


def test_askers_take_turns_whatever_each_has_waiting() -> None:
    line = Line()
    for row in range(5):
        line.join(SessionRow(row), EVES)
    line.join(SessionRow(10), BOBS)
    line.join(SessionRow(20), OWNERS)
    line.leave(SessionRow(1))
    line.leave(SessionRow(99))
    order: list[int] = []
    while (found := line.next(lambda _: True)) is not None:
        order.append(found[0])
    assert order == [0, 10, 20, 2, 3, 4]
    line.join(SessionRow(1), EVES)
    line.join(SessionRow(2), BOBS)
    assert line.count(lambda each: each == BOBS) == 1 and len(line) == 2
    assert line.next(lambda each: each == OWNERS) is None
    assert line.next(lambda each: each == BOBS) == (SessionRow(2), BOBS)


def test_a_place_of_an_unknown_guest_counts_in_the_share_of_each() -> None:
    freed: list[int] = []
    slots = Slots(6, lambda: freed.append(1))
    assert slots.try_take(None) and slots.try_take(None) and not slots.try_take(None)
    assert not slots.try_take(EVES) and not slots.try_take(BOBS)
    assert slots.try_take(OWNERS)
    slots.reassign(None, EVES)
    assert freed == [1]
    assert slots.try_take(BOBS) and not slots.try_take(EVES) and not slots.try_take(BOBS)
    slots.reassign(None, EVES)
    assert slots.try_take(BOBS) and not slots.try_take(EVES) and not slots.try_take(BOBS)


def test_a_guest_whose_place_becomes_anothers_may_take_a_place_again_and_that_is_told() -> None:
    freed: list[int] = []
    slots = Slots(6, lambda: freed.append(1))
    assert slots.try_take(EVES) and slots.try_take(EVES) and not slots.may_take(EVES)
    slots.reassign(EVES, BOBS)
    assert freed == [1] and slots.may_take(EVES)


def test_sessions_that_unknown_places_hold_back_are_counted_as_able() -> None:
    """Else a process would fetch more of them while other processes have room."""
    slots = Slots(6, lambda: None)
    assert slots.try_take(None) and slots.try_take(None)
    assert not slots.may_take(EVES) and slots.may_take_if_others_are_not_theirs(EVES)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_place_given_back_goes_first_to_who_had_one_but_not_beyond_a_share(anyio_backend: str) -> None:
    import anyio

    freed: list[int] = []
    slots = Slots(3, lambda: freed.append(1))
    assert slots.try_take(EVES) and not slots.try_take(EVES) and slots.try_take(BOBS)
    assert not slots.try_take(asker(guest("third"))) and not slots.try_take(None)
    assert slots.try_take(OWNERS) and not slots.try_take(OWNERS)
    resumed: list[str] = []

    async def resume(who: Asker) -> None:
        await slots.take_again(who)
        resumed.append(who.principal.name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume, EVES)
        tasks.start_soon(resume, OWNERS)
        await anyio.wait_all_tasks_blocked()
        slots.give_back(BOBS)
        await anyio.wait_all_tasks_blocked()
        assert resumed == ["owner"]  # eve holds her share
        slots.give_back(EVES)
        await anyio.wait_all_tasks_blocked()
        assert resumed == ["owner", "eve"]
    slots.give_back(EVES)
    slots.give_back(OWNERS)
    slots.give_back(OWNERS)
    assert slots.free == 3 and slots.free_for_guests == 2
