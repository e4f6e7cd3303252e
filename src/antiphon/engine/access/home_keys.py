"""The home's key: created at the first start, stored in the database, shared by all processes on it."""

from antiphon.domain.home_key import MIN_BYTES, HomeKey
from antiphon.domain.ids import Ids
from antiphon.store import home_keys
from antiphon.store.database import Database


async def find_home_key(database: Database, ids: Ids) -> HomeKey:
    """The key, created if it does not exist. Processes that start at the same time all get the same key."""
    secret = await database.read(home_keys.find)
    if secret is None:
        secret = await database.run(home_keys.keep, ids.random_hex(2 * MIN_BYTES))
    return HomeKey(bytes.fromhex(secret))
