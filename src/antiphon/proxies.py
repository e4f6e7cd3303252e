"""Proxies of the environment (`HTTP_PROXY` and the like): which addresses they serve, and their names in errors."""

from ipaddress import ip_address
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
    return not is_loopback(urlsplit(url).hostname or "")


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
