"""The servers of mails: Dovecot, and one that takes mails and lays them in."""

import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.channels.email.dovecot import MISSING, PROGRAM, Dovecot
from tests.channels.email.post_office import PostOffice, post_office


@pytest.fixture(scope="session")
def dovecot() -> Generator[Dovecot]:
    if PROGRAM is None:
        pytest.skip(MISSING)
    home = Path(tempfile.mkdtemp(prefix="dovecot-"))
    home.chmod(0o755)
    try:
        dovecot = Dovecot(home)
        with dovecot.running():
            yield dovecot
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def office(dovecot: Dovecot) -> Generator[PostOffice]:
    with post_office(dovecot) as office:
        yield office
