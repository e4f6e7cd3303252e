"""The key of a home: one for all processes on its database, and for all its starts."""

import anyio
import pytest

from antiphon.building import App
from antiphon.domain.home_key import HomeKey
from antiphon.engine.access.home_keys import find_home_key
from antiphon.store.database import Transaction
from tests.conftest import OpenHome

pytestmark = pytest.mark.anyio


async def test_a_home_keeps_its_key_over_restarts(open_home: OpenHome) -> None:
    async with open_home() as app:
        first = app.services.home_key
    async with open_home() as app:
        assert app.services.home_key == first


async def test_everybody_who_starts_at_once_gets_the_same_key(open_home: OpenHome) -> None:
    async with open_home() as app:
        await app.database.run(_forget)
        found: list[HomeKey] = []

        async def find(app: App) -> None:
            found.append(await find_home_key(app.database, app.services.ids))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(find, app)
    assert len(found) == 8
    assert len({key.subkey("fence") for key in found}) == 1


async def test_each_purpose_has_a_key_of_its_own_and_none_is_shown(open_home: OpenHome) -> None:
    async with open_home() as app:
        key = app.services.home_key
    assert len({key.subkey("fence"), key.subkey("cursor"), key.secret}) == 3
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)


async def _forget(tx: Transaction) -> None:
    await tx.execute("DELETE FROM home_keys")
