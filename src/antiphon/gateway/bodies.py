"""Bodies of requests: how large each route's may be, and reading them into types. Contract: gateway 5, answers 3."""

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request

from antiphon.domain.errors import TooLarge
from antiphon.incoming import decode

SMALL_BYTES = 64 * 1024
"""Where nothing large has to come in."""
WEBHOOK_BYTES = 1024 * 1024
LARGE_BYTES = 8 * 1024 * 1024
"""Where messages enter; `gateway.max_body_bytes` may lower or raise it."""

BODY_LIMITS: Mapping[tuple[str, str], int] = {
    ("POST", "/sessions/{key}/messages"): LARGE_BYTES,
    ("POST", "/tools/{name}"): LARGE_BYTES,
    ("POST", "/mcp"): LARGE_BYTES,
    ("POST", "/channels/webhook/{name}"): WEBHOOK_BYTES,
}
"""By method and route. Every other route takes `SMALL_BYTES`."""

_PATTERNS = tuple(
    (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", route)), limit) for (method, route), limit in BODY_LIMITS.items()
)

S = TypeVar("S", bound=msgspec.Struct)


class Incoming(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body from outside. Unknown names are refused. Contract: answers 3."""


class BodyOf(Generic[S]):
    """A dependency of a route: its body as that type. Raises `NotJson`, `Misfit`."""

    def __init__(self, kind: type[S]) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    async def __call__(self, request: Request) -> S:
        return decode(await request.body(), self._decoder)

    def described(self) -> dict[str, Any]:
        """What the route's description says of its body; goes with `schemas_of`."""
        schema = {"$ref": f"#/components/schemas/{self.kind.__name__}"}
        return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def schemas_of(*kinds: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schemas of the types and of all that they are made of, by name."""
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return schemas


def body_limit(method: str, path: str, most: int) -> int:
    """The most bytes that a body there may have; `most` is the setting for where messages enter."""
    for its_method, pattern, limit in _PATTERNS:
        if method == its_method and pattern.fullmatch(path):
            return most if limit == LARGE_BYTES else min(limit, most)
    return min(SMALL_BYTES, most)


def body_too_large(limit: int) -> TooLarge:
    return TooLarge(f"Body is larger than {limit} bytes, the most that is taken here.", code="body_too_large")
