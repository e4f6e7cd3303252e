"""Fetches one page: each step of the way checked, and bounded in time and size. Contract: flow 7, shipped tools."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import fail_after
from msgspec import Struct

from antiphon.domain.errors import AntiphonError, Denied, Invalid, Unavailable
from antiphon.domain.page_address import PORTS, PageAddress
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.network import Network, Unanswered, Unsent, checked_network, find_answers
from antiphon.version import VERSION

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool, Response

MAX_BYTES = 2 * 1024 * 1024
MAX_REDIRECTS = 5
SECONDS = 20.0
"""For a page in all, redirects included."""
_REDIRECTS = (301, 302, 303, 307, 308)
_ACCEPTED = "text/html, application/xhtml+xml, text/plain, application/json;q=0.9, text/*;q=0.8, */*;q=0.1"


class FetchedBody(Struct, frozen=True):
    """What a server answered."""

    address: PageAddress
    """The last of the redirects."""
    content_type: str
    """As the server says it; empty if it does not."""
    body: bytes


class FetchOptions(Struct, frozen=True, kw_only=True):
    """How a page is asked for."""

    headers: Sequence[tuple[str, str]] = (("Accept", _ACCEPTED),)
    redirects: int = MAX_REDIRECTS
    stays: bool = False
    """Whether redirects must stay with the host and its port; only `www.` may come and go."""


READ_PAGE = FetchOptions()


class StatusFailure(Unavailable):
    """The server answered with a status that is no page."""

    def __init__(self, address: PageAddress, status: int) -> None:
        super().__init__(f"Server answered {status}: {_shown(address)}. {_advice(status)}", code="page_status")
        self.status = status


class Fetcher:
    """Asks servers for pages. Keeps nothing between calls: no connection, no cookie, no page."""

    def __init__(self, rules: WebRules, network: Network, *, proxy: str | None = None) -> None:
        self._rules = rules
        self._network = network
        self._proxy = proxy

    async def fetch(self, address: PageAddress, request: FetchOptions = READ_PAGE) -> FetchedBody:
        """Raises `Denied`, `Invalid` or `Unavailable`, which name the address and say what to do."""
        try:
            with fail_after(SECONDS):
                return await self._follow(address, request)
        except TimeoutError as error:
            raise Unavailable(
                f"Page took more than {SECONDS:g} s: {_shown(address)}. Try again later, or do without it.",
                code="page_timeout",
            ) from error

    async def _follow(self, address: PageAddress, request: FetchOptions) -> FetchedBody:
        for step in range(request.redirects + 1):
            try:
                found = await self._ask(address, request)
            except (Unsent, Unanswered) as error:
                if step == 0:
                    raise
                raise _led_astray(error) from error  # the host that it names comes from a page
            if isinstance(found, FetchedBody):
                return found
            if request.stays and _plain_site(found) != _plain_site(address):
                raise Denied(
                    f"Page leads to another host: {_shown(address)} to {found.url[:500]!r}. This turn has read words "
                    "of others, or somebody is asked about hosts, so only those that the call names are reached. Fetch "
                    "that address itself.",
                    code="page_elsewhere",
                )
            if address.scheme == "https" and found.scheme == "http":
                raise Denied(
                    f"Page leads from https to http, {found.url[:500]!r}. Fetch that address itself if that is meant.",
                    code="page_elsewhere",
                )
            address = found
        raise Unavailable(
            f"Page leads on more than {request.redirects} times: {_shown(address)}. Do without it.",
            code="page_unreadable",
        )

    async def _ask(self, address: PageAddress, request: FetchOptions) -> FetchedBody | PageAddress:
        """The answer of this one address, or the address to which it leads."""
        if denied := self._rules.refusal_of(address):
            raise Unsent(denied.reason, code=denied.rule)
        if self._proxy is not None:  # it looks names up itself; what can be seen here is checked here
            await find_answers(self._network, self._rules, address.host, address.ip)
        from httpcore2 import URL, NetworkError, ProtocolError, ProxyError, TimeoutException

        target = URL(
            scheme=address.scheme.encode(),
            host=address.host.encode(),
            port=None if address.port == PORTS[address.scheme] else address.port,
            target=address.target.encode(),
        )
        headers = [
            ("Host", address.authority),
            ("User-Agent", f"Antiphon/{VERSION}"),
            ("Accept-Encoding", "identity"),
            *request.headers,
        ]
        try:
            async with self._connections() as pool, pool.stream("GET", target, headers=headers) as response:
                return await self._read(address, response)
        except (NetworkError, TimeoutException, ProxyError, OSError) as error:
            raise Unanswered(
                f"Host cannot be reached: {address.host!r} ({_named(error)}). Check the address, or try again later.",
                code="page_unreachable",
            ) from error
        except (ProtocolError, ValueError) as error:
            raise Unavailable(
                f"Server does not answer in HTTP as it should: {_shown(address)}. Do without this page.",
                code="page_unreadable",
            ) from error

    def _connections(self) -> "AsyncConnectionPool":
        from httpcore2 import AsyncConnectionPool, Proxy

        return AsyncConnectionPool(
            ssl_context=self._network.certificates(),
            max_connections=1,
            network_backend=checked_network(self._network, self._rules) if self._proxy is None else None,
            proxy=None if self._proxy is None else Proxy(self._proxy),
        )

    async def _read(self, address: PageAddress, response: "Response") -> FetchedBody | PageAddress:
        headers = {name.lower(): value.decode("latin-1") for name, value in reversed(response.headers)}
        if response.status in _REDIRECTS and (location := headers.get(b"location")):
            return _joined(address, location)
        if not 200 <= response.status < 300:
            raise StatusFailure(address, response.status)
        if headers.get(b"content-encoding", "identity").strip().lower() not in ("identity", ""):
            raise Unavailable(
                f"Server compresses the page, though it was asked not to: {_shown(address)}. Do without it.",
                code="page_unreadable",
            )
        held = bytearray()
        if int(headers.get(b"content-length", "0")) > MAX_BYTES:
            raise _too_large(address)
        async for piece in response.aiter_stream():
            held += piece
            if len(held) > MAX_BYTES:
                raise _too_large(address)
        return FetchedBody(address, headers.get(b"content-type", ""), bytes(held))


def _led_astray(error: Unsent | Unanswered) -> AntiphonError:
    said = f"A redirect led on. {error.message}"
    return Denied(said, code=error.code) if isinstance(error, Unsent) else Unavailable(said, code=error.code)


def _joined(address: PageAddress, location: str) -> PageAddress:
    # Servers send such headers in UTF-8, which HTTP reads as Latin-1.
    with suppress(UnicodeDecodeError):
        location = location.encode("latin-1").decode()
    try:
        return address.joined(location)
    except Invalid as error:
        raise Denied(
            f"Page leads to an address that is not fetched: {_shown(address)}. {error.message}", code="page_refused"
        ) from error


def _too_large(address: PageAddress) -> AntiphonError:
    return Unavailable(
        f"Page has more than {MAX_BYTES // 1024**2} MiB: {_shown(address)}. Look for a shorter one.",
        code="page_too_large",
    )


def _advice(status: int) -> str:
    match status:
        case 401 | 403 | 407:
            return "It wants a sign-in or refuses programs; do without this page."
        case 404 | 410:
            return "There is no such page; check the address."
        case 429:
            return "It wants fewer requests; try again later."
        case _ if status >= 500:
            return "Try again later."
        case _:
            return "Do without this page."


def _plain_site(address: PageAddress) -> str:
    return address.site.removeprefix("www.")


def _named(error: Exception) -> str:
    """What went wrong, without words of the server."""
    words = str(error).lower()
    return "its certificate is not accepted" if "certificate" in words else type(error).__name__


def _shown(address: PageAddress) -> str:
    """The place without its query, which may hold a secret."""
    return repr(f"{address.scheme}://{address.authority}{address.target.partition('?')[0]}"[:200])
