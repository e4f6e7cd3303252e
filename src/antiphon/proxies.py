"""Proxies of the environment (`HTTP_PROXY` and the like): which addresses they serve, and their names in errors."""

from ipaddress import ip_address
from socket import inet_aton, inet_ntoa
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def is_loopback(host: str) -> bool:
    """Whether the host is this machine's own address, `localhost` included."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def uses_environment(url: str) -> bool:
    """Whether a client for the address may take proxies of the environment: never for this machine itself.

    Another machine would get what is meant for a server here, and look for that server on itself.
    """
    return not _means_this_machine((urlsplit(url).hostname or "").lower().rstrip("."))


def _means_this_machine(host: str) -> bool:
    """Whether connecting to the host reaches this machine, in any way of writing that systems take."""
    if is_loopback(host) or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(inet_ntoa(inet_aton(host)) if ":" not in host else host.partition("%")[0])
    except (OSError, ValueError):
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def proxy_for(url: str) -> str | None:
    """The proxy between here and the address, as errors name it, without its credentials; None for a direct way."""
    parts = urlsplit(url)
    if not uses_environment(url) or proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    given = proxies.get(parts.scheme) or proxies.get("all")
    if not given:
        return None
    return (given.partition("://")[2] or given).rpartition("@")[2].strip("/")
