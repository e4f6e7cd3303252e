"""Signing browsers in: a link's single-use code becomes the two secrets of a browser. Contract: gateway 6.

The cookie holds one secret; a browser sends it to every port of a host. The page holds the other, in the storage
of its origin, so that no other server on the host receives it. Both hashes are in one row.
"""

import hmac
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import Ids
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.access.tokens import refuse_clearance, refuse_credential
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.store import tokens
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.tokens import Browser

LINK_LIFE = timedelta(minutes=10)
BROWSER_LIFE = timedelta(days=7)
"""Counted from the last renewal."""
RENEWAL = timedelta(days=1)
"""A browser is renewed at most once in this time."""


class NewBrowser(Struct, frozen=True, kw_only=True):
    """The secrets that a browser got for a link's code; shown only once."""

    cookie: str
    page: str
    browser: Browser


class SignIn:
    def __init__(self, database: Database, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def new_link_code(self, principal: Principal, *, held: frozenset[TokenScope] = ALL_SCOPES) -> str:
        """A code that signs in one browser as the owner who asks, once, within ten minutes. Raises `Denied`.

        `held` are the scopes of the credential that asks. A browser has all scopes and no clearance of its own, so the
        credential must be the same.
        """
        code, rights = self._ids.random_hex(48), Rights(principal, self._rules)
        refuse_credential(held)
        refuse_clearance(principal, None)
        await self._database.run(_store_link, rights, hash_of(code))
        return code

    async def exchange(self, code: str, name: str) -> NewBrowser | None:
        """Uses up the code and signs the browser in under that name; None if the code is unknown, used or too old."""
        cookie, page = self._ids.random_hex(48), self._ids.random_hex(48)
        now_ms = self._clock.now_ms()
        browser = Browser(
            id=self._ids.new("brw"),
            hash=hash_of(cookie),
            page_hash=hash_of(page),
            principal=OWNER,
            name=name,
            created_at_ms=now_ms,
            last_used_at_ms=now_ms,
            expires_at_ms=now_ms + _milliseconds(BROWSER_LIFE),
        )
        stored = await self._database.run(_exchange, hash_of(code), browser)
        return None if stored is None else NewBrowser(cookie=cookie, page=page, browser=stored)

    async def find(self, cookie: str, page: str) -> Browser | None:
        """The signed-in browser that holds both secrets."""
        found = await self._database.read(tokens.find_browser, hash_of(cookie), self._clock.now_ms())
        is_same = hmac.compare_digest(hash_of(page), found.page_hash if found else "")
        return found if is_same else None

    async def renew(self, browser: Browser) -> bool:
        """Extends the browser's sign-in unless that happened within the last day; returns whether it did."""
        now_ms = self._clock.now_ms()
        if now_ms - browser.last_used_at_ms < _milliseconds(RENEWAL):
            return False
        await self._database.run(tokens.renew_browser, browser.id, now_ms, now_ms + _milliseconds(BROWSER_LIFE))
        return True

    async def list(self, principal: Principal) -> list[Browser]:
        """The signed-in browsers, oldest first. Raises `Denied`."""
        return await self._database.read(_list, Rights(principal, self._rules))

    async def sign_out(self, browser: Browser) -> None:
        """Signs out the browser that asks, as returned by `find`."""
        await self._database.run(tokens.delete_by_id, browser.id)


async def _store_link(tx: Transaction, rights: Rights, hash: str) -> None:
    await find_reach(tx, rights, Act.LINK)
    await tokens.delete_expired(tx, tx.now_ms)
    person = (await find_standing(tx, rights.principal)).principal
    await tokens.insert_link(tx, hash, person, at_ms=tx.now_ms, expires_at_ms=tx.now_ms + _milliseconds(LINK_LIFE))


async def _list(query: Query, rights: Rights) -> list[Browser]:
    await find_reach(query, rights, Act.TOKENS)
    return await tokens.list_browsers(query, query.now_ms)


async def _exchange(tx: Transaction, code_hash: str, browser: Browser) -> Browser | None:
    principal = await tokens.use_up_link(tx, code_hash, browser.created_at_ms)
    if principal is None:
        return None
    browser = replace(browser, principal=principal)
    await tokens.insert_browser(tx, browser)
    return browser


def _milliseconds(life: timedelta) -> int:
    return int(life.total_seconds() * 1000)
