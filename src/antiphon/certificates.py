"""Certificates of the servers that this process talks to. Loading them takes tens of milliseconds."""

import ssl
from functools import cache


@cache
def known_certificates() -> ssl.SSLContext:
    """What clients of providers and MCP servers trust; `SSL_CERT_FILE` and `SSL_CERT_DIR` count when first asked."""
    import httpx2

    return httpx2.create_ssl_context()
