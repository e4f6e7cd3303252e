"""How web pages are reached: a name is looked up once, and connected to as it was checked. Contract: flow 7."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from anyio import getaddrinfo
from msgspec import Struct

from antiphon.certificates import known_certificates
from antiphon.domain.errors import Denied, Unavailable
from antiphon.domain.page_address import IpAddress
from antiphon.policy.web_addresses import WebRules, refusal_of_answer, refusal_of_own

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

MAX_TRIED = 3
"""Addresses of a name that are tried one after the other."""
CONNECT_SECONDS = 6.0


async def look_up(host: str) -> list[IpAddress]:
    """All addresses of the name, in the system's order; none if it has none."""
    try:
        found = await getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    # A scope is no part of an address that could be public.
    return list(dict.fromkeys(ip_address(str(place[0]).partition("%")[0]) for *_, place in found))


def is_this_machine(address: IpAddress) -> bool:
    """Whether the system reaches the address without leaving the machine. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(str(probe.getsockname()[0]).partition("%")[0]) == address
    except (OSError, ValueError):
        return False  # there is no way to it, or no such family of addresses


class Unsent(Denied):
    """The address may not be reached, so nothing was sent to it."""


class Unanswered(Unavailable):
    """No word came back from the host."""


class Network(Struct, frozen=True):
    """The world outside. Tests have one of their own."""

    look_up: Callable[[str], Awaitable[Sequence[IpAddress]]] = look_up
    admits: Callable[[WebRules, str, IpAddress], bool] = WebRules.admits
    is_this_machine: Callable[[IpAddress], bool] = is_this_machine
    certificates: Callable[[], ssl.SSLContext] = known_certificates


async def find_answers(network: Network, rules: WebRules, host: str, ip: IpAddress | None) -> Sequence[IpAddress]:
    """The addresses of the host, of which a connection may go to each. Raises `Unsent` if one may not be reached."""
    answers = [ip] if ip is not None else await network.look_up(host)
    own = () if rules.is_open else await _addresses_of(network, rules.own)
    for answer in answers:
        if not network.admits(rules, host, answer):
            denied = refusal_of_answer(host, answer)
            raise Unsent(denied.reason, code=denied.rule)
        if not rules.is_open and (answer in own or network.is_this_machine(answer)):
            denied = refusal_of_own(host)
            raise Unsent(denied.reason, code=denied.rule)
    return answers


async def _addresses_of(network: Network, hosts: Sequence[str]) -> set[IpAddress]:
    found = set[IpAddress]()
    for host in hosts:
        ip = _ip(host)
        found |= {ip} if ip is not None else set(await network.look_up(host))
    return found


def checked_network(network: Network, rules: WebRules) -> "AsyncNetworkBackend":
    """Connects to names as `find_answers` found them, never by a second look-up."""
    from httpcore2 import AnyIOBackend, AsyncNetworkBackend, ConnectError, ConnectTimeout

    class CheckedNetwork(AsyncNetworkBackend):
        async def connect_tcp(  # noqa: PLR0917 (the names and the order are httpcore2's)
            self,
            host: str,
            port: int,
            timeout: float | None = None,
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> "AsyncNetworkStream":
            answers = await find_answers(network, rules, host, _ip(host))
            if not answers:
                raise _unreachable(host, "its name has no address")
            for answer in answers[:MAX_TRIED]:
                try:
                    stream = await AnyIOBackend().connect_tcp(str(answer), port, timeout=CONNECT_SECONDS)
                except (ConnectError, ConnectTimeout):
                    continue
                peer = stream.get_extra_info("server_addr")
                if peer is None or ip_address(str(peer[0]).partition("%")[0]) != answer:
                    await stream.aclose()
                    continue
                return stream
            raise _unreachable(host, "no connection could be made")

        async def sleep(self, seconds: float) -> None:
            raise AssertionError("no connection is tried again")

    return CheckedNetwork()


def _ip(host: str) -> IpAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _unreachable(host: str, problem: str) -> Unanswered:
    return Unanswered(f"Host cannot be reached: {host!r}; {problem}. Check the address.", code="page_unreachable")
