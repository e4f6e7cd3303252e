"""A month of a household through the real system: asked little, everything done, and nothing private told."""

import asyncio
import tempfile
from functools import cache
from pathlib import Path

from tests.claims import requirement
from tests.household.page import PAGE, Month, live_both, tables, with_tables


@cache
def months() -> tuple[Month, Month]:
    """Lived once, for both tests."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(live_both(Path(directory)))


@requirement("flow:10", "flow:11", "approvals:3")
def test_thirty_days_ask_little_do_everything_and_tell_nothing_private() -> None:
    without, with_always = months()
    missed = [f"{month.name}: {each}" for month in (without, with_always) for each in month.missed()]
    assert not missed, "\n".join([*missed, tables(without, with_always)])
    assert with_always.questions < without.questions


def test_the_document_has_the_tables_of_today() -> None:
    """`python -m tests.household --write` writes them."""
    document = PAGE.read_text("utf-8")
    assert with_tables(document, tables(*months())) == document
