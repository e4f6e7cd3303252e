"""Whether a request comes from a program of this machine, and not through a proxy or from a page."""

from collections.abc import Mapping

from antiphon.gateway.asgi import Scope
from antiphon.proxies import is_loopback

_OF_PROXIES = (
    *("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "x-cluster-client-ip", "fastly-client-ip"),
    *("x-original-host", "x-original-forwarded-for", "x-envoy-external-address", "cdn-loop"),
)
_STARTS_OF_PROXIES = ("x-forwarded-", "cf-")
_OF_CALLERS = ("authorization", "cookie", "origin", "sec-fetch-site")
"""A request with a credential is judged by it, and a page is not a program of this machine."""


def host_name(host: str) -> str:
    """The name or address in a `Host` header, without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def comes_from_this_machine(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether the request was sent here, to this machine's own name, without a credential and without a proxy.

    Every doubt says no: a proxy that adds no header of its own still shows itself by the public name in `Host`.
    """
    client = scope.get("client")
    if client is None or not is_loopback(str(client[0])):
        return False
    if scope["http_version"] == "1.0":  # what proxies speak unless they are told otherwise
        return False
    if not is_loopback(host_name(headers.get("host", ""))):
        return False
    return not any(
        name in _OF_PROXIES or name in _OF_CALLERS or name.startswith(_STARTS_OF_PROXIES) for name in headers
    )
