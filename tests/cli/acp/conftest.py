"""The home of the editors' tests."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cli.acp.editors import CONFIG
from tests.cli.program import serving


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A home with a gateway."""
    home = tmp_path_factory.mktemp("editors")
    home.chmod(0o700)
    (home / "antiphon.toml").write_text(CONFIG, "utf-8")
    with serving(home):
        yield home
