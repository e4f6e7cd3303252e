"""A run that waits for its slot may be cancelled at any moment: nobody else notices, and no slot is lost."""

import asyncio
from datetime import timedelta
from itertools import count

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.work.slots import Slots
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ask, config, open_session, post, wait_end
from tests.people import asker, guest
from tests.waiting import SECONDS, at_least

EVES, OWNERS = asker(guest("eve")), asker(OWNER)
CANCELS = 150


@pytest.mark.anyio
async def test_a_slot_that_comes_free_goes_past_a_waiter_that_was_just_cancelled() -> None:
    slots = Slots(1, lambda: None)
    assert slots.try_take(OWNERS)
    first, second = asyncio.ensure_future(slots.take_again(OWNERS)), asyncio.ensure_future(slots.take_again(OWNERS))
    await anyio.wait_all_tasks_blocked()
    first.cancel()
    slots.give_back(OWNERS)  # before the first has woken up
    with anyio.fail_after(SECONDS):
        await second
    assert first.cancelled() and slots.free == 0
    slots.give_back(OWNERS)
    assert slots.free == 1


@pytest.mark.anyio
async def test_a_slot_given_to_a_waiter_that_is_cancelled_before_it_wakes_goes_to_the_next() -> None:
    slots = Slots(1, lambda: None)
    assert slots.try_take(OWNERS)
    first, second = asyncio.ensure_future(slots.take_again(OWNERS)), asyncio.ensure_future(slots.take_again(OWNERS))
    await anyio.wait_all_tasks_blocked()
    slots.give_back(OWNERS)
    first.cancel()  # it has the slot, and has not woken up
    with anyio.fail_after(SECONDS):
        await second
    assert first.cancelled() and slots.free == 0
    slots.give_back(OWNERS)
    assert slots.free == 1


STEPS = st.lists(st.tuples(st.sampled_from(("wait", "cancel", "give_back", "tick")), st.integers(0, 7)), max_size=60)


@requirement("runs:1")
@given(size=st.integers(1, 4), steps=STEPS)
def test_no_order_of_cancels_loses_a_slot(size: int, steps: list[tuple[str, int]]) -> None:
    async def story() -> None:
        slots = Slots(size, lambda: None)
        held = list[asyncio.Task[None]]()
        waiting = list[asyncio.Task[None]]()
        who = {True: OWNERS, False: EVES}
        holders: dict[asyncio.Task[None], bool] = {}
        for step, number in steps:
            match step:
                case "wait":
                    task = asyncio.ensure_future(slots.take_again(who[is_owner := number % 2 == 0]))
                    holders[task] = is_owner
                    waiting.append(task)
                case "cancel" if waiting:
                    waiting[number % len(waiting)].cancel()
                case "give_back" if held:
                    slots.give_back(who[holders[held.pop(number % len(held))]])
                case "tick":
                    await asyncio.sleep(0)
                case _:
                    pass
            for task in [task for task in waiting if task.done()]:
                waiting.remove(task)
                if not task.cancelled():
                    task.result()
                    held.append(task)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        held += [task for task in waiting if not task.cancelled()]
        assert slots.free == size - len(held)
        for task in held:
            slots.give_back(who[holders[task]])
        assert slots.free == size and slots.try_take(OWNERS)

    asyncio.run(story())


class RestlessRunner:
    """Gives its slot back and takes it again, until its run is cancelled; ends at once if the text says so."""

    def __init__(self) -> None:
        self.ended: RunId | None = None

    async def run(self, context: RunContext) -> RunEnding:
        await context.read_log()
        while self.ended is not None:
            await context.wait_released(self.ended, timedelta(0))
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="done"))


@pytest.mark.anyio
@requirement("runs:1", "runs:4")
async def test_cancelling_runs_that_wait_for_their_slots_stops_nobody_else(open_home: OpenHome) -> None:
    """Three clients cancel while more runs than there are slots give theirs back and take them again."""
    runner = RestlessRunner()
    async with open_home(config(runs__max_concurrent=2), Parts(runner=runner)) as app:
        runner.ended = (await ask(app, "main", "first")).id
        numbers = count()
        with anyio.fail_after(at_least(60)):
            async with anyio.create_task_group() as tasks:
                for client in range(3):
                    tasks.start_soon(_cancel_again_and_again, app, f"client-{client}", numbers)
        runner.ended = None
        assert (await ask(app, "main", "last")).status is RunStatus.OK


async def _cancel_again_and_again(app: App, name: str, numbers: "count[int]") -> None:
    chats = [f"agent:main:test:direct:{name}-{each}" for each in range(3)]
    for chat in chats:
        await open_session(app, chat)
    while (number := next(numbers)) < CANCELS:
        runs = [(await post(app, chat, f"{number} {chat}")).run_id for chat in chats]
        for run in runs:
            assert run is not None
            await app.services.runs.cancel(OWNER, run)
        for run in runs:
            assert (await wait_end(app, run)).status is RunStatus.CANCELLED
