"""The home's key: drawn at the first start, kept in the database, and shared by all processes on it."""

from antiphon.domain.home_key import MIN_BYTES, HomeKey
from antiphon.domain.ids import Ids
from antiphon.store import home_keys
from antiphon.store.database import Database


async def find_home_key(database: Database, ids: Ids) -> HomeKey:
    """The key, made where there is none yet; of several processes that start at once, all get the same."""
    secret = await database.read(home_keys.find)
    if secret is None:
        secret = await database.run(home_keys.keep, ids.random_hex(2 * MIN_BYTES))
    return HomeKey(bytes.fromhex(secret))
