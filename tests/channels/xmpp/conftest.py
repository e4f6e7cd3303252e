"""The package of the example, as an installer leaves it, and a server."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.channels.xmpp.prosody import MISSING, PROGRAM, Prosody
from tests.waiting import PROCESS_SECONDS

EXAMPLE = Path(__file__).parents[3] / "examples" / "xmpp"


@pytest.fixture(scope="package")
def package(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Where the example is installed."""
    site = tmp_path_factory.mktemp("site")
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--python", sys.executable, "--target", str(site)]
    subprocess.run([uv, "pip", "install", *options, EXAMPLE], check=True, timeout=PROCESS_SECONDS)
    sys.path.insert(0, str(site))
    yield site
    sys.path.remove(str(site))


@pytest.fixture(scope="package")
def prosody(tmp_path_factory: pytest.TempPathFactory) -> Generator[Prosody]:
    if PROGRAM is None:
        pytest.skip(MISSING)
    prosody = Prosody(tmp_path_factory.mktemp("prosody"))
    with prosody.running():
        yield prosody
