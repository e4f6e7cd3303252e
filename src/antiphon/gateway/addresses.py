"""Finds the endpoint of each request by path and method."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field, structs

from antiphon.gateway.asgi import AsgiApp
from antiphon.gateway.bodies import SMALL_BYTES
from antiphon.gateway.head_only import HeadOnly


class RouteEndpoint(Struct, frozen=True, kw_only=True):
    """Answers one method at an address; its fields tell the guard what to let through."""

    answer: AsgiApp
    max_body_bytes: int = SMALL_BYTES
    is_open: bool = False
    """Whether it answers requests without a credential."""
    serves_bound: bool = False
    """Whether it answers a token that is bound to a session."""
    serves_nodes: bool = False
    """Whether it answers the token of a node."""
    serves_this_machine: bool = False
    """Whether programs of this machine need no credential, unless the gateway can be reached from elsewhere."""


class Route(Struct, frozen=True):
    """A path with its endpoints."""

    path: str
    endpoints: dict[str, RouteEndpoint] = field(default_factory=dict[str, RouteEndpoint])
    """By method."""

    @property
    def is_open(self) -> bool:
        return any(endpoint.is_open for endpoint in self.endpoints.values())

    @property
    def allowed(self) -> str:
        return ", ".join(sorted({*self.endpoints, *(("HEAD",) if "GET" in self.endpoints else ())}))

    def endpoint(self, method: str) -> RouteEndpoint | None:
        """Answers the method; `HEAD` wherever `GET` is answered, as reading changes nothing."""
        found = self.endpoints.get(method)
        if found is None and method == "HEAD" and (read := self.endpoints.get("GET")) is not None:
            return structs.replace(read, answer=HeadOnly(read.answer))
        return found


class Match(NamedTuple):
    """An address, and the parameters found in the path."""

    address: Route
    parameters: Mapping[str, str]


_NO_PARAMETERS: Mapping[str, str] = {}


class Addresses:
    """Addresses. `{name}` stands for one segment of a path, `*` at the end for any rest."""

    def __init__(self) -> None:
        self._by_path: dict[str, Route] = {}
        self._plain: dict[str, Match] = {}
        self._by_shape: dict[tuple[int, str], list[tuple[tuple[str, ...], Route]]] = {}
        """Addresses with parameters, by the number of segments and the first segment."""
        self._by_prefix: list[tuple[str, Match]] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._by_path.values())

    def add(self, method: str, path: str, endpoint: RouteEndpoint) -> None:
        """The address must not have this method yet."""
        address = self._by_path.get(path) or self._begin(path)
        if method in address.endpoints:
            raise ValueError(f"Address is listed twice: {method} {path}")
        address.endpoints[method] = endpoint

    def _begin(self, path: str) -> Route:
        address = self._by_path[path] = Route(path)
        if path.endswith("*"):
            self._by_prefix.append((path[:-1], Match(address, _NO_PARAMETERS)))
        elif "{" in path:
            segments = tuple(path.split("/"))
            self._by_shape.setdefault((len(segments), segments[1]), []).append((segments, address))
        else:
            self._plain[path] = Match(address, _NO_PARAMETERS)
        return address

    def find(self, path: str) -> Match | None:
        if (plain := self._plain.get(path)) is not None:
            return plain
        segments = path.split("/")
        for pattern, address in self._by_shape.get((len(segments), segments[1] if len(segments) > 1 else ""), ()):
            parameters: dict[str, str] = {}
            for wanted, given in zip(pattern, segments, strict=True):
                if wanted.startswith("{"):
                    if not given:
                        break
                    parameters[wanted[1:-1]] = given
                elif wanted != given:
                    break
            else:
                return Match(address, parameters)
        return next((found for prefix, found in self._by_prefix if path.startswith(prefix)), None)
