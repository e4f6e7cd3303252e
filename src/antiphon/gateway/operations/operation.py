"""An operation: its name, types, rights, target, handler, and its form over HTTP. Contract: access 5."""

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType, UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import anyio
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from antiphon.domain.actor import Principal
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.engine.access.credentials import Watch
from antiphon.engine.access.reach import TokenHolder
from antiphon.engine.access.signin import Browser
from antiphon.engine.services import Services
from antiphon.gateway.asgi import Scope
from antiphon.gateway.bodies import SMALL_BYTES
from antiphon.gateway.context import Gateway


class Params(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All arguments of an operation, in one flat object. Unknown names are refused. Contract: answers 3."""


class NoParams(Params, frozen=True, kw_only=True):
    """No parameters."""


class TargetKind(StrEnum):
    """What an operation is about; the caller must be able to see it."""

    NONE = "none"
    SESSION = "session"
    RUN = "run"
    DELIVERY = "delivery"
    APPROVAL = "approval"
    STANDING_APPROVAL = "standing_approval"
    TRUSTED_CONTENT = "trusted_content"
    TOKEN = "token"
    PERSON = "person"
    PAIRING = "pairing"
    GROUP = "group"
    NOTE = "note"
    TASK = "task"
    TOOLS = "tools"
    SKILL = "skill"
    RULE = "rule"
    AGENT = "agent"


class Header(Struct, frozen=True):
    """An HTTP header that sets a parameter."""

    name: str
    read: Callable[[str], object] = str
    """Returns None if the header sets nothing."""
    is_described: bool = True
    """Whether the OpenAPI description lists it."""


class Http(Struct, frozen=True):
    """The HTTP form of an operation. Parameters that are nowhere else are in the body."""

    address: str
    """Method and path, `GET /sessions/{key}`; parameters that are segments of the path are written in braces."""
    query: tuple[str, ...] = ()
    """Parameters in the query. Methods without a body have all their parameters there, except those in the path."""
    headers: Mapping[str, Header] = field(default_factory=dict[str, Header])
    when: str | None = None
    """The name in the query that selects this operation among others at this place: a parameter of it, or a flag."""
    statuses: Mapping[int, str] = field(default_factory=lambda: {200: "Answered."})
    media_type: str = "application/json"
    """The type of the answer; streams have their own."""
    max_body_bytes: int = SMALL_BYTES
    is_streamed: bool = False
    """Whether it answers also, or only, with a stream of events."""
    reads_body: bool = False
    """Whether the handler reads the raw body itself."""
    is_lenient: bool = False
    """Whether unknown names in the query are ignored."""
    serves_nodes: bool = False
    """Whether it answers the token of a node."""
    serves_this_machine: bool = False
    """Whether programs of this machine need no credential, unless the gateway can be reached from elsewhere."""
    is_only: bool = False
    """Whether there is no other form: it is about HTTP itself (cookies, signed bodies), or its answer is a stream."""

    @property
    def method(self) -> str:
        return self.address.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.address.partition(" ")[2]

    @property
    def status(self) -> int:
        """The status of an answer that sets no other."""
        return next(iter(self.statuses))


class SocketWaits:
    """The waits of the requests of one socket. All are cancelled once it is lost, also those that begin afterwards."""

    def __init__(self) -> None:
        self._waits: set[anyio.CancelScope] = set()
        self._is_lost = False

    def begin(self, wait: anyio.CancelScope) -> None:
        self._waits.add(wait)
        if self._is_lost:
            wait.cancel()

    def end(self, wait: anyio.CancelScope) -> None:
        self._waits.discard(wait)

    def cancel(self) -> None:
        """The socket is lost."""
        self._is_lost = True
        for wait in tuple(self._waits):
            wait.cancel()


class OperationRequest(Struct, frozen=True, kw_only=True):
    """One request for an operation, over HTTP or a socket, with its caller."""

    gateway: Gateway
    who: Principal | None
    """None for open operations, which do not look up the caller."""
    scopes: frozenset[TokenScope] = ALL_SCOPES
    """Those of the caller's credential."""
    holder: TokenHolder | None = None
    """The caller, if their token is bound to a session."""
    asgi: Scope = field(default_factory=dict[str, Any])
    """The scope of the request, or of the socket on which it came, with what the guard found out about the caller."""
    http: Request | None = None
    """None for a request that came over a socket."""
    waits: "SocketWaits | None" = None
    """For requests over a socket: the waits under way, which end when the socket is lost."""
    rights_changed: int | None = None
    """How often rights had changed when the request came."""

    @property
    def services(self) -> Services:
        return self.gateway.services

    @property
    def principal(self) -> Principal:
        """The caller. Not for open operations."""
        assert self.who is not None
        return self.who

    @property
    def on_http(self) -> Request:
        """For operations on HTTP itself: cookies and signatures."""
        assert self.http is not None
        return self.http

    @property
    def node(self) -> str | None:
        """The key of the only session to which the caller may post, if their token is a node's."""
        return self.asgi.get("antiphon.node")

    @property
    def browser(self) -> Browser | None:
        """The browser that asks; None for a program."""
        return self.asgi.get("antiphon.browser")

    def target(self, name: str) -> NamedTarget:
        """The session that the caller names. Raises `Invalid`."""
        return self.services.sessions.target(name)

    def outlive_credential(self) -> None:
        """Lets the request finish although it ends its own credential."""
        watch: Watch | None = self.asgi.get("antiphon.watch")
        if watch is not None:
            self.services.credentials.release(watch)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Within it, the request only waits: it is cancelled if the socket on which it came is lost."""
        if self.waits is None:
            yield
            return
        with anyio.CancelScope() as wait:
            self.waits.begin(wait)
            try:
                yield
            finally:
                self.waits.end(wait)


P = TypeVar("P", bound=Params)
A = TypeVar("A")


class HttpReply(Struct, Generic[A], frozen=True):
    """An answer with a status other than its operation's first, or with HTTP headers."""

    answer: A
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answered: TypeAlias = A | HttpReply[A] | Response


class Operation(Struct, Generic[P, A], frozen=True, kw_only=True):
    """An entry of the table."""

    name: str
    """`<plural>.<verb>`."""
    params: type[P]
    answer: type[A]
    scope: TokenScope | None
    """None for an open operation, which answers every caller without looking them up."""
    target: TargetKind
    http: Http
    serves_bound: bool
    """Whether it answers a token that is bound to a session."""
    handle: Callable[[OperationRequest, P], Awaitable[Answered[A]]]
    description: str

    @property
    def noun(self) -> str:
        return self.name.partition(".")[0]


AnyOperation: TypeAlias = Operation[Any, Any]


_DECLARED: list[AnyOperation] = []
"""Those of the modules that were imported so far."""


def declared_in(package: ModuleType) -> list[AnyOperation]:
    """Those of every module of the package, by place; the usual one there is before those with a name in the query."""
    names = [each.name for each in iter_modules(package.__path__, f"{package.__name__}.")]
    for name in names:
        import_module(name)
    found = [each for each in _DECLARED if each.handle.__module__ in names]
    return sorted(found, key=lambda each: (each.http.path, each.http.method, each.http.when or ""))


def operation(
    name: str,
    http: Http | str,
    *,
    scope: TokenScope | None,
    target: TargetKind = TargetKind.NONE,
    serves_bound: bool = False,
) -> Callable[[Callable[[OperationRequest, P], Awaitable[Answered[A]]]], Operation[P, A]]:
    """Declares an operation on its handler, whose hints are its types and whose docstring is its description.

    A text for `http` is the address alone. Raises `TypeError` for a handler that lacks a hint.
    """

    def declared(handle: Callable[[OperationRequest, P], Awaitable[Answered[A]]]) -> Operation[P, A]:
        params, answer = types_of(name, handle)
        made = Operation[P, A](
            name=name,
            params=params,
            answer=answer,
            scope=scope,
            target=target,
            http=Http(http) if isinstance(http, str) else http,
            serves_bound=serves_bound,
            handle=handle,
            description=inspect.getdoc(handle) or "",
        )
        _DECLARED.append(made)
        return made

    return declared


def types_of(name: str, handle: Callable[..., object]) -> tuple[type[Any], type[Any]]:
    """The parameters and the answer. What only HTTP has, `HttpReply` and responses, counts where nothing else is."""
    hints = get_type_hints(handle)
    _, params = inspect.signature(handle).parameters
    if missing := [hint for hint in (params, "return") if hint not in hints]:
        raise TypeError(f"Operation lacks a hint: {name!r}, for {missing[0]!r}")
    returned: Any = hints["return"]
    choices: Sequence[Any] = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
    choices = [get_args(each)[0] if get_origin(each) is HttpReply else each for each in choices]
    answers: set[Any] = {each for each in choices if not (isinstance(each, type) and issubclass(each, Response))} or {
        Response
    }
    if len(answers) > 1:
        raise TypeError(f"Operation has several answers: {name!r}")
    return hints[params], answers.pop()
