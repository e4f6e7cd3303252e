"""The address of a web page, read strictly: one spelling of a host, no credentials. Contract: flow 7."""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin

from antiphon.domain.errors import Invalid
from antiphon.domain.invisible import is_invisible
from antiphon.domain.text import one_line

MAX_LENGTH: Final = 2_000
PORTS: Final = {"http": 80, "https": 443}
"""The port of each scheme, where an address names none."""
IpAddress = IPv4Address | IPv6Address
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::([0-9]{1,5}))?", re.ASCII)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_FOUR_NUMBERS: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})", re.ASCII)
_TARGET: Final = "/?:@!$&'()*+,;=%-._~[]|"
"""What stands in paths and queries as it is; anything else is percent-encoded."""


class PageAddress(NamedTuple):
    scheme: str
    host: str
    """In lower case and ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, percent-encoded."""

    @property
    def ip(self) -> IpAddress | None:
        """None for a name."""
        if ":" in self.host:
            return IPv6Address(self.host)
        return IPv4Address(self.host) if _FOUR_NUMBERS.fullmatch(self.host) else None

    @property
    def site(self) -> str:
        """The host, with its port unless that is the usual one of a scheme: what an owner allows always."""
        host = self._bracketed
        return host if self.port in PORTS.values() else f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """As the header `Host` has it."""
        return self._bracketed if self.port == PORTS[self.scheme] else f"{self._bracketed}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def joined(self, location: str) -> "PageAddress":
        """Where a redirect leads. Raises `Invalid`."""
        try:
            return parse_page_address(urljoin(self.url, location.strip(" \t\r\n")))
        except ValueError as error:
            raise _misfit(location, "is not readable") from error


def parse_page_address(text: str) -> PageAddress:
    """Raises `Invalid` for anything but a plain address of http or https."""
    if len(text) > MAX_LENGTH:
        raise _misfit(text, f"has more than {MAX_LENGTH:,} characters")
    if any(character.isspace() or character == "\\" or is_invisible(character) for character in text):
        raise _misfit(text, "holds a blank, a backslash or a character that nobody sees; percent-encode it")
    parts = _PARTS.fullmatch(text)
    if parts is None or (scheme := parts[1].lower()) not in PORTS:
        raise _misfit(text, "does not begin with http:// or https://")
    if "@" in parts[2]:
        raise _misfit(text, "holds a user name or a password; leave it out")
    place = _PLACE.fullmatch(parts[2])
    if place is None or not place[1]:
        raise _misfit(text, "names no host, or an odd port")
    port = PORTS[scheme] if place[2] is None else int(place[2])
    if not 0 < port < 65_536:
        raise _misfit(text, "names a port that does not exist")
    target = quote(parts[3], safe=_TARGET)
    return PageAddress(scheme, _host(text, place[1]), port, target if target.startswith("/") else f"/{target}")


def _host(text: str, given: str) -> str:
    if given.startswith("["):
        try:
            return IPv6Address(given[1:-1]).compressed
        except ValueError:
            raise _misfit(text, "names an IPv6 address that is none") from None
    if "%" in given:
        raise _misfit(text, "has a percent sign in its host; write the host plainly")
    host = given.lower() if given.isascii() else _ascii(text, given)
    if host.endswith("."):
        raise _misfit(text, "has a dot behind its host; leave that dot out")
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _misfit(text, "names a host that is none")
    if _NUMBER.fullmatch(labels[-1]) and not (given.isascii() and _is_plain_ip(host)):
        raise _misfit(text, "spells an IP address oddly; write four decimal numbers with dots between them")
    return host


def _is_plain_ip(host: str) -> bool:
    return _FOUR_NUMBERS.fullmatch(host) is not None and max(map(int, host.split("."))) < 256


def _ascii(text: str, host: str) -> str:
    """The name as the network knows it."""
    from idna import IDNAError, encode  # its tables take memory that most processes never need

    try:
        return encode(host, uts46=True, transitional=False).decode("ascii").lower()
    except (IDNAError, UnicodeError):
        raise _misfit(text, "names a host that no name can be made of") from None


def _misfit(text: str, problem: str) -> Invalid:
    shown = one_line(text, 80).split("@")[-1] if "@" in text else one_line(text, 80)
    return Invalid(f"Address {problem}: {shown!r}.")
