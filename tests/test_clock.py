"""Ids of a system: never the same twice, also in a forked process, and in the order in which they were made."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from antiphon.clock import RandomIds, SystemClock
from tests.engine.stage import ManualClock


def test_ids_drawn_by_many_threads_are_all_different():
    ids = RandomIds(SystemClock())
    with ThreadPoolExecutor(8) as pool:
        drawn = [*pool.map(ids.new, ["run"] * 20_000)]
    assert len({id[-20:] for id in drawn}) == 20_000
    assert all(re.fullmatch(r"run_[0-9a-f]{31}", id) for id in drawn)


def test_a_forked_process_draws_digits_of_its_own():
    ids = RandomIds(SystemClock())
    ids.new("run")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "\n".join(ids.new("run")[-20:] for _ in range(100)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read().split("\n")
    os.waitpid(child, 0)
    ours = {ids.new("run")[-20:] for _ in range(100)}
    assert len(theirs) == 100
    assert not ours & {*theirs}


def time_of(id: str) -> int:
    return int(id[5:16], 16)


def test_ids_sort_as_they_were_made_also_at_one_time_and_after_the_clock_was_corrected():
    clock = ManualClock()
    ids = RandomIds(clock)
    made = [ids.new("note") for _ in range(10_000)]
    clock.step(timedelta(milliseconds=-990))
    made += [ids.new("note") for _ in range(100)]
    clock.step(timedelta(seconds=2))
    made.append(ids.new("note"))
    assert made == sorted(made)
    assert all(re.fullmatch(r"note_[0-9a-f]{31}", id) for id in made)
    assert time_of(made[-1]) == clock.now_ms(), "the time is taken up again"


def test_ids_have_the_time_to_which_the_clock_was_set_back():
    clock = ManualClock()
    ids = RandomIds(clock)
    before = ids.new("note")
    clock.step(timedelta(seconds=-2))
    made = [ids.new("note") for _ in range(1_000)]
    assert made == sorted(made) and time_of(made[0]) == clock.now_ms() < time_of(before)


def test_random_digits_are_as_many_as_asked():
    ids = RandomIds(SystemClock())
    assert [len(ids.random_hex(digits)) for digits in (1, 7, 64)] == [1, 7, 64]
