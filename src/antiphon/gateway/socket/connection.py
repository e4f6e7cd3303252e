"""One WebSocket: who asks, its requests, and its end. Contract: gateway 2, 5.

Each request is a task. A lost connection cancels waits, never work.
"""

import logging
from typing import Any, Protocol

import anyio
import msgspec

from antiphon.domain.errors import AntiphonError, Conflict, Limited, Unavailable, Unproven
from antiphon.engine.access.credentials import CredentialEnding, Watch
from antiphon.gateway.asgi import Receive, Scope, Send
from antiphon.gateway.authentication import SAFE_METHODS, Authentication, Entry, put_into
from antiphon.gateway.bodies import SMALL_BYTES, body_too_large, limit_of
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.admission import admit
from antiphon.gateway.operations.operation import SocketWaits
from antiphon.gateway.responses import error_of
from antiphon.gateway.socket.frames import (
    PROTOCOL,
    BadFrame,
    ConnectParams,
    Hello,
    RequestFrame,
    ServerShape,
    SocketLimits,
    answer_frame,
    check_protocol,
    error_frame,
    read_request,
)
from antiphon.gateway.socket.lists import SharedLists
from antiphon.gateway.socket.methods import METHODS, find_method
from antiphon.gateway.socket.subscribing import SUBSCRIBING
from antiphon.gateway.socket.subscriptions import MAX_SUBSCRIPTIONS, MAX_WAITING_BYTES, Subscriptions, Wire
from antiphon.gateway.socket_connection import TOO_SLOW
from antiphon.incoming import decode
from antiphon.metrics import READERS, WEBSOCKET
from antiphon.request_ids import ServingRequest, choose_request_id
from antiphon.version import VERSION
from antiphon.wire.errors import ErrorShape

CONNECT_SECONDS = 5.0
MAX_OPEN = 64
"""Requests of one connection that are not answered yet."""
MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_REQUEST_BYTES = MAX_FRAME_BYTES
"""Parameters of the requests of one connection that are not answered yet."""
MAX_ANSWER_BYTES = MAX_FRAME_BYTES
"""Answers of one connection that wait for the client to read, if more than one waits."""
LAST_SECONDS = 3.0
"""For the answers under way when the credential ends or the gateway stops."""
CONNECT = "connect"

logger = logging.getLogger(__name__)

_connect = msgspec.json.Decoder(ConnectParams)


class OpenSocket(Wire, Protocol):
    """The server's side of the socket, in the scope as `antiphon.socket`."""

    @property
    def stall_seconds(self) -> float: ...

    def prove(self) -> None:
        """The caller is known from now on."""
        ...


