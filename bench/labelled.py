"""`python -m bench.labelled [B4 B7 …]`: benches without and with classifications in use, by turns; ratios of medians.

`PAIRS` says how many runs of each; 5 unless set. The table ends with what one comparison costs.
"""

import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from antiphon.domain.classification import Classification, Integrity, Level, join_all
from antiphon.policy.flow import may_enter
from bench.against import RUN, measured
from bench.labels import VARIABLE
from bench.measure import micros, p50

DEFAULT = ("B4", "B7", "B8", "B9", "B11", "B16")
ENTRIES = 400
REPETITIONS = 2_000


def figures_of(ids: list[str], *, labelled: bool) -> dict[tuple[str, str], float]:
    environment = {**os.environ, VARIABLE: "1" if labelled else "0"}
    return measured([sys.executable, "-c", RUN, *ids], environment, Path.cwd())


def time_decisions() -> dict[str, float]:
    """The median seconds of one decision, and of one more entry in a context of 400."""
    entries = [
        Classification(Level(number % 3), 1 << number % 8, list(Integrity)[number % 2], f"person:{number % 5}")
        for number in range(ENTRIES)
    ]
    sink = Classification(Level.RESTRICTED, 0xFF, Integrity.UNTRUSTED, "people")
    context = join_all(entries)
    flows: list[float] = []
    folds: list[float] = []
    for number in range(REPETITIONS):
        entry = entries[number % ENTRIES]
        start = time.perf_counter()
        may_enter(entry, sink)
        middle = time.perf_counter()
        context.join(entry)
        folds.append(time.perf_counter() - middle)
        flows.append(middle - start)
    return {"flow": p50(flows), f"context, one more of {ENTRIES} entries": p50(folds)}


def main() -> None:
    ids = sys.argv[1:] or list(DEFAULT)
    pairs = int(os.environ.get("PAIRS", "5"))
    found: dict[bool, dict[tuple[str, str], list[float]]] = {False: defaultdict(list), True: defaultdict(list)}
    for pair in range(pairs):
        for labelled in (pair % 2 == 0, pair % 2 == 1):  # whoever comes second finds warm caches
            for name, value in figures_of(ids, labelled=labelled).items():
                found[labelled][name].append(value)
        print(f"pair {pair + 1} of {pairs}", file=sys.stderr)
    table = Table("", "figure", "without", "with classifications", "ratio")
    for name, values in found[False].items():
        if name in found[True]:
            plain, labelled = statistics.median(values), statistics.median(found[True][name])
            table.add_row(*name, f"{plain:.6g}", f"{labelled:.6g}", f"{labelled / plain:.3f}" if plain else "–")
    console = Console(width=140)
    console.print(table)
    for name, seconds in time_decisions().items():
        console.print(
            f"{name}: p50 {micros(seconds) if seconds >= 1e-6 else f'{seconds * 1e9:.0f} ns'} (target ≤ 5 µs)"
        )


if __name__ == "__main__":
    main()
