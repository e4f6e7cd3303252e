"""The servers of mails, and the core of the people who write."""

from collections.abc import Generator

import pytest
from deltachat_rpc_client import DeltaChat

from tests.channels.deltachat.deltachat_platform import core_in
from tests.channels.email.conftest import dovecot, office

__all__ = ("dovecot", "office")


@pytest.fixture(scope="package")
def people(tmp_path_factory: pytest.TempPathFactory) -> Generator[DeltaChat]:
    with core_in(tmp_path_factory.mktemp("people") / "accounts") as core:
        yield core
