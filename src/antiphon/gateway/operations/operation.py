"""What an operation is: its name, types, rights, target, handler, and its form over HTTP. Contract: access 5."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from antiphon.domain.actor import Principal
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.credentials import Watch
from antiphon.engine.access.signin import Browser
from antiphon.engine.services import Services
from antiphon.gateway.bodies import SMALL_BYTES
from antiphon.gateway.context import Gateway


class Params(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All that a caller says, in one flat object. Unknown names are refused. Contract: answers 3."""


class NoParams(Params, frozen=True, kw_only=True):
    """Nothing to say."""


class TokenScope(StrEnum):
    """What a token must allow. Contract: access 2."""

    READ = "sessions.read"
    WRITE = "sessions.write"
    APPROVALS = "approvals"
    ADMIN = "admin"


class TargetKind(StrEnum):
    """What an operation is about, which the caller must be able to see."""

    NONE = "none"
    SESSION = "session"
    RUN = "run"
    DELIVERY = "delivery"
    TOKEN = "token"


class AnswerKind(StrEnum):
    """How an operation answers."""

    ANSWER = "answer"
    WAIT = "wait"
    """At once, or when something that was waited for has happened."""
    STREAM = "stream"
    """Also, or only, as a stream of events."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header of HTTP that says what a parameter says."""

    name: str
    read: Callable[[str], object] = str
    """Gives None where it says nothing."""
    is_described: bool = True
    """Whether the description names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """How an operation is asked for over HTTP. Parameters that are nowhere else come in the body."""

    method: str
    path: str
    """With the parameters that are segments of it, as `{key}`."""
    query: tuple[str, ...] = ()
    """Parameters that come in the query. All but the path's, for methods without a body."""
    headers: Mapping[str, Header] = field(default_factory=dict[str, Header])
    when: str | None = None
    """The query's name which tells the operation from another at this place: a parameter of it, or a truth value."""
    statuses: Mapping[int, str] = field(default_factory=lambda: {200: "Answered."})
    media_type: str = "application/json"
    """Of what is answered; streams have their own."""
    max_body_bytes: int = SMALL_BYTES
    reads_body: bool = False
    """Whether the handler reads the body itself, byte for byte."""
    is_lenient: bool = False
    """Whether names in the query that are not known are passed over."""

    @property
    def status(self) -> int:
        """Of an answer that says no other."""
        return next(iter(self.statuses))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for an operation: who asks, and of what."""

    gateway: Gateway
    who: Principal | None
    """None for nobody in particular, whom open operations answer."""
    bound_session: str | None = None
    """The key of the session that the caller's token is bound to."""
    http: Request | None = None

    @property
    def services(self) -> Services:
        return self.gateway.services

    @property
    def principal(self) -> Principal:
        """Who asks. Not for open operations."""
        assert self.who is not None
        return self.who

    @property
    def request(self) -> Request:
        """For operations that are about HTTP itself: its cookies, its signatures."""
        assert self.http is not None
        return self.http

    @property
    def browser(self) -> Browser | None:
        """The browser that asks; None for a program."""
        return None if self.http is None else self.http.scope.get("antiphon.browser")

    def target(self, name: str) -> NamedTarget:
        """The session that a person or program names. Raises `Invalid`."""
        return self.services.sessions.target(name)

    def outlive_credential(self) -> None:
        """Lets the request be answered though it ends what it was let in by."""
        watch: Watch | None = None if self.http is None else self.http.scope.get("antiphon.watch")
        if watch is not None:
            self.services.credentials.release(watch)


P = TypeVar("P", bound=Params)
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class HttpReply(Generic[A]):
    """An answer with another status than the first of its operation's, or with headers of HTTP."""

    answer: A
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answered: TypeAlias = A | HttpReply[A] | Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, A]):
    """One entry of the table."""

    name: str
    """`<plural>.<verb>`."""
    params: type[P]
    answer: type[A]
    scope: TokenScope | None
    """None for an open operation, which answers everybody."""
    target: TargetKind
    kind: AnswerKind
    http: Http
    serves_bound: bool
    """Whether it answers a token that is bound to a session."""
    handle: Callable[[Ask, P], Awaitable[Answered[A]]]
    description: str

    @property
    def noun(self) -> str:
        return self.name.partition(".")[0]


AnyOperation: TypeAlias = Operation[Any, Any]


def operation(
    name: str,
    params: type[P],
    answer: type[A],
    http: Http,
    *,
    scope: TokenScope | None,
    target: TargetKind = TargetKind.NONE,
    kind: AnswerKind = AnswerKind.ANSWER,
    serves_bound: bool = False,
) -> Callable[[Callable[[Ask, P], Awaitable[Answered[A]]]], Operation[P, A]]:
    """Makes an entry of its handler, whose docstring describes it."""

    def entry(handle: Callable[[Ask, P], Awaitable[Answered[A]]]) -> Operation[P, A]:
        return Operation(
            name=name,
            params=params,
            answer=answer,
            scope=scope,
            target=target,
            kind=kind,
            http=http,
            serves_bound=serves_bound,
            handle=handle,
            description=inspect.getdoc(handle) or "",
        )

    return entry
