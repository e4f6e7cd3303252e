"""`make dojo`, `make dojo ALL=1`: plays AgentDojo, prints the figures, and fails if a target is missed."""

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from bench.dojo.figures import Played, figures
from bench.dojo.page import Row, Stored, by_value, store, table
from bench.dojo.plans import Stepping
from bench.dojo.runs import Play, play_shard, plays_otherwise
from bench.dojo.suites import Pair, pairs, tasks
from bench.dojo.variants import OTHERS, SHIPPED, WITHOUT, Variant

SHARD = 120
"""Pairs that one process plays in homes of their own."""


class Plays:
    """Plays on all cores."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._shipped: dict[Pair, Played] = {}
        """What came of it under the shipped default, where a model reads itself."""

    def row(self, variant: Variant, stepping: Stepping = Stepping.TOGETHER, *, is_attacked: bool = True) -> Row:
        """The variant against injections, and with a model that obeys none."""
        began = time.monotonic()
        play = Play(variant=variant, stepping=stepping)
        attacked = self._play(play, pairs()) if is_attacked else None
        benign = self._play(play, tasks())
        row = Row(
            variant=variant.name,
            stepping=stepping.value,
            attacked=None if attacked is None else figures(attacked),
            benign=figures(benign),
        )
        print(f"{row.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return row

    def _play(self, play: Play, listed: Sequence[Pair]) -> list[Played]:
        if play.stepping not in (Stepping.QUARANTINE, Stepping.BY_VALUE):
            played = self._play_all(play, listed)
            if play == Play(variant=SHIPPED):
                self._shipped |= dict(zip(listed, played, strict=True))
            return played
        # All else has been played already.
        otherwise = {task for task in tasks() if plays_otherwise(task)}
        anew = [pair for pair in listed if Pair(pair.suite, pair.user_task) in otherwise]
        found = {**self._shipped, **dict(zip(anew, self._play_all(play, anew), strict=True))}
        return [found[pair] for pair in listed]

    def _play_all(self, play: Play, listed: Sequence[Pair]) -> list[Played]:
        shards = [listed[first : first + SHARD] for first in range(0, len(listed), SHARD)]
        began = [self._pool.submit(play_shard, play, shard) for shard in shards]
        return [each for shard in began for each in shard.result()]


def main() -> int:
    is_all = "--all" in sys.argv[1:]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context) as pool:
        plays = Plays(pool)
        rows = [
            plays.row(WITHOUT),
            plays.row(SHIPPED),
            plays.row(SHIPPED, Stepping.SINGLE, is_attacked=is_all),
            plays.row(SHIPPED, Stepping.QUARANTINE),
            plays.row(SHIPPED, Stepping.BY_VALUE),
        ]
        if is_all:
            rows += [plays.row(variant) for variant in OTHERS]
    stored = Stored(day=f"{datetime.now(UTC):%Y-%m-%d}", is_all=is_all, rows=tuple(rows))
    print(table(stored))
    print(by_value(stored))
    if "--write" in sys.argv[1:]:
        store(stored)
    missed = stored.missed()
    for each in missed:
        print(f"Missed: {each}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
