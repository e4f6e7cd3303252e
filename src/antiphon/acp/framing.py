"""JSON-RPC 2.0 in lines, as ACP uses it over pipes: read within limits, each message checked for its shape alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ByteReceiveStream

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.incoming import holds_more_than

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_LINE_VALUES: Final = 200_000
"""Numbers, texts, lists, objects and names of one message. Reading as many takes 20 ms, and blocks everything else."""
MAX_ID_LENGTH: Final = 200

MessageId: TypeAlias = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall:
    """A request if it has an id, else a notification."""

    method: str
    params: JsonObject
    id: MessageId | None
    size: int
    """Bytes of its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcAnswer:
    """An answer to a request of this side."""

    id: MessageId | None
    result: JsonValue
    error: "RpcError | None"


class RpcError(Exception):
    """An error of JSON-RPC, as received or to be sent."""

    def __init__(self, number: int, text: str, data: JsonValue = None) -> None:
        super().__init__(text)
        self.number = number
        self.text = text
        self.data = data


METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800
AUTH_REQUIRED: Final = -32000


class MessageLines:
    """The lines of a stream of bytes; no more than one line's limit is ever held."""

    def __init__(self, stream: ByteReceiveStream, most: int = MAX_LINE_BYTES) -> None:
        self._stream = stream
        self._most = most
        self._held = bytearray()
        self._searched = 0

    async def next(self) -> bytes | None:
        """The next line that is not empty, without its end; None after the last.

        What stands behind the last line break is lost. Raises `HarnessError` (`acp_protocol`) for a line over the
        limit.
        """
        while True:
            if (end := self._held.find(b"\n", self._searched)) >= 0:
                line = bytes(self._held[:end]).strip()
                del self._held[: end + 1]
                self._searched = 0
                if len(line) > self._most:
                    raise self._too_long()
                if line:
                    return line
                continue
            self._searched = len(self._held)
            if self._searched > self._most:
                raise self._too_long()
            try:
                self._held += await self._stream.receive()
            except (EndOfStream, ClosedResourceError, BrokenResourceError, ConnectionError):
                return None

    def _too_long(self) -> HarnessError:
        self._held.clear()
        return broken(f"it wrote a line of more than {self._most // 1024**2} MiB")


def message_of(line: bytes) -> RpcCall | RpcAnswer:
    """The message of a line. Raises `HarnessError` (`acp_protocol`), which repeats nothing of it."""
    if holds_more_than(MAX_LINE_VALUES, line):
        raise broken(f"it wrote a message of more than {MAX_LINE_VALUES} values")
    try:
        found: object = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken("it wrote a line that is not JSON") from None
    if not isinstance(found, dict):
        raise broken("it wrote JSON that is no message of JSON-RPC")
    message = cast(dict[str, Any], found)
    if message.get("jsonrpc") != "2.0":
        raise broken("it wrote JSON that is no message of JSON-RPC 2.0")
    number = _id_of(message)
    if (method := message.get("method")) is not None:
        params: object = message.get("params")
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            raise broken("it sent a request whose method or parameters have no known form")
        return RpcCall(method=method, params=cast(JsonObject, params or {}), id=number, size=len(line))
    if "error" in message:
        return RpcAnswer(id=number, result=None, error=_error_of(message["error"]))
    if "result" not in message:
        raise broken("it wrote a message that is neither a request nor an answer")
    return RpcAnswer(id=number, result=message["result"], error=None)


def line_of(message: Mapping[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"


def broken(what: str) -> HarnessError:
    return HarnessError(HarnessCode.PROTOCOL, f"Harness does not speak ACP as it must: {what}.")


def _id_of(message: Mapping[str, Any]) -> MessageId | None:
    found = message.get("id")
    if isinstance(found, bool) or not (found is None or isinstance(found, int | str)):
        raise broken("it wrote a message with an id that is neither a number nor a text")
    if isinstance(found, str) and len(found) > MAX_ID_LENGTH:
        raise broken(f"it wrote a message with an id of more than {MAX_ID_LENGTH} characters")
    return found


def _error_of(found: object) -> RpcError:
    error = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    number, text = error.get("code"), error.get("message")
    return RpcError(
        number if isinstance(number, int) else INTERNAL_ERROR, text if isinstance(text, str) else "", error.get("data")
    )
