"""Plays a month of the household, with and without *always*, and prints its tables; `--write` keeps them."""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.household.page import PAGE, live_both, tables, with_tables


def main(words: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="household-") as directory:
        months = asyncio.run(live_both(Path(directory)))
    shown = tables(*months)
    sys.stdout.write(f"{shown}\n")
    if "--write" in words:
        PAGE.write_text(with_tables(PAGE.read_text("utf-8"), shown), "utf-8")
    missed = [each for month in months for each in month.missed()]
    sys.stderr.write("".join(f"Missed: {each}\n" for each in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
