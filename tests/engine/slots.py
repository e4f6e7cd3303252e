"""Which session has a slot next, where that depends on the database."""

import pytest

from antiphon.config.sections.gateway import DatabaseSection


def skip_where_slots_stay(database: DatabaseSection) -> None:
    """For tests in which a slot has to go to another session when a child's run ends, before its next run begins."""
    if database.url is not None:
        pytest.skip("there the child's session keeps its slot for its next run")
