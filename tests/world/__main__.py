"""`python -m tests.world [words]`: the rows on the code that is imported, and which of them are red.

`make world BASE=<commit>` runs it on the code of a commit.
"""

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

import antiphon
from antiphon.agents.provider import import_provider
from tests.world.house import MODELS, Row, judge, live
from tests.world.rows import rows


def verdict(row: Row) -> str | None:
    """Why the row is red; None if it is green."""
    with tempfile.TemporaryDirectory(prefix="world-") as directory:
        try:
            judge(row, anyio.run(live, row, Path(directory) / "home"))
        except TimeoutError:
            return "took too long"
        except Exception as error:
            return " ".join(f"{type(error).__name__} {error}".split())[:110]
    return None


def main(words: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    for model in MODELS.values():
        import_provider(model)
    asked = [row for row in rows() if all(word in f"{row.dialect}: {row.name}" for word in words)]
    red = 0
    for row in asked:
        why = verdict(row)
        red += why is not None
        print(f"{'red  ' if why else 'green'}  {row.dialect}: {row.name}{f'  [{why}]' if why else ''}", flush=True)
    print(f"\n{red} of {len(asked)} rows red on {Path(antiphon.__file__).parent}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
