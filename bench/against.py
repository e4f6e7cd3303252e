"""`python -m bench.against BASE [B1 …]`: benches of a commit and of the present tree, by turns; medians of ratios."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

DEFAULT = ("B1", "B3", "B7", "B12")
RUN = """
import asyncio, json, logging, sys
import uvloop
from bench.__main__ import BENCHES, measure
if "B14" not in sys.argv:
    BENCHES.pop("B7 B8 B14", None)  # PostgreSQL, a minute a run
logging.disable(logging.WARNING)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    rows = runner.run(measure(set(sys.argv[1:])))
print("ROWS" + json.dumps([{"id": row.id, "what": row.what, "figures": row.figures} for row in rows]))
"""

Figures = dict[tuple[str, str], list[float]]


def figures_of(tree: Path, ids: list[str]) -> dict[tuple[str, str], float]:
    """What the tree's own benches measure, run by its own Python and packages."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [tree / ".venv/bin/python", "-c", RUN, *ids]
    return measured(command, environment, tree)


def measured(command: list[str | Path], environment: dict[str, str], tree: Path) -> dict[tuple[str, str], float]:
    """The figures that a run of `RUN` prints, by what was measured and its name."""
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("ROWS"))
    return {
        (f"{row['id']} {row['what']}", name): float(value)
        for row in json.loads(line.removeprefix("ROWS"))
        for name, value in row["figures"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def main() -> None:
    base, *ids = sys.argv[1:]
    ids = ids or list(DEFAULT)
    pairs = int(os.environ.get("PAIRS", "11"))
    here = Path.cwd()
    before: Figures = defaultdict(list)
    now: Figures = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="bench-against-") as directory:
        tree = Path(directory) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), base], check=True)
        try:
            subprocess.run(["make", "--silent", "setup-dev"], cwd=tree, check=True, stdout=sys.stderr)
            # A tree that was changed since its set-up would compile what was changed at each start.
            subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], cwd=here, check=True)
            for pair in range(pairs):
                order = [(tree, before), (here, now)]
                for each, found in order if pair % 2 else reversed(order):  # whoever comes second finds warm caches
                    for name, value in figures_of(each, ids).items():
                        found[name].append(value)
                print(f"pair {pair + 1} of {pairs}", file=sys.stderr)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True)
    table = Table("", "figure", f"median at {base[:12]}", "median now", "ratio")
    for name in before:
        if name in now:
            was, is_now = before[name], now[name]
            medians = (f"{statistics.median(each):.6g}" for each in (was, is_now))
            table.add_row(*name, *medians, _ratio(was, is_now))
    Console(width=140).print(table)


def _ratio(was: list[float], is_now: list[float]) -> str:
    """The median over the pairs: a machine changes its speed between pairs by more than what is looked for."""
    return f"{statistics.median(b / a for a, b in zip(was, is_now, strict=True)):.3f}" if all(was) else "–"


if __name__ == "__main__":
    main()
