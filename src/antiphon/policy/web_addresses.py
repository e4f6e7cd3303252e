"""Which web addresses may be reached: public ones, and private ones that the settings name. Contract: flow 7."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from msgspec import Struct

from antiphon.domain.page_address import IpAddress, PageAddress
from antiphon.policy.decision import Deny
from antiphon.policy.patterns import matches_any

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # services of a cloud for its own machines, under a public address
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
"""Of IANA's registry of special-purpose addresses."""
_PUBLIC_6 = IPv6Network("2000::/3")
"""All that is assigned to the world. So forms with an IPv4 address inside, ::ffff:0:0/96 and 64:ff9b::/96, are not."""
_NOT_PUBLIC_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
"""Protocols, Teredo among them; documentation; 6to4, which holds an IPv4 address."""
_PRIVATE = (
    *map(IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")),
    IPv6Network("fc00::/7"),
)
"""What settings can allow: never this machine, links, or the addresses of a cloud's own services among them."""
_HOME_NAMES = ("localhost", "local", "internal", "lan", "home.arpa", "intranet", "corp", "private", "home")
"""Last labels of names that no public server has."""


def is_public(address: IpAddress) -> bool:
    """Whether the address is one of the world's, and none that means this machine, its network or its cloud."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_private(address: IpAddress) -> bool:
    """Whether settings can allow the address."""
    return any(address in network for network in _PRIVATE if network.version == address.version)


class WebRules(Struct, frozen=True, kw_only=True):
    """What the settings say of pages that tools read."""

    ports: tuple[int, ...] = ()
    """Besides 80 and 443."""
    hosts: tuple[str, ...] = ()
    """Patterns of the only hosts; all if empty."""
    private: tuple[str, ...] = ()
    """Names, addresses and networks that may be private."""
    own: tuple[str, ...] = ()
    """Names and addresses of this gateway, which are never reached."""
    is_open: bool = False
    """Whether every address may be reached: an owner has written the only one that is."""

    def refusal_of(self, address: PageAddress) -> Deny | None:
        """Why the address is not asked for at all, whatever its name leads to."""
        if self.is_open:
            return None
        if address.port not in (80, 443, *self.ports):
            return _deny(f"Port may not be reached: {address.port}", "An owner can add it to tools.fetch_page.ports.")
        if self.hosts and not matches_any(address.host, self.hosts):
            return _deny(f"Host may not be reached: {address.host!r}", "tools.fetch_page.hosts names those that may.")
        if address.host in self.own:
            return _deny(f"Host is this gateway itself: {address.host!r}", "Use the tools for its sessions instead.")
        ip = address.ip
        if ip is not None:
            return None if self.admits(address.host, ip) else refusal_of_answer(address.host, ip)
        if self._is_named(address.host):
            return None
        is_home = any(address.host == name or address.host.endswith(f".{name}") for name in _HOME_NAMES)
        if is_home or "." not in address.host:
            return _deny(f"Host is not a public one: {address.host!r}", _PRIVATE_REMEDY)
        return None

    def admits(self, host: str, answer: IpAddress) -> bool:
        """Whether a connection may go to the address, to which the host leads."""
        if self.is_open:
            return True
        if str(answer) in self.own:
            return False
        if is_public(answer):
            return True
        return is_private(answer) and (self._is_named(host) or self._is_listed(answer))

    def _is_named(self, host: str) -> bool:
        return host in self.private

    def _is_listed(self, answer: IpAddress) -> bool:
        return any(network.version == answer.version and answer in network for network in networks_in(self.private))


_PRIVATE_REMEDY = "An owner can name it in tools.fetch_page.private, if it belongs to the house."


def refusal_of_answer(host: str, answer: IpAddress) -> Deny:
    """The refusal of a host that leads to an address which is not public; it does not tell which one."""
    if isinstance(answer, IPv6Address) and (answer.ipv4_mapped or answer.sixtofour or answer.teredo):
        return _deny(f"Host is an IPv4 address in another form: {host!r}", "Write the IPv4 address.")
    is_hopeless = str(answer) == host and not is_private(answer)
    remedy = "Such addresses are never reached; do without this page." if is_hopeless else _PRIVATE_REMEDY
    return _deny(f"Host is not a public one: {host!r}", remedy)


def refusal_of_own(host: str) -> Deny:
    return _deny(f"Host is this machine itself: {host!r}", "Pages of this machine are not fetched.")


def networks_in(names: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    """Those of the names that are addresses or networks."""
    found: list[IPv4Network | IPv6Network] = []
    for name in names:
        try:
            found.append(ip_network(name))
        except ValueError:
            continue
    return found


def _deny(problem: str, remedy: str) -> Deny:
    return Deny("page_refused", f"{problem}. Nothing was sent. {remedy}")
