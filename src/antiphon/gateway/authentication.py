"""Identifies the caller: the owner, the token of a person or of a session, or a browser by two secrets.

Contract: access 2, gateway 6.
"""

import hmac
import re
from collections.abc import Awaitable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from msgspec import Struct

from antiphon.domain.actor import OWNER, Principal, channel_of, session_principal
from antiphon.domain.errors import Denied, Unavailable, Unproven
from antiphon.domain.tokens import ALL_SCOPES, TOKEN_PREFIX, TokenScope
from antiphon.engine.access.credentials import CredentialEnding, Watch
from antiphon.engine.access.reach import TokenHolder
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.access.signin import BROWSER_LIFE, Browser
from antiphon.engine.access.tokens import Token, TokenKind
from antiphon.engine.services import Services
from antiphon.gateway.asgi import AsgiApp, Scope, Send
from antiphon.policy.authorize import Limits, decide_scope
from antiphon.policy.decision import Deny
from antiphon.policy.rights import SUSPENDED

PAGE_HEADER = "antiphon-page"
"""Carries the secret that only the page's origin can read."""
OWN_SITES = ("same-origin", "none")
"""The values of `Sec-Fetch-Site` for requests by our page or by a person."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_COOKIE = re.compile(r"[0-9a-f]{1,128}")


class Entry(Struct, frozen=True, kw_only=True):
    """The identity that a request was admitted with."""

    principal: Principal
    is_favoured: bool
    """Whether an owner asks, for the rate of requests only. Every unit that decides reads the role itself."""
    credential: str | None
    """The hash of the credential, watched while the request is open. None if nothing can end it."""
    revision: int = 0
    """Of the person's rights, as the credential was found."""
    scopes: frozenset[TokenScope] = ALL_SCOPES
    holder: TokenHolder | None = None
    """The caller, if their token is bound to a session."""
    node: str | None = None
    """The key of the session to which the caller posts, if their token is a node's; it has no scopes."""
    browser: Browser | None = None
    cookie: str = ""
    """The cookie that the browser has to store now; empty for no change."""

    @property
    def counted_as(self) -> Principal:
        """The principal whose rate of requests this is: holders of bound tokens share that of their session."""
        return self.principal if self.holder is None else session_principal(self.holder.session_key)


class Authentication:
    def __init__(self, services: Services, *, owner_token: str, own_token: str | None) -> None:
        """`owner_token` is the home's; `own_token` is valid in this process only."""
        self._services = services
        self._owner_token = owner_token
        self._own_hash = "" if own_token is None else hash_of(own_token)

    async def find(
        self, scope: Scope, headers: Mapping[str, str], *, serves_bound: bool, serves_nodes: bool = False
    ) -> Entry:
        """Identifies the caller, at addresses that are not open.

        Raises `Unproven`, `Denied`; no error repeats a secret. A token that is bound to a session, or is
        a node's, counts only where such tokens are served.
        """
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._by_token(shown.strip(), serves_bound=serves_bound, serves_nodes=serves_nodes)
        entry = await self._by_browser(scope, headers)
        if entry is None:
            raise Unproven(
                "Sign in with a link from `antiphon open`, or send 'Authorization: Bearer <token>'.",
                code="token_missing",
            )
        return entry

    def watch(self, credential: str, revision: int, scope: Scope, last: AsgiApp) -> Watch:
        """Ends the request with its credential, or when the rights of its person get another revision.

        `last` answers if no answer has begun. A stream finds the watch in the scope as `antiphon.watch` and may end in
        its own way. The watch is released once the request is answered.
        """

        def end(reason: CredentialEnding) -> None:
            scope["antiphon.last"] = last
            scope["antiphon.cancel"]()

        watch = scope["antiphon.watch"] = self._services.credentials.watch(credential, revision, end)
        return watch

    def release(self, watch: Watch) -> None:
        self._services.credentials.release(watch)

    def count(self, entry: Entry) -> None:
        """Counts a write, a tool call, or the begin of a subscription. Raises `Limited`."""
        if channel_of(entry.principal) is not None:
            self._services.buckets.take_for_crowd(str(entry.principal))  # each sender is counted besides
        else:
            self._services.buckets.take(entry.counted_as, is_favoured=entry.is_favoured)

    async def _by_token(self, secret: str, *, serves_bound: bool, serves_nodes: bool) -> Entry:
        if self._own_hash and hmac.compare_digest(hash_of(secret), self._own_hash):
            return Entry(principal=OWNER, is_favoured=True, credential=None)
        if secret.startswith(f"{TOKEN_PREFIX}_"):
            return await self._by_stored_token(secret, serves_bound=serves_bound, serves_nodes=serves_nodes)
        ownership = self._services.ownership
        try:
            is_valid = await ownership.holds(secret, first=self._owner_token)
        except Unavailable:
            if not ownership.held(secret):
                raise
            # Every action, also replacing a token, needs the database; actions that can wait for it do.
            is_valid = True
        if not is_valid:
            raise _bad_token()
        if ownership.is_suspended:
            raise _suspended()
        return Entry(principal=OWNER, is_favoured=True, credential=hash_of(secret), revision=ownership.revision)

    async def _by_stored_token(self, secret: str, *, serves_bound: bool, serves_nodes: bool) -> Entry:
        """A person within the token's scopes, a session that calls tools, or a node that posts, and nothing else."""
        token = await self._services.tokens.find(secret)
        if token is None:
            raise _bad_token()
        principal = replace(token.principal, clearance=token.clearance)
        holder = _holder_of(token, principal)
        if holder is not None:
            check_scope(Limits(session=holder.session), None, serves_bound=serves_bound)
        is_nodes = token.kind is TokenKind.NODE
        if is_nodes:
            check_scope(Limits(is_nodes=True), None, serves_bound=False, serves_nodes=serves_nodes)
        if token.is_suspended:
            raise _suspended()
        return Entry(
            principal=principal,
            is_favoured=token.is_owners and holder is None,
            credential=token.hash,
            revision=token.revision,
            scopes=frozenset() if is_nodes else token.scopes,
            holder=holder,
            node=token.session_key if is_nodes else None,
        )

    async def _by_browser(self, scope: Scope, headers: Mapping[str, str]) -> Entry | None:
        """None unless both secrets are there. Requests that cannot come from our page are refused before any lookup."""
        cookie, page = read_cookie(headers, scope["scheme"]), headers.get(PAGE_HEADER)
        if not cookie or not page:
            return None
        if headers.get("sec-fetch-site", "none") not in OWN_SITES:
            raise Denied("Request comes from another site's page.", code="site_not_allowed")
        is_socket = scope["type"] == "websocket"
        if (is_socket or scope["method"] not in SAFE_METHODS) and "origin" not in headers:
            raise Denied("A write or a socket by cookie needs an Origin header.", code="origin_missing")
        browser = await self._services.sign_in.find(cookie, page)
        if browser is None:
            return None
        is_renewed = not is_socket and await self._services.sign_in.renew(browser)  # a socket cannot set a cookie
        return Entry(
            principal=browser.principal,
            is_favoured=browser.is_owners,
            credential=browser.hash,
            revision=browser.revision,
            browser=browser,
            cookie=browser_cookie(headers, scope["scheme"], cookie) if is_renewed else "",
        )


