"""The first checks of every request: Host and Origin, identity, size. Contract: gateway 5, 6, answers 5."""

from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from antiphon.domain.errors import AntiphonError, Limited
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.gateway.addresses import Addresses, RouteEndpoint
from antiphon.gateway.asgi import AsgiApp, Receive, Scope, Send
from antiphon.gateway.authentication import SAFE_METHODS, Authentication, Entry, keep_own_cookie, put_into, with_cookie
from antiphon.gateway.bodies import LARGE_BYTES, SMALL_BYTES, body_too_large, limit_of
from antiphon.gateway.locality import comes_from_this_machine, host_name
from antiphon.gateway.strangers import StrangersBodies
from antiphon.wire.encoding import compact_json
from antiphon.wire.errors import error_answer, status_of

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
MAX_DISCARDED_BYTES = 64 * 1024 * 1024
MAX_DISCARD_SECONDS = 5.0
MAX_PARAMETERS = 100
"""In a query. Each takes as long to read as hundreds of bytes, before the caller is identified."""


NO_SOCKETS: Mapping[str, AsgiApp] = MappingProxyType({})


class GatewaySettings(Struct, frozen=True, kw_only=True):
    owner_token: str
    own_token: str | None = None
    """Also the owner's, but in this process only: for a command that opened the home itself."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_hosts_name: str = "gateway.allowed_hosts"
    """The setting's name as the user spells it."""
    max_body_bytes: int = LARGE_BYTES
    is_local_alone: bool = False
    """Whether it listens on this machine's own address only, and is not published under another name or address."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.body = compact_json(error_answer(status, code, message))


class Guard:
    """The outermost application. Puts `antiphon.principal`, `antiphon.found` (the match of the address) and the raw
    `antiphon.send` into the scope; for a caller also `antiphon.scopes`, `antiphon.holder` if their token is bound, and
    `antiphon.node` if it is a node's.
    """

    def __init__(
        self,
        app: AsgiApp,
        authentication: Authentication,
        settings: GatewaySettings,
        addresses: Addresses,
        *,
        sockets: Mapping[str, AsgiApp] = NO_SOCKETS,
    ) -> None:
        """`sockets` are what answers WebSockets, by path."""
        self.application = app
        self._sockets = sockets
        self._settings = settings
        self._authentication = authentication
        self._hosts = frozenset((*LOCAL_HOSTS, *settings.allowed_hosts))
        self._strangers = StrangersBodies()
        self.addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            raise ValueError(f"Connection type is not supported: {scope['type'][:40]!r}.")

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a socket in at its address. It proves its caller by its first frame."""
        headers = _headers_of(scope)
        try:
            self._check_host(headers)
            if scope["path"] not in self._sockets:
                raise _Refused(404, "not_found", "Address of a socket not found. Connect to /ws.")
            if scope["query_string"]:
                raise _Refused(400, "query_not_allowed", "Address takes no query. Send the token in 'connect'.")
            keep_own_cookie(scope, headers)
        except _Refused as refused:
            await _answer(send, refused, "websocket.")
            return
        scope["antiphon.headers"] = headers
        await self._sockets[scope["path"]](scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["antiphon.send"] = send
        headers = _headers_of(scope)
        try:
            self._check_host(headers)
            _check_query(scope)
            keep_own_cookie(scope, headers)
            entry = await self._enter(scope, headers)
            self._take_token(scope, entry)
            self._check_body(scope, headers)
            if entry is None:
                with self._strangers.reading(scope, receive, _crowded) as receive:
                    await self._pass_on(scope, headers, receive, send)
                return
            if entry.credential is None:
                await self._pass_on(scope, headers, receive, send)
                return
            if entry.cookie:
                send = scope["antiphon.send"] = with_cookie(send, entry.cookie)
            watch = self._authentication.watch(entry.credential, entry.revision, scope, _ended)
            try:
                await self._pass_on(scope, headers, receive, send)
            finally:
                self._authentication.release(watch)
        except _Refused as refused:
            if "expect" not in headers:
                await _discard(receive)
            await _answer(send, refused)

    def _check_host(self, headers: dict[str, str]) -> None:
        """Blocks pages of other sites, which reach this machine by DNS rebinding or a cross-site request."""
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            raise _Refused(
                403,
                "host_not_allowed",
                f"Host is not allowed: {host[:100]!r}. Name it in {self._settings.allowed_hosts_name}.",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            raise _Refused(403, "origin_not_allowed", f"Origin is not allowed: {origin[:100]!r}.")

    def _is_own_origin(self, origin: str, host: str) -> bool:
        try:
            return urlsplit(origin).netloc == host
        except ValueError:
            return False

    async def _enter(self, scope: Scope, headers: dict[str, str]) -> Entry | None:
        found = scope["antiphon.found"] = self.addresses.find(scope["path"])
        endpoint = self._endpoint(scope)
        if endpoint.is_open if endpoint is not None else found is not None and found.address.is_open:
            scope["antiphon.principal"] = None  # open operations answer everybody, so nothing is looked up
            return None
        is_for_machine = endpoint is not None and endpoint.serves_this_machine
        if is_for_machine and self._settings.is_local_alone and comes_from_this_machine(scope, headers):
            scope["antiphon.principal"] = None
            scope["antiphon.scopes"] = ALL_SCOPES
            return None
        try:
            entry = await self._authentication.find(
                scope,
                headers,
                serves_bound=endpoint is not None and endpoint.serves_bound,
                serves_nodes=endpoint is not None and endpoint.serves_nodes,
            )
        except AntiphonError as error:
            raise _refused(error) from error
        put_into(scope, entry)
        return entry

    async def _pass_on(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        if "transfer-encoding" in headers:
            await self._take_unmeasured(scope, receive, send)
        else:
            await self.application(scope, receive, send)

    def _take_token(self, scope: Scope, entry: Entry | None) -> None:
        """Counts writes and tool calls. Callers that are proved only by their message are counted later."""
        if entry is None or scope["method"] in SAFE_METHODS:
            return
        try:
            self._authentication.count(entry)
        except Limited as limited:
            raise _Refused(429, limited.code, limited.message, retry_after=limited.retry_after_seconds) from limited

    def _check_body(self, scope: Scope, headers: dict[str, str]) -> None:
        limit = self._body_limit(scope)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 18 or int(length) > limit:
            raise _too_large(limit)
        if scope["method"] not in SAFE_METHODS and (length != "0" or "transfer-encoding" in headers):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind not in ("application/json", "application/x-www-form-urlencoded"):
                wrong = f"The Content-Type header is {kind!r}." if kind else "The Content-Type header is missing."
                raise _Refused(415, "not_json", f"{wrong} Send 'Content-Type: application/json'.")

    def _endpoint(self, scope: Scope) -> RouteEndpoint | None:
        found = scope["antiphon.found"]
        return None if found is None else found.address.endpoint(scope["method"])

    def _body_limit(self, scope: Scope) -> int:
        endpoint = self._endpoint(scope)
        most = SMALL_BYTES if endpoint is None else endpoint.max_body_bytes
        return limit_of(most, self._settings.max_body_bytes)

    async def _take_unmeasured(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Measures a body without a stated length. Raises `_Refused` whatever the application did with it."""
        limit = self._body_limit(scope)
        received = 0

        async def measured() -> MutableMapping[str, Any]:
            nonlocal received
            part = await receive()
            received += len(part.get("body", b""))
            if received > limit:
                raise body_too_large(limit)
            return part

        async def answer(message: MutableMapping[str, Any]) -> None:
            if received <= limit:
                await send(message)

        await self.application(scope, measured, answer)
        if received > limit:
            raise _too_large(limit)


def _refused(error: AntiphonError) -> _Refused:
    status = status_of(error)
    return _Refused(status, error.code, error.message, 1 if status == 503 else None)


def _check_query(scope: Scope) -> None:
    if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise _Refused(
            400,
            "too_many_parameters",
            f"Query has more than {MAX_PARAMETERS} parameters. Send fewer.",
        )


def _too_large(limit: int) -> _Refused:
    error = body_too_large(limit)
    return _Refused(413, error.code, error.message)


async def _discard(receive: Receive) -> None:
    """Reads the body to its end, within limits: a client that is still sending might never see the answer."""
    left = MAX_DISCARDED_BYTES
    with anyio.move_on_after(MAX_DISCARD_SECONDS):
        while left > 0:
            part = await receive()
            left -= len(part.get("body", b""))
            if not part.get("more_body", False):
                return


async def _answer(send: Send, refused: _Refused, prefix: str = "") -> None:
    """`prefix` stands before the types of messages: `websocket.` for the request that asks for a socket."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(refused.body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.retry_after is not None:
        headers.append((b"retry-after", str(refused.retry_after).encode()))
    headers.append((b"connection", b"close"))
    await send({"type": f"{prefix}http.response.start", "status": refused.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": refused.body})


def _headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


_CREDENTIAL_ENDED = _Refused(
    401,
    "credential_ended",
    "Token or sign-in ended before the answer. The request may have been carried out.",
)


async def _ended(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(send, _CREDENTIAL_ENDED)


_CROWDED = _Refused(503, "too_many_bodies", "Gateway is reading too many request bodies. Try again.", retry_after=1)


async def _crowded(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(send, _CROWDED)
