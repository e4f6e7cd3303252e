"""The forms of addresses in settings: web addresses, hosts."""

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)


def _web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError("needs an address that begins with http:// or https:// and names a host")
    return url


def _host(host: str) -> str:
    try:
        ip_address(host)
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None or len(host) > 253:
            raise ValueError(
                f"{host[:80]!r} is no host; write an address such as '127.0.0.1' or '::1', or a name, without http:// "
                "and without a port"
            ) from None
    return host


def host_in_header(host: str) -> str:
    """The host as browsers write it in the header `Host`."""
    return f"[{host}]" if ":" in host else host.lower()


def _header_host(host: str) -> str:
    is_bracketed = host.startswith("[") and host.endswith("]") and ":" in host
    return host_in_header(_host(host[1:-1] if is_bracketed else host))


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""An address of HTTP that names its host."""
Host = Annotated[str, AfterValidator(_host)]
"""An IP address or a name."""
HeaderHost = Annotated[str, AfterValidator(_header_host)]
"""The same, in the form that it has in the header `Host`."""