def cookie_name(headers: Mapping[str, str], scheme: str) -> str:
    """Contains the port that the browser asked, because a browser sends a cookie to every port of the host."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"antiphon_session_{port if port.isdecimal() else 443 if scheme == 'https' else 80}"


def read_cookie(headers: Mapping[str, str], scheme: str) -> str | None:
    """The cookie's secret. If there are several, the last, which a browser sends for the shortest path.

    Uses no library: a grammar with quoted values takes seconds to read hostile cookies.
    """
    name, secret = cookie_name(headers, scheme), None
    for pair in headers.get("cookie", "").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            secret = value.strip()
    return secret if secret and _COOKIE.fullmatch(secret) else None


def keep_own_cookie(scope: Scope, headers: MutableMapping[str, str]) -> None:
    """Removes every cookie but the page's from the request, so that nothing behind the guard reads another."""
    if "cookie" not in headers:
        return
    secret = read_cookie(headers, scope["scheme"])
    del headers["cookie"]
    scope["headers"] = [each for each in scope["headers"] if each[0] != b"cookie"]
    if secret is not None:
        headers["cookie"] = f"{cookie_name(headers, scope['scheme'])}={secret}"
        scope["headers"].append((b"cookie", headers["cookie"].encode("latin-1")))


def browser_cookie(headers: Mapping[str, str], scheme: str, secret: str | None) -> str:
    """The `Set-Cookie` that stores the secret in the browser, or deletes it if there is no secret."""
    life = int(BROWSER_LIFE.total_seconds()) if secret else 0
    secure = "; Secure" if scheme == "https" else ""
    name = cookie_name(headers, scheme)
    return f"{name}={secret or ''}; HttpOnly; Max-Age={life}; Path=/; SameSite=Strict{secure}"


def with_cookie(send: Send, cookie: str) -> Send:
    """Adds a `Set-Cookie` to the application's answer."""

    def send_with_cookie(message: MutableMapping[str, Any]) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"set-cookie", cookie.encode("latin-1"))]}
        return send(message)

    return send_with_cookie


def put_into(scope: Scope, entry: Entry) -> None:
    """Puts what is known of the caller into the scope, for all that is behind the guard."""
    scope["antiphon.principal"] = entry.principal
    scope["antiphon.browser"] = entry.browser
    scope["antiphon.scopes"] = entry.scopes
    scope["antiphon.holder"] = entry.holder
    scope["antiphon.node"] = entry.node


def check_scope(limits: Limits, needed: TokenScope | None, *, serves_bound: bool, serves_nodes: bool = False) -> None:
    """Raises `Denied` unless a credential with these limits may ask for what needs the scope."""
    decision = decide_scope(limits, needed, serves_bound=serves_bound, serves_nodes=serves_nodes)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)


def limits_of(scope: Scope) -> Limits:
    """The limits of the credential that the guard let the request in with."""
    holder: TokenHolder | None = scope.get("antiphon.holder")
    if holder is not None:
        return Limits(scopes=frozenset(), session=holder.session)
    if scope.get("antiphon.node") is not None:
        return Limits(scopes=frozenset(), is_nodes=True)
    return Limits(scopes=scope.get("antiphon.scopes", frozenset()))


def _holder_of(token: Token, principal: Principal) -> TokenHolder | None:
    """The session that the token acts as; None for a token of a person or a node."""
    if token.kind is not TokenKind.SESSION or token.session is None or token.session_key is None:
        return None
    return TokenHolder(principal=principal, session=token.session, session_key=token.session_key)


def _bad_token() -> Unproven:
    return Unproven(
        "Token is not valid: unknown, expired, revoked or replaced. The owner's token is in owner.token; "
        "`antiphon tokens rotate` replaces it.",
        code="bad_token",
    )


def _suspended() -> Denied:
    return Denied(SUSPENDED.reason, code=SUSPENDED.rule)