class SocketGateway:
    """Answers every WebSocket."""

    def __init__(self, gateway: Gateway, authentication: Authentication, *, max_body_bytes: int) -> None:
        self.gateway = gateway
        self.authentication = authentication
        self.max_body_bytes = max_body_bytes
        self.lists = SharedLists(gateway.services.changes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await _ServedSocket(self, scope, receive).run()


class _ServedSocket:
    def __init__(self, server: SocketGateway, scope: Scope, receive: Receive) -> None:
        self._server = server
        self._gateway = server.gateway
        self._services = server.gateway.services
        self._scope = scope
        self._receive = receive
        self._wire: OpenSocket = scope["antiphon.socket"]
        self._open: set[str] = set()
        """Ids of the requests that are not answered yet."""
        self._request_bytes = 0
        self._answer_bytes = 0
        self._is_idle = anyio.Event()
        """Set while no request is open."""
        self._is_idle.set()
        self._waits = SocketWaits()
        self._entry: Entry | None = None
        self._ending: AntiphonError | None = None
        """Why no more requests are begun; None while they are."""
        scope["antiphon.drain"] = self._drain

    async def run(self) -> None:
        """Serves the connection until it is lost or ended, and its work until it is done."""
        with anyio.move_on_after(CONNECT_SECONDS) as greeting:
            self._entry = await self._greet()
        if greeting.cancelled_caught:
            self._wire.end(1008, "No 'connect' came within 5 seconds.")
        if self._entry is None:
            return
        async with anyio.create_task_group() as requests, anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._requests = requests
            self._subscriptions = Subscriptions(self._gateway, self._server.lists, self._wire, tasks)
            watch = self._watch(self._entry)
            try:
                with READERS.during(WEBSOCKET):
                    await self._serve()
            finally:
                self._ending = _DRAINING  # a gateway that stops meanwhile has nothing to end here
                if watch is not None:
                    self._services.credentials.release(watch)
                self._waits.cancel()
                self._subscriptions.close()
                tasks.cancel_scope.cancel()

    async def _greet(self) -> Entry | None:
        """Who asks, by the first frame; None if the connection has ended."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            return None
        id = None
        try:
            frame = read_request(message["bytes"])
            id = frame.id
            if frame.method != CONNECT:
                raise Unproven("First request must be 'connect', with a token.", code="not_connected")
            params = decode(bytes(frame.params), _connect)
            check_protocol(params.protocol)
            entry = await self._find(params)
        except BadFrame as bad:
            self._refuse_connect(bad.id, bad.error)
        except AntiphonError as error:
            self._refuse_connect(id, error)
        else:
            put_into(self._scope, entry)
            self._wire.prove()
            self._wire.write(answer_frame(frame.id, self._hello(entry)))
            return entry
        return None

    def _refuse_connect(self, id: str | None, error: AntiphonError) -> None:
        self._wire.write(error_frame(id, _shape_of(error)))
        self._wire.end(1008, error.code)

    async def _find(self, params: ConnectParams) -> Entry:
        headers: dict[str, str] = dict(self._scope["antiphon.headers"])
        headers.pop("antiphon-page", None)
        if params.token is not None:
            headers["authorization"] = f"Bearer {params.token}"
        if params.page is not None:
            headers["antiphon-page"] = params.page
        return await self._server.authentication.find(self._scope, headers, serves_bound=True, serves_nodes=True)

    def _hello(self, entry: Entry) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            principal=str(entry.principal),
            scopes=sorted(entry.scopes),
            server=ServerShape(version=VERSION),
            limits=SocketLimits(
                frame_bytes=MAX_FRAME_BYTES,
                open_requests=MAX_OPEN,
                subscriptions=MAX_SUBSCRIPTIONS,
                waiting_bytes=MAX_WAITING_BYTES,
                stall_seconds=self._wire.stall_seconds,
            ),
            methods=[*METHODS, *SUBSCRIBING],
        )

    def _watch(self, entry: Entry) -> Watch | None:
        """Ends the connection with its credential."""
        if entry.credential is None:
            return None
        return self._services.credentials.watch(entry.credential, entry.revision, self._end_with)

    def _end_with(self, reason: CredentialEnding) -> None:
        self._ending = _ENDED_BEFORE
        self._subscriptions.close()
        self._tasks.start_soon(self._end_later, 1008, reason.value)

    def _drain(self) -> None:
        """Takes no more requests, lets those under way be answered, and ends the connection."""
        if self._entry is None:
            self._wire.end(1012, "Gateway is stopping.")
        elif self._ending is None:
            self._ending = _DRAINING
            self._tasks.start_soon(self._end_later, 1012, "Gateway is stopping. Connect again in a moment.")

    async def _end_later(self, code: int, reason: str) -> None:
        with anyio.move_on_after(LAST_SECONDS):
            await self._is_idle.wait()
        self._wire.end(code, reason)

    async def _serve(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                self._take(read_request(message.pop("bytes")))
            except BadFrame as bad:
                self._wire.write(error_frame(bad.id, _shape_of(bad.error)))
            if not self._wire.is_writable:
                await self._wire.wait_writable()  # a client that does not read is not read either

    def _take(self, frame: RequestFrame) -> None:
        """Begins to answer the request, or refuses it."""
        refused = self._refusal_of(frame)
        if refused is not None:
            self._wire.write(error_frame(frame.id, _shape_of(refused)))
            return
        self._open.add(frame.id)
        self._request_bytes += len(memoryview(frame.params))
        self._is_idle = anyio.Event() if self._is_idle.is_set() else self._is_idle
        self._requests.start_soon(self._answer, frame)

    def _refusal_of(self, frame: RequestFrame) -> AntiphonError | None:
        """Why the request is not even begun; None if it is."""
        refused: AntiphonError | None = None
        size = len(memoryview(frame.params))
        if self._ending is not None:
            refused = self._ending
        elif frame.id in self._open:
            refused = Conflict(f"Request with this id is open: {frame.id!r}. Give each its own.", code="id_in_use")
        elif len(self._open) >= MAX_OPEN:
            refused = Limited(f"Connection has {MAX_OPEN} open requests. Wait for an answer.", code="busy")
        elif frame.method == CONNECT:
            refused = Conflict("Connection is already connected. Send 'connect' only once.", code="already_connected")
        elif size > (most := self._most_bytes(frame.method)):
            refused = body_too_large(most)
        elif self._open and self._request_bytes + size > MAX_REQUEST_BYTES:
            refused = Limited(
                f"Open requests would hold more than {MAX_REQUEST_BYTES} bytes. Wait for an answer.", code="busy"
            )
        return refused

    def _most_bytes(self, name: str) -> int:
        """The most bytes of the method's parameters; those of a name that is no method are small."""
        method, subscribing = METHODS.get(name), SUBSCRIBING.get(name)
        operation = method.operation if method is not None else subscribing.like if subscribing is not None else None
        most = SMALL_BYTES if operation is None else operation.http.max_body_bytes
        return limit_of(most, self._server.max_body_bytes)

    async def _answer(self, frame: RequestFrame) -> None:
        scope = dict(self._scope)
        watch, request = None, anyio.CancelScope()
        entry = self._entry
        assert entry is not None
        if entry.credential is not None:
            watch = self._services.credentials.watch(entry.credential, entry.revision, lambda reason: request.cancel())
            scope["antiphon.watch"] = watch
        answer, start = error_frame(frame.id, _shape_of(_ENDED)), None
        try:
            with request, ServingRequest(choose_request_id(None, self._services.ids)):
                await self._wire.wait_writable()  # nothing is made for a client that does not read
                made = await self._carry_out(frame, scope)
                await self._wait_to_write(len(made[0]))
                answer, start = made
        except Exception as error:  # every failure gets the same shape
            answer = error_frame(frame.id, error_of(error, frame.method).error)
        finally:
            if watch is not None:
                self._services.credentials.release(watch)
            self._open.discard(frame.id)
            self._request_bytes -= len(memoryview(frame.params))
            if not self._open:
                self._is_idle.set()
        self._wire.write(answer)
        if start is not None:
            start()

    async def _wait_to_write(self, size: int) -> None:
        """Returns once an answer of that size can be written. Ends the connection if too much waits already."""
        if self._wire.is_writable:
            return
        if self._answer_bytes and self._answer_bytes + size > MAX_ANSWER_BYTES:
            self._wire.end(TOO_SLOW, "Client reads its answers too slowly. Connect again and ask for less at once.")
            return
        self._answer_bytes += size
        try:
            await self._wire.wait_writable()
        finally:
            self._answer_bytes -= size

    async def _carry_out(self, frame: RequestFrame, scope: Scope) -> tuple[bytes, Any]:
        """The answer, and what begins once it is written."""
        entry = self._entry
        assert entry is not None
        subscribing = SUBSCRIBING.get(frame.method)
        if subscribing is not None:
            if subscribing.begins:
                self._server.authentication.count(entry)
            request = admit(subscribing.like, self._gateway, scope, waits=self._waits)
            params = decode(bytes(frame.params), subscribing.decoder)
            payload, start = await subscribing.handle(self._subscriptions, request, params)
            return answer_frame(frame.id, payload), start
        method = find_method(frame.method)
        if method.operation.http.method not in SAFE_METHODS:
            self._server.authentication.count(entry)
        request = admit(method.operation, self._gateway, scope, waits=self._waits)
        params = method.read(frame.params, self._server.max_body_bytes)
        return answer_frame(frame.id, await method.call(request, params)), None


_DRAINING = Unavailable("Gateway is stopping. Nothing was done; try again in a moment.", code="draining")
_ENDED_BEFORE = Unproven(
    "Token or sign-in has ended or changed. Nothing was done; connect again.", code="credential_ended"
)
_ENDED = Unproven(
    "Token or sign-in ended before the answer. The request may have been carried out.", code="credential_ended"
)


def _shape_of(error: AntiphonError) -> ErrorShape:
    return error_of(error, "").error
