"""Ids of a system: never the same twice, also in a forked process."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

from antiphon.clock import RandomIds, SystemClock


def test_ids_drawn_by_many_threads_are_all_different():
    ids = RandomIds(SystemClock())
    with ThreadPoolExecutor(8) as pool:
        drawn = [*pool.map(lambda _: ids.new("run"), range(20_000))]
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


def test_random_digits_are_as_many_as_asked():
    ids = RandomIds(SystemClock())
    assert [len(ids.random_hex(digits)) for digits in (1, 7, 64)] == [1, 7, 64]
