"""Nothing changes for a user by accident: what they see is the same as the texts that are stored."""

from difflib import unified_diff

import pytest

from tests.claims import requirement
from tests.surface.texts import STORED, TEXTS


@requirement("cli:1", "access:5")
@pytest.mark.parametrize("name", TEXTS)
def test_what_users_see_is_what_is_stored(name: str) -> None:
    stored, made = (STORED / name).read_text("utf-8"), TEXTS[name]()
    changed = "\n".join(unified_diff(stored.splitlines(), made.splitlines(), "stored", "now", lineterm="", n=2))
    assert not changed, f"{name} changed; if users are to see this, store it: python -m tests.surface\n{changed}"
