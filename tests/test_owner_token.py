"""The owner's token is made once, whoever starts at the same time. Contract: first_start 1."""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from antiphon.clock import RandomIds, SystemClock
from antiphon.domain.errors import Denied
from antiphon.owner_token import OWNER_TOKEN_NAME, owner_token
from tests.waiting import SECONDS

STARTERS = 8


def test_all_who_start_at_the_same_time_have_the_same_token(tmp_path: Path) -> None:
    barrier = Barrier(STARTERS)
    ids = RandomIds(SystemClock())

    def start(home: Path) -> str:
        barrier.wait(SECONDS)
        return owner_token(home, ids)

    with ThreadPoolExecutor(STARTERS) as threads:
        for number in range(50):
            home = tmp_path / str(number)
            home.mkdir()
            tokens = set(threads.map(start, [home] * STARTERS))
            assert tokens == {(home / OWNER_TOKEN_NAME).read_text("ascii").strip()}
            assert [path.name for path in home.iterdir()] == [OWNER_TOKEN_NAME], "and nothing else is left"


def test_what_a_crash_left_half_written_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "owner.new").write_text("ant_0123" * 20, "ascii")
    (tmp_path / OWNER_TOKEN_NAME).touch(0o600)
    token = owner_token(tmp_path, RandomIds(SystemClock()))
    assert token.startswith("ant_") and len(token) == 52
    assert (tmp_path / OWNER_TOKEN_NAME).read_text("ascii") == f"{token}\n"
    assert stat.S_IMODE((tmp_path / OWNER_TOKEN_NAME).stat().st_mode) == 0o600


def spoil_with_directory(path: Path) -> None:
    path.mkdir()


def spoil_with_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("spoil", [spoil_with_directory, spoil_with_bytes])
def test_a_token_that_cannot_be_read_is_said(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(tmp_path / OWNER_TOKEN_NAME)
    with pytest.raises(Denied) as raised:
        owner_token(tmp_path, RandomIds(SystemClock()))
    assert raised.value.code == "token_missing" and OWNER_TOKEN_NAME in raised.value.message
