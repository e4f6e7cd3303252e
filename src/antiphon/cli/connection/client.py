"""What commands ask of a gateway over HTTP."""

import hmac
import json
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from socket import socket
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx
from msgspec import Struct, field

from antiphon.cli.exits import TimedOut
from antiphon.cli.streams import not_unicode
from antiphon.domain.errors import AntiphonError, Conflict, Denied, Invalid, NotFound, Unavailable
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.owner_token import identity_proof, token_hash

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
VERIFY_SECONDS = 3600.0
QUIET_SECONDS = 45.0
"""A stream that has not even sent a keep-alive for so long is dead."""
MAX_WAIT_SECONDS = 300.0
"""Of one request that waits; longer waits are several."""
RETRY_SECONDS = 0.5
ENDED = ("gateway_unreachable", "draining", "stopped")
"""Codes of a gateway that has ended or is about to."""
GIVE_UP_SECONDS = 30.0
CONNECTED = "connection.connect_tcp.complete"
"""What httpx traces when a new connection is open and nothing was sent on it."""
PROOF_SECONDS = 20.0
ENDING_SECONDS = 10.0
"""For a gateway that is about to end."""
ENDING_PAUSE_SECONDS = 0.1
MAX_PROOF_BYTES = 4096

Item = TypeVar("Item")
Parameter: TypeAlias = str | float | bool | list[str] | None
"""Of a query; None leaves it out."""

