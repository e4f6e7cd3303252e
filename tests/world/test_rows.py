"""Each row of the table of what providers do, through the real client, against bytes on a socket."""

from pathlib import Path

import pytest

from antiphon.agents.provider import import_provider
from tests.claims import requirement
from tests.sqlite_template import connect_to_copy
from tests.world.house import MODELS, Row, judge, live
from tests.world.rows import rows

pytestmark = pytest.mark.anyio
ROWS = rows()


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """What the first row would have to wait for."""
    for model in MODELS.values():
        import_provider(model)


def test_the_table_has_its_rows() -> None:
    assert len(ROWS) >= 80
    assert len({(row.dialect, row.name) for row in ROWS}) == len(ROWS)


@requirement("runs:2", "runs:6", "runs:9")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.dialect}: {row.name}")
async def test_what_a_provider_does(row: Row, tmp_path: Path) -> None:
    judge(row, await live(row, tmp_path / "home", connect_to_copy))
