"""The page's static files, and the headers that isolate it. Contract: gateway 5."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from antiphon.gateway.asgi import Receive, Scope, Send

DIRECTORY = Path(__file__).parent / "static"
POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LONGEST_PATH = 200
ONE_YEAR = "public, max-age=31536000, immutable"


PREFIX = "/static"


class Assets(StaticFiles):
    """Files under `/static`. A file requested by its present version may be cached forever."""

    def __init__(self) -> None:
        super().__init__(directory=DIRECTORY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__({**scope, "root_path": PREFIX}, receive, send)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Finds nothing for a path longer than any of ours: the file system would check each of its parts."""
        return ("", None) if len(path) > LONGEST_PATH else super().lookup_path(path)

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        name = os.path.relpath(full_path, DIRECTORY)
        is_versioned = scope.get("query_string", b"") == f"v={_version(name)}".encode()
        response.headers.update({**HEADERS, "Cache-Control": ONE_YEAR if is_versioned else "no-cache"})
        return response


def asset(name: str) -> str:
    """The address of a static file in its present version."""
    return f"{PREFIX}/{name}?v={_version(name)}"


@lru_cache
def _version(name: str) -> str:
    return hashlib.sha256((DIRECTORY / name).read_bytes()).hexdigest()[:12]