_ERRORS: dict[int, type[AntiphonError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Unavailable,
    503: Unavailable,
}


class _Request(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    body: JsonObject | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    """How long the answer may take, in addition to the usual time."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it has the same effect if it is sent twice."""
        is_named = "Idempotency-Key" in self.headers or "messageId" in (self.body or {})
        return self.method == "GET" or is_named or self.path == "/sessions" or self.path.endswith("/cancel")


class ServerEvent(Struct, frozen=True, kw_only=True):
    """One event of a stream. `keep_alive` ones have no data."""

    name: str
    data: JsonObject
    id: int | None = None


class GatewayAddress(NamedTuple):
    """Where a gateway is, and our connections to it."""

    url: str
    token: str
    must_prove: bool
    """On each new connection the gateway proves that it is the home's, before the token is sent."""
    http: httpx.Client

    def watch_connections(self, event: str, information: object) -> None:
        """Before anything is sent on a new connection: another program may have taken the address meanwhile."""
        if event == CONNECTED and self.must_prove:
            stream: Any = cast(Mapping[str, object], information)["return_value"]
            try:
                check_identity(stream.get_extra_info("socket"), self.url, self.token)
            except BaseException:
                stream.close()
                raise


class Client:
    """Speaks to one gateway as the home's owner. Every method raises an `AntiphonError` for what goes wrong.

    `elsewhere` brings a client of another gateway of the home, where this one may end before what is asked of it.
    """

    def __init__(
        self,
        url: str,
        token: str,
        elsewhere: Callable[[], "Client"] | None = None,
        *,
        must_prove: bool = False,
        is_temporary: bool = False,
    ) -> None:
        """`is_temporary` says that the gateway ends with the command: nobody else can use its address."""
        self.is_temporary = is_temporary
        self._elsewhere = elsewhere
        self._moving = Lock()
        self._left: list[httpx.Client] = []
        http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
            # To load certificates takes as long as a short command; without TLS there is nothing to verify.
            verify=not url.startswith("http:"),
        )
        self.address = GatewayAddress(url, token, must_prove, http)

    @property
    def url(self) -> str:
        return self.address.url

    def prove(self) -> None:
        """Opens a connection, on which the gateway has to prove itself. Raises `Denied`, `Unavailable`."""
        self._ask_here(_Request(method="GET", path="/health"))

    def close(self) -> None:
        for http in (self.address.http, *self._left):
            http.close()

    def get(self, path: str, **parameters: Parameter) -> JsonObject:
        return self._ask(_Request(method="GET", path=path, parameters=parameters))

    def post(self, path: str, body: JsonObject | None = None, **parameters: Parameter) -> JsonObject:
        return self._ask(_Request(method="POST", path=path, parameters=parameters, body=body))

    def patch(self, path: str, body: JsonObject) -> JsonObject:
        return self._ask(_Request(method="PATCH", path=path, body=body))

    def post_message(self, key: str, body: JsonObject, **parameters: Parameter) -> JsonObject:
        """Posts it under an id of its own, so that it is stored once however often it has to be sent."""
        named = body if "messageId" in body else {**body, "messageId": new_message_id()}
        return self.post(session_path(key, "/messages"), named, **parameters)

    def delete(self, path: str, **parameters: Parameter) -> JsonObject:
        return self._ask(_Request(method="DELETE", path=path, parameters=parameters))

    def call_tool(
        self, name: str, session: str, arguments: JsonObject, *, idempotency_key: str | None, seconds: float
    ) -> JsonObject:
        """The tool's answer, failures too; `seconds` is how long the tool itself may take."""
        request = _Request(
            method="POST",
            path=f"/tools/{quote(name, safe='')}",
            body={"sessionKey": session, "arguments": arguments},
            headers={"Idempotency-Key": idempotency_key or f"cli-{secrets.token_hex(16)}"},
            seconds=seconds,
        )
        while True:
            url = self.url
            answer = self._ask(request)
            if answer.get("code") != "stopped" or not self.move(url):
                return answer

    def verify_audit(self, seals: Sequence[JsonObject]) -> JsonObject:
        """What a check of every stored row found; reads all of them."""
        body: JsonObject = {"seals": [*seals]}
        return self._ask(_Request(method="POST", path="/audit/verify", body=body, seconds=VERIFY_SECONDS))

    def find_run(self, run_id: str, wait: float | None = None) -> JsonObject:
        """The run; with `wait`, once it has ended, or as `timeout` without `endedAt`. Raises `NotFound`."""
        missing = NotFound(f"Run not found: {run_id!r}. `antiphon runs list` shows all runs.")
        if not run_id:
            raise missing
        try:
            return self.get(f"/runs/{quote(run_id, safe='')}", wait=wait)
        except NotFound as error:
            raise missing from error

    def reads_details(self) -> bool:
        """Whether the caller reads of providers and settings: an owner, who alone sees the outbox."""
        try:
            self.get("/deliveries", limit=1)
        except AntiphonError:
            return False
        return True

    def wait_run(self, run_id: str, seconds: float | None = None) -> JsonObject:
        """The run once it has ended. Raises `TimedOut`; the run goes on then."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = MAX_WAIT_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            run = self.find_run(run_id, min(left, MAX_WAIT_SECONDS))
            if run.get("status") != "timeout" or "endedAt" in run:
                return run
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(
                    f"Run has not ended within {seconds:g} s: {run_id!r}. It continues; "
                    f"`antiphon runs show {run_id} --wait 60` waits longer."
                )

    def wait_posted(
        self,
        run_id: str,
        seconds: float | None = None,
        *,
        stored: str = "The message is stored, and its run continues once the gateway is back",
    ) -> JsonObject:
        """The run of what was just asked, as `wait_run`; without a gateway the error tells what is stored, and what
        shows the end of the run.
        """
        try:
            return self.wait_run(run_id, seconds)
        except Unavailable as error:
            raise Unavailable(
                f"{error.message} {stored}: `antiphon runs show {run_id} --wait 600` shows what came of it.",
                code=error.code,
            ) from error

    @contextmanager
    def stream(
        self, method: str, path: str, body: JsonObject | None = None, **parameters: Parameter
    ) -> Generator[Iterator[ServerEvent]]:
        """The events of one answer, until it ends. Raises `Unavailable` where the connection breaks."""
        has_begun = False
        while not has_begun:
            url = self.url
            try:
                with self._open_stream(method, path, body, parameters) as response:
                    has_begun = True
                    yield _events(response.iter_raw())
            except httpx.TransportError as error:
                raise self._unreachable() from error
            except UnicodeEncodeError as error:
                raise not_unicode("Request", error) from error
            except Unavailable as error:
                if has_begun or not was_not_done(error) or not self.move(url):
                    raise

    @contextmanager
    def _open_stream(
        self, method: str, path: str, body: JsonObject | None, parameters: Mapping[str, Parameter]
    ) -> Generator[httpx.Response]:
        """Raises `Unavailable` with `was_not_done` where it is not even begun."""
        timeout = httpx.Timeout(QUIET_SECONDS, connect=CONNECT_SECONDS)
        address = self.address
        request = address.http.build_request(
            method,
            path,
            params=_present(parameters) or None,
            json=body,
            timeout=timeout,
            extensions={"trace": address.watch_connections},
        )
        try:
            response = address.http.send(request, stream=True)
        except httpx.ConnectError as error:
            raise self._unreachable() from error
        try:
            if response.is_error:
                response.read()
                raise error_of(response)
            yield response
        finally:
            response.close()

    def follow(
        self, path: str, *, after: int | None, tell: Callable[[str], None] = lambda text: None, **parameters: Parameter
    ) -> Iterator[ServerEvent]:
        """Events for ever; a broken stream is taken up again after the last event that had an id."""

        def read() -> Iterator[ServerEvent]:
            nonlocal after
            with self.stream("GET", path, None, after=after, **parameters) as events:
                for event in events:
                    if event.id is not None:
                        after = event.id
                    yield event

        return self._ever(read, tell, RETRY_SECONDS)

    def poll(
        self, path: str, *, pause_seconds: float, tell: Callable[[str], None], **parameters: Parameter
    ) -> Iterator[JsonObject]:
        """The answer, read again after each pause, without end."""
        return self._ever(lambda: [self.get(path, **parameters)], tell, pause_seconds)

    def _ever(
        self, read: Callable[[], Iterable[Item]], tell: Callable[[str], None], pause_seconds: float
    ) -> Iterator[Item]:
        """Reads again and again. Reports an outage to people; raises `Unavailable` if it lasts."""
        failing_since: float | None = None
        is_lost = False
        while True:
            url = self.url
            try:
                for item in read():
                    failing_since = None
                    if is_lost:
                        is_lost = False
                        tell("Connection to the gateway is back.")
                    yield item
            except Unavailable as error:
                if error.code in ENDED and self.move(url):
                    continue
                if not is_lost:
                    is_lost = True
                    tell("Connection to the gateway is lost; trying again.")
            now = time.monotonic()
            failing_since = failing_since or now
            if now - failing_since > GIVE_UP_SECONDS:
                raise self._unreachable()
            time.sleep(pause_seconds)

    def _ask(self, request: _Request) -> JsonObject:
        while True:
            url = self.url
            try:
                return self._ask_here(request)
            except Unavailable as error:
                may_repeat = request.is_repeatable or was_not_done(error)
                if error.code not in ENDED or not may_repeat or not self.move(url, is_ending=_is_ending(error)):
                    raise

    def move(self, ended: str, *, is_ending: bool = False) -> bool:
        """Switches to another gateway after the one at that address ended; False if there is none.

        So it is where that one is still the home's: it has not ended, and does not answer. One that is
        ending is waited for.
        """
        with self._moving:
            if self.url != ended:
                return True
            if self._elsewhere is None:
                return False
            waits_until = time.monotonic() + ENDING_SECONDS
            try:
                while (other := self._elsewhere()).url == ended:
                    other.close()
                    if not is_ending or time.monotonic() > waits_until:
                        return False
                    time.sleep(ENDING_PAUSE_SECONDS)
            except AntiphonError:
                return False
            self._left.append(self.address.http)
            self.address, self._elsewhere = other.address, other._elsewhere
            return True

    def _ask_here(self, request: _Request) -> JsonObject:
        wait = request.parameters.get("wait")
        address = self.address
        limit = ANSWER_SECONDS + (wait if isinstance(wait, float) else request.seconds)
        try:
            response = address.http.request(
                request.method,
                request.path,
                params=_present(request.parameters) or None,  # an empty mapping would take the query out of the path
                json=request.body,
                headers=request.headers,
                timeout=httpx.Timeout(limit, connect=CONNECT_SECONDS),
                extensions={"trace": address.watch_connections},
            )
        except httpx.TransportError as error:
            raise self._unreachable() from error
        except UnicodeEncodeError as error:
            raise not_unicode("Request", error) from error
        if response.is_error:
            raise error_of(response)
        return cast(JsonObject, response.json()) if response.content else {}

    def _unreachable(self) -> Unavailable:
        return Unavailable(
            f"Gateway does not answer: {self.url!r}. `antiphon doctor` says more.", code="gateway_unreachable"
        )


def check_identity(connection: socket, url: str, token: str) -> None:
    """Has the gateway at the other end prove that it knows the token, before that is sent on the same connection.

    Whoever plants an address gets nothing: what the gateway says holds for the address that was dialled alone, so
    that no other program can hand on what it says, and it is said on the connection that the token takes.
    Raises `Denied`, `Unavailable`.
    """
    nonce = secrets.token_hex(32)
    status, said = 0, b""
    try:
        host, port = connection.getpeername()[:2]
        connection.settimeout(PROOF_SECONDS)
        http = HTTPConnection(urlsplit(url).netloc)
        http.sock = connection
        headers = {"Content-Type": "application/json"}
        http.request("POST", "/auth/prove", json.dumps({"nonce": nonce}), headers)
        response = http.getresponse()
        status, said = response.status, response.read(MAX_PROOF_BYTES)
    except OSError as error:
        raise Unavailable(
            f"Gateway does not answer: {url!r}. `antiphon doctor` says more.", code="gateway_unreachable"
        ) from error
    except HTTPException:
        host, port = "", 0
    if status == 503:
        raise Unavailable(f"Gateway is stopping: {url!r}. Try again in a moment.", code="draining")
    wanted = identity_proof(token_hash(token), nonce, host, port)
    try:
        proof = str(json.loads(said)["proof"])
    except (ValueError, KeyError, TypeError, RecursionError):
        proof = ""
    if not hmac.compare_digest(proof.encode(), wanted.encode()):
        raise Denied(
            f"Gateway does not prove that it is this home's: {url!r}. Nothing was sent to it. If you just updated, "
            "start the gateway again. If the owner's token was replaced (`antiphon tokens rotate`) on another machine, "
            "copy owner.token from there. Otherwise another program listens there.",
            code="gateway_unproven",
        )


def new_message_id() -> str:
    return f"msg_{secrets.token_hex(16)[:31]}"


def _is_ending(error: Unavailable) -> bool:
    """Whether the gateway has closed the connection, or takes none: it is about to end. One that hangs is not."""
    cause = error.__cause__
    return isinstance(cause, httpx.TransportError) and not isinstance(cause, httpx.TimeoutException)


def was_not_done(error: Unavailable) -> bool:
    """Whether the gateway is known to have done nothing of what was asked."""
    return error.code == "draining" or isinstance(error.__cause__, httpx.ConnectError)


def session_path(session: str, rest: str = "") -> str:
    return f"/sessions/{quote(session, safe='')}{rest}"


def _present(parameters: Mapping[str, Parameter]) -> dict[str, str | float | bool | list[str]]:
    return {name: value for name, value in parameters.items() if value is not None}


def error_of(response: httpx.Response) -> AntiphonError:
    """What the gateway's refusal says."""
    kind = _ERRORS.get(response.status_code, AntiphonError)
    try:
        error = response.json()["error"]
        return kind(str(error["message"]), code=str(error["code"]))
    except (ValueError, KeyError, TypeError):
        return kind(f"Gateway answered with HTTP {response.status_code}", code="unexpected_answer")


def _events(chunks: Iterator[bytes]) -> Iterator[ServerEvent]:
    """The frames of a stream. Lines end only at newlines here, which the texts inside may not be split by."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n\n")) >= 0:
            frame, buffer = buffer[:end], buffer[end + 2 :]
            yield event_of(frame)


def event_of(frame: bytes) -> ServerEvent:
    """One frame of a stream of server-sent events, without the blank line after it."""
    fields: dict[str, str] = {}
    for line in frame.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name.decode()] = value.decode()
    if "event" not in fields:
        return ServerEvent(name="keep_alive", data={})
    data: JsonValue = json.loads(fields.get("data", "{}"))
    assert isinstance(data, dict)
    number = fields.get("id")
    return ServerEvent(name=fields["event"], data=data, id=None if number is None else int(number))
